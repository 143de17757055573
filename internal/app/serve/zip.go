package serve

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/content"
	names "github.com/holdall/holdall/internal/listing"
	"github.com/holdall/holdall/internal/sorter"
)

// zip sends what is below a folder as a zip. Once it has begun, what cannot be had
// breaks the connection off, so that no part of a folder looks like all of it.
func (h *handler) zip(w http.ResponseWriter, r *http.Request) {
	dir, _, ok := h.target(w, r)
	if !ok {
		return
	}
	// Whether there is such a folder is known before anything is sent.
	found := dir.Kind == format.Dir
	for _, err := range h.a.Source().ReadDirFrom(r.Context(), dir.Name, "") {
		if err != nil && !errors.Is(err, fs.ErrNotExist) && found {
			h.fail(w, r, err)
			return
		}
		found = err == nil
		break
	}
	if !found {
		http.Error(w, "404: there is no folder of this name in the archive", http.StatusNotFound)
		return
	}
	name := h.a.Name
	if dir.Name != "." {
		name = path.Base(dir.Name)
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", attachment(name+".zip"))
	if r.Method == http.MethodHead {
		return
	}
	z := &zipper{out: bufio.NewWriterSize(w, 64<<10), skip: dir.Name + "/"}
	if dir.Name == "." {
		z.skip = ""
	}
	err := z.write(r.Context(), h.a.Archive)
	if cerr := z.close(); err == nil {
		err = cerr
	}
	if err != nil {
		if r.Context().Err() == nil && z.gone == nil {
			h.tell(r, err)
		}
		panic(http.ErrAbortHandler)
	}
}

// A zipper writes a zip from front to back. Its directory goes to scratch when it is
// long.
type zipper struct {
	out     *bufio.Writer
	at      int64
	skip    string // what is taken off names
	dir     []byte
	scratch sorter.Scratch
	dirLen  int64
	count   int64
	left    int64 // out: names that are no paths
	gone    error // why the client gets no more
	buf     []byte
}

// heldDir is how much of a directory is in memory.
const heldDir = 1 << 20

// Write does nothing any more once the client is gone.
func (z *zipper) Write(p []byte) (n int, err error) {
	n, z.gone = z.out.Write(p)
	z.at += int64(n)
	return n, z.gone
}

func (z *zipper) write(ctx context.Context, a *holdall.Archive) error {
	wanted := func(e holdall.Entry) bool {
		if !strings.HasPrefix(e.Name, z.skip) || e.Name == z.skip || e.Internal {
			return false
		}
		switch e.Kind {
		case format.File, format.Property, format.Dir, format.Symlink, format.HardLink:
		default:
			return false
		}
		if !isPath(e.Name) || len(e.Name) > math.MaxUint16-1 {
			z.left++
			return false
		}
		return true
	}
	src := a.Source()
	err := src.Sweep(ctx, names.Only(a.Entries(ctx), wanted), true, func(c content.Content, err error) error {
		e := c.Entry
		if err == nil {
			err = src.Fault(e)
		}
		if err == nil && e.Kind == format.HardLink {
			// What it stands for is sent again: a zip has no links of this kind.
			name := e.Name
			if e, err = a.Lookup(ctx, e.Link); err == nil {
				if err = src.Fault(e); err == nil && !e.Kind.HasContent() {
					err = fmt.Errorf("%s: is a %s", format.Escape(e.Name), e.Kind)
				}
				c = src.Open(ctx, e, 0)
				defer c.Close()
				e.Name = name
			}
		}
		if err != nil {
			return err
		}
		return z.add(ctx, e, c.Checked())
	})
	if err == nil {
		err = z.finish()
	}
	return err
}

const (
	zipDeferred = 1 << 3
	zipUTF8     = 1 << 11
	zipUnix     = 3 << 8
	stored      = uint16(0)
	// heldFirst is what is read before its header is sent, which then has all.
	heldFirst = 1 << 20
)

func (z *zipper) add(ctx context.Context, e holdall.Entry, content io.Reader) error {
	name := strings.TrimPrefix(e.Name, z.skip)
	mode := zipMode(e)
	size, flags := e.Size, uint16(0)
	switch e.Kind {
	case format.Dir:
		name, size, content = name+"/", 0, strings.NewReader("")
	case format.Symlink:
		size, content = int64(len(e.Link)), strings.NewReader(e.Link)
	}
	ascii := strings.IndexFunc(name, func(r rune) bool { return r >= 0x80 }) < 0
	if !ascii && utf8.ValidString(name) {
		flags |= zipUTF8
	}
	var sum uint32
	var held []byte
	if size <= heldFirst {
		if int64(cap(z.buf)) < heldFirst {
			z.buf = make([]byte, heldFirst)
		}
		held = z.buf[:size]
		if _, err := io.ReadFull(content, held); err != nil {
			return err
		}
		if err := atEnd(content); err != nil {
			return err
		}
		sum = crc32.ChecksumIEEE(held)
	} else {
		flags |= zipDeferred
	}
	date, clock := zipTime(e.ModTime)
	begin := z.at
	extra, size32 := zipTimeExtra(e.ModTime), uint32(size)
	if flags&zipDeferred != 0 {
		// With a field of long sizes, so that those behind the content are long, too.
		extra, size32 = append(fields(nil, uint16(1), uint16(16), uint64(size), uint64(size)), extra...), math.MaxUint32
	}
	b := fields(nil, uint32(0x04034b50), uint16(45), flags, stored, clock, date, sum, size32, size32, uint16(len(name)), uint16(len(extra)))
	z.Write(append(append(b, name...), extra...))
	if flags&zipDeferred == 0 {
		z.Write(held)
	} else {
		h := crc32.NewIEEE()
		n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(z, h)}, struct{ io.Reader }{io.LimitReader(content, size)}, z.buffer())
		if err == nil && n < size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = atEnd(content)
		}
		if err != nil {
			return err
		}
		sum = h.Sum32()
		z.Write(fields(nil, uint32(0x08074b50), sum, uint64(size), uint64(size)))
	}
	return cmp.Or(z.gone, z.row(name, flags, clock, date, sum, size, begin, mode, zipTimeExtra(e.ModTime)))
}

