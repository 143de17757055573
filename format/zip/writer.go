package zip

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// writer writes an archive. Content is compressed before its header is written, so that sizes are
// in the header and a source that fails leaves nothing.
type writer struct {
	name    string
	out     store.Writer
	at      uint64
	dir     kit.Spill // rows of what was written
	row     []byte
	scratch func() (format.Scratch, error)
	names   kit.Names
	sum     format.Summary
	deflate *flate.Writer
	packed  bytes.Buffer
	plain   bytes.Buffer
	buf     []byte
	err     error // why nothing can be added any more
}

// heldContent is the largest content that is compressed in memory.
const heldContent = 1 << 20

var levels = map[string]int{"": 6, "fastest": 1, "fast": 3, "better": 7, "best": 9}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	level := levels[o.Param["level"]]
	out, err := store.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &writer{name: name, out: out, scratch: o.Scratch, dir: kit.Spill{Scratch: o.Scratch}, names: kit.Names{}, buf: make([]byte, 128<<10)}
	w.deflate, err = flate.NewWriter(nil, level)
	if err != nil {
		return nil, errors.Join(err, out.Abort())
	}
	return w, nil
}

var errDone = errors.New("the archive is already complete or aborted")

func (w *writer) check(e format.Entry) error {
	no := func(why string, args ...any) error {
		return kit.NoPlace(e.Name, why, args...)
	}
	switch err := w.names.Check(e.Name); {
	case err != nil:
		return err
	case len(e.Name) >= math.MaxUint16:
		return no("name of %d bytes: expected at most %d", len(e.Name), math.MaxUint16-1)
	case e.Kind == format.Symlink && (e.Link == "" || len(e.Link) > maxLink || strings.IndexByte(e.Link, 0) >= 0):
		return no("invalid link target %q", e.Link)
	case e.Kind != format.File && e.Kind != format.Dir && e.Kind != format.Symlink:
		return no("a %s cannot be stored", e.Kind)
	}
	return nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) (err error) {
	if w.err != nil {
		return w.err
	}
	if err := w.check(e); err != nil {
		return err
	}
	x := newRow(e, w.at)
	if e.Kind == format.Symlink {
		r = strings.NewReader(e.Link)
		e.Size, e.Digest = int64(len(e.Link)), format.Digest{}
	}
	content, release, err := w.pack(ctx, e, r, &x)
	if err != nil {
		return err
	}
	defer release()
	defer func() { w.err = err }() // from here on, writing cannot be taken back
	head := x.appendLocal(nil)
	if _, err := w.out.Write(head); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w.out}, content, w.buf); err != nil {
		return err
	}
	w.at += uint64(len(head)) + x.stored
	w.names[e.Name] = e.Kind
	w.sum.Entries++
	if e.Kind == format.File {
		w.sum.Content += e.Size
	}
	w.row = x.append(w.row[:0])
	return w.dir.Add(w.row)
}

// newRow returns the row of an entry that begins at off, without the fields of its content.
func newRow(e format.Entry, off uint64) row {
	x := row{name: e.Name, maker: madeByUnix, time: e.ModTime, off: off, external: unixMode(e) << 16}
	if e.Kind == format.Dir {
		x.name += "/"
		x.external |= 0x10 // marks a directory for systems without Unix modes
	}
	if utf8.ValidString(e.Name) {
		x.flags |= flagUTF8
	}
	return x
}

// pack compresses e's content, unless that makes it longer.
func (w *writer) pack(ctx context.Context, e format.Entry, r io.Reader, x *row) (io.Reader, func(), error) {
	nothing := func() {}
	if !e.Kind.HasContent() && e.Kind != format.Symlink {
		return strings.NewReader(""), nothing, nil
	}
	x.size = uint64(e.Size)
	sum := crc32.NewIEEE()
	w.packed.Reset()
	w.plain.Reset()
	if e.Size <= heldContent {
		if err := kit.CopyContent(ctx, e, r, w.buf, sum, func(p []byte) error { w.plain.Write(p); return nil }); err != nil {
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
	content, stored, release, err := kit.Spool(w.scratch, func(to io.Writer) error {
		w.deflate.Reset(to)
		err := kit.CopyContent(ctx, e, r, w.buf, sum, func(p []byte) error { _, err := w.deflate.Write(p); return err })
		if err == nil {
			err = w.deflate.Close()
		}
		return err
	})
	x.method, x.stored, x.crc = deflated, uint64(stored), sum.Sum32()
	return content, release, err
}

func (w *writer) Commit(ctx context.Context) (_ format.Summary, err error) {
	if w.err != nil {
		return w.sum, w.err
	}
	defer func() { w.err = cmp.Or(err, errDone) }()
	if err := w.dir.Each(func(p []byte) error { _, err := w.out.Write(p); return err }); err != nil {
		return w.sum, err
	}
	if _, err := w.out.Write(appendEnd(nil, end{count: uint64(w.sum.Entries), size: uint64(w.dir.N), off: w.at})); err != nil {
		return w.sum, err
	}
	info, err := w.out.Commit(ctx)
	if err != nil {
		return w.sum, err
	}
	w.sum.Stored, w.sum.Volumes = info.Size, []string{w.name}
	return w.sum, w.dir.Close()
}

func (w *writer) Abort() error {
	w.err = errDone
	return errors.Join(w.dir.Close(), w.out.Abort())
}
