// Package web reads objects from web servers, by HTTP range requests.
//
// It is for programs that build a store themselves; those that only have an
// address leave it to package store/all.
//
// A server need not do more than answer GET with a Range. HEAD is never sent,
// since presigned addresses are signed for one method. In a browser the server
// must also expose Content-Range, and should expose ETag, to scripts from
// elsewhere (Access-Control-Expose-Headers).
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// Options are how a Store speaks to its server. Zero means the default.
type Options struct {
	// Client sends the requests; its redirect policy is asked, too. The
	// default has timeouts for all but the body, which may take as long as
	// it does not stall.
	Client *http.Client

	// Header is added to each request to the base's own host, and withheld
	// from hosts to which that one redirects.
	Header http.Header

	// Tries is how often a request is sent that brings nothing, or next to
	// nothing, before its error is returned; 6 by default. Only what may
	// pass by itself is tried again.
	Tries int

	// Log gets a line at level debug for each request; silent by default.
	Log *slog.Logger

	// Explain may tell, from its body, what an answer that is no success means:
	// why a request was refused. Nil leaves it to the status, and so does an
	// answer that may pass by itself.
	Explain func(*http.Response) error

	// Sums may tell from an answer, whose body is not read, which checksums the
	// server has of the object.
	Sums func(*http.Response) []store.Sum

	// Headers may tell from an answer what the server keeps with the object. A
	// Content-Encoding is then what somebody said of the object when it was sent, and
	// its own bytes are those that are stored. Without it, it is refused.
	Headers func(http.Header) map[string]string

	// Keys says that names are keys of a bucket, byte for byte: a slash in front belongs to
	// them, and so do dots between slashes, which are escaped. Whoever sets it sees to it that
	// an answer is of the object that was meant.
	Keys bool

	// Parallel is how many idle connections to a host are kept, 16 by
	// default. It is of no effect with a Client.
	Parallel int
}

const defaultParallel = 16

// A Store is what lies below one address. Its names are plain text, not
// escaped, relative to that address.
type Store struct {
	base   *url.URL      // ends in a slash; without userinfo
	user   *url.Userinfo // sent to the base's own host only
	header http.Header
	agent  string // the User-Agent, which is no secret
	client *http.Client
	tries  int
	log    *slog.Logger
	why    func(*http.Response) error
	sums   func(*http.Response) []store.Sum
	heads  func(http.Header) map[string]string
	jitter func(time.Duration) time.Duration
	keys   bool // as Options has it

	// exact is the address that At was given, byte for byte: how it is
	// escaped may be what a signature in it covers.
	exact     *url.URL
	exactName string

	// noSuffix is set once the server has shown that it does not answer
	// requests for the last bytes, but others.
	noSuffix atomic.Bool
}

// Open finds the store and the object's name behind an http:// or https://
// address. It is for store.Register.
func Open(_ context.Context, address string) (store.Store, string, error) {
	st, name, err := At(address, Options{})
	if err != nil {
		return nil, "", err
	}
	return st, name, nil
}

// At is Open with options. The store is that of all objects beside the one
// addressed, whose name is the last part of the path. A query belongs to that
// object alone, and is no part of its name.
func At(address string, o Options) (st *Store, name string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse quotes the part that it stumbled on, which
		// may be a password.
		return nil, "", errors.New("malformed web address (not shown, since it may hold a password)")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, "", fmt.Errorf("%s:…: expected http://host/… or https://host/…: %w", u.Scheme, errors.ErrUnsupported)
	}
	path := u.EscapedPath()
	dir, last := path[:strings.LastIndex(path, "/")+1], path[strings.LastIndex(path, "/")+1:]
	if name, err = url.PathUnescape(last); err != nil {
		return nil, "", fmt.Errorf("%s: malformed address", redact(u))
	}
	base := *u
	base.Path, base.RawPath = strings.TrimSuffix(u.Path, name), dir
	base.RawQuery, base.ForceQuery = "", false
	st = New(&base, o)
	exact := *u
	exact.User, exact.Fragment, exact.RawFragment = nil, "", ""
	st.exact, st.exactName = &exact, name
	return st, name, nil
}

// New returns the store of the objects below base. A user and password in base
// are sent to its own host; a query (a token for a whole container) is sent
// with the address of every object.
func New(base *url.URL, o Options) *Store {
	b := *base
	st := &Store{
		base:   &b,
		user:   base.User,
		header: o.Header.Clone(),
		agent:  cmp.Or(o.Header.Get("User-Agent"), "holdall"),
		tries:  cmp.Or(max(0, o.Tries), far.DefaultTries),
		log:    cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		why:    o.Explain,
		sums:   o.Sums,
		heads:  o.Headers,
		keys:   o.Keys,
		jitter: far.Jitter,
	}
	b.User, b.Fragment, b.RawFragment = nil, "", ""
	if !strings.HasSuffix(b.Path, "/") {
		b.Path, b.RawPath = b.Path+"/", b.EscapedPath()+"/"
	}
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	} else {
		client.Transport = transport(cmp.Or(max(0, o.Parallel), defaultParallel))
	}
	client.CheckRedirect = st.checkRedirect(client.CheckRedirect)
	st.client = &client
	return st
}

// transports holds one transport for each number of idle connections, so that
// the stores of a program share connections.
var transports sync.Map

