package caf

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"unicode/utf8"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// archiveWriter writes data as it comes and keeps the rows of the index, as
// JSON already, until Commit.
type archiveWriter struct {
	name    string
	out     store.Writer
	buf     []byte // written, and not yet handed to out
	pos     int64  // of the next content byte
	end     int64  // of the last file's content
	max     int64  // chunk: content that it should hold
	whole   int64  // chunk: length of all of it
	plain   bool
	extra   string // members at the top that we do not know
	headLen int64

	rows     rowBuffer
	row      []byte
	entries  int64
	names    nameSet
	replaced map[string]bool // names not UTF-8, as other readers will see them
	copyBuf  []byte
	hasher   *blake3.Hasher
	err      error // sticky: what is out there does not match the rows any more
}

const writeBlock = 128 << 10 // what was gathered is written while it is in a level-2 cache

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	out, err := store.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &archiveWriter{name: name, out: out, max: o.ChunkSize, whole: o.ChunkMax, plain: o.NoDigests, buf: make([]byte, 0, writeBlock)}
	w.rows.scratch = o.Scratch
	w.names.seed = maphash.MakeSeed()
	for _, kv := range o.Carry {
		if kv[0] == extraAttr {
			w.extra = kv[1]
		}
	}
	w.headLen = int64(len(appendHead(nil, w.extra, w.plain)))
	return w, nil
}

// LimitError means an entry can be in no chunk at all.
type LimitError struct {
	Name string
	Size int64
	Max  int64
}

// EntryName says that only this entry is at fault.
func (e *LimitError) EntryName() string { return e.Name }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d bytes do not fit a chunk of at most %d, index included", e.Name, e.Size, e.Max)
}

func (w *archiveWriter) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	if e.Kind != format.File {
		return fmt.Errorf("%s: caf keeps files only, not a %s: %w", e.Name, e.Kind, errors.ErrUnsupported)
	}
	digest := ""
	if e.Digest.Algo == "blake3" && len(e.Digest.Sum) == digestLen && !w.plain {
		digest = e.Digest.Sum
	}
	if err := w.room(e); err != nil {
		return err
	}
	seen, err := w.checkName(e.Name)
	if err != nil {
		return err
	}
	start := w.pos
	sum, err := w.content(ctx, e, r, digest == "" && !w.plain)
	if err != nil {
		if w.err == nil {
			w.takeBack(start)
		}
		return err
	}
	if d, ok := r.(format.Digester); ok && digest == "" && !w.plain {
		if got, ok := d.ContentDigest(); ok && got.Algo == "blake3" {
			sum = got.Sum
		}
	}
	if digest == "" {
		digest = sum
	}
	w.row = w.row[:0]
	if w.entries > 0 {
		w.row = append(w.row, ',')
	}
	w.row = appendRow(w.row, e.Name, start, w.pos, digest, e.Attr[extraAttr])
	if err := w.rows.add(w.row); err != nil {
		w.err = err
		return err
	}
	w.names.add(e.Name)
	if seen != e.Name {
		if w.replaced == nil {
			w.replaced = map[string]bool{}
		}
		w.replaced[seen] = true
	}
	w.entries++
	w.end = w.pos
	return nil
}

// room says whether e fits this chunk. A chunk is closed when the next file
// would pass its size; a file larger than that has a chunk for itself.
func (w *archiveWriter) room(e format.Entry) error {
	// The longest that this row can get: names of bytes that all need escaping.
	rowLen := int64(6*len(e.Name) + maxRowRest + len(e.Attr[extraAttr]))
	index := w.headLen + w.rows.n + rowLen + int64(len(tailOfIndex))
	if w.max > 0 && w.whole > 0 && w.pos+e.Size+index+footerLen > w.whole || index > maxIndexLen {
		// It is close: measure.
		rowLen = int64(len(appendRow(nil, e.Name, w.pos, w.pos+e.Size, string(noDigest[:]), e.Attr[extraAttr]))) + 1
		index = w.headLen + w.rows.n + rowLen + int64(len(tailOfIndex))
	}
	whole := w.pos + e.Size + index + footerLen
	chunked := w.max > 0
	switch {
	case chunked && w.entries > 0 && (w.pos+e.Size > w.max || w.whole > 0 && whole > w.whole || index > format.DefaultMaxIndex):
		return format.ErrFull
	case chunked && w.whole > 0 && whole > w.whole:
		return &LimitError{e.Name, e.Size, w.whole}
	case index > maxIndexLen:
		w.err = fmt.Errorf("%s: the index would pass the 4 GiB that a caf footer can say: use chunks", w.name)
		return w.err
	}
	return nil
}

