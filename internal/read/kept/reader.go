package kept

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/listing"
	"github.com/holdall/holdall/store"
)

// Reader answers from an index, or from the archive if the index is damaged or does not know.
type Reader struct {
	x      *Index
	proven func(format.Entry) bool
	open   func(context.Context) (format.Reader, error)

	mu   sync.Mutex
	real format.Reader

	// Something that lasts is made of what is read, so what an index of a copy says is first compared with what
	// the archive says.
	certain  atomic.Bool
	compared sync.Mutex
	tried    bool
	same     atomic.Bool
}

// NewReader returns a reader that uses x. open opens the archive itself. proven reports whether an entry's
// content is compared before any of it is returned.
func NewReader(x *Index, proven func(format.Entry) bool, open func(context.Context) (format.Reader, error)) *Reader {
	return &Reader{x: x, proven: proven, open: open}
}

// Index returns the index that k was made with.
func (k *Reader) Index() *Index { return k.x }

// knows reports whether the index says where e's content lies. If it was made of a copy, it is not asked
// for content that nothing would be compared with.
func (k *Reader) knows(e format.Entry) bool {
	return k.x.Has(e) && (!k.x.Copied || k.same.Load() || !k.certain.Load() && k.proven(e))
}

// answers reports whether the index is used.
func (k *Reader) answers(ctx context.Context) bool {
	if k.x.Damage() == nil && k.x.Copied && k.certain.Load() && !k.same.Load() {
		k.compared.Lock()
		defer k.compared.Unlock()
		if !k.tried {
			err := k.compare(ctx)
			k.x.Spoilt(ctx, err)
			k.tried = ctx.Err() == nil
		}
	}
	return k.x.Damage() == nil && (!k.x.Copied || !k.certain.Load() || k.same.Load())
}

// compare compares all that the index says with what the archive says, and notes it if that is the same.
func (k *Reader) compare(ctx context.Context) error {
	r, err := k.archive(ctx)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(k.x.Entries(ctx))
	defer stop()
	other := func(what string) error {
		return k.x.fail(-1, fmt.Errorf("%s is another one: it belongs to another version of the archive", format.Escape(what)))
	}
	for own, err := range r.Entries(ctx) {
		if err != nil {
			return err
		}
		e, err, more := next()
		if err != nil {
			return err
		}
		a, b := own, e
		a.Ref, b.Ref, a.Fault, b.Fault = nil, nil, nil, nil
		if !more || (own.Fault == nil) != (e.Fault == nil) || !a.ModTime.Equal(b.ModTime) {
			return other(own.Name)
		}
		if a.ModTime = b.ModTime; !maps.Equal(a.Attr, b.Attr) {
			return other(own.Name)
		}
		if a.Attr, b.Attr = nil, nil; !reflect.DeepEqual(a, b) {
			return other(own.Name)
		}
		if err := k.compareExtents(ctx, r, own, e); err != nil {
			return err
		}
	}
	if e, err, more := next(); more || err != nil {
		return cmp.Or(err, other(e.Name))
	}
	k.same.Store(true)
	return nil
}

// compareExtents compares where a content lies.
func (k *Reader) compareExtents(ctx context.Context, r format.Reader, own, e format.Entry) error {
	if !k.x.Has(e) || !e.Kind.HasContent() || e.Fault != nil {
		return nil // the archive is asked
	}
	next, stop := iter.Pull2(k.x.Extents(ctx, e, 0, e.Size))
	defer stop()
	for a, err := range r.Extents(ctx, own, 0, own.Size) {
		if err != nil {
			return err
		}
		b, err, more := next()
		if err != nil {
			return err
		}
		same := more && a.At == b.At && a.Size == b.Size && a.Codec == b.Codec
		switch {
		case !same || a.Codec == codec.Zero:
		case a.Codec == codec.Inline:
			var x, y []byte
			if x, err = a.Inline(ctx); err == nil {
				y, err = b.Inline(ctx)
			}
			same = bytes.Equal(x, y)
		default:
			same = a.Object == b.Object && a.External == b.External && a.Off == b.Off && a.Len == b.Len && a.Skip == b.Skip
		}
		if err != nil {
			return err
		}
		if !same {
			return k.x.fail(-1, fmt.Errorf("%s lies elsewhere: it belongs to another version of the archive", format.Escape(e.Name)))
		}
	}
	if _, _, more := next(); more {
		return k.x.fail(-1, fmt.Errorf("%s is longer: it belongs to another version of the archive", format.Escape(e.Name)))
	}
	return nil
}

// beCertain is Abilities.Certain.
func (k *Reader) beCertain() {
	k.certain.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.realCertain()
}

// realCertain makes the archive certain, too. The caller holds k.mu.
func (k *Reader) realCertain() {
	if k.real != nil && k.certain.Load() && k.real.Can().Certain != nil {
		k.real.Can().Certain()
	}
}

// own returns an entry of the index as the archive itself has it.
func (k *Reader) own(ctx context.Context, r format.Reader, e format.Entry) (format.Entry, error) {
	own, err := r.Lookup(ctx, e.Name)
	if k.x.Copied && (err != nil && errors.Is(err, fs.ErrNotExist) || err == nil && (own.Size != e.Size || own.Kind != e.Kind)) {
		err = k.x.fail(0, fmt.Errorf("%s is another one: it belongs to another version of the archive", format.Escape(e.Name)))
		k.x.Spoilt(ctx, err)
	}
	return own, err
}

// Damage returns why the index is no longer used, or nil.
func (k *Reader) Damage() error { return k.x.Damage() }

