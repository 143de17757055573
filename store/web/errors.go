package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// ErrNoRange means that a server ignores range requests, and would send the whole object for each
// of them, which is more than fits in memory.
var ErrNoRange = errors.New("server has no ranges, so parts of the object cannot be read: download it, or use a server with ranges, such as 'holdall serve' or nginx")

var (
	// errUnsatisfied is a response with status 416: the range begins past the end.
	errUnsatisfied = errors.New("range past the end")

	// errNoSuffix means that the server does not support requests for the last bytes.
	errNoSuffix = errors.New("server does not answer requests for the last bytes")

	errNoSize = errors.New("server does not report the object's size")
)

// fail wraps err as that of a request for o; nil stays nil. off is -1 if there is no range.
func (o *object) fail(op string, off, n int64, err error) error {
	if err == nil {
		return nil // nothing needs to be redacted
	}
	return far.Fail(op, redact(o.url), off, n, err)
}

// refused returns the error for a response without data.
func (st *Store) refused(resp *http.Response) error {
	err := statusError(resp)
	_, passing := errors.AsType[*far.Passing](err)
	if st.why == nil || passing || errors.Is(err, store.ErrChanged) {
		return err
	}
	return cmp.Or(st.why(resp), err)
}

// statusError returns the error for the status of a response.
func statusError(resp *http.Response) error {
	code := resp.StatusCode
	// The server's own text is not used: it may have any length and may repeat what it was sent.
	text := strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
	switch {
	case code == http.StatusNotFound || code == http.StatusGone:
		return fmt.Errorf("%s: %w", text, fs.ErrNotExist)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("%s: %w", text, fs.ErrPermission)
	case code == http.StatusPreconditionFailed && conditional(resp.Request):
		return fmt.Errorf("%s: %w", text, store.ErrChanged)
	case far.MayPass(code):
		return &far.Passing{Err: errors.New(text), After: far.RetryAfter(resp.Header)}
	}
	return errors.New(text)
}

func conditional(req *http.Request) bool {
	return req.Header.Get("If-Match") != "" || req.Header.Get("If-Unmodified-Since") != ""
}

// transportError returns a printable error for err, which net/http returned for a request to u.
func (st *Store) transportError(ctx, reqCtx context.Context, err error, u *url.URL) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errSilent) || errors.Is(context.Cause(reqCtx), errSilent) {
		return &far.Passing{Err: errSilent}
	}
	// A url.Error contains the whole address, with its signed query.
	err = far.Unaddressed(err)
	if errors.Is(err, errRedirects) || errors.Is(err, errRedirectScheme) {
		return err
	}
	if strings.Contains(err.Error(), "Location header") {
		// net/http quotes the header, which may contain an address that another server signed.
		return errors.New("redirect to a malformed address")
	}
	if st.secret(err.Error(), u) {
		return &far.Passing{Err: errors.New("transport error (text hidden, since it contains a credential)")}
	}
	if far.Hopeless(err) {
		return err
	}
	return &far.Passing{Err: far.Dropped(err)}
}

// minSecret is the shortest credential that is searched for in a text, because values of a query
// such as 1 or true are everywhere.
const minSecret = 4

// secret reports whether text contains a credential of st or of the query of u. Errors of
// net/http do not, but a program's own transport may return anything.
func (st *Store) secret(text string, u *url.URL) bool {
	holds := func(s string) bool { return len(s) >= minSecret && strings.Contains(text, s) }
	if st.user != nil {
		password, _ := st.user.Password()
		if holds(password) || holds(st.user.Username()) {
			return true
		}
	}
	sent := http.Header{}
	st.authorize(sent, st.base)
	for _, values := range sent {
		for _, v := range values {
			// "Basic" and "Bearer" alone are not secret, but what follows them is.
			if fields := strings.Fields(v); len(fields) > 0 && holds(fields[len(fields)-1]) {
				return true
			}
		}
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(value)
		if holds(value) || err == nil && holds(plain) {
			return true
		}
	}
	return false
}
