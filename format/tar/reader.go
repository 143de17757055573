package tar

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// reader is an open archive, whose headers have been read.
type reader struct {
	*format.Index
	obj     store.Object
	name    string
	size    int64
	zstd    bool
	entries format.Entries
	at      []int64 // where contents begin: in the object, or in what it decodes to
	notes   []format.Problem
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ format.Reader, err error) {
	obj, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			obj.Close()
		}
	}()
	head := make([]byte, blockSize)
	k, err := store.ReadHead(ctx, obj, head)
	if err != nil {
		return nil, err
	}
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	r := &reader{obj: obj, name: name, size: info.Size, zstd: bytes.HasPrefix(head[:k], zstdMagic)}
	src := &objectReader{ctx: ctx, o: obj, size: info.Size}
	var in io.Reader = src
	if r.zstd {
		z, _ := codec.Lookup(codec.Zstd)
		d, err := z.Decode(src)
		if err != nil {
			return nil, r.corrupt(src, 0, err)
		}
		defer d.Close()
		in = d
	}
	if err := r.scan(ctx, src, in, o.Limits.OrDefault().Index); err != nil {
		return nil, err
	}
	r.Index = format.NewIndex(r.entries)
	return r, nil
}

// corrupt says that the archive is damaged at off, unless the store is at fault.
func (r *reader) corrupt(src *objectReader, off int64, err error) error {
	if src.err != nil {
		return src.err
	}
	code := format.BadHeader
	if off = min(off, r.size); r.zstd {
		off = -1 // what was decoded has no place of its own
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		code = format.Truncated
	}
	return &format.CorruptError{Format: "tar", Problem: format.Problem{Code: code, Severity: format.Error, Volume: r.name, Off: off, Message: err.Error()}}
}

// scan reads all headers.
func (r *reader) scan(ctx context.Context, src *objectReader, in io.Reader, limit int64) error {
	count := &counter{r: in, raw: !r.zstd, src: src}
	t := tar.NewReader(count.reader())
	memory := int64(0)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := t.Next()
		if err == io.EOF {
			if len(r.entries) > 0 || !r.bare(count, src) {
				return nil
			}
			return r.corrupt(src, 0, errors.New("there is no tar header"))
		}
		if err != nil {
			bad := r.corrupt(src, count.off(), err)
			c, ok := errors.AsType[*format.CorruptError](bad)
			if !ok || len(r.entries) == 0 {
				return bad
			}
			// What came before it can be read all the same.
			r.notes = append(r.notes, c.Problem)
			return nil
		}
		e, ok := entryOf(h)
		if !ok {
			continue
		}
		if memory += int64(len(e.Name)+len(e.Link)) + 250; memory > limit {
			return &format.CorruptError{Format: "tar", Problem: format.Problem{Code: format.Limit, Severity: format.Error, Volume: r.name, Off: count.off(),
				Message: fmt.Sprintf("%d entries take more memory than the limit of %d bytes", len(r.entries)+1, limit)}}
		}
		at := count.off()
		place := min(at, r.size)
		if r.zstd {
			place = -1
		}
		if sparse(h) {
			e.Fault = &format.Problem{Code: format.Unsupported, Class: "sparse", Severity: format.Error, Volume: r.name, Off: place, Entry: e.Name, HasEntry: true, Message: "a sparse file, which is not read"}
		} else if !r.zstd && at+e.Size > r.size {
			e.Fault = &format.Problem{Code: format.Truncated, Severity: format.Error, Volume: r.name, Off: place, Entry: e.Name, HasEntry: true,
				Message: fmt.Sprintf("its %d bytes reach behind the archive's end at %d", e.Size, r.size)}
		}
		e.Ref = len(r.entries)
		r.entries, r.at = append(r.entries, e), append(r.at, at)
	}
}

// bare reports whether an archive without entries is none: without a header that
// would be an entry, or the zeros of an archive of nothing.
func (r *reader) bare(count *counter, src *objectReader) bool {
	if r.zstd {
		return count.n < 2*blockSize
	}
	return src.off <= 2*blockSize && (r.size < 2*blockSize || r.size > maxEmpty || r.size%blockSize != 0)
}

// sparse reports whether a file's holes are left out of its content.
func sparse(h *tar.Header) bool {
	return h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != ""
}