// archive opens the archive itself. Callers wait while it is being opened.
func (k *Reader) archive(ctx context.Context) (format.Reader, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil {
		r, err := k.open(ctx)
		if err != nil {
			return nil, err
		}
		k.real = r
		k.realCertain()
	}
	return k.real, nil
}

func (k *Reader) Lookup(ctx context.Context, name string) (format.Entry, error) {
	if k.answers(ctx) {
		e, err := k.x.Lookup(ctx, name)
		if !k.x.Spoilt(ctx, err) {
			return e, err
		}
	}
	r, err := k.archive(ctx)
	if err != nil {
		return format.Entry{}, err
	}
	return r.Lookup(ctx, name)
}

// either yields what the index yields, if said is not nil. If the index fails part of the way,
// either continues with what the archive yields.
func either[T any](ctx context.Context, k *Reader, said iter.Seq2[T, error], archive func(r format.Reader, after int) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n, broken := 0, said == nil
		if !broken {
			for x, err := range said {
				if broken = k.x.Spoilt(ctx, err); broken {
					break
				}
				if n++; !yield(x, err) || err != nil {
					return
				}
			}
		}
		if !broken {
			return
		}
		r, err := k.archive(ctx)
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		archive(r, n)(yield)
	}
}

// entries is either for entries, which the archive has in the same order.
func (k *Reader) entries(ctx context.Context, said iter.Seq2[format.Entry, error], archive func(format.Reader) iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	if !k.answers(ctx) {
		said = nil
	}
	return either(ctx, k, said, func(r format.Reader, after int) iter.Seq2[format.Entry, error] {
		return listing.Only(archive(r), func(format.Entry) bool { after--; return after < 0 })
	})
}

func (k *Reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return k.entries(ctx, k.x.Entries(ctx), func(r format.Reader) iter.Seq2[format.Entry, error] { return r.Entries(ctx) })
}

func (k *Reader) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return k.entries(ctx, k.x.ReadDir(ctx, dir), func(r format.Reader) iter.Seq2[format.Entry, error] { return r.ReadDir(ctx, dir) })
}

// Can returns what else the reader can do.
func (k *Reader) Can() format.Abilities {
	return format.Abilities{Run: k.Run, EntriesBelow: k.EntriesBelow, EntriesFrom: k.EntriesFrom, Made: k.made, Certain: k.beCertain, Carry: k.carry}
}

// carry is Abilities.Carry of the archive, which the index does not have.
func (k *Reader) carry(ctx context.Context) ([][2]string, error) {
	if k.x.trusted {
		return nil, nil
	}
	r, err := k.archive(ctx)
	if err != nil || r.Can().Carry == nil {
		return nil, err
	}
	return r.Can().Carry(ctx)
}

// made is Abilities.Made of the archive: extents that the index cannot have are the archive's own.
func (k *Reader) made(name string) store.Object {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil || k.real.Can().Made == nil {
		return nil
	}
	return k.real.Can().Made(name)
}

func (k *Reader) EntriesBelow(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return k.entries(ctx, k.x.EntriesBelow(ctx, dir), func(r format.Reader) iter.Seq2[format.Entry, error] { return listing.Below(ctx, r, dir) })
}

func (k *Reader) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return k.entries(ctx, k.x.EntriesFrom(ctx, name), func(r format.Reader) iter.Seq2[format.Entry, error] {
		if from := r.Can().EntriesFrom; from != nil {
			return from(ctx, name)
		}
		return failed[format.Entry](fmt.Errorf("this archive cannot be read from the middle: %w", errors.ErrUnsupported))
	})
}

// failed is a sequence that only yields an error.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// InPlaces is [listing.ReadDirFrom] of the index, or of the archive.
func (k *Reader) InPlaces(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	said := listing.Only(listing.ReadDirFrom(ctx, k.x, dir, from), func(e format.Entry) bool {
		from = listing.Place(dir, e) + "\x00" // nothing stands between
		return true
	})
	if !k.answers(ctx) {
		said = nil
	}
	return either(ctx, k, said, func(r format.Reader, _ int) iter.Seq2[format.Entry, error] {
		return listing.ReadDirFrom(ctx, r, dir, from)
	})
}

func (k *Reader) Extents(ctx context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	var said iter.Seq2[format.Extent, error]
	if k.knows(e) {
		said = k.x.Extents(ctx, e, off, n)
	}
	return either(ctx, k, said, func(r format.Reader, _ int) iter.Seq2[format.Extent, error] { // fails at the first, if at all
		if k.x.Has(e) || IsElsewhere(e) {
			var err error
			if e, err = k.own(ctx, r, e); err != nil {
				return failed[format.Extent](err)
			}
		}
		return r.Extents(ctx, e, off, n)
	})
}

func (k *Reader) Run(e format.Entry) (format.Extent, bool) {
	if k.knows(e) {
		return k.x.Run(e)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.real == nil || k.real.Can().Run == nil || k.x.Has(e) || IsElsewhere(e) {
		return format.Extent{}, false
	}
	return k.real.Can().Run(e)
}

func (k *Reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return either(ctx, k, nil, func(r format.Reader, _ int) iter.Seq2[format.Region, error] { return r.Regions(ctx) })
}

func (k *Reader) About(ctx context.Context) (format.About, error) {
	if k.x.trusted {
		return format.About{Version: k.x.Version, Volumes: k.Volumes(k.x.archive)}, nil
	}
	r, err := k.archive(ctx)
	if err != nil {
		return format.About{}, err
	}
	return r.About(ctx)
}

// Volumes returns the objects of the archive, which is called name.
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
