package web

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

// mostWhole is how many bytes of objects are kept in memory, if their server has no ranges.
const mostWhole = 64 << 20

// wholes are the objects of a store that are in memory, the oldest first.
type wholes struct {
	mu   sync.Mutex
	held []*object
	n    int64
}

// of returns the bytes of o, or nil if they are not in memory.
func (w *wholes) of(o *object) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.all
}

// add keeps the bytes of o, and drops those of other objects for them.
func (w *wholes) add(o *object, all []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.all = all
	w.held, w.n = append(w.held, o), w.n+int64(len(all))
	for w.n > mostWhole {
		w.forget(w.held[0])
	}
}

func (w *wholes) drop(o *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.all != nil {
		w.forget(o)
	}
}

func (w *wholes) forget(o *object) {
	w.n -= int64(len(o.all))
	o.all = nil
	w.held = slices.DeleteFunc(w.held, func(x *object) bool { return x == o })
}

// keep reads the body of a response with the whole object, n bytes or -1 if that is not known, and
// returns it. All later reads are of these bytes, so they are of one version. want is how many were
// requested.
func (o *object) keep(ctx context.Context, resp *http.Response, n, want int64) ([]byte, error) {
	o.keeping.Lock()
	defer o.keeping.Unlock()
	if all := o.st.whole.of(o); all != nil { // another reader was quicker
		return all, nil
	}
	var all []byte
	var err error
	switch {
	case n >= 0:
		all = make([]byte, n)
		_, err = readBody(resp, all)
	case len(resp.TransferEncoding) == 0 && resp.ProtoMajor < 2:
		return nil, fmt.Errorf("it does not report the size either, so nothing shows whether all has arrived: %w", ErrNoRange)
	default:
		all, err = io.ReadAll(io.LimitReader(resp.Body, mostWhole+1))
		switch {
		case err != nil:
			err = &far.Passing{Err: fmt.Errorf("body broke off after %d bytes: %w", len(all), far.Dropped(err))}
		case len(all) > mostWhole:
			err = errTooLong
		default:
			err = o.ver.agree(int64(len(all)), nil, false)
		}
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(all)
	switch first := o.sum == [sha256.Size]byte{}; {
	case !first && o.sum != sum: // its place in memory was needed for others
		return nil, fmt.Errorf("contents are others than before: %w", store.ErrChanged)
	case first && int64(len(all)) > want && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html"): // a page is no archive, and the error says so
		storekit.Tell(ctx, fmt.Sprintf("%s: server has no ranges; fetched whole", redact(o.url)))
	}
	o.sum = sum
	o.st.whole.add(o, all)
	return all, nil
}

var errTooLong = fmt.Errorf("more than the %d MiB that are fetched whole: %w", mostWhole>>20, ErrNoRange)