// checkName refuses a name that the index has already, and returns the name as
// other readers see it. Names that are not UTF-8 are kept as they are, but others
// see U+FFFD for each byte that is not: of two that look alike to them they would
// lose one.
func (w *archiveWriter) checkName(name string) (seen string, _ error) {
	if w.names.has(name) {
		return "", format.NoPlace(name, "a file of that name is in the archive already")
	}
	seen = name
	if !utf8.ValidString(name) {
		seen = string([]rune(name))
	}
	if w.replaced[seen] || seen != name && w.names.has(seen) {
		return "", format.NoPlace(name, "with what is not UTF-8 replaced, as other readers do, it is the name of another file in the archive")
	}
	return seen, nil
}

// content copies e's content, and hashes it on the way unless r can tell its
// digest itself.
func (w *archiveWriter) content(ctx context.Context, e format.Entry, r io.Reader, digest bool) (string, error) {
	if s, ok := r.(*format.Section); ok && (!digest || s.Sum != nil) {
		if s.N != e.Size {
			return "", &format.SizeError{Name: e.Name, Said: e.Size, Found: s.N}
		}
		err := w.section(ctx, s)
		if err != nil || !digest {
			return "", err
		}
		d, err := s.Sum()
		return d.Sum, err
	}
	if _, ok := r.(format.Digester); ok {
		digest = false
	}
	var sum hash.Hash
	if digest {
		if w.hasher == nil {
			w.hasher = blake3.New()
		}
		w.hasher.Reset()
		sum = w.hasher
	}
	if w.copyBuf == nil {
		w.copyBuf = make([]byte, 64<<10)
	}
	if err := format.CopyContent(ctx, e, r, w.copyBuf, sum, w.write); err != nil {
		return "", err
	}
	if !digest {
		return "", nil
	}
	var d [digestLen]byte
	w.hasher.Sum(d[:0])
	return string(d[:]), nil
}

// write appends content. Small writes are gathered; a large one goes through.
func (w *archiveWriter) write(p []byte) error {
	w.pos += int64(len(p))
	if len(w.buf)+len(p) > cap(w.buf) {
		if err := w.flush(); err != nil {
			return err
		}
		if len(p) >= cap(w.buf) {
			if _, err := w.out.Write(p); err != nil {
				w.err = err
			}
			return w.err
		}
	}
	w.buf = append(w.buf, p...)
	return nil
}

func (w *archiveWriter) flush() error {
	if _, err := w.out.Write(w.buf); err != nil {
		w.err = err
	}
	w.buf = w.buf[:0]
	return w.err
}

// section copies content that lies in one piece elsewhere. Short pieces are
// cheaper to read than to ask the system to copy.
func (w *archiveWriter) section(ctx context.Context, s *format.Section) error {
	if !s.Far && s.N <= int64(cap(w.buf)-len(w.buf)) {
		k := len(w.buf)
		w.buf = w.buf[:k+int(s.N)]
		if err := s.Object.ReadAt(ctx, w.buf[k:], s.Off); err != nil {
			w.buf = w.buf[:k]
			return err
		}
		w.pos += s.N
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := store.WriteRange(ctx, w.out, s.Object, s.Off, s.N); err != nil {
		// How much arrived is not known: without a way back nothing may follow.
		if rewind := w.out.Can().Rewind; rewind == nil || rewind(w.pos) != nil {
			w.err = err
		}
		return err
	}
	w.pos += s.N
	return nil
}

// takeBack forgets content from start on after its source failed. Where what is
// out cannot be taken back, the bytes stay as a gap, which the format allows;
// what must not happen is that later files are recorded at earlier places.
func (w *archiveWriter) takeBack(start int64) {
	out := w.pos - int64(len(w.buf)) // what has left the buffer
	if start >= out {
		w.buf = w.buf[:start-out]
		w.pos = start
		return
	}
	if rewind := w.out.Can().Rewind; rewind != nil && rewind(start) == nil {
		w.buf, w.pos = w.buf[:0], start
	}
}

func (w *archiveWriter) Commit(ctx context.Context) (format.Summary, error) {
	if w.err != nil {
		return format.Summary{}, w.err
	}
	if w.pos == w.end+1 {
		// One byte that no file has, left by a source that broke off, would make
		// ends look inclusive. Two cannot be mistaken.
		if err := w.write([]byte{'\n'}); err != nil {
			return format.Summary{}, err
		}
	}
	content := w.pos
	head := appendHead(nil, w.extra, w.plain)
	err := w.write(head)
	if err == nil {
		err = w.rows.each(w.write)
	}
	indexLen := int64(len(head)) + w.rows.n + int64(len(tailOfIndex))
	if err == nil {
		err = w.write(appendFooter([]byte(tailOfIndex), indexLen))
	}
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		w.err = err
		return format.Summary{}, err
	}
	w.rows.close()
	info, err := w.out.Commit(ctx)
	if err != nil {
		w.err = err
		return format.Summary{}, err
	}
	w.err = errors.New("archive is committed")
	return format.Summary{Entries: w.entries, Content: content, Stored: info.Size, Volumes: []string{w.name}}, nil
}

func (w *archiveWriter) Abort() error {
	w.rows.close()
	return w.out.Abort()
}
