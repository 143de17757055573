package gateway

import (
	"context"
	"io/fs"
	"strconv"

	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/store"
)

// logs is the log of a bucket as a store: its segments are objects with contents of files.
type logs struct{ b *bucket }

func (s logs) Can() store.Abilities { return store.Abilities{Near: true} }

func (s logs) Open(_ context.Context, name string) (store.Object, error) {
	number, err := strconv.ParseInt(name, 10, 64)
	if seg := s.b.segment(number); seg != nil && err == nil {
		return logged{seg}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: segments + name, Err: fs.ErrNotExist}
}

// segment returns a segment that is in a layer, or was a moment ago.
func (b *bucket) segment(number int64) *journal.Segment {
	for _, l := range b.over.Load().every {
		if l.seg.Log().Number == number {
			return l.seg
		}
	}
	return nil
}

type logged struct{ seg *journal.Segment }

func (o logged) Info(context.Context) (store.Info, error) {
	return store.Info{Name: o.seg.Path(), Size: sizeOfLog}, nil
}

func (o logged) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := o.seg.ReadAt(p, off)
	return err
}

func (o logged) Close() error               { return nil }
func (o logged) Can() store.ObjectAbilities { return store.ObjectAbilities{} }
