package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// copyChunk is the number of bytes that are copied between two checks of the context.
	copyChunk = 64 << 20

	// minCopy is the size from which copying in the kernel is faster than reading into the
	// writer's buffer. On ext4 the two are equal at 4 KiB, and copying is twice as fast at 64
	// KiB.
	minCopy = 16 << 10
)

// WriteRange appends a range of another file of this package without reading it. If the file
// system supports shared blocks, it shares them.
func (w *writer) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	src, ok := storekit.Inner[*object](from)
	switch {
	case !ok:
		return errors.ErrUnsupported
	case off < 0 || n < 0:
		return src.fail("copy", off, n, fs.ErrInvalid)
	case n < minCopy:
		// Copying a small range gains nothing, and would take a system call of its own.
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
		w.err = err // until Rewind removes the part that was written
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
