package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
)

const (
	// copyChunk is how much is copied between two looks at the context.
	copyChunk = 64 << 20

	// minCopy is where copying in the kernel begins to beat reading into the
	// writer's buffer (measured on ext4: even at 4 KiB, twice as fast at 64).
	minCopy = 16 << 10
)

// WriteRange appends a range of another file of this package without reading
// it. Where the file system shares blocks, they are shared.
func (w *writer) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	src, ok := store.Inner[*object](from)
	switch {
	case !ok:
		return errors.ErrUnsupported
	case off < 0 || n < 0:
		return src.fail("copy", off, n, fs.ErrInvalid)
	case n < minCopy:
		// Small ranges gain nothing, and would each cost a write of their own.
		return errors.ErrUnsupported
	case n > src.info.Size-off:
		return src.short("copy", off, n, io.ErrUnexpectedEOF)
	case src.changed.Load():
		return src.fail("copy", off, n, store.ErrChanged)
	}
	if err := w.usable(); err != nil {
		return w.fail("write", n, err)
	}
	if err := w.flush(); err != nil {
		return err
	}
	start := w.size
	err := w.copy(ctx, src, off, n)
	if errors.Is(err, errors.ErrUnsupported) {
		return errors.Join(err, w.Rewind(start))
	}
	if err != nil && w.size > start {
		w.err = err // until Rewind takes back the half that is there
	}
	return err
}

func (w *writer) copy(ctx context.Context, src *object, off, n int64) error {
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return src.fail("copy", off, n, err)
		}
		did, err := copyRange(w.f, w.size, src.f, off, min(n, copyChunk))
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return err
		case err != nil:
			return w.fail("write", n, fmt.Errorf("copy from %s at %d: %w", src.path, off, err))
		case did == 0:
			return src.short("copy", off, n, io.ErrUnexpectedEOF)
		}
		w.advance(did)
		off, n = off+did, n-did
	}
	return src.fail("copy", off, n, src.look())
}
