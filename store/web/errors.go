package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

// ErrNoRange means that a server ignores Range requests: it would send the
// whole object for each of them.
var ErrNoRange = errors.New("server ignores range requests, so parts of the object cannot be read")

var (
	// errUnsatisfied is a 416: the range begins past the end.
	errUnsatisfied = errors.New("range past the end")

	// errNoSuffix means that a request for the last bytes was not understood.
	errNoSuffix = errors.New("server does not answer requests for the last bytes")

	errNoSize = errors.New("server does not report the object's size")
)

// fail makes err the error of a request to o. off is -1 where there is none.
func (o *object) fail(op string, off, n int64, err error) error {
	if err == nil {
		return nil // and nothing is redacted for it
	}
	return far.Fail(op, redact(o.url), off, n, err)
}

// refused returns the error for an answer that brings no bytes.
func (st *Store) refused(resp *http.Response) error {
	err := statusError(resp)
	_, passing := errors.AsType[*far.Passing](err)
	if st.why == nil || passing || errors.Is(err, store.ErrChanged) {
		return err
	}
	return cmp.Or(st.why(resp), err)
}

// statusError returns what the status of an answer means.
func statusError(resp *http.Response) error {
	code := resp.StatusCode
	// The server's own words are not used: they are of any length and may
	// repeat what it was sent.
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

// transportError returns what may be shown of err, with which net/http answered
// a request to u instead of a response.
func (st *Store) transportError(ctx, reqCtx context.Context, err error, u *url.URL) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errSilent) || errors.Is(context.Cause(reqCtx), errSilent) {
		return &far.Passing{Err: errSilent}
	}
	// A url.Error holds the whole address, with its signed query.
	err = far.Unaddressed(err)
	if errors.Is(err, errRedirects) || errors.Is(err, errRedirectScheme) {
		return err
	}
	if strings.Contains(err.Error(), "Location header") {
		// net/http quotes the header, in which another server may have put
		// an address that it signed.
		return errors.New("redirect to a malformed address")
	}
	if st.secret(err.Error(), u) {
		return &far.Passing{Err: errors.New("transport error (text hidden, since it contains a credential)")}
	}
	if hopeless(err) {
		return err
	}
	return &far.Passing{Err: far.Dropped(err)}
}

// hopeless reports whether a transport error will not pass by itself.
func hopeless(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	// A transport that signs may have nothing to sign with.
	return errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, fs.ErrPermission)
}

// minSecret is the length from which a credential is looked for in a text: a
// query's 1 or true is everywhere.
const minSecret = 4

// secret reports whether text holds a credential of st or of the query of u.
// What net/http says by itself does not, but a program's own transport may
// say anything.
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
			// "Basic" and "Bearer" alone are no secrets, what follows is.
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
