package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/holdall/holdall/store/internal/far"
)

// tail reads the last bytes. Servers react differently to a request for the last bytes:
//
//   - Most support it.
//   - Some (gofakes3, rclone) refuse it with 416 if it requests more than there is.
//   - Some (Azure) refuse it, with 400, 501 or others.
//   - Some (PyPI, and servers without ranges) ignore it and send the whole object with 200. That
//     is used if the object is not longer than the request.
//   - Some take "-N" for "0-N".
//
// In the last four cases the size is requested, if the response does not contain it, and then a
// plain range.
func (o *object) tail(ctx context.Context, p []byte, again *far.Retrier) (int, error) {
	refused := false
	if o.ver.known() < 0 && !o.st.noSuffix.Load() {
		n, err := o.suffix(ctx, p, again)
		if !errors.Is(err, errNoSuffix) {
			return n, err
		}
		refused = errors.Is(err, errRefused)
	}
	if o.ver.known() < 0 {
		if err := o.learnSize(ctx, again); err != nil {
			return 0, err
		}
	}
	size := o.ver.known()
	p = p[:min(int64(len(p)), size)]
	n, err := o.fetch(ctx, p, size-int64(len(p)), exactly, again)
	if err == nil && refused {
		o.st.noSuffix.Store(true)
	}
	return n, err
}

// errRefused is an errNoSuffix that applies to every object of the server.
var errRefused = fmt.Errorf("%w", errNoSuffix)

// suffix requests the last bytes. If the error wraps errNoSuffix, they must be read in another
// way; the size may be known then.
func (o *object) suffix(ctx context.Context, p []byte, again *far.Retrier) (int, error) {
	for {
		n, k, err := o.attemptSuffix(ctx, p)
		if err == nil {
			return n, nil
		}
		if err := again.Again(ctx, err, k); err != nil {
			return k, err
		}
		if size := o.ver.known(); size >= 0 {
			// The body was cut off, so only the rest is missing.
			p = p[:min(int64(len(p)), size)]
			m, err := o.fetch(ctx, p[k:], size-int64(len(p)-k), exactly, again)
			return k + m, err
		}
	}
}

// attemptSuffix sends one request for the last bytes. It returns how many there are, and how many
// arrived.
func (o *object) attemptSuffix(ctx context.Context, p []byte) (n, k int, err error) {
	resp, err := o.get(ctx, span{-1, int64(len(p))})
	if err != nil {
		return 0, 0, err
	}
	defer discard(resp)
	switch code := resp.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
	case code == http.StatusRequestedRangeNotSatisfiable:
		if err := o.ver.agree(unsatisfiedSize(resp), nil, false); err != nil {
			return 0, 0, err
		}
		return 0, 0, errNoSuffix
	default:
		err := o.st.refused(resp)
		if refusal(code) {
			err = errRefused
		}
		return 0, 0, err
	}
	got, err := o.st.parsePart(resp)
	if err != nil {
		return 0, 0, err
	}
	if got.size < 0 && !got.whole && got.n <= int64(len(p)) && (got.off == 0 || got.n == int64(len(p))) {
		// The last byte of the response is the last byte of the object.
		got.size = got.off + got.n
	}
	if err := o.heard(got.size, resp.Header); err != nil {
		return 0, 0, err
	}
	if o.ver.grows && got.size != o.ver.known() {
		return 0, 0, errNoSuffix // another response came first, and the object has grown since
	}
	if got.whole && got.n <= mostWhole {
		all, err := o.keep(ctx, resp, got.n, int64(len(p)))
		n = copy(p, all[len(all)-min(len(all), len(p)):])
		return n, n, err
	}
	if got.size < 0 || got.off+got.n != got.size || got.n != min(got.size, int64(len(p))) {
		if got.whole {
			return 0, 0, errNoSuffix
		}
		return 0, 0, errRefused
	}
	k, err = readBody(resp, p[:got.n])
	if err != nil && got.whole {
		k = 0 // a server without ranges cannot continue it
	}
	return int(got.n), k, err
}

// refusal reports whether a status may refer to the kind of range, so that another kind is worth
// a request.
func refusal(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone,
		http.StatusProxyAuthRequired, http.StatusPreconditionFailed:
		return false
	}
	return status >= 400 && !far.MayPass(status)
}