// fields appends numbers of a zip, the lowest byte first.
func fields(b []byte, all ...any) []byte {
	for _, n := range all {
		switch n := n.(type) {
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, n)
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, n)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	return b
}

// atEnd reads the end of content, where it is compared with its digest.
func atEnd(content io.Reader) error {
	n, err := content.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("longer than it should be")
	case err == io.EOF:
		return nil
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

func (z *zipper) buffer() []byte {
	if len(z.buf) == 0 {
		z.buf = make([]byte, heldFirst)
	}
	return z.buf[:256<<10]
}

// row adds an entry to the directory at the end.
func (z *zipper) row(name string, flags, clock, date uint16, sum uint32, size, begin int64, mode uint32, extra []byte) error {
	var long []byte
	short := func(n int64) uint32 {
		if n >= math.MaxUint32 {
			long = fields(long, uint64(n))
			return math.MaxUint32
		}
		return uint32(n)
	}
	size32 := short(size)
	packed32 := short(size)
	begin32 := short(begin)
	if len(long) > 0 {
		extra = append(append(fields(nil, uint16(1), uint16(len(long))), long...), extra...)
	}
	n := len(z.dir)
	b := fields(z.dir, uint32(0x02014b50), uint16(zipUnix|45), uint16(45), flags, stored, clock, date, sum, packed32, size32,
		uint16(len(name)), uint16(len(extra)), uint16(0), uint32(0), mode, begin32) // no comment, one disk, no attributes of its own
	b = append(append(b, name...), extra...)
	z.dir = b
	z.count++
	z.dirLen += int64(len(b) - n)
	if len(z.dir) < heldDir {
		return nil
	}
	if z.scratch == nil {
		var err error
		if z.scratch, err = sorter.TempFile(); err != nil {
			return err
		}
	}
	_, err := z.scratch.Write(z.dir)
	z.dir = z.dir[:0]
	return err
}

// finish writes the directory, and where it is.
func (z *zipper) finish() error {
	begin := z.at
	if z.scratch != nil {
		if _, err := z.scratch.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{z}, struct{ io.Reader }{io.LimitReader(z.scratch, z.dirLen-int64(len(z.dir)))}, z.buffer()); err != nil {
			return err
		}
	}
	z.Write(z.dir)
	var b []byte
	if z.count >= math.MaxUint16 || z.dirLen >= math.MaxUint32 || begin >= math.MaxUint32 {
		b = fields(nil, uint32(0x06064b50), uint64(44), uint16(zipUnix|45), uint16(45), uint64(0), uint64(z.count), uint64(z.count), uint64(z.dirLen), uint64(begin))
		b = fields(b, uint32(0x07064b50), uint32(0), uint64(z.at), uint32(1))
	}
	comment := ""
	if z.left > 0 {
		comment = "left out: names that are no paths"
	}
	n := uint16(min(z.count, math.MaxUint16))
	b = fields(b, uint32(0x06054b50), uint32(0), n, n, uint32(min(z.dirLen, math.MaxUint32)), uint32(min(begin, math.MaxUint32)), uint16(len(comment)))
	z.Write(append(b, comment...))
	z.gone = z.out.Flush()
	return z.gone
}

func (z *zipper) close() error {
	if z.scratch == nil {
		return nil
	}
	return z.scratch.Close()
}

// zipMode is a mode as Unix has it, where zips keep such.
func zipMode(e holdall.Entry) uint32 {
	perm := uint32(0o644)
	if e.Kind == format.Dir {
		perm = 0o755
	}
	if e.HasMode {
		perm = uint32(e.Mode.Perm())
	}
	switch e.Kind {
	case format.Dir:
		return (0o040000|perm)<<16 | 0x10
	case format.Symlink:
		return (0o120000 | 0o777) << 16
	}
	return (0o100000 | perm) << 16
}

// zipTime is a time as MS-DOS had it, in UTC.
func zipTime(t time.Time) (date, clock uint16) {
	t = t.UTC()
	if t.Year() < 1980 {
		return 1<<5 | 1, 0
	}
	if t.Year() > 2107 {
		return 127<<9 | 12<<5 | 31, 23<<11 | 59<<5 | 29
	}
	return uint16(t.Year()-1980)<<9 | uint16(t.Month())<<5 | uint16(t.Day()), uint16(t.Hour())<<11 | uint16(t.Minute())<<5 | uint16(t.Second()/2)
}

// zipTimeExtra is a time to the second, as Unix has it.
func zipTimeExtra(t time.Time) []byte {
	s := t.Unix()
	if t.IsZero() || s < math.MinInt32 || s > math.MaxInt32 {
		return nil
	}
	return fields([]byte{'U', 'T', 5, 0, 1}, uint32(int32(s)))
}
