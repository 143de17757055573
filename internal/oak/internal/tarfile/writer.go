package tarfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Tail generates what follows the segments of a tar. It can be used alone if the segments exist
// already: a tar that was not closed needs nothing else.
//
// It keeps its output in memory.
type Tail struct {
	entries  []byte
	graph    graphBuilder
	binaries binariesBuilder
	known    map[ID]struct{}
	end      int64 // where it can begin
	mostPart int64 // bytes of graph and binary references; 0 is MaxPart
}

// Add adds a segment. For a data segment, refs is its reference table, and binaries are the IDs
// of the binaries that its records name. Segments may come in any order.
func (t *Tail) Add(e Entry, refs IDs, binaries []string) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("segment %s: %s", e.ID, fmt.Sprintf(format, a...))
	}
	switch {
	case e.Len < 1 || e.Len > MaxSegment:
		return bad("%d bytes, expected 1 to %d", e.Len, MaxSegment)
	case e.Pos < BlockSize || e.Pos%BlockSize != 0:
		return bad("position %d, expected a multiple of %d, at least that", e.Pos, BlockSize)
	case e.Generation.Gen < 0 || e.Generation.Full < 0:
		return bad("generation %s", e.Generation)
	case len(refs)%len(ID{}) != 0:
		return bad("references: %d bytes, expected a multiple of %d", len(refs), len(ID{}))
	case !e.ID.IsData() && (len(refs) > 0 || len(binaries) > 0):
		return bad("references of a segment that is not a data segment")
	case !e.ID.IsData() && e.Generation != Generation{}:
		return bad("generation %s of a segment that is not a data segment", e.Generation)
	}
	if _, twice := t.known[e.ID]; twice {
		return bad("duplicate segment")
	}
	lists, names := int64(t.graph.size()+nodeLen+len(refs)), int64(t.binaries.maxSize()+generationV2+segmentRefsLen)
	for _, b := range binaries {
		names += 4 + int64(len(b))
	}
	if most := cmp.Or(t.mostPart, MaxPart); max(lists, names) > most {
		return &Error{Class: Limit, Offset: e.Pos, What: fmt.Sprintf("graph or binary references: up to segment %s %d bytes, expected at most %d", e.ID, max(lists, names), most)}
	}
	end := max(t.end, e.end())
	if end > maxLen-lists-names-int64(len(t.entries)+entryV2+footerLen+6*BlockSize+trailerLen) {
		return bad("the tar would exceed %d bytes", int64(maxLen))
	}
	if t.known == nil {
		t.known = map[ID]struct{}{}
	}
	t.known[e.ID] = struct{}{}
	t.end = end
	t.entries = appendEntry(t.entries, e)
	t.graph.add(e.ID, refs)
	t.binaries.add(e.ID, e.Generation, binaries)
	return nil
}

func (t *Tail) Len() int { return len(t.known) }

// size returns the maximum size of the tail.
func (t *Tail) size() int64 {
	return int64(t.binaries.maxSize()) + int64(t.graph.size()) + int64(len(t.entries)+footerLen) + 6*BlockSize + trailerLen
}

// Parts returns the references to binaries and the graph, with their footers, as in a tar.
func (t *Tail) Parts() (binaries, graph []byte) {
	return t.binaries.append(nil), t.graph.append(nil)
}

// Append appends the tail of the tar of the given name. A tar without segments cannot have a
// tail. mtime is called once for each of three headers.
func (t *Tail) Append(b []byte, name string, mtime func() time.Time) ([]byte, error) {
	binaries, graph := t.Parts()
	return t.appendParts(b, name, mtime, binaries, graph)
}

func (t *Tail) appendParts(b []byte, name string, mtime func() time.Time, binaries, graph []byte) ([]byte, error) {
	if t.Len() == 0 {
		return b, fmt.Errorf("%s: no segments, expected at least one", name)
	}
	if len(name)+len(".idx") > nameLen {
		return b, fmt.Errorf("%s: a name of %d bytes, expected at most %d", name, len(name), nameLen-len(".idx"))
	}
	for _, p := range []struct {
		suffix  string
		content []byte
	}{{".brf", binaries}, {".gph", graph}, {".idx", appendIndex(nil, t.entries)}} {
		n := len(p.content) + pad(len(p.content))
		b = AppendHeader(b, name+p.suffix, int64(n), mtime())
		b = append(b, zeros[:n-len(p.content)]...)
		b = append(b, p.content...)
	}
	b = append(b, zeros[:]...)
	return append(b, zeros[:]...), nil
}

// AppendIndexTail appends the index of the tar of the given name, with its header, and the end of
// the tar. Entries may be in any order.
func AppendIndexTail(b []byte, name string, all []Entry) []byte {
	var entries []byte
	for _, e := range all {
		entries = appendEntry(entries, e)
	}
	content := appendIndex(nil, entries)
	b = AppendHeader(b, name+".idx", int64(len(content)), time.Unix(0, 0))
	b = append(b, content...)
	b = append(b, zeros[:]...)
	return append(b, zeros[:]...)
}

