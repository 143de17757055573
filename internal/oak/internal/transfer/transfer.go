// Package transfer writes tars of segments that exist in other tars, or in blobs. Backup, restore,
// copy, repair and cleanup choose the segments and their order, and move them in this way:
//
//   - A segment keeps its bytes and, unless it proves them, its header; see [tarfile.NewHeader]. In a
//     blob, where it has none, [cloud.Read] decides which one it gets.
//   - What a tar records about its segments comes from the old tar or, by [Names], from the segments.
//   - Headers keep their times. What follows the segments has the newest of them.
package transfer

import (
	"context"
	"iter"
	"path"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// AtOnce is how many segments are read concurrently, of at most 256 KiB each. As many are waiting.
const AtOnce = 16

// A Buffer has room for a segment with its header.
type Buffer [tarfile.BlockSize + tarfile.MaxSegment]byte

// Buffers has Buffers for use.
var Buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Each reads segments, several at a time, and calls take with them in their order. read may use buf, a
// [Buffer], until take returns.
func Each[T any](ctx context.Context, all iter.Seq2[T, error], read func(ctx context.Context, of T, buf []byte) (segment.Finished, error), take func(T, segment.Finished) error) error {
	type item struct {
		of  T
		buf *Buffer
		f   segment.Finished
		err error
	}
	items := func(yield func(*item, error) bool) {
		for of, err := range all {
			if !yield(&item{of: of}, err) {
				return
			}
		}
	}
	return pipe.Ordered(ctx, items, AtOnce, func(ctx context.Context, i *item) {
		i.buf = Buffers.Get().(*Buffer)
		i.f, i.err = read(ctx, i.of, i.buf[:])
	}, func(i *item) error {
		defer Buffers.Put(i.buf)
		if i.err != nil {
			return i.err
		}
		return take(i.of, i.f)
	}, func(*item) {})
}

// A Tar is one that is made of other tars, and how.
type Tar[T any] struct {
	// Read reads a segment, with its header; see [Each]. Several goroutines call it.
	Read func(ctx context.Context, of T, buf []byte) (segment.Finished, error)
	// Describe adds what the tar records about a segment. One goroutine calls it, in the order of
	// segments.
	Describe func(context.Context, T, *segment.Finished) error
	// Parts, in the place of Describe, returns what the tar records about all.
	Parts func(context.Context) (binaries, graph []byte, err error)
}

// Write writes the tar name in st. It keeps some segments in memory, and what follows the segments.
func (t Tar[T]) Write(ctx context.Context, st store.Store, name string, all []T) (store.Info, error) {
	return storekit.Write(ctx, st, name, func(out store.Writer) error {
		w := tarfile.NewWriter(out, path.Base(name), nil)
		err := Each(ctx, pipe.All(all), t.Read, func(of T, f segment.Finished) error {
			if t.Describe != nil {
				if err := t.Describe(ctx, of, &f); err != nil {
					return err
				}
			}
			return w.Put(f)
		})
		switch {
		case err != nil:
			return err
		case t.Parts == nil:
			return w.Close()
		}
		binaries, graph, err := t.Parts(ctx)
		if err != nil {
			return err
		}
		return w.CloseWith(binaries, graph)
	})
}
