package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Sink writes the blobs of an archive. Its methods but Close may be called by several goroutines.
type Sink struct {
	Store store.Store
	Dir   string // of the store, "" or with a slash at its end
	Name  string // of the archive
}

func (s Sink) path(base string) string { return s.Dir + s.Name + "/" + base }

// Segment writes a segment. proven reports whether it is known to be what Oak or this program made.
func (s Sink) Segment(ctx context.Context, number int, e tarfile.Entry, b []byte, proven bool) error {
	return put(ctx, s.Store, s.path(BlobName(number, e.ID)), b, Metadata(number, e, proven))
}

// begin writes the first segment so that the archive does not count until it is closed.
func (s Sink) begin(ctx context.Context, e tarfile.Entry, b []byte, proven bool) error {
	m := Metadata(0, e, proven)
	m[storekit.MetaHeader+metaPending] = "true"
	return put(ctx, s.Store, s.path(BlobName(0, e.ID)), b, m)
}

// Parts writes what follows the segments of an archive. Where listings have no metadata, rows are the
// index; see [AppendRow].
func (s Sink) Parts(ctx context.Context, binaries, graph, rows []byte) error {
	err := put(ctx, s.Store, s.path(s.Name+Binaries), binaries, nil)
	if err == nil {
		err = put(ctx, s.Store, s.path(s.Name+Graph), graph, nil)
	}
	if err == nil && len(rows) > 0 {
		err = put(ctx, s.Store, s.path(s.Name+Index), rows, nil)
	}
	return err
}

// Close ends an archive that has everything else.
func (s Sink) Close(ctx context.Context) error { return put(ctx, s.Store, s.path(Closed), nil, nil) }

