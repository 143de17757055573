package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

// object is one version of the object at an address: the version of the first response. Its size
// need not be known before; the first response of any kind contains it.
type object struct {
	st     *Store
	name   string
	url    *url.URL
	kept   atomic.Pointer[url.URL] // the address that url redirects to, once it has responded
	closed atomic.Bool
	ver    version
	sums   atomic.Pointer[[]store.Sum] // came with the first response
	heads  atomic.Pointer[map[string]string]
	unkept atomic.Pointer[[]string]

	keeping sync.Mutex        // held while all is fetched
	all     []byte            // all bytes, if the server has no ranges; guarded by st.whole.mu
	sum     [sha256.Size]byte // of all, once it was fetched; guarded by keeping
}

// usable returns why no request can be sent, or nil if one can.
func (o *object) usable(ctx context.Context) error {
	if o.closed.Load() {
		return fs.ErrClosed
	}
	return ctx.Err()
}

func (o *object) Close() error {
	o.closed.Store(true)
	o.st.whole.drop(o)
	return nil
}

// Info returns the object's size and version. It sends a request only if none has been sent yet.
func (o *object) Info(ctx context.Context) (store.Info, error) {
	err := o.usable(ctx)
	if err == nil && o.ver.known() < 0 {
		err = o.learnSize(ctx, o.st.retrier())
	}
	if err != nil {
		return store.Info{}, o.fail("info", -1, 0, err)
	}
	return o.ver.info(o.name), nil
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	err := o.usable(ctx)
	switch {
	case err != nil:
	case off < 0:
		err = errors.New("negative offset")
	case off > math.MaxInt64-int64(len(p)):
		err = io.ErrUnexpectedEOF
	default:
		_, err = o.fetch(ctx, p, off, exactly, o.st.retrier())
	}
	return o.fail("read", off, int64(len(p)), err)
}

func (o *object) Can() store.ObjectAbilities {
	can := store.ObjectAbilities{ReadEnd: o.readEnd}
	if o.st.sums != nil {
		can.Sums = func(context.Context) ([]store.Sum, error) {
			if known := o.sums.Load(); known != nil {
				return *known, nil
			}
			return nil, nil
		}
	}
	if o.st.heads != nil {
		can.Headers = func(context.Context) (map[string]string, error) { return o.headers() }
		can.Unkept = func() []string {
			if known := o.unkept.Load(); known != nil {
				return *known
			}
			return nil
		}
	}
	return can
}

// headers returns the headers of the first response, or nil if there was none.
func (o *object) headers() (map[string]string, error) {
	known := o.heads.Load()
	if known == nil {
		return nil, nil
	}
	n := 0
	for name, value := range *known {
		n += len(name) + len(value)
	}
	if n > storekit.MaxHeaders {
		return nil, o.fail("headers", -1, 0, fmt.Errorf("%d bytes of headers: expected at most %d", n, storekit.MaxHeaders))
	}
	return *known, nil
}

// heard stores what a response contains about the object.
func (o *object) heard(size int64, h http.Header) error {
	if err := o.ver.agree(size, h, true); err != nil {
		return err
	}
	if o.st.heads != nil && o.heads.Load() == nil {
		all, unkept := o.st.heads(h), []string(nil)
		for name := range all {
			if !storekit.IsHeader(name) {
				unkept = append(unkept, name)
				delete(all, name)
			}
		}
		o.unkept.Store(&unkept)
		o.heads.Store(&all)
	}
	return nil
}

// Heard gives an object of this package the header of a response to a HEAD request. This package
// itself does not send HEAD requests.
func Heard(of store.Object, h http.Header) error {
	o := of.(*object)
	size, ok := parseCount(h.Get("Content-Length"))
	if !ok {
		size = -1
	}
	if o.st.sums != nil && o.sums.Load() == nil {
		sums := o.st.sums(&http.Response{StatusCode: http.StatusOK, Header: h})
		o.sums.Store(&sums)
	}
	return o.fail("head", -1, 0, o.heard(size, h))
}

// readEnd reads the beginning of the object and learns its size with one request. It does the
// same for the end, if the server supports requests for the last bytes; otherwise it takes two or
// three requests.
func (o *object) readEnd(ctx context.Context, p []byte, tail bool) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	op := "head"
	if tail {
		op = "tail"
	}
	err = o.usable(ctx)
	switch {
	case err != nil:
	case tail:
		n, err = o.tail(ctx, p, o.st.retrier())
	default:
		n, err = o.fetch(ctx, p, 0, upTo, o.st.retrier())
	}
	return n, o.fail(op, -1, int64(len(p)), err)
}

// reach is how a range that extends past the end is treated.
type reach int

const (
	exactly reach = iota // it is an error
	upTo                 // it is shortened
	sized                // so, too, but only the size is needed
)

