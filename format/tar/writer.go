package tar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// writer writes an archive.
type writer struct {
	name    string
	out     store.Writer
	z       io.WriteCloser // nil for a plain tar
	t       *tar.Writer
	scratch func() (format.Scratch, error)
	names   kit.Names
	sum     format.Summary
	held    bytes.Buffer
	buf     []byte
	err     error // why nothing can be added any more
}

var errDone = errors.New("the archive is already complete or aborted")

// heldContent is the size of the content that is read before its header is written, so that a
// source that fails leaves nothing. Longer content goes through scratch space.
const heldContent = 1 << 20

var levels = map[string]struct {
	zstd zstd.EncoderLevel
	gzip int
}{
	"":        {zstd.SpeedDefault, 6},
	"fastest": {zstd.SpeedFastest, 1},
	"fast":    {zstd.SpeedDefault, 6},
	"better":  {zstd.SpeedBetterCompression, 8},
	"best":    {zstd.SpeedBestCompression, 9},
}

// compressor returns a writer that compresses to out with a codec.
func compressor(out io.Writer, name, level string) (io.WriteCloser, error) {
	switch name {
	case codec.Gzip:
		return gzip.NewWriterLevel(out, levels[level].gzip)
	case codec.XZ, codec.XZPlain:
		return xz.NewWriter(out)
	case codec.LZ4:
		z := lz4.NewWriter(out)
		return z, z.Apply(lz4.BlockSizeOption(lz4.Block256Kb))
	}
	return zstd.NewWriter(out, zstd.WithEncoderLevel(levels[level].zstd), zstd.WithEncoderConcurrency(2))
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	if by := compression(name); by == codec.Bzip2 || by == codec.XZ || by == codec.LZ4 {
		return nil, fmt.Errorf("%s: writing tars compressed with %s is not supported: %w", format.Escape(name), by, errors.ErrUnsupported)
	}
	out, err := store.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	w := &writer{name: name, out: out, scratch: o.Scratch, names: kit.Names{}, buf: make([]byte, 128<<10)}
	var to io.Writer = out
	switch lower := strings.ToLower(name); {
	case strings.HasSuffix(lower, ".zst"), strings.HasSuffix(lower, ".tzst"):
		w.z, err = compressor(to, codec.Zstd, o.Param["level"])
	case strings.HasSuffix(lower, ".gz"), strings.HasSuffix(lower, ".tgz"):
		w.z, err = compressor(to, codec.Gzip, o.Param["level"])
	}
	if err != nil {
		return nil, errors.Join(err, out.Abort())
	}
	if w.z != nil {
		to = w.z
	}
	w.t = tar.NewWriter(to)
	return w, nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) (err error) {
	if w.err != nil {
		return w.err
	}
	if err := w.names.Check(e.Name); err != nil {
		return err
	}
	h, err := headerOf(e)
	if err != nil {
		return err
	}
	content, release, err := w.hold(ctx, e, r)
	if err != nil {
		return err
	}
	defer release()
	if err := w.t.WriteHeader(h); err != nil {
		if errors.Is(err, tar.ErrHeader) {
			return kit.NoPlace(e.Name, "%s", err.Error())
		}
		w.err = err
		return err
	}
	defer func() { w.err = err }() // from here on, writing cannot be taken back
	if content != nil {
		if _, err := io.CopyBuffer(struct{ io.Writer }{w.t}, content, w.buf); err != nil {
			return err
		}
	}
	if err := w.t.Flush(); err != nil {
		return err
	}
	w.names[e.Name] = e.Kind
	w.sum.Entries++
	w.sum.Content += e.Size
	return nil
}

// hold reads all content before any of it is written.
func (w *writer) hold(ctx context.Context, e format.Entry, r io.Reader) (io.Reader, func(), error) {
	nothing := func() {}
	if !e.Kind.HasContent() {
		return nil, nothing, nil
	}
	if e.Size <= heldContent {
		w.held.Reset()
		err := kit.CopyContent(ctx, e, r, w.buf, nil, func(p []byte) error { w.held.Write(p); return nil })
		return &w.held, nothing, err
	}
	content, _, release, err := kit.Spool(w.scratch, func(to io.Writer) error {
		return kit.CopyContent(ctx, e, r, w.buf, nil, func(p []byte) error { _, err := to.Write(p); return err })
	})
	return content, release, err
}

func headerOf(e format.Entry) (*tar.Header, error) {
	h := &tar.Header{Name: e.Name, Mode: unixMode(e), ModTime: e.ModTime, Uname: e.Owner, Gname: e.Group, Format: tar.FormatPAX}
	if id, err := strconv.Atoi(e.Owner); err == nil {
		h.Uid, h.Uname = id, ""
	}
	if id, err := strconv.Atoi(e.Group); err == nil {
		h.Gid, h.Gname = id, ""
	}
	if h.ModTime.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	switch e.Kind {
	case format.File:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	case format.Dir:
		h.Typeflag, h.Name = tar.TypeDir, e.Name+"/"
	case format.Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	case format.HardLink:
		h.Typeflag, h.Linkname = tar.TypeLink, e.Link
	case format.Fifo:
		h.Typeflag = tar.TypeFifo
	default:
		return nil, kit.NoPlace(e.Name, "a %s", e.Kind.String()+" cannot be stored")
	}
	if strings.IndexByte(e.Link, 0) >= 0 {
		return nil, kit.NoPlace(e.Name, "the target contains a NUL byte")
	}
	return h, nil
}

func unixMode(e format.Entry) int64 {
	switch {
	case e.HasMode:
		return int64(kit.UnixMode(e.Mode))
	case e.Kind == format.Dir:
		return 0o755
	}
	return 0o644
}

func (w *writer) Commit(ctx context.Context) (_ format.Summary, err error) {
	if w.err != nil {
		return w.sum, w.err
	}
	if err := w.t.Close(); err != nil {
		return w.sum, err
	}
	if w.z != nil {
		if err := w.z.Close(); err != nil {
			return w.sum, err
		}
	}
	info, err := w.out.Commit(ctx)
	if err != nil {
		return w.sum, err
	}
	w.err = errDone
	w.sum.Stored, w.sum.Volumes = info.Size, []string{w.name}
	return w.sum, nil
}

func (w *writer) Abort() error {
	if z, ok := w.z.(*zstd.Encoder); ok && w.err != errDone {
		z.Reset(nil)
	}
	w.err = errDone
	return w.out.Abort()
}
