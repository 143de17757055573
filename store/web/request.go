package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// headWait is how long a response may take to begin, including connecting and redirects. It
	// also applies to clients that have no timeouts of their own.
	headWait = time.Minute

	// idleWait is how long no data may arrive while a body is read.
	idleWait = 30 * time.Second

	// drained is how much of an unwanted body is read so that its connection can be reused. For
	// more, a new connection is cheaper.
	drained = 64 << 10
)

var (
	errSilent  = fmt.Errorf("no answer within %v", headWait)
	errStalled = fmt.Errorf("no data for %v", idleWait)
)

// protocolHeaders are the headers that a request needs wherever it is redirected to.
var protocolHeaders = []string{"Range", "Accept-Encoding", "If-Match", "If-Unmodified-Since", "User-Agent"}

type span struct{ off, n int64 }

func (s span) header() string {
	if s.off < 0 {
		return "bytes=-" + strconv.FormatInt(s.n, 10)
	}
	return "bytes=" + strconv.FormatInt(s.off, 10) + "-" + strconv.FormatInt(s.off+s.n-1, 10)
}

// get requests a range of o. It uses the address to which an earlier request was redirected, if
// there is one. Such addresses are often signed for a few minutes only; if one is refused or
// cannot be reached, get uses the address of o again.
func (o *object) get(ctx context.Context, want span) (*http.Response, error) {
	kept := o.kept.Load()
	u := cmp.Or(kept, o.url)
	resp, err := o.send(ctx, u, want)
	if kept != nil && ctx.Err() == nil && (err != nil || expired(resp.StatusCode)) {
		o.kept.CompareAndSwap(kept, nil)
		if err == nil {
			discard(resp)
		}
		u = o.url
		resp, err = o.send(ctx, u, want)
	}
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		if at := resp.Request.URL; at != u && at.String() != u.String() {
			o.kept.Store(at)
		}
	}
	return resp, nil
}

// expired reports whether status is a possible response to an expired signed address. Amazon
// sometimes responds with a plain 400.
func expired(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// send sends one request and follows redirects. The caller must close the body of the response. A
// read of the body fails if it stalls.
func (o *object) send(ctx context.Context, u *url.URL, want span) (*http.Response, error) {
	ctx2, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(headWait, func() { cancel(errSilent) })

	h := http.Header{}
	o.st.authorize(h, u)
	h.Set("User-Agent", o.st.agent)
	h.Set("Range", want.header())
	// With anything but the object's own bytes, offsets would have no meaning.
	h.Set("Accept-Encoding", "identity")
	if k, v := o.ver.condition(); k != "" {
		h.Set(k, v)
	}
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: h}).WithContext(ctx2)

	start := time.Now()
	resp, err := o.st.client.Do(req)
	stopped := timer.Stop()
	if err == nil && !stopped {
		// The response arrived when the time was up, so its body is cancelled.
		_ = resp.Body.Close()
		err = errSilent
	}
	if err != nil {
		err = o.st.transportError(ctx, ctx2, err, u)
		cancel(nil)
	}
	if o.st.log.Enabled(ctx, slog.LevelDebug) {
		o.st.log.LogAttrs(ctx, slog.LevelDebug, "request", o.logged(u, want, resp, err, time.Since(start))...)
	}
	if err != nil {
		return nil, err
	}
	o.st.heard.Store(true)
	idle := time.AfterFunc(idleWait, func() { cancel(errStalled) })
	resp.Body = &body{ReadCloser: resp.Body, idle: idle, ctx: ctx2, cancel: cancel}
	return resp, nil
}

func (o *object) logged(u *url.URL, want span, resp *http.Response, err error, took time.Duration) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("object", redact(u)),
		slog.Int64("off", want.off),
		slog.Int64("len", want.n),
		slog.Duration("took", took),
	}
	if err != nil {
		return append(attrs, slog.String("err", err.Error()))
	}
	return append(attrs, slog.Int("status", resp.StatusCode))
}

// body cancels its request if no data arrives for idleWait.
type body struct {
	io.ReadCloser
	idle   *time.Timer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	b.idle.Reset(idleWait)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *body) Close() error {
	b.idle.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// discard closes a response whose body is not needed. It reads the body of an error to its end,
// so that the connection can be reused.
func discard(resp *http.Response) {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent: // the object itself
	default:
		if 0 <= resp.ContentLength && resp.ContentLength <= drained {
			// An error here only costs the connection.
			_, _ = io.CopyN(io.Discard, resp.Body, drained)
		}
	}
	_ = resp.Body.Close()
}