// A Writer writes a tar sequentially: segments as they are added, and at the end what follows
// them, which it keeps in memory until then. Its output depends only on what is added and on the
// times. It must be used by one goroutine.
type Writer struct {
	w     io.Writer
	name  string
	mtime func() time.Time
	tail  Tail
	size  int64
	buf   []byte
	err   error // the first; nothing is written after it

	moved  bool      // some segments had headers before
	newest time.Time // in these headers
}

// NewWriter begins the tar of the given name in w, which the caller still owns. mtime is called
// for each header; nil is the time at which it is written.
func NewWriter(w io.Writer, name string, mtime func() time.Time) *Writer {
	if mtime == nil {
		mtime = time.Now
	}
	return &Writer{w: w, name: name, mtime: mtime}
}

// Add writes a segment. If it refuses one, the tar is unchanged; after a failed write it cannot
// be continued. See [Tail.Add]. Oak's cleanup requires that a bulk segment precedes the segments
// that refer to it.
func (w *Writer) Add(id ID, gen Generation, data []byte, refs IDs, binaries []string) error {
	return w.add(nil, id, gen, data, refs, binaries)
}

// NewHeader returns the header of a segment in a new tar. Its name gets a checksum if old is nil,
// because this program made the segment, or if old proves it. Otherwise it is the old header, which
// has none or a wrong one: what is damaged or not certain goes on to be seen as such.
func NewHeader(old []byte, id ID, data []byte, mtime time.Time) []byte {
	if old != nil && !Proves(id, old, data) {
		return old
	}
	return AppendHeader(nil, entryName(id, checksum(data)), int64(len(data)), mtime)
}

// Unproven returns the header of a segment that nothing proves.
func Unproven(id ID, data []byte) []byte {
	return AppendHeader(nil, id.String(), int64(len(data)), time.Now())
}

// Put is Add for a segment that may come from another tar. Its header there decides on the new one; see
// [NewHeader], and keeps its time. If its time is lost, it gets the newest of those before.
func (w *Writer) Put(f segment.Finished) error {
	refs := make(IDs, 0, len(f.Refs)*len(ID{}))
	for _, id := range f.Refs {
		refs = append(refs, id[:]...)
	}
	return w.add(f.Header, f.ID, f.Generation, f.Data, refs, f.BlobIDs)
}

func (w *Writer) add(old []byte, id ID, gen Generation, data []byte, refs IDs, binaries []string) error {
	if w.err != nil {
		return w.err
	}
	e := Entry{ID: id, Pos: w.size + BlockSize, Len: len(data), Generation: gen}
	if err := w.tail.Add(e, refs, binaries); err != nil {
		if limit, ok := err.(*Error); ok {
			limit.Object = w.name
			return limit
		}
		return fmt.Errorf("%s: %w", w.name, err)
	}
	var at time.Time
	if h, err := ParseHeader(old); old == nil {
		at = w.mtime()
	} else if w.moved = true; err == nil && h.ChecksumOK {
		if at = h.ModTime; at.After(w.newest) {
			w.newest = at
		}
	} else {
		at = w.newest
	}
	w.buf = append(w.buf[:0], NewHeader(old, id, data, at)...)
	w.buf = append(w.buf, data...)
	w.buf = append(w.buf, zeros[:pad(len(data))]...)
	return w.write(w.buf)
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.size += int64(n)
	w.err = err
	return err
}

func (w *Writer) Size() int64 { return w.size }

// MostSegments is the largest number of segments in an archive in the cloud: their numbers have four
// digits.
const MostSegments = 1 << 16

// Full reports whether the next segment should go into the next tar, as in Oak: the tar has at
// least limit bytes, as many segments as an archive in the cloud can have, or one of its parts might
// become too long with one more segment.
func (w *Writer) Full(limit int64) bool {
	const refs = 1 << 20 // more than the references of a segment
	part := max(w.tail.graph.size(), w.tail.binaries.maxSize())
	return w.size >= limit || w.tail.Len() == MostSegments || part > MaxPart-refs || w.size > maxLen-w.tail.size()-scanWindow-refs
}

// Close writes what follows the segments. There must be at least one segment.
func (w *Writer) Close() error { return w.CloseWith(w.Parts()) }

// Parts returns what Close would write before the index: references to binaries and graph.
func (w *Writer) Parts() (binaries, graph []byte) { return w.tail.Parts() }

// CloseWith is Close with existing references to binaries and an existing graph, from another tar
// of these segments.
func (w *Writer) CloseWith(binaries, graph []byte) error {
	if w.err != nil {
		return w.err
	}
	if w.moved {
		w.mtime = func() time.Time { return w.newest }
	}
	b, err := w.tail.appendParts(w.buf[:0], w.name, w.mtime, binaries, graph)
	if err != nil {
		return err
	}
	if err := w.write(b); err != nil {
		return err
	}
	w.err = errors.New("tar: already closed")
	return nil
}
