package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// A forward leads to the gateway that owns a bucket.
type forward struct{ to *url.URL }

// openOrForward opens a bucket. If another gateway owns it and can be reached, it forwards to that.
func (g *Gateway) openOrForward(ctx context.Context, name string) error {
	err := g.open(ctx, name)
	claim, claimed := errors.AsType[*ClaimError](err)
	if !claimed || claim.Address == "" {
		return err
	}
	to, perr := url.Parse(claim.Address)
	if perr != nil || to.Host == "" || claim.Address == g.o.Address {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.others[name] = &forward{to}
	return nil
}

// Elsewhere implements [serve.Keeper].
func (g *Gateway) Elsewhere(ctx context.Context, name string) http.Handler {
	g.mu.Lock()
	f := g.others[name]
	g.mu.Unlock()
	if f == nil {
		return nil
	}
	return &httputil.ReverseProxy{
		// The host is that of the client: its signature has it.
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = f.to.Scheme, f.to.Host },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.o.Logger.Warn("cannot be forwarded", "bucket", name, "to", f.to.String(), "error", err)
			g.again(context.WithoutCancel(ctx), name, f)
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}
}

// again opens a bucket whose owner cannot be reached: it may have left, or be at another address.
func (g *Gateway) again(ctx context.Context, name string, f *forward) {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	is := g.others[name] == f
	g.mu.Unlock()
	if !is { // another request has done it
		return
	}
	if err := g.openOrForward(ctx, name); err != nil {
		g.o.Logger.Warn("cannot be opened", "bucket", name, "error", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.others[name] == f {
		delete(g.others, name)
	}
}
