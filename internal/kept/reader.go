package kept

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/listing"
)

// Reader answers by an index, and by the archive where that is damaged or does not
// know.
type Reader struct {
	x    *Index
	open func(context.Context) (format.Reader, error)

	mu   sync.Mutex
	real format.Reader
	lost bool // the index
}

// NewReader returns a reader by x. open opens the archive itself.
func NewReader(x *Index, open func(context.Context) (format.Reader, error)) *Reader {
	return &Reader{x: x, open: open}
}

// archive opens the archive itself. Whoever waits for it waits for somebody.
func (k *Reader) archive(ctx context.Context) (format.Reader, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil {
		r, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		k.real = r
	}
	return k.real, nil
}

// spoilt reports whether an index cannot be used any more, because of err or of
// something before it.
func (k *Reader) spoilt(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	_, bad := errors.AsType[*Error](err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = k.lost || bad && ctx.Err() == nil
	return bad && ctx.Err() == nil
}

func (k *Reader) isLost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

func (k *Reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if !k.isLost() {
		e, err := k.x.Lookup(ctx, name)
		if !k.spoilt(ctx, err) {
			return e, err
		}
	}
	r, err := k.archive(ctx)
	if err != nil {
		return format.Entry{}, err
	}
	return r.Lookup(ctx, name)
}

// either yields what the index says; where that breaks off, what the archive says goes
// on from there.
func (k *Reader) either(ctx context.Context, said iter.Seq2[format.Entry, error], archive func(format.Reader) iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		n := 0
		if !k.isLost() {
			broken := false
			for e, err := range said {
				if broken = k.spoilt(ctx, err); broken {
					break
				}
				if n++; !yield(e, err) || err != nil {
					return
				}
			}
			if !broken {
				return
			}
		}
		r, err := k.archive(ctx)
		if err != nil {
			yield(format.Entry{}, err)
			return
		}
		for e, err := range archive(r) {
			if n--; n >= 0 && err == nil {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (k *Reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return k.either(ctx, k.x.Entries(ctx), func(r format.Reader) iter.Seq2[format.Entry, error] { return r.Entries(ctx) })
}

func (k *Reader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return k.either(ctx, k.x.ReadDir(ctx, dir), func(r format.Reader) iter.Seq2[format.Entry, error] { return r.ReadDir(ctx, dir) })
}

// Can returns what else the reader can do.
func (k *Reader) Can() format.Abilities {
	return format.Abilities{Run: k.Run, EntriesBelow: k.EntriesBelow, EntriesFrom: k.EntriesFrom}
}

func (k *Reader) EntriesBelow(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return k.either(ctx, k.x.EntriesBelow(ctx, dir), func(r format.Reader) iter.Seq2[format.Entry, error] { return listing.Below(ctx, r, dir) })
}

func (k *Reader) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return k.either(ctx, k.x.EntriesFrom(ctx, name), func(r format.Reader) iter.Seq2[format.Entry, error] {
		if from := r.Can().EntriesFrom; from != nil {
			return from(ctx, name)
		}
		return func(yield func(format.Entry, error) bool) {
			yield(format.Entry{}, fmt.Errorf("this archive cannot be read from the middle: %w", errors.ErrUnsupported))
		}
	})
}

// InPlaces is [listing.ReadDirFrom] of the index, or of the archive.
func (k *Reader) InPlaces(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		if !k.isLost() {
			broken := false
			for e, err := range listing.ReadDirFrom(ctx, k.x, dir, from) {
				if broken = k.spoilt(ctx, err); broken {
					break
				}
				if !yield(e, err) || err != nil {
					return
				}
				from = listing.Place(dir, e) + "\x00" // nothing stands between
			}
			if !broken {
				return
			}
		}
		r, err := k.archive(ctx)
		if err != nil {
			yield(format.Entry{}, err)
			return
		}
		listing.ReadDirFrom(ctx, r, dir, from)(yield)
	}
}

func (k *Reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		ours := k.x.Has(e)
		if ours {
			broken := false
			for x, err := range k.x.Extents(ctx, e, off, n) {
				if broken = k.spoilt(ctx, err); broken {
					break // it is the first one
				}
				if !yield(x, err) {
					return
				}
			}
			if !broken {
				return
			}
		}
		r, err := k.archive(ctx)
		if err == nil && (ours || IsElsewhere(e)) {
			e, err = r.Lookup(ctx, e.Name)
		}
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		for x, err := range r.Extents(ctx, e, off, n) {
			if !yield(x, err) {
				return
			}
		}
	}
}

func (k *Reader) Run(e format.Entry) (format.Extent, bool) {
	if k.x.Has(e) {
		return k.x.Run(e)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil || k.real.Can().Run == nil || IsElsewhere(e) {
		return format.Extent{}, false
	}
	return k.real.Can().Run(e)
}

func (k *Reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		r, err := k.archive(ctx)
		if err != nil {
			yield(format.Region{}, err)
			return
		}
		r.Regions(ctx)(yield)
	}
}

func (k *Reader) About(ctx context.Context) (format.About, error) {
	r, err := k.archive(ctx)
	if err != nil {
		return format.About{}, err
	}
	return r.About(ctx)
}

// Volumes are the objects of the archive, which is called name.
func (k *Reader) Volumes(name string) (all []string) {
	for _, o := range k.x.Objects {
		all = append(all, name+o)
	}
	return all
}

func (k *Reader) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.x.Close()
	if k.real != nil {
		err = errors.Join(err, k.real.Close())
	}
	return err
}