// entryOf makes an entry of a header; there are headers that are none.
func entryOf(h *tar.Header) (format.Entry, bool) {
	e := format.Entry{Name: plain(h.Name), Size: h.Size, Mode: h.FileInfo().Mode() &^ fs.ModeType, HasMode: true,
		ModTime: h.ModTime.UTC(), Owner: h.Uname, Group: h.Gname}
	if e.Owner == "" {
		e.Owner = strconv.Itoa(h.Uid)
	}
	if e.Group == "" {
		e.Group = strconv.Itoa(h.Gid)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
	case tar.TypeDir:
		e.Kind = format.Dir
		if e.Name == "." || e.Name == "" {
			return e, false // the folder that was packed
		}
	case tar.TypeSymlink:
		e.Kind, e.Link = format.Symlink, h.Linkname
	case tar.TypeLink:
		e.Kind, e.Link = format.HardLink, plain(h.Linkname)
	case tar.TypeFifo:
		e.Kind = format.Fifo
	case tar.TypeChar, tar.TypeBlock:
		e.Fault = &format.Problem{Code: format.Unsupported, Class: "device", Severity: format.Error, Off: -1, Entry: e.Name, HasEntry: true, Message: "a device, which is not read"}
	default:
		return e, false
	}
	if e.Kind != format.File {
		e.Size = 0
	}
	return e, true
}

// plain is a name without what only says that it is relative, or a directory.
func plain(name string) string {
	name = strings.TrimSuffix(name, "/")
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	if fs.ValidPath(path.Clean(name)) && !strings.HasPrefix(name, "/") && !strings.Contains(name, "..") {
		return path.Clean(name)
	}
	return name
}

func (r *reader) Close() error { return r.obj.Close() }

func (r *reader) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		i, ok := e.Ref.(int)
		if !ok || e.Fault != nil || !e.Kind.HasContent() || n <= 0 || off >= e.Size {
			return
		}
		x := format.Extent{Size: e.Size, Object: r.name, Off: r.at[i], Len: e.Size}
		if r.zstd {
			x.Off, x.Len, x.Codec, x.Skip = 0, r.size, codec.Zstd, r.at[i]
		}
		yield(x, nil)
	}
}

// Regions are the headers, and the paddings of what precedes them.
func (r *reader) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(yield func(format.Region, error) bool) {
		end, held := int64(0), false
		for i, e := range r.entries {
			if e.Fault != nil || e.Size == 0 {
				continue
			}
			held = true
			if r.zstd {
				break
			}
			if r.at[i] > end && !yield(format.Region{Object: r.name, Off: end, Len: r.at[i] - end, Use: format.Header, Label: "tar headers"}, nil) {
				return
			}
			end = r.at[i] + e.Size
		}
		if r.zstd && held {
			return
		}
		if end < r.size {
			yield(format.Region{Object: r.name, Off: end, Len: r.size - end, Use: format.Header, Label: "tar headers"}, nil)
		}
	}
}

func (r *reader) About(context.Context) (format.About, error) {
	about := format.About{Version: "ustar", Volumes: []string{r.name}, Notes: r.notes}
	if r.zstd {
		about.Version = "ustar, zstd"
		about.Notes = append(about.Notes, format.Problem{Code: format.Unsupported, Class: "solid", Severity: format.Note, Volume: r.name, Off: -1,
			Message: "compressed as one: a file is read by decoding all that precede it"})
	}
	return about, nil
}

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	r, err := open(ctx, st, name, o)
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		report(c.Problem)
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	t := r.(*reader)
	for _, p := range t.notes {
		report(p)
	}
	for i, e := range t.entries {
		if e.Fault != nil {
			report(*e.Fault)
		}
		if p, found := t.NameProblem(i, e); found {
			p.Volume = name
			report(p)
		}
	}
	return nil
}

// objectReader reads an object front to back, and skips.
type objectReader struct {
	ctx       context.Context
	o         store.Object
	off, size int64
	buf       []byte // of bytes at off
	spare     []byte
	err       error
}

const window = 64 << 10

func (r *objectReader) Read(p []byte) (int, error) {
	if r.off >= r.size {
		return 0, io.EOF
	}
	if len(r.buf) == 0 {
		n := min(window, r.size-r.off)
		if r.spare == nil {
			r.spare = make([]byte, window)
		}
		r.buf = r.spare[:n]
		if err := r.o.ReadAt(r.ctx, r.buf, r.off); err != nil {
			r.err = err
			return 0, err
		}
	}
	n := copy(p, r.buf)
	r.buf, r.off = r.buf[n:], r.off+int64(n)
	return n, nil
}

// Seek skips forward, as package archive/tar does over contents.
func (r *objectReader) Seek(off int64, whence int) (int64, error) {
	if whence == io.SeekCurrent {
		off += r.off
	}
	if whence == io.SeekEnd {
		off += r.size
	}
	if skip := off - r.off; skip >= 0 && skip <= int64(len(r.buf)) {
		r.buf = r.buf[skip:]
	} else {
		r.buf = nil
	}
	r.off = off
	return off, nil
}

// counter knows how far a stream has been read.
type counter struct {
	r   io.Reader
	n   int64
	raw bool
	src *objectReader
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) reader() io.Reader {
	if c.raw {
		return c.src // it seeks
	}
	return c
}

func (c *counter) off() int64 {
	if c.raw {
		return c.src.off
	}
	return c.n
}