// fetch reads a range into p, with as many requests as necessary, and returns the number of bytes
// in p.
func (o *object) fetch(ctx context.Context, p []byte, off int64, r reach, again *far.Retrier) (n int, err error) {
	for {
		if size := o.ver.known(); size >= 0 && off+int64(len(p)) > size {
			if r == exactly {
				return n, io.ErrUnexpectedEOF
			}
			p = p[:max(0, size-off)]
			if n > len(p) {
				return n, fmt.Errorf("received %d bytes of an object of %d: %w", off+int64(n), size, store.ErrChanged)
			}
		}
		if n == len(p) {
			return n, nil
		}
		if all := o.st.whole.of(o); all != nil {
			return n + copy(p[n:], all[off+int64(n):]), nil
		}
		k, err := o.attempt(ctx, p[n:], off+int64(n), r)
		n += k
		switch {
		case err == nil:
		case errors.Is(err, errUnsatisfied) && o.ver.known() < 0:
			if n == 0 && off > 0 {
				return 0, io.ErrUnexpectedEOF
			}
			// The bytes up to here exist, and the next does not.
			if err := o.ver.agree(off+int64(n), nil, false); err != nil {
				return n, err
			}
		case errors.Is(err, errUnsatisfied): // the response contained the size
		default:
			if err := again.Again(ctx, err, k); err != nil {
				return n, err
			}
		}
	}
}

// attempt sends one request for a range and returns the number of bytes that arrived, from the
// beginning. If err is nil, p is full or has everything up to the end of the object.
func (o *object) attempt(ctx context.Context, p []byte, off int64, r reach) (int, error) {
	want := span{off, int64(len(p))}
	resp, err := o.get(ctx, want)
	if err != nil {
		return 0, err
	}
	defer discard(resp)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusRequestedRangeNotSatisfiable:
		return 0, o.unsatisfied(resp, off)
	default:
		return 0, o.st.refused(resp)
	}
	got, err := o.st.parsePart(resp)
	if err != nil {
		return 0, err
	}
	if err := o.heard(got.size, resp.Header); err != nil {
		return 0, err
	}
	if o.st.sums != nil && o.sums.Load() == nil {
		sums := o.st.sums(resp)
		o.sums.Store(&sums)
	}
	if r == exactly && got.size >= 0 && off+want.n > got.size {
		return 0, io.ErrUnexpectedEOF
	}
	more := got.whole && (off != 0 || got.n > want.n)
	switch {
	case more && r == sized:
		return 0, ErrNoRange
	case more && got.n > mostWhole:
		return 0, errTooLong
	case got.whole && got.n <= mostWhole:
		all, err := o.keep(ctx, resp, got.n, want.n)
		if err == nil && r == exactly && off+want.n > int64(len(all)) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		return copy(p, all[min(off, int64(len(all))):]), nil
	}
	if got.whole {
		n, err := readBody(resp, p[:got.n])
		if err != nil {
			// The read cannot be continued, because this server sends only the whole object.
			return 0, err
		}
		return n, nil
	}
	if got.n == 0 && got.size == 0 {
		return 0, nil
	}
	if got.off != off || got.n > want.n {
		return 0, fmt.Errorf("requested %s, found Content-Range %.100q", want.header(), resp.Header.Get("Content-Range"))
	}
	n, err := readBody(resp, p[:got.n])
	if err == nil && got.n < want.n && off+got.n != got.size {
		// A server may send less than was requested, and the rest when that is requested.
		err = &far.Passing{Err: fmt.Errorf("server sent only %d of %d bytes", got.n, want.n), Now: true}
	}
	return n, err
}

// unsatisfied returns the error for a response with status 416, and uses the size in it.
func (o *object) unsatisfied(resp *http.Response, off int64) error {
	known, told := o.ver.known(), unsatisfiedSize(resp)
	if err := o.ver.agree(told, nil, false); err != nil {
		return err
	}
	if known > off {
		return fmt.Errorf("416 for a range within the object of %d bytes: %w", known, store.ErrChanged)
	}
	if told > off {
		return fmt.Errorf("416 for a range within the reported size of %d bytes", told)
	}
	return errUnsatisfied
}

// learnSize requests the first byte, because the response contains the size.
func (o *object) learnSize(ctx context.Context, again *far.Retrier) error {
	var first [1]byte
	_, err := o.fetch(ctx, first[:], 0, sized, again)
	if o.ver.known() >= 0 && (err == nil || errors.Is(err, ErrNoRange)) {
		return nil
	}
	if err != nil {
		return err
	}
	// The size was "*". The position of the last byte shows it too.
	_, err = o.suffix(ctx, first[:], again)
	if o.ver.known() >= 0 {
		return nil
	}
	if err == nil || errors.Is(err, errNoSuffix) {
		return errNoSize
	}
	return err
}
