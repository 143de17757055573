package zarr3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/zarr"
)

// A source gives the values of a reader's keys to package zarr. Like formats, it reads only ranges
// of objects in the archive's store.
type source struct {
	keys format.Reader
	st   store.Store
}

func (s source) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	e, err := s.entry(ctx, key)
	if err != nil {
		return nil, err
	}
	if e.Size > limit {
		return nil, fmt.Errorf("%d bytes, over the limit of %d: %w", e.Size, limit, zarr.ErrLimit)
	}
	return s.read(ctx, e, 0, e.Size)
}

func (s source) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	e, err := s.entry(ctx, key)
	if err == nil {
		off, err = zarr.Within(off, n, e.Size)
	}
	if err != nil {
		return nil, err
	}
	return s.read(ctx, e, off, n)
}

func (s source) entry(ctx context.Context, key string) (format.Entry, error) {
	e, err := s.keys.Lookup(ctx, key)
	if _, last := zarrkey.Split(key); err == nil && (!e.Kind.HasContent() || e.Fault != nil && isOld(last)) {
		err = notThere(key) // the list reports a damaged key
	}
	return e, err
}

// read reads n bytes of an entry's content from off on.
func (s source) read(ctx context.Context, e format.Entry, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	for x, err := range s.keys.Extents(ctx, e, off, n) {
		if err != nil {
			return nil, err
		}
		// Extents may extend beyond the requested range.
		from, to := max(x.At, off), min(x.At+x.Size, off+n)
		if from >= to {
			continue
		}
		part, skip := b[from-off:to-off], x.Skip+from-x.At
		switch {
		case x.Codec == codec.Zero:
		case x.Codec == codec.Inline:
			x.Skip, x.Size = skip, int64(len(part))
			var b []byte
			if b, err = x.Inline(ctx); err == nil {
				copy(part, b)
			}
		case x.External:
			return nil, fmt.Errorf("stored outside, at %s: %w", x.Object, errors.ErrUnsupported)
		case x.Codec == codec.Raw:
			err = s.readAt(ctx, x.Object, part, x.Off+skip)
		default:
			err = fmt.Errorf("stored with %s: %w", x.Codec, errors.ErrUnsupported)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (s source) readAt(ctx context.Context, object string, b []byte, off int64) error {
	o, err := s.st.Open(ctx, object)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist", object) // not fs.ErrNotExist, because the key exists
	}
	if err != nil {
		return err
	}
	defer o.Close()
	return o.ReadAt(ctx, b, off)
}

// names yields the names of all keys.
func (s source) names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range s.keys.Entries(ctx) {
			if !yield(e.Name, err) || err != nil {
				return
			}
		}
	}
}
