package kit

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
)

// A LateIndex is an Index that is made when it is first used. Load makes it, or returns the one
// that it made before.
type LateIndex struct {
	Load func(context.Context) (*Index, error)
}

func (l LateIndex) seq(ctx context.Context, of func(*Index) iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		x, err := l.Load(ctx)
		if err != nil {
			yield(format.Entry{}, err)
			return
		}
		of(x)(yield)
	}
}

// Entries, EntriesFrom, ReadDir, ReadDirFrom and Lookup are those of the Index.
func (l LateIndex) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return l.seq(ctx, func(x *Index) iter.Seq2[format.Entry, error] { return x.Entries(ctx) })
}

// Can returns what an index can do.
func (l LateIndex) Can() format.Abilities {
	return format.Abilities{EntriesFrom: l.EntriesFrom, ReadDirFrom: l.ReadDirFrom}
}

func (l LateIndex) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return l.seq(ctx, func(x *Index) iter.Seq2[format.Entry, error] { return x.EntriesFrom(ctx, name) })
}

func (l LateIndex) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return l.seq(ctx, func(x *Index) iter.Seq2[format.Entry, error] { return x.ReadDir(ctx, dir) })
}

func (l LateIndex) ReadDirFrom(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	return l.seq(ctx, func(x *Index) iter.Seq2[format.Entry, error] { return x.ReadDirFrom(ctx, dir, from) })
}

func (l LateIndex) Lookup(ctx context.Context, name string) (format.Entry, error) {
	x, err := l.Load(ctx)
	if err != nil {
		return format.Entry{}, err
	}
	return x.Lookup(ctx, name)
}
