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
	"github.com/holdall/holdall/internal/columns"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/store"
)

// archiveWriter writes data as it comes and keeps the rows of the index, as
// JSON already, until Commit.
type archiveWriter struct {
	name    string
	out     store.Writer
	end     int64 // of the last file's content
	max     int64 // chunk: content that it should hold
	whole   int64 // chunk: length of all of it
	chunk   *format.Chunk
	plain   bool
	extra   string // members at the top that we do not know
	headLen int64

	rows     formatkit.Spill
	row      []byte
	object   []byte // what the row says of an object
	entries  int64
	names    nameSet
	replaced map[string]bool // names not UTF-8, as other readers will see them
	contents contentSet      // nil if equal ones are not stored once
	shared   int64           // bytes that are not stored again

	formatkit.Appender // of contents, and of the index behind them
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	dedupe := o.Param["dedupe"] == "true"
	if dedupe && o.NoDigests {
		return nil, fmt.Errorf("%s: finding equal files needs digests, which a plain archive does not have: %w", name, errors.ErrUnsupported)
	}
	out, err := store.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &archiveWriter{name: name, out: out, max: o.ChunkSize, whole: o.ChunkMax, chunk: o.Chunk, plain: o.NoDigests,
		Appender: formatkit.Appender{Out: out, Algo: "blake3", NewHash: func() hash.Hash { return blake3.New() }}}
	w.rows.Scratch, w.rows.Most = o.Scratch, maxRowMem
	w.names.seed = maphash.MakeSeed()
	if dedupe {
		w.contents = contentSet{}
	}
	for _, kv := range o.Carry {
		if kv[0] == extraAttr {
			w.extra = kv[1]
		}
	}
	w.headLen = int64(len(appendHead(nil, w.members(true), w.plain)))
	return w, nil
}

// members are those at the top that are not in every index of ours.
func (w *archiveWriter) members(last bool) string {
	if w.chunk == nil || w.plain {
		return w.extra
	}
	top := topLevel{chunk: w.chunk.Number, extra: []byte(w.extra)}
	if last {
		top.chunks = top.chunk
	}
	return top.members()
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
	return fmt.Sprintf("%s: %d bytes do not fit into a chunk of at most %d, index included", e.Name, e.Size, e.Max)
}

func (w *archiveWriter) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.Err != nil {
		return w.Err
	}
	if e.Kind != format.File {
		return fmt.Errorf("%s: caf can store only files, not a %s: %w", e.Name, e.Kind, errors.ErrUnsupported)
	}
	if w.object = w.object[:0]; !w.plain {
		w.object = appendObject(w.object, e)
	}
	digest := ""
	if e.Digest.Algo == w.Algo {
		digest = e.Digest.Sum
	}
	start, again := w.contents.place(digest, e.Size)
	if err := w.room(e, again); err != nil {
		return err
	}
	seen, err := w.checkName(e.Name)
	if err != nil {
		return err
	}
	if again {
		err = formatkit.SkipContent(ctx, e, r)
	} else {
		start = w.Pos
		digest, err = w.Content(ctx, e, r, w.plain)
	}
	switch {
	case err != nil && again:
		return err
	case err != nil:
		// Where what is out cannot be taken back, the bytes stay as a gap, which the
		// format allows; what must not happen is that later files are recorded at
		// earlier places.
		if w.Err == nil {
			w.TakeBack(start)
		}
		return err
	case !again:
		// What it is is only known now: it stays where the store takes nothing back.
		first, is := w.contents.place(digest, e.Size)
		if again = is && w.TakeBack(start); again {
			start = first
		} else if s, ok := r.(*format.Section); !is && !(ok && s.Far) {
			// Of what a store copies nobody has seen that it has its digest.
			w.contents.add(digest, start, e.Size)
		}
	}
	if !again {
		w.end = w.Pos
	} else {
		w.shared += e.Size
	}
	w.row = w.row[:0]
	if w.entries > 0 {
		w.row = append(w.row, ',')
	}
	w.row = appendRow(w.row, e.Name, start, start+e.Size, digest, e.Attr[extraAttr], w.object)
	if err := w.rows.Add(w.row); err != nil {
		w.Err = err
		return err
	}
	w.names.add(e.Name)
	if seen != e.Name {
		columns.Rare(&w.replaced, seen, true)
	}
	w.entries++
	return nil
}