func put(ctx context.Context, st store.Store, name string, b []byte, headers map[string]string) error {
	w, err := storekit.CreateAs(ctx, st, name, store.Wishes{Headers: headers})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// Remove removes what there is of an archive. Its first segment is removed last: tools of Oak that only
// read wait forever to remove an archive that has other blobs and no first segment. a is the archive if
// it counts; then it does not when its end is removed, before everything else.
func (s Sink) Remove(ctx context.Context, a *Archive) error {
	if a != nil && len(a.segments) > 0 {
		e := a.segments[0]
		b := make([]byte, e.Len)
		err := storekit.Briefly(s.Store, s.path(BlobName(0, e.ID))).ReadAt(ctx, b, 0)
		if err == nil {
			err = s.begin(ctx, e.Entry, b, e.sure)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var end, others, first []string
	for info, err := range storekit.List(ctx, s.Store, s.path("")) {
		base := strings.TrimPrefix(info.Name, s.path(""))
		number, _, ok := ParseBlobName(base)
		switch {
		case err != nil:
			return err
		case base == Closed:
			end = append(end, info.Name)
		case ok && number == 0:
			first = append(first, info.Name)
		default:
			others = append(others, info.Name)
		}
	}
	for _, some := range [...][]string{end, others, first} {
		err := pipe.Each(ctx, pipe.All(some), atOnce, func(ctx context.Context, name string) error {
			if err := storekit.Remove(ctx, s.Store, name); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// archiveWriter makes an archive of a tar that is written to it. Its end is written last, by Commit:
// before that, a Listing ignores the archive, and for Oak it is one whose writer was killed.
//
// Nothing would show that a segment in a blob is not what its tar says. So a segment that does not
// match the checksum in its name is an error.
//
// An archive that counts is never replaced. If a tar with its very segments is written to it, it gets
// what it lacks beside them, in its place.
type archiveWriter struct {
	v    *view
	ctx  context.Context
	sink Sink
	old  *Archive // that counts; or nil

	buf      []byte // of the entry that is being written, with its header
	need     int    // bytes of it
	made     *Archive
	numbers  []int             // of segments that are to be sent
	data     map[int][]byte    // of these, and of the first
	parts    map[string][]byte // what follows the segments
	ended    bool              // nothing but zeros follows
	finished bool
	done     bool
	err      error // the first
}

const maxPart = 256 << 20 // of graph, references and index

func (v *view) createArchive(ctx context.Context, name string) (store.Writer, error) {
	w := &archiveWriter{v: v, ctx: ctx, sink: Sink{v.Store, v.dir, name}, old: v.archive(name), need: tarfile.BlockSize, data: map[int][]byte{}, parts: map[string][]byte{}}
	w.made = &Archive{Name: name, Closed: true, Gap: -1, sizes: map[string]int64{}}
	if w.old == nil && v.otherLetter(name) {
		return w, w.sink.Remove(ctx, nil) // what a killed run has left: the other letter has it, too
	}
	return w, nil
}

func (w *archiveWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{Finish: w.finish}
}

func (w *archiveWriter) fail(err error) error {
	if w.err == nil && err != nil {
		w.err = &store.Error{Op: "write", Name: w.sink.path(""), Off: -1, Err: err}
	}
	return w.err
}

func (w *archiveWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && !w.ended && w.err == nil {
		take := min(w.need-len(w.buf), len(p)-n)
		w.buf = append(w.buf, p[n:n+take]...)
		if n += take; len(w.buf) == w.need {
			_ = w.fail(w.full())
		}
	}
	if w.err != nil {
		return n, w.err
	}
	return len(p), nil
}

// full handles a header, or an entry with its header, that was written completely.
func (w *archiveWriter) full() error {
	h, err := tarfile.ParseHeader(w.buf[:tarfile.BlockSize])
	if err != nil {
		w.ended = true
		return nil
	}
	n, isSegment := tarfile.ParseEntryName(h.Name)
	most := int64(maxPart)
	if isSegment {
		most = tarfile.MaxSegment
	}
	if !h.ChecksumOK || h.Size < 1 || h.Size > most {
		return fmt.Errorf("entry %.100q of %d bytes: the header is damaged, which an archive in the cloud cannot keep: expected 1 to %d bytes", h.Name, h.Size, most)
	}
	if whole := tarfile.BlockSize + int(blocks(h.Size)); len(w.buf) < whole {
		w.need = whole
		return nil
	}
	header, b := w.buf[:tarfile.BlockSize], w.buf[tarfile.BlockSize:][:h.Size]
	w.buf, w.need = nil, tarfile.BlockSize
	if !isSegment {
		w.parts[strings.TrimPrefix(h.Name, w.sink.Name)] = b
		return nil
	}
	return w.segment(header, n, b)
}

func (w *archiveWriter) segment(header []byte, n tarfile.EntryName, b []byte) error {
	number := len(w.made.segments)
	if number == tarfile.MostSegments {
		return fmt.Errorf("more than %d segments", tarfile.MostSegments)
	}
	if what := tarfile.Compare(n.ID, header, b); what != "" {
		return &segment.Error{Class: segment.Altered, Segment: n.ID, Record: -1, Off: -1, What: what + ", which nothing would show in a blob"}
	}
	e := blob{Entry: tarfile.Entry{ID: n.ID, Len: len(b)}, number: int32(number), known: true, sure: n.HasCRC}
	if n.ID.IsData() {
		e.Generation, _ = segment.GenerationOf(b)
	}
	if w.old != nil {
		if !w.old.has(number, e.Entry) {
			return w.replaces(e)
		}
		e.sure = w.old.segments[number].sure
	}
	w.made.segments, w.data[number] = append(w.made.segments, e), b
	if number == 0 && w.old == nil { // before the others, as Oak writes them
		return w.sink.begin(w.ctx, e.Entry, b, e.sure)
	}
	w.numbers = append(w.numbers, number)
	if len(w.numbers) == atOnce {
		return w.send(w.ctx)
	}
	return nil
}

func (w *archiveWriter) replaces(e blob) error {
	return fmt.Errorf("segment %s is another one there, and an archive in the cloud is never replaced: %w", e.ID, fs.ErrExist)
}

// send sends segments, or compares them with those that are there.
func (w *archiveWriter) send(ctx context.Context) error {
	err := pipe.Each(ctx, pipe.All(w.numbers), atOnce, func(ctx context.Context, n int) error {
		e, b := w.made.segments[n], w.data[n]
		if w.old == nil {
			return w.sink.Segment(ctx, n, e.Entry, b, e.sure)
		}
		is := make([]byte, len(b))
		err := storekit.Briefly(w.sink.Store, w.sink.path(BlobName(n, e.ID))).ReadAt(ctx, is, 0)
		if err == nil && !bytes.Equal(is, b) {
			err = w.replaces(e)
		}
		return err
	})
	for _, n := range w.numbers {
		if n > 0 {
			delete(w.data, n)
		}
	}
	w.numbers = w.numbers[:0]
	return err
}

// finish sends everything but the end.
func (w *archiveWriter) finish(ctx context.Context) (store.Info, error) {
	info := store.Info{Name: w.sink.Dir + w.sink.Name}
	if w.err != nil || w.finished {
		return info, w.err
	}
	w.finished = true
	if n := len(w.made.segments); w.old != nil && n < len(w.old.segments) {
		return info, w.fail(w.replaces(w.old.segments[n]))
	}
	w.made.settle()
	for _, end := range [...]string{Binaries, Graph} {
		b, ok := tarfile.TrimPart(w.parts[end])
		if !ok {
			return info, w.fail(fmt.Errorf("the tar has no %s", end[1:]))
		}
		w.parts[end], w.made.sizes[w.made.Name+end] = b, int64(len(b))
	}
	// The index that is generated from blobs must be the one of the tar.
	tail := tarfile.AppendIndexTail(nil, w.sink.Name, w.made.Entries())
	if index := w.parts[Index]; len(index) == 0 || !bytes.HasPrefix(tail[tarfile.BlockSize:], index) {
		return info, w.fail(errors.New("the index of the tar does not have the generations of its segments, which an archive in the cloud cannot keep"))
	}
	err := w.send(ctx)
	if err == nil {
		err = w.sink.Parts(ctx, w.parts[Binaries], w.parts[Graph], nil)
	}
	return info, w.fail(err)
}

func (w *archiveWriter) Commit(ctx context.Context) (store.Info, error) {
	info, err := w.finish(ctx)
	if err == nil && w.done {
		err = fs.ErrClosed
	}
	if err == nil {
		err = w.fail(w.sink.Close(ctx))
	}
	if err == nil && (w.old == nil || w.old.segments[0].begun) { // from now on the archive counts, even if its end is lost
		err = w.fail(w.sink.Segment(ctx, 0, w.made.segments[0].Entry, w.data[0], w.made.segments[0].sure))
	}
	if err != nil {
		return info, err
	}
	w.done = true
	w.v.set(w.made.Name, w.made)
	info.Size = w.made.Size()
	return info, nil
}

// Abort removes what was sent. If that fails, Oak removes it when it opens the store.
func (w *archiveWriter) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	_ = w.fail(fs.ErrClosed)
	if len(w.made.segments) == 0 || w.old != nil {
		return nil
	}
	return w.sink.Remove(context.WithoutCancel(w.ctx), nil)
}

// A Log is a journal in parts.
type Log struct {
	Store store.Store
	Dir   string
	Parts []File // the oldest first
}

// PartLines is how many lines Oak writes into a part of the journal.
const PartLines = 40_000

// Append adds lines to the journal, which ends with the bytes old.
//
// Oak finds the last line of a part that it wrote itself in the part's metadata. So new lines go to
// the next part. What goes to one part appears as a whole if it has at most 4 MiB.
func (l *Log) Append(ctx context.Context, old, added []byte) error {
	number, at, lines := 1, int64(0), 0
	if n := len(l.Parts); n > 0 {
		last := l.Parts[n-1]
		number, at = PartNumber(last.Name), last.Size
		lines = bytes.Count(old[max(0, int64(len(old))-last.Size):], []byte{'\n'})
		if last.Marked || l.Store.Can().Append == nil {
			lines = PartLines
		}
	}
	if n := len(old); n > 0 && old[n-1] != '\n' && added[0] != '\n' {
		added = append([]byte{'\n'}, added...)
	}
	for len(added) > 0 {
		if lines >= PartLines {
			number, at, lines = number+1, 0, 0
		}
		n := firstLines(added, PartLines-lines)
		p := File{Name: JournalPart(number), Size: at + int64(n)}
		if err := l.write(ctx, p.Name, added[:n], at); err != nil {
			return err
		}
		if k := len(l.Parts) - 1; k >= 0 && l.Parts[k].Name == p.Name {
			l.Parts = l.Parts[:k:k]
		}
		l.Parts = append(l.Parts, p)
		added, lines = added[n:], PartLines
	}
	return nil
}

// firstLines returns the length of the first lines of b, at most so many.
func firstLines(b []byte, most int) (n int) {
	for ; most > 0 && n < len(b); most-- {
		i := bytes.IndexByte(b[n:], '\n')
		if i < 0 {
			return len(b)
		}
		n += i + 1
	}
	return n
}

func (l *Log) write(ctx context.Context, name string, b []byte, at int64) error {
	if add := l.Store.Can().Append; add != nil {
		return add(ctx, l.Dir+name, b, at)
	}
	return put(ctx, l.Store, l.Dir+name, b, nil)
}

// Replace replaces the journal by one with parts of higher numbers. The last of them is written
// first: from then on the newest revision is the new one. The old parts are removed at the end.
func (l *Log) Replace(ctx context.Context, b []byte) error {
	number, old := 0, l.Parts
	if n := len(old); n > 0 {
		number = PartNumber(old[n-1].Name)
	}
	var parts []File
	var contents [][]byte
	for len(b) > 0 {
		n := firstLines(b, PartLines)
		number++
		parts = append(parts, File{Name: JournalPart(number), Size: int64(n)})
		contents, b = append(contents, b[:n]), b[n:]
	}
	for i, p := range slices.Backward(parts) {
		if err := l.write(ctx, p.Name, contents[i], 0); err != nil {
			return err
		}
	}
	l.Parts = parts
	for _, p := range old {
		if err := storekit.Remove(ctx, l.Store, l.Dir+p.Name); err != nil {
			return err
		}
	}
	return nil
}

// mostLines limits the length of a file of lines that is written: some ten million revisions.
const mostLines = 1 << 30

// lineWriter holds a file of lines until it is committed.
type lineWriter struct {
	name   string
	b      []byte
	commit func(ctx context.Context, b []byte) error
}

func (w *lineWriter) Write(p []byte) (int, error) {
	if len(p) > mostLines-len(w.b) {
		return 0, &store.Error{Op: "write", Name: w.name, Off: -1, Err: fmt.Errorf("more than %d bytes", mostLines)}
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

func (w *lineWriter) Can() store.WriterAbilities { return store.WriterAbilities{} }

func (w *lineWriter) Commit(ctx context.Context) (store.Info, error) {
	return store.Info{Name: w.name, Size: int64(len(w.b))}, w.commit(ctx, w.b)
}

func (w *lineWriter) Abort() error { return nil }

// create begins a tar, which becomes an archive, or another file of the store.
func (v *view) create(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	base, below := strings.CutPrefix(name, v.dir)
	_, _, isTar := tarfile.ParseName(base)
	switch {
	case below && isTar:
		return v.createArchive(ctx, base)
	case below && base == journal:
		return &lineWriter{name: name, commit: v.writeJournal}, nil
	case below && base == gcLog:
		return &lineWriter{name: name, commit: v.writeGCLog}, nil
	}
	return storekit.CreateAs(ctx, v.Store, name, wish)
}

// remove removes an archive or another file of the store.
func (v *view) remove(ctx context.Context, name string) error {
	base, below := strings.CutPrefix(name, v.dir)
	if !below || v.archive(base) == nil {
		return storekit.Remove(ctx, v.Store, name)
	}
	err := Sink{v.Store, v.dir, base}.Remove(ctx, v.archive(base))
	if err == nil {
		v.set(base, nil)
	}
	return err
}

func (v *view) writeJournal(ctx context.Context, b []byte) error {
	old, err := v.read(ctx, journal)
	if err != nil || bytes.Equal(b, old) {
		return err
	}
	return v.journal(func(l *Log) error {
		if len(old) > 0 && bytes.HasPrefix(b, old) {
			return l.Append(ctx, old, b[len(old):])
		}
		return l.Replace(ctx, b)
	})
}

func (v *view) journal(do func(*Log) error) error {
	l := &Log{v.Store, v.dir, v.parts()}
	err := do(l)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.l.Parts = l.Parts
	return err
}

// writeGCLog adds to gc.log what makes it end like b: its last line is all that Oak uses, and it
// cannot be replaced in one step. Without it, Oak would treat what was compacted as garbage.
func (v *view) writeGCLog(ctx context.Context, b []byte) error {
	old, err := v.read(ctx, gcLog)
	if err != nil {
		return err
	}
	added, extends := bytes.CutPrefix(b, old)
	switch last := LastLine(b); {
	case extends:
	case last == "":
		return storekit.Remove(ctx, v.Store, v.dir+gcLog)
	case last == LastLine(old):
		return nil
	default:
		if added = []byte(last + "\n"); old[len(old)-1] != '\n' {
			added = append([]byte{'\n'}, added...)
		}
	}
	if len(added) == 0 {
		return nil
	}
	return v.Store.Can().Append(ctx, v.dir+gcLog, added, int64(len(old)))
}

// LastLine returns the last line that is not empty.
func LastLine(b []byte) string {
	b = bytes.TrimRight(b, "\r\n")
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// read reads a file of lines; nil if there is none.
func (v *view) read(ctx context.Context, name string) ([]byte, error) {
	o, info, err := storekit.OpenInfo(ctx, v, v.dir+name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if info.Size > mostLines {
		return nil, fmt.Errorf("%s: %d bytes, expected at most %d", name, info.Size, mostLines)
	}
	b := make([]byte, info.Size)
	return b, o.ReadAt(ctx, b, 0)
}

// amend opens the journal, to which lines can be added.
func (v *view) amend(ctx context.Context, name string) (store.Amendment, error) {
	if name != v.dir+journal {
		return nil, &store.Error{Op: "amend", Name: name, Off: -1, Err: errors.ErrUnsupported}
	}
	b, err := v.read(ctx, journal)
	return &amendment{v, b}, err
}

type amendment struct {
	v *view
	b []byte
}

func (a *amendment) Size() int64 { return int64(len(a.b)) }

func (a *amendment) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > a.Size() || copy(p, a.b[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (a *amendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	if off != a.Size() || len(p) == 0 {
		return a.Truncate(ctx, off)
	}
	err := a.v.journal(func(l *Log) error { return l.Append(ctx, a.b, p) })
	if err == nil {
		a.b = append(a.b, p...)
	}
	return err
}

func (a *amendment) Truncate(context.Context, int64) error {
	return &store.Error{Op: "truncate", Name: a.v.dir + journal, Off: -1, Err: errors.ErrUnsupported}
}

func (a *amendment) Sync(context.Context) error { return nil }

func (a *amendment) Close() error { return nil }
