package kit

import (
	"context"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Runs is a [format.Reader] for archives of one object that keep each content uncompressed and in
// one run. The Ref of an entry is the offset of its content, an int64. All other bytes count as
// headers.
type Runs struct {
	*Index
	format, object string
	size           int64
	entries        Entries
	room           int64 // what more may be kept in memory
	read           func(off, n int64) ([]byte, error)
}

// entryCost is about what an entry takes in memory besides its name.
const entryCost = 250

// OpenRuns opens an archive that begins with magic, followed by headers of headLen bytes and
// contents. It calls member for each header. Member calls Add if the header is that of an entry, and
// returns the offset of the next header.
func OpenRuns(ctx context.Context, st store.Store, object string, o format.OpenOptions, formatName, magic string, headLen int64, member func(r *Runs, at int64, head []byte) (next int64, err error)) (format.Reader, error) {
	obj, head, size, err := OpenPart(ctx, st, object, len(magic), storekit.ReadHead)
	if err != nil {
		return nil, err
	}
	defer obj.Close() // contents are read by the engine, which opens its own
	r := &Runs{format: formatName, object: object, size: size, room: o.Limits.OrDefault().Index}
	r.read = func(off, n int64) ([]byte, error) {
		b := make([]byte, n)
		return b, obj.ReadAt(ctx, b, off)
	}
	if string(head) != magic {
		return nil, r.Corrupt(format.BadMagic, 0, "it begins with %q, not %q", head, magic)
	}
	for at := int64(len(magic)); at < size; {
		if headLen > size-at {
			return nil, r.Corrupt(format.Truncated, at, "%d bytes are too short for a header of %d", size-at, headLen)
		}
		if head, err = r.read(at, headLen); err != nil {
			return nil, err
		}
		next, err := member(r, at, head)
		if err == nil && next <= at {
			err = r.Corrupt(format.BadHeader, at, "the next header would be at %d", next)
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	r.Index = NewIndex(r.entries)
	return r, nil
}

// Corrupt returns the error for damage at an offset.
func (r *Runs) Corrupt(code format.Code, off int64, msg string, args ...any) error {
	return Corrupt(r.format, code, r.object, off, msg, args...)
}

// Bytes returns n bytes at an offset, such as a long name, which the limit for indexes must allow.
func (r *Runs) Bytes(off, n int64) ([]byte, error) {
	if err := r.fits(off, n, n); err != nil {
		return nil, err
	}
	return r.read(off, n)
}

// Add adds an entry whose content is at an offset.
func (r *Runs) Add(off int64, e format.Entry) error {
	e.Ref = off
	r.entries = append(r.entries, e)
	return r.fits(off, e.Size, entryCost+int64(len(e.Name)))
}

// fits returns an error if n bytes are not in the object, or memory exceeds the limit.
func (r *Runs) fits(off, n, memory int64) error {
	if n < 0 || n > r.size-off {
		return r.Corrupt(format.Truncated, off, "%d bytes expected, but only %d are left", n, max(0, r.size-off))
	}
	if r.room -= memory; r.room < 0 {
		return r.Corrupt(format.Limit, off, "names take more memory than the limit")
	}
	return nil
}

// Can and the methods below are those of a [format.Reader].
func (r *Runs) Can() format.Abilities {
	can := r.Index.Can()
	can.Run = r.run
	return can
}

func (r *Runs) run(e format.Entry) (format.Extent, bool) { return Run(r.object, e) }

func (r *Runs) Extents(_ context.Context, e format.Entry, _, n int64) iter.Seq2[format.Extent, error] {
	return RunExtents(r.format, r.run, e, n)
}

func (r *Runs) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return Between(r.object, r.size, r.format+" headers", func(yield func(format.Extent, error) bool) {
		for e, err := range r.Entries(ctx) {
			if x, ok := r.run(e); (ok || err != nil) && !yield(x, err) {
				return
			}
		}
	})
}

func (r *Runs) About(context.Context) (format.About, error) {
	return format.About{Version: r.format, Volumes: []string{r.object}}, nil
}

func (r *Runs) Close() error { return nil }

// Run returns the extent of an entry whose Ref is the offset of its content in an object.
func Run(object string, e format.Entry) (format.Extent, bool) {
	at, ok := e.Ref.(int64)
	return format.Extent{Size: e.Size, Object: object, Off: at, Len: e.Size}, ok && e.Fault == nil && e.Size > 0
}

// RunExtents is Extents for readers whose contents lie in one run each.
func RunExtents(formatName string, run func(format.Entry) (format.Extent, bool), e format.Entry, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		x, ok := run(e)
		switch {
		case ok && n > 0:
			yield(x, nil)
		case e.Fault != nil, !ok && e.Size > 0:
			yield(format.Extent{}, e.Unreadable(formatName))
		}
	}
}

// Between yields headers: what is before, between and after contents in the first size bytes of an
// object. The extents of the contents must be in stored order.
func Between(object string, size int64, label string, contents iter.Seq2[format.Extent, error]) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		end := int64(0)
		upTo := func(off int64) bool {
			return off <= end || yield(format.Region{Object: object, Off: end, Len: off - end, Use: format.Header, Label: label}, nil)
		}
		for x, err := range contents {
			if err != nil {
				yield(format.Region{}, err)
				return
			}
			if x.Len == 0 {
				continue
			}
			if !upTo(x.Off) {
				return
			}
			end = max(end, x.Off+x.Len)
		}
		upTo(size)
	}
}
