package zip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// writer writes an archive. Content is compressed before its header is written, so that sizes are
// in the header.
type writer struct {
	*kit.Members
	at      uint64
	dir     kit.Spill // rows of what was written
	x       row       // of the entry that is being added
	row     []byte
	deflate *flate.Writer
	packed  bytes.Buffer
	plain   bytes.Buffer
}

var levels = map[string]int{"": 6, "fastest": 1, "fast": 3, "better": 7, "best": 9}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	level, known := levels[o.Param["level"]]
	if !known {
		level, _ = strconv.Atoi(o.Param["level"]) // the format's parameters allow only numbers
	}
	deflate, err := flate.NewWriter(nil, level)
	if err != nil {
		return nil, err
	}
	m, err := kit.NewMembers(ctx, st, name, o, "")
	if err != nil {
		return nil, err
	}
	w := &writer{Members: m, dir: kit.Spill{Scratch: o.Scratch}, deflate: deflate}
	m.Hold, m.Put, m.End = w.pack, w.put, w.end
	return w, nil
}

// refuses returns why a zip cannot hold an entry.
func refuses(e format.Entry) string {
	switch {
	case len(e.Name) >= math.MaxUint16:
		return fmt.Sprintf("name of %d bytes: expected at most %d", len(e.Name), math.MaxUint16-1)
	case e.Kind == format.Symlink && (e.Link == "" || len(e.Link) > maxLink || strings.IndexByte(e.Link, 0) >= 0):
		return fmt.Sprintf("invalid link target %q", e.Link)
	}
	return kit.UnsafeName(e.Name)
}

func (w *writer) put(_ format.Entry, content io.Reader) error {
	head := w.x.appendLocal(nil)
	if err := w.Write(head, content); err != nil {
		return err
	}
	w.at += uint64(len(head)) + w.x.stored
	w.row = w.x.append(w.row[:0])
	return w.dir.Add(w.row)
}

// newRow returns the row of an entry that begins at off, without the fields of its content.
func newRow(e format.Entry, off uint64) row {
	x := row{name: e.Name, maker: madeByUnix, time: e.ModTime, off: off, external: unixMode(e) << 16}
	if e.Kind == format.Dir {
		x.name += "/"
		x.external |= dosDir // marks a directory for systems without Unix modes
	}
	if utf8.ValidString(e.Name) {
		x.flags |= flagUTF8
	}
	return x
}

// pack compresses e's content, unless that makes it longer.
func (w *writer) pack(ctx context.Context, e format.Entry, r io.Reader) (io.Reader, func(), error) {
	nothing := func() {}
	w.x = newRow(e, w.at)
	x := &w.x
	if e.Kind == format.Symlink {
		r, e.Size = strings.NewReader(e.Link), int64(len(e.Link))
	}
	if !e.Kind.HasContent() && e.Kind != format.Symlink {
		return strings.NewReader(""), nothing, nil
	}
	x.size = uint64(e.Size)
	sum := crc32.NewIEEE()
	w.packed.Reset()
	w.plain.Reset()
	if e.Size <= kit.MostHeld {
		if err := kit.CopyContent(ctx, e, r, w.Buf, sum, func(p []byte) error { w.plain.Write(p); return nil }); err != nil {
			return nil, nil, err
		}
		x.crc = sum.Sum32()
		w.deflate.Reset(&w.packed)
		_, err := w.deflate.Write(w.plain.Bytes())
		if err = errors.Join(err, w.deflate.Close()); err != nil {
			return nil, nil, err
		}
		if w.packed.Len() < w.plain.Len() {
			x.method, x.stored = deflated, uint64(w.packed.Len())
			return &w.packed, nothing, nil
		}
		x.stored = x.size
		return &w.plain, nothing, nil
	}
	content, stored, release, err := kit.Spool(w.Scratch, func(to io.Writer) error {
		w.deflate.Reset(to)
		err := kit.CopyContent(ctx, e, r, w.Buf, sum, func(p []byte) error { _, err := w.deflate.Write(p); return err })
		if err == nil {
			err = w.deflate.Close()
		}
		return err
	})
	x.method, x.stored, x.crc = deflated, uint64(stored), sum.Sum32()
	return content, release, err
}

func (w *writer) end() error {
	if err := w.dir.Each(func(p []byte) error { return w.Write(p, nil) }); err != nil {
		return err
	}
	return w.Write(appendEnd(nil, end{count: uint64(w.Sum.Entries), size: uint64(w.dir.N), off: w.at}), nil)
}

func (w *writer) Commit(ctx context.Context) (format.Summary, error) {
	sum, err := w.Members.Commit(ctx)
	return sum, errors.Join(err, w.dir.Close())
}

func (w *writer) Abort() error { return errors.Join(w.dir.Close(), w.Members.Abort()) }
