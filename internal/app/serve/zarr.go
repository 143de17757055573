package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/zarr"
)

// Views of Zarr clients: below /z/, and below /z3/.
const (
	zarrView  = "zarr"
	zarr3View = "zarr3"
)

// forVersion3 reports whether a request for a view of version 2 is for the
// view of version 3: a client that supports both requests zarr.json first. No
// chunk of version 2 has one of the names generated for version 3.
func forVersion3(h *handler, key string) bool {
	last := path.Base(key)
	return h.a.View == zarrView && (last == zarr.MetaName || last == "c" || strings.HasPrefix(last, "c."))
}

// other returns the handler for a key. This is h, or another one: then h is
// released.
func (s *Site) other(r *http.Request, h *handler, key string) *handler {
	if !forVersion3(h, key) {
		return h
	}
	if _, err := h.a.Lookup(r.Context(), key); !errors.Is(err, fs.ErrNotExist) {
		return h
	}
	h3, _, _ := s.open(r, h.a.Name, zarr3View)
	if h3 == nil {
		return h
	}
	h.a.Release()
	return h3
}

const (
	consolidatedName = ".zmetadata"
	maxConsolidated  = 256 << 20
)

// made is the generated content of an entry that is not in the archive. It is
// the entry's Ref.
type made []byte

// consolidated caches the generated .zmetadata of an archive that has none.
type consolidated struct {
	making sync.Mutex
	text   atomic.Pointer[made]
}

// consolidated returns an entry for .zmetadata, with which Zarr clients need
// one request for all metadata. It does so if the archive is a hierarchy
// without one.
func (h *handler) consolidated(ctx context.Context) (e holdall.Entry, ok bool) {
	if h.a.View != zarrView {
		return e, false
	}
	for _, name := range []string{consolidatedName, ".zgroup"} {
		if _, err := h.a.Lookup(ctx, name); (err == nil) != (name == ".zgroup") {
			return e, false
		}
	}
	text, err := h.a.consolidated(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.log.Error("cannot be consolidated", "archive", h.a.Archive.Name(), "error", err)
		}
		return e, false
	}
	sum := sha256.Sum256(text)
	return holdall.Entry{Name: consolidatedName, Size: int64(len(text)), Digest: format.Digest{Algo: "sha256", Sum: string(sum[:])}, Ref: text}, true
}

// consolidated returns the text. It generates it if it is not in memory.
func (a *Archive) consolidated(ctx context.Context) (made, error) {
	c := &a.o.consolidated
	c.making.Lock()
	defer c.making.Unlock()
	if text := c.text.Load(); text != nil {
		return *text, nil
	}
	b, err := zarr.Consolidate(ctx, a.Archive, a.keys(ctx), maxConsolidated)
	if err != nil {
		return nil, err
	}
	text := made(b)
	c.text.Store(&text)
	a.WhenIdle(func() { c.text.Store(nil) })
	return text, nil
}

func (a *Archive) keys(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range a.Entries(ctx) {
			if !yield(e.Name, err) || err != nil {
				return
			}
		}
	}
}

// withConsolidated adds .zmetadata to the entries of the root, at its place in
// the order of names.
func (h *handler) withConsolidated(ctx context.Context, entries iter.Seq2[holdall.Entry, error], from string) iter.Seq2[holdall.Entry, error] {
	if h.a.View != zarrView || from > consolidatedName {
		return entries
	}
	return func(yield func(holdall.Entry, error) bool) {
		add, waits := h.consolidated(ctx)
		for e, err := range entries {
			if waits && err == nil && e.Name > consolidatedName {
				if waits = false; !yield(add, nil) {
					return
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if waits {
			yield(add, nil)
		}
	}
}