// Transport is what requests go through where Options name no Client, for those who
// put something before it.
func Transport() http.RoundTripper { return transport(defaultParallel) }

func transport(parallel int) *http.Transport {
	if t, ok := transports.Load(parallel); ok {
		return t.(*http.Transport)
	}
	// A clone of the default keeps what the platform needs: without a dial
	// function of its own it uses fetch in a browser.
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
	}
	t.MaxIdleConnsPerHost = parallel
	t.MaxIdleConns = max(100, 4*parallel)
	t.IdleConnTimeout = 90 * time.Second
	t.TLSHandshakeTimeout = 15 * time.Second
	t.ResponseHeaderTimeout = 45 * time.Second
	got, _ := transports.LoadOrStore(parallel, t)
	return got.(*http.Transport)
}

// Can says that objects have addresses, and are opened as they were listed elsewhere.
func (st *Store) Can() store.Abilities {
	return store.Abilities{Address: st.Address, OpenAs: st.OpenAs, OpenGrowing: st.OpenGrowing}
}

// Open returns the named object. It sends no request.
func (st *Store) Open(_ context.Context, name string) (store.Object, error) {
	u, err := st.resolve(name)
	if err != nil {
		return nil, &store.Error{Op: "open", Name: fmt.Sprintf("%s %q", redact(st.base), name), Off: -1, Err: err}
	}
	return &object{st: st, name: name, url: u, ver: version{size: -1}}, nil
}

// OpenGrowing returns an object that is only written to at its end: it is what the first
// answer tells of it, whatever it grows to. It sends no request.
func (st *Store) OpenGrowing(ctx context.Context, name string) (store.Object, error) {
	o, err := st.Open(ctx, name)
	if err == nil {
		o.(*object).ver.grows = true
	}
	return o, err
}

// OpenAs returns the version of an object that info tells of, and sends no request. A
// Version that is no ETag holds nobody to anything.
func (st *Store) OpenAs(ctx context.Context, info store.Info) (store.Object, error) {
	o, err := st.Open(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	v := &o.(*object).ver
	v.size = info.Size
	if strings.HasPrefix(info.Version, `"`) {
		v.etag, v.answered = info.Version, true
	}
	return o, nil
}

// retrier is for one read.
func (st *Store) retrier() *far.Retrier { return &far.Retrier{Tries: st.tries, Jitter: st.jitter} }

// resolve returns the address of the named object.
func (st *Store) resolve(name string) (*url.URL, error) {
	if st.base.Scheme != "http" && st.base.Scheme != "https" || st.base.Host == "" {
		return nil, fmt.Errorf("expected a store at http://host/ or https://host/: %w", errors.ErrUnsupported)
	}
	if st.exact != nil && name == st.exactName {
		return st.exact, nil
	}
	if name == "" || !st.keys {
		if err := far.CheckName(name); err != nil {
			return nil, err
		}
		// Clients, proxies and servers resolve these, so they are no names,
		// and might lead out of the store.
		if err := far.CheckDots(name); err != nil {
			return nil, err
		}
	}
	return far.Below(st.base, name), nil
}

// Address returns the named object's address, without what may be a secret in it.
func (st *Store) Address(name string) string {
	u, err := st.resolve(name)
	if err != nil {
		return ""
	}
	plain := *u
	plain.User, plain.RawQuery, plain.ForceQuery, plain.Fragment, plain.RawFragment = nil, "", false, "", ""
	return plain.String()
}

// redact returns u as it may be printed. A user is left out too: it may be a
// token that needs no password.
func redact(u *url.URL) string {
	c := *u
	c.User = nil
	return store.Redact(c.String())
}

// trusts reports whether the credentials of st may be sent to u: to the
// store's own host, or to the same host where it moved from http to https.
func (st *Store) trusts(u *url.URL) bool {
	if !strings.EqualFold(u.Hostname(), st.base.Hostname()) {
		return false
	}
	own, other := port(st.base), port(u)
	return u.Scheme == st.base.Scheme && own == other ||
		st.base.Scheme == "http" && own == "80" && u.Scheme == "https" && other == "443"
}

func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
}

// authorize adds what only the store's own host may see.
func (st *Store) authorize(h http.Header, u *url.URL) {
	if !st.trusts(u) {
		return
	}
	for k, v := range st.header {
		h[k] = slices.Clone(v)
	}
	if st.user != nil && h.Get("Authorization") == "" {
		password, _ := st.user.Password()
		r := http.Request{Header: h}
		r.SetBasicAuth(st.user.Username(), password)
	}
}

const maxRedirects = 10

var (
	errRedirects      = fmt.Errorf("more than %d redirects", maxRedirects)
	errRedirectScheme = errors.New("redirect to an address that is neither http nor https")
)

// checkRedirect returns the redirect policy. It does not leave to net/http
// which headers go where: that would send credentials to subdomains too, and
// the address with its signed query, as Referer, to anyone.
func (st *Store) checkRedirect(also func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errRedirects
		}
		if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
			return errRedirectScheme
		}
		kept := http.Header{}
		for _, k := range protocolHeaders {
			if v := via[0].Header.Values(k); len(v) > 0 {
				kept[k] = v
			}
		}
		req.Header = kept
		st.authorize(req.Header, req.URL)
		if also != nil {
			return also(req, via)
		}
		return nil
	}
}
