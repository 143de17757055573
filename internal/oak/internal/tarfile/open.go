package tarfile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Options of [Open]. The zero value is valid.
type Options struct {
	Tail    int   // how many bytes at the end to read first; 0 is 64 KiB
	MaxPart int64 // maximum size of graph and binary references; 0 is [MaxPart]

	// Blobs means that the tar is a view of an archive that stores each segment as a separate blob.
	// Its headers are generated and prove nothing about segments, and the bytes before a part are
	// not read with it.
	Blobs bool
}

// MaxPart is how long graph and binary references are in tars that are read and written.
const MaxPart = 256 << 20

// A Tar is a file with an intact index. Its methods may be called in parallel.
type Tar struct {
	obj   store.Object
	name  string
	size  int64
	o     Options
	index *Index
	place indexPlace
}

// Open reads the index of a tar with one request, or two if the index is longer than the first
// request. name is for messages. The caller keeps ownership of the object.
//
// The error is a [*NoIndex] for a file that Oak would recover by a scan.
func Open(ctx context.Context, obj store.Object, name string, o Options) (*Tar, error) {
	o.Tail = max(cmp.Or(o.Tail, 64<<10), trailerLen+footerLen)
	o.MaxPart = cmp.Or(o.MaxPart, MaxPart)
	tail := make([]byte, o.Tail)
	n, err := storekit.ReadTail(ctx, obj, tail)
	if err != nil {
		return nil, readError(name, 0, err)
	}
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	if int64(n) != min(int64(o.Tail), info.Size) {
		return nil, store.ErrChanged
	}
	t := &Tar{obj: obj, name: name, size: info.Size, o: o}
	tail = tail[:n]
	place, none := locateIndex(tail, t.size)
	if none != nil {
		none.Object = name
		return nil, none
	}
	t.place = place
	// A copy, since the tail is longer and there are thousands of tars.
	b := make([]byte, place.count*place.step)
	if have := t.size - int64(n); place.from < have {
		early := b[:min(int64(len(b)), have-place.from)]
		if err := obj.ReadAt(ctx, early, place.from); err != nil {
			return nil, readError(name, place.from, err)
		}
		copy(b[len(early):], tail)
	} else {
		copy(b, tail[place.from-have:])
	}
	if t.index, none = parseIndex(b, place); none != nil {
		none.Object = name
		return nil, none
	}
	return t, nil
}

func (t *Tar) Index() *Index { return t.index }

func (t *Tar) Size() int64 { return t.size }

func (t *Tar) fault(c Class, off int64, format string, a ...any) *Error {
	return &Error{Class: c, Object: t.name, Offset: off, What: fmt.Sprintf(format, a...)}
}

// Read reads the segment of entry i into buf, or into a longer slice if buf is too short. It
// makes one request, and does not verify the checksum.
func (t *Tar) Read(ctx context.Context, i int, buf []byte) ([]byte, error) {
	e := t.index.At(i)
	if e.Len > MaxSegment {
		return nil, t.fault(OutOfBounds, e.Pos, "segment %s: %d bytes, expected at most %d", e.ID, e.Len, MaxSegment)
	}
	if e.Pos+int64(e.Len) > t.size {
		return nil, t.fault(OutOfBounds, e.Pos, "segment %s: ends at %d, expected at most %d", e.ID, e.Pos+int64(e.Len), t.size)
	}
	buf = slices.Grow(buf[:0], e.Len)[:e.Len]
	if err := t.obj.ReadAt(ctx, buf, e.Pos); err != nil {
		return nil, readError(t.name, e.Pos, err)
	}
	return buf, nil
}

// A part is the graph or the binary references: header, zeros, content, footer.
type part struct {
	Span
	f footer
}

// content returns where the content begins, whose size is in the footer.
func (p part) content() int64 { return p.end() - int64(p.f.size) }

type Span struct{ Off, Len int64 }

func (s Span) end() int64 { return s.Off + s.Len }

// window reads a file from its end. Each read also returns what precedes the requested bytes.
type window struct {
	t   *Tar
	b   []byte
	off int64
}

// tailRun is how many bytes are read with a footer. Most graphs have about that size.
const tailRun = 64 << 10

func (w *window) at(ctx context.Context, off, n int64) ([]byte, error) {
	if off < w.off || off+n > w.off+int64(len(w.b)) {
		from := off
		if !w.t.o.Blobs {
			from = min(off, max(0, off+n-tailRun))
		}
		b := make([]byte, off+n-from)
		if err := w.t.obj.ReadAt(ctx, b, from); err != nil {
			return nil, readError(w.t.name, from, err)
		}
		w.b, w.off = b, from
	}
	return w.b[off-w.off:][:n:n], nil
}

