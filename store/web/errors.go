package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
)

// ErrNoRange means that a server ignores Range requests: it would send the
// whole object for each of them.
var ErrNoRange = errors.New("server ignores range requests, so parts of the object cannot be read")

var (
	// errUnsatisfied is a 416: the range begins past the end.
	errUnsatisfied = errors.New("range past the end")

	// errNoSuffix means that a request for the last bytes was not understood.
	errNoSuffix = errors.New("server does not answer requests for the last bytes")

	errNoSize = errors.New("server does not tell the object's size")

	// net/http reports a connection that was closed before an answer as EOF,
	// which callers would take for the end of the object.
	errDropped = errors.New("connection closed before an answer")
)

// A transient is an error that may pass by itself.
type transient struct {
	err   error
	after time.Duration // what the server asks to wait
	now   bool          // there is no reason to wait
}

func (t *transient) Error() string { return t.err.Error() }

func (t *transient) Unwrap() error { return t.err }

// fail makes err the error of a request to o. off is -1 where there is none.
func (o *object) fail(op string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: op, Name: redact(o.url), Off: off, Len: n, Err: err}
	if t, ok := errors.AsType[*transient](err); ok {
		e.Retry = true
		e.Err = t.err
	}
	return e
}

// refused returns the error for an answer that brings no bytes.
func (st *Store) refused(resp *http.Response) error {
	err := statusError(resp)
	_, passing := errors.AsType[*transient](err)
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
	case mayPass(code):
		return &transient{err: errors.New(text), after: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return errors.New(text)
}

func conditional(req *http.Request) bool {
	return req.Header.Get("If-Match") != "" || req.Header.Get("If-Unmodified-Since") != ""
}

// mayPass reports whether status tells of a server in trouble, not of a
// request that it will never grant.
func mayPass(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented
}

// transportError returns what may be shown of err, with which net/http answered
// a request to u instead of a response.
func (st *Store) transportError(ctx, reqCtx context.Context, err error, u *url.URL) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errSilent) || errors.Is(context.Cause(reqCtx), errSilent) {
		return &transient{err: errSilent}
	}
	// A url.Error holds the whole address, with its signed query.
	for {
		ue, ok := errors.AsType[*url.Error](err)
		if !ok {
			break
		}
		err = ue.Err
	}
	if errors.Is(err, errRedirects) || errors.Is(err, errRedirectScheme) {
		return err
	}
	if strings.Contains(err.Error(), "Location header") {
		// net/http quotes the header, in which another server may have put
		// an address that it signed.
		return errors.New("redirect to a malformed address")
	}
	if st.secret(err.Error(), u) {
		return &transient{err: errors.New("transport error whose text holds a credential")}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &transient{err: errDropped}
	}
	if hopeless(err) {
		return err
	}
	return &transient{err: err}
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
