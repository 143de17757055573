package tar

import (
	"archive/tar"
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
	l, word := levels[level]
	if n, err := strconv.Atoi(level); !word && err == nil {
		l.zstd, l.gzip = zstd.EncoderLevelFromZstd(n), n
	}
	switch name {
	case codec.Gzip:
		if l.gzip > gzip.BestCompression {
			return nil, fmt.Errorf("level %s: expected at most 9 for gzip", level)
		}
		return gzip.NewWriterLevel(out, l.gzip)
	case codec.XZ, codec.XZPlain:
		return xz.NewWriter(out)
	case codec.LZ4:
		z := lz4.NewWriter(out)
		return z, z.Apply(lz4.BlockSizeOption(lz4.Block256Kb))
	}
	return zstd.NewWriter(out, zstd.WithEncoderLevel(l.zstd), zstd.WithEncoderConcurrency(2))
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	if by := compression(name); by != codec.Raw && by != codec.Zstd && by != codec.Gzip {
		return nil, fmt.Errorf("%s: tars are written as .tar, .tar.zst or .tar.gz, and read with %s: %w", format.Escape(name), by, errors.ErrUnsupported)
	}
	m, err := kit.NewMembers(ctx, st, name, o, "")
	if err != nil {
		return nil, err
	}
	w := &writer{Members: m, out: m.Out}
	switch lower := strings.ToLower(name); {
	case strings.HasSuffix(lower, ".zst"), strings.HasSuffix(lower, ".tzst"):
		w.z, err = compressor(m.Out, codec.Zstd, o.Param["level"])
	case strings.HasSuffix(lower, ".gz"), strings.HasSuffix(lower, ".tgz"):
		w.z, err = compressor(m.Out, codec.Gzip, o.Param["level"])
	}
	if err != nil {
		return nil, errors.Join(err, m.Abort())
	}
	if w.z != nil {
		m.Out = w.z
	}
	t := tar.NewWriter(m.Out)
	m.Out = t
	m.Put = func(e format.Entry, content io.Reader) error {
		if err := w.endFrame(e.Size >= mostFrame); err != nil {
			return err
		}
		if err := t.WriteHeader(headerOf(e)); errors.Is(err, tar.ErrHeader) {
			return kit.Refuse(e.Name, "%s", err.Error())
		} else if err != nil {
			return err
		}
		w.has += e.Size
		return errors.Join(m.Write(nil, content), t.Flush(), w.endFrame(kit.EndsUnitAfter(e.Name, e.Size, w.has, mostFrame)))
	}
	m.End = func() error {
		if err := t.Close(); err != nil || w.z == nil {
			return err
		}
		return w.z.Close()
	}
	return w, nil
}

// refuses returns why a tar cannot hold an entry.
func refuses(e format.Entry) string {
	if strings.IndexByte(e.Link, 0) >= 0 {
		return "the target contains a NUL byte"
	}
	return kit.UnsafeName(e.Name)
}

func headerOf(e format.Entry) *tar.Header {
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
	}
	return h
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

// writer writes an archive.
type writer struct {
	*kit.Members
	z   io.WriteCloser // nil for a plain tar
	out io.Writer      // what z writes to
	has int64          // content of the current frame
}

// mostFrame is the content from which a frame of zstd ends, after a file. A file as long has a frame of its own.
const mostFrame = 3 << 19

// endFrame ends a frame of zstd if that is wanted, so that later files can be read without what is before, and stay the
// same if that changes.
func (w *writer) endFrame(wanted bool) error {
	z, ok := w.z.(*zstd.Encoder)
	if !ok || !wanted || w.has == 0 {
		return nil
	}
	err := z.Close()
	z.Reset(w.out)
	w.has = 0
	return err
}

func (w *writer) Abort() error {
	if z, ok := w.z.(*zstd.Encoder); ok {
		z.Reset(nil) // ends its goroutines
	}
	return w.Members.Abort()
}