// locate reads the footer that ends at end.
func (w *window) locate(ctx context.Context, end int64, check func(footer, int64) *Error) (part, error) {
	if end < BlockSize+footerLen {
		return part{}, w.t.fault(Truncated, end, "no room before the index for graph and binary references")
	}
	b, err := w.at(ctx, end-footerLen, footerLen)
	if err != nil {
		return part{}, err
	}
	f := parseFooter(b)
	if e := check(f, end); e != nil {
		e.Object = w.t.name
		return part{}, e
	}
	n := int64(f.size)
	n += pad(n) + BlockSize // within the file: checked in whole blocks
	return part{Span{end - n, n}, f}, nil
}

// content reads what precedes a part's footer. It returns a copy if the window is much longer.
func (w *window) content(ctx context.Context, p part) ([]byte, error) {
	n := int64(p.f.size) - footerLen
	if n > w.t.o.MaxPart {
		return nil, w.t.fault(Limit, p.end()-8, "graph or binary references: %d bytes, expected at most %d", n, w.t.o.MaxPart)
	}
	b, err := w.at(ctx, p.content(), n)
	if err == nil && int64(cap(w.b)) > 2*n {
		b = bytes.Clone(b)
	}
	return b, err
}

// read reads and parses the part that ends at end.
func read[T any](ctx context.Context, w *window, end int64, check func(footer, int64) *Error, parse func([]byte, footer) (*T, *Error)) (*T, part, error) {
	p, err := w.locate(ctx, end, check)
	var b []byte
	if err == nil {
		b, err = w.content(ctx, p)
	}
	if err != nil {
		return nil, p, err
	}
	x, bad := parse(b, p.f)
	if bad != nil {
		bad.Object = w.t.name
		bad.Offset += p.content()
		return nil, p, bad
	}
	return x, p, nil
}

func (w *window) graph(ctx context.Context) (*Graph, part, error) {
	return read(ctx, w, w.t.place.header, checkGraph, parseGraph)
}

// binaries finds the references before the graph, whose content may be damaged, or where they
// should be if there is no graph.
func (w *window) binaries(ctx context.Context) (*BinaryRefs, part, error) {
	end := w.t.place.header
	g, err := w.locate(ctx, end, func(f footer, end int64) *Error {
		f.count = 0 // only the beginning of the graph matters
		return checkGraph(f, end)
	})
	switch {
	case err == nil:
		end = g.Off
	case !IsDamage(err):
		return nil, part{}, err
	}
	return read(ctx, w, end, checkBinaries, parseBinaries)
}

// Graph reads the graph. An [*Error] means that Oak would accept none: its cleanup fails.
func (t *Tar) Graph(ctx context.Context) (*Graph, error) {
	g, _, err := (&window{t: t}).graph(ctx)
	return g, err
}

// Binaries reads the binary references. An [*Error] means that they cannot be read: Oak then
// assumes that the segments refer to no binaries, and its garbage collection deletes these. If the
// graph is damaged, Oak does not find the references; Binaries does if the size of the graph is
// correct.
func (t *Tar) Binaries(ctx context.Context) (*BinaryRefs, error) {
	r, _, err := (&window{t: t}).binaries(ctx)
	return r, err
}

// Raw returns references to binaries and graph with their footers, as stored in the tar. An
// [*Error] means that either is damaged.
func (t *Tar) Raw(ctx context.Context) (binaries, graph []byte, err error) {
	w := &window{t: t}
	raw := func(p part, err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		b, err := w.at(ctx, p.content(), int64(p.f.size))
		return bytes.Clone(b), err
	}
	_, p, err := w.graph(ctx)
	if graph, err = raw(p, err); err != nil {
		return nil, nil, err
	}
	_, p, err = w.binaries(ctx)
	binaries, err = raw(p, err)
	return binaries, graph, err
}

// TrimPart returns references to binaries or a graph, with their footer, of an entry of a tar. ok is
// false if the footer does not fit.
func TrimPart(entry []byte) (b []byte, ok bool) {
	if len(entry) < footerLen {
		return nil, false
	}
	n := int64(parseFooter(entry).size)
	if n < footerLen || n > int64(len(entry)) {
		return nil, false
	}
	return entry[int64(len(entry))-n:], true
}