// room says whether e fits this chunk. A chunk is closed when the next file
// would pass its size; a file larger than that has a chunk for itself. Of a content that
// is there again only the row takes room.
func (w *archiveWriter) room(e format.Entry, again bool) error {
	if again {
		e.Size = 0
	}
	// The longest that this row can get: names of bytes that all need escaping.
	rowLen := int64(6*len(e.Name) + maxRowRest + len(e.Attr[extraAttr]) + len(w.object))
	index := w.headLen + w.rows.N + rowLen + int64(provenTail)
	if w.max > 0 && w.whole > 0 && w.Pos+e.Size+index+footerLen > w.whole || index > maxIndexLen {
		// It is close: measure.
		rowLen = int64(len(appendRow(nil, e.Name, w.Pos, w.Pos+e.Size, string(noDigest[:]), e.Attr[extraAttr], w.object))) + 1
		index = w.headLen + w.rows.N + rowLen + int64(provenTail)
	}
	whole := w.Pos + e.Size + index + footerLen
	chunked := w.max > 0
	switch {
	case chunked && w.entries > 0 && (w.Pos+e.Size > w.max || w.whole > 0 && whole > w.whole || index > format.DefaultMaxIndex):
		return format.ErrFull
	case chunked && w.whole > 0 && whole > w.whole:
		return &LimitError{e.Name, e.Size, w.whole}
	case index > maxIndexLen:
		w.Err = fmt.Errorf("%s: the index would exceed the 4 GiB limit of caf: use chunks", w.name)
		return w.Err
	}
	return nil
}

// checkName refuses a name that the index has already, and returns the name as
// other readers see it. Names that are not UTF-8 are kept as they are, but others
// see U+FFFD for each byte that is not: of two that look alike to them they would
// lose one.
func (w *archiveWriter) checkName(name string) (seen string, _ error) {
	if w.names.has(name) {
		return "", formatkit.NoPlace(name, "the archive already has a file with this name")
	}
	seen = name
	if !utf8.ValidString(name) {
		seen = string([]rune(name))
	}
	if w.replaced[seen] || seen != name && w.names.has(seen) {
		return "", formatkit.NoPlace(name, "other readers replace invalid UTF-8, and then this name equals that of another file in the archive")
	}
	return seen, nil
}

func (w *archiveWriter) Commit(ctx context.Context) (format.Summary, error) {
	if w.Err != nil {
		return format.Summary{}, w.Err
	}
	if w.Pos == w.end+1 {
		// One byte that no file has, left by a source that broke off, would make
		// ends look inclusive. Two cannot be mistaken.
		if err := w.Append([]byte{'\n'}); err != nil {
			return format.Summary{}, err
		}
	}
	content := w.Pos
	text := newIndexText(w.plain, w.Append)
	err := text.add(appendHead(nil, w.members(w.chunk != nil && w.chunk.Last), w.plain))
	if err == nil {
		err = w.rows.Each(text.add)
	}
	if err == nil {
		err = text.end()
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		w.Err = err
		return format.Summary{}, err
	}
	w.rows.Close()
	info, err := w.out.Commit(ctx)
	if err != nil {
		w.Err = err
		return format.Summary{}, err
	}
	w.Err = errors.New("archive is committed")
	return format.Summary{Entries: w.entries, Content: content + w.shared, Shared: w.shared, Stored: info.Size, Volumes: []string{w.name}}, nil
}

func (w *archiveWriter) Abort() error {
	w.rows.Close()
	return w.out.Abort()
}
