package caf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// archiveWriter writes data as it comes, and keeps the rows of the index as JSON until Commit.
type archiveWriter struct {
	name    string
	out     store.Writer
	end     int64 // end of the last file's content
	max     int64 // chunk: the size of its content
	whole   int64 // chunk: its largest size
	most    int64 // of the index
	chunk   *format.Chunk
	plain   bool
	extra   string // unknown members at the top
	headLen int64

	rows     kit.Spill
	row      []byte
	object   []byte // the field for objects of the row
	entries  int64
	names    kit.Names
	replaced map[string]bool // names that are not UTF-8, as other readers see them
	contents contentSet      // nil unless equal contents are stored once
	shared   int64           // bytes that are not stored again

	kit.Appender // for contents, and the index after them
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	dedupe := o.Param["dedupe"] == "true"
	if dedupe && o.NoDigests {
		return nil, fmt.Errorf("%s: finding equal files needs digests, which a plain archive does not have: %w", name, errors.ErrUnsupported)
	}
	out, err := storekit.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &archiveWriter{name: name, out: out, max: o.ChunkSize, whole: o.ChunkMax, most: cmp.Or(o.IndexMax, math.MaxInt64), chunk: o.Chunk, plain: o.NoDigests,
		Appender: kit.Appender{Out: out, Algo: "blake3", NewHash: func() hash.Hash { return blake3.New() }}}
	w.rows.Scratch, w.rows.Most = o.Scratch, maxRowMem
	w.names.Scratch = o.Scratch
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

// members returns the members at the top that not every index of holdall has.
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

// A LimitError means that an entry fits into no chunk.
type LimitError struct {
	Name string
	Size int64
	Max  int64
}

// EntryName implements kit.EntryError.
func (e *LimitError) EntryName() string { return e.Name }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s: %d bytes do not fit into a chunk of at most %d, index included", e.Name, e.Size, e.Max)
}

func (w *archiveWriter) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.Err != nil {
		return w.Err
	}
	if w.object = w.object[:0]; !w.plain {
		w.object = appendObject(w.object, e)
	}
	digest := ""
	if e.Digest.Algo == w.Algo {
		digest = e.Digest.Sum
	}
	known := len(e.Attr)
	start, again := w.contents.place(digest, e.Size)
	if err := w.room(e, again); err != nil {
		return err
	}
	seen, err := w.checkName(e.Name)
	if err != nil {
		return err
	}
	if again {
		err = skipContent(ctx, e, r)
	} else {
		start = w.Pos
		digest, err = w.Content(ctx, e, r, w.plain)
	}
	switch {
	case err != nil && again:
		return err
	case err != nil:
		// If what was written cannot be taken back, the bytes remain as a gap, which the format
		// allows. Later files must not be recorded at earlier offsets.
		if w.Err == nil {
			w.TakeBack(start)
		}
		return err
	case !again:
		// The digest is known only now. If the store cannot take the content back, it stays.
		first, is := w.contents.place(digest, e.Size)
		if again = is && w.TakeBack(start); again {
			start = first
		} else if s, ok := r.(*kit.Section); !is && !(ok && s.Far) {
			// The digest of content that a store copied was not compared.
			w.contents.add(digest, start, e.Size)
		}
	}
	if len(e.Attr) != known && !w.plain { // the reader has added what it learned from the content
		w.object = appendObject(w.object[:0], e)
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
	if err := w.names.Add(e.Name, e.Kind); err != nil {
		w.Err = err
		return err
	}
	if seen != e.Name {
		columns.Rare(&w.replaced, seen, true)
	}
	w.entries++
	return nil
}

// room returns ErrFull if e does not fit into this chunk. A chunk ends when the next file would
// exceed its size; a larger file gets a chunk of its own. If the content is stored already, only
// the row needs space.
func (w *archiveWriter) room(e format.Entry, again bool) error {
	if again {
		e.Size = 0
	}
	// This is the longest that the row can be: all bytes of the name may need escaping.
	rowLen := int64(6*len(e.Name) + maxRowRest + len(e.Attr[extraAttr]) + len(w.object))
	index := w.headLen + w.rows.N + rowLen + int64(provenTail)
	if w.max > 0 && w.whole > 0 && w.Pos+e.Size+index+footerLen > w.whole || index > min(w.most, maxIndexLen) {
		// It is close to the limit, so the row is measured.
		rowLen = int64(len(appendRow(nil, e.Name, w.Pos, w.Pos+e.Size, string(noDigest[:]), e.Attr[extraAttr], w.object))) + 1
		index = w.headLen + w.rows.N + rowLen + int64(provenTail)
	}
	whole := w.Pos + e.Size + index + footerLen
	chunked := w.max > 0
	switch {
	case chunked && w.entries > 0 && (w.Pos+e.Size > w.max || w.whole > 0 && whole > w.whole || index > (format.Limits{}).OrDefault().Index):
		return format.ErrFull
	case chunked && w.whole > 0 && whole > w.whole:
		return &LimitError{e.Name, e.Size, w.whole}
	case index > w.most:
		return kit.Refuse(e.Name, "the index of the archive would exceed %d bytes, more than readers accept", w.most)
	case index > maxIndexLen:
		w.Err = fmt.Errorf("%s: the index would exceed the 4 GiB limit of caf: use chunks", w.name)
		return w.Err
	}
	return nil
}

// checkName returns an error for a name that the index already has. Otherwise it returns the name
// as other readers see it. Names that are not UTF-8 are kept unchanged, but other readers replace
// each invalid byte by U+FFFD, and would lose one of two names that become equal.
func (w *archiveWriter) checkName(name string) (seen string, _ error) {
	again, err := w.names.Has(name)
	if again {
		return "", kit.Refuse(name, "the archive already has a file with this name")
	}
	seen = name
	if !utf8.ValidString(name) {
		seen = string([]rune(name))
	}
	if again = w.replaced[seen]; !again && seen != name && err == nil {
		again, err = w.names.Has(seen)
	}
	if again {
		return "", kit.Refuse(name, "other readers replace invalid UTF-8, and then this name equals that of another file in the archive")
	}
	w.Err = cmp.Or(w.Err, err)
	return seen, err
}

func (w *archiveWriter) Commit(ctx context.Context) (format.Summary, error) {
	if w.Err != nil {
		return format.Summary{}, w.Err
	}
	if w.Pos == w.end+1 {
		// If a failed source left a single byte that belongs to no file, ends would look
		// inclusive. With two such bytes they do not.
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
	w.names.Close()
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
	w.names.Close()
	return w.out.Abort()
}

// skipContent reads e's content to its end to check its length, unless that is known.
func skipContent(ctx context.Context, e format.Entry, r io.Reader) error {
	if s, ok := r.(*kit.Section); ok {
		if s.N != e.Size {
			return &kit.SizeError{Name: e.Name, Said: e.Size, Found: s.N}
		}
		return nil
	}
	var buf []byte
	if _, hands := r.(io.WriterTo); !hands {
		buf = make([]byte, 64<<10)
	}
	return kit.CopyContent(ctx, e, r, buf, nil, func([]byte) error { return nil })
}
