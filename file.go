package holdall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/content"
)

// A File is one entry open for reading. ReadAt may be called in parallel; the
// others belong to one goroutine. Reads go on under the context that it was
// opened with. They compare what [Archive.Compares] says.
type File struct {
	a      *Archive
	e      Entry
	ctx    context.Context
	off    int64
	seq    io.ReadCloser // reads ahead from off, while reads are in sequence
	closed bool
}

// Open opens the file called name.
func (a *Archive) Open(ctx context.Context, name string) (*File, error) {
	e, err := a.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return a.OpenEntry(ctx, e)
}

// OpenEntry opens an entry that this archive gave.
func (a *Archive) OpenEntry(ctx context.Context, e Entry) (*File, error) {
	if !e.Kind.HasContent() {
		return nil, &fs.PathError{Op: "open", Path: e.Name, Err: errors.New("is a " + e.Kind.String())}
	}
	if err := a.src.Fault(e); err != nil {
		return nil, err
	}
	return &File{a: a, e: e, ctx: ctx}, nil
}

// Entry returns what the file is.
func (f *File) Entry() Entry { return f.e }

// Size returns how many bytes the file has.
func (f *File) Size() int64 { return f.e.Size }

// fail is err of an operation on the file, or fs.ErrClosed.
func (f *File) fail(op string, err error) error {
	if f.closed {
		err = fs.ErrClosed
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.e.Name, Err: err}
}

// ReadAt reads as io.ReaderAt says.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fail("read", nil); err != nil {
		return 0, err
	}
	return f.a.src.ReadAt(f.ctx, f.e, p, off)
}

func (f *File) Read(p []byte) (int, error) {
	if err := f.fail("read", nil); err != nil {
		return 0, err
	}
	if f.off >= f.e.Size {
		return 0, io.EOF
	}
	if f.seq == nil {
		f.seq = f.a.src.ReadFrom(f.ctx, f.e, f.off)
	}
	n, err := f.seq.Read(p)
	f.off += int64(n)
	return n, err
}

// Seek moves as io.Seeker says.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	if err := f.fail("seek", nil); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		offset += f.e.Size
	default:
		return 0, f.fail("seek", fs.ErrInvalid)
	}
	if offset < 0 {
		return 0, f.fail("seek", fs.ErrInvalid)
	}
	if offset != f.off {
		f.stop()
	}
	f.off = offset
	return offset, nil
}

func (f *File) stop() {
	if f.seq != nil {
		f.seq.Close()
		f.seq = nil
	}
}

// Close ends the use of the file.
func (f *File) Close() error {
	f.stop()
	err := f.fail("close", nil)
	f.closed = true
	return err
}

// Stat says what io/fs wants to know.
func (f *File) Stat() (fs.FileInfo, error) {
	if err := f.fail("stat", nil); err != nil {
		return nil, err
	}
	return fileInfo{f.e}, nil
}

// WriteContent copies the whole content of e to w and checks it against its
// digest, if it has one: content of up to 1 MiB before the first byte is
// written, longer content on the way, with a [*DigestError] at its end.
func (a *Archive) WriteContent(ctx context.Context, w io.Writer, e Entry) error {
	f, err := a.OpenEntry(ctx, e)
	if err != nil {
		return err
	}
	defer f.Close()
	return a.src.Copy(ctx, w, e)
}

// Get returns the whole content of the entry of that name, compared with its digest as
// [Archive.WriteContent] does. Content longer than limit is an error, and no memory is taken
// for it. By it an Archive is a source of keys for package zarr.
func (a *Archive) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	e, err := a.entryFor(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, e.Size))
	if err := a.WriteContent(ctx, b, e); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// entryFor is the entry of that name, if it has content of no more than limit bytes.
func (a *Archive) entryFor(ctx context.Context, name string, limit int64) (Entry, error) {
	e, err := a.Lookup(ctx, name)
	switch {
	case err != nil:
		return e, err
	case !e.Kind.HasContent():
		return e, &fs.PathError{Op: "get", Path: name, Err: fs.ErrNotExist}
	case e.Size > limit:
		return e, &fs.PathError{Op: "get", Path: name, Err: fmt.Errorf("%d bytes, over the limit of %d", e.Size, limit)}
	}
	return e, nil
}

// Batches reports whether GetAll is better than Get of each: where reading takes requests.
func (a *Archive) Batches() bool { return !a.IsNear() }

// GetAll hands the content of each named entry to each, with its place in names, which are all different, in any order
// and by several goroutines: what lies together is read together. The same holds of contents
// and errors as for Get. An error that each returns is the end.
func (a *Archive) GetAll(ctx context.Context, names []string, limit int64, each func(i int, content []byte, err error) error) error {
	place := make(map[string]int, len(names))
	entries := make([]Entry, 0, len(names))
	for i, name := range names {
		e, err := a.entryFor(ctx, name, limit)
		if err != nil {
			if err := each(i, nil, err); err != nil {
				return err
			}
			continue
		}
		place[e.Name] = i
		entries = append(entries, e)
	}
	all := func(yield func(Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
	return a.src.Sweep(ctx, all, false, func(c content.Content, err error) error {
		if err == nil {
			err = a.src.Fault(c.Entry)
		}
		b := bytes.NewBuffer(nil)
		if err == nil {
			b.Grow(int(c.Entry.Size))
			err = c.CopyTo(ctx, b, nil)
		}
		return each(place[c.Entry.Name], b.Bytes(), content.ReadError(c.Entry, err))
	})
}

// GetRange returns n bytes of the content of the entry of that name, as [Archive.ReadAt] reads
// them; a negative offset is from its end.
func (a *Archive) GetRange(ctx context.Context, name string, off, n int64) ([]byte, error) {
	e, err := a.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	from := off
	if off < 0 {
		from += e.Size
	}
	if !e.Kind.HasContent() || n < 0 || from < 0 || from > e.Size-n {
		return nil, &fs.PathError{Op: "get", Path: name, Err: fmt.Errorf("%d bytes at %d are outside the size of %d", n, off, e.Size)}
	}
	b := make([]byte, n)
	if _, err := a.ReadAt(ctx, e, b, from); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// fileInfo shows an Entry as io/fs wants it.
type fileInfo struct{ e Entry }

func (i fileInfo) Name() string       { return path.Base(i.e.Name) }
func (i fileInfo) Size() int64        { return i.e.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.e.FileMode() }
func (i fileInfo) ModTime() time.Time { return i.e.ModTime }
func (i fileInfo) IsDir() bool        { return i.e.Kind == format.Dir }
func (i fileInfo) Sys() any           { return i.e }

// FS returns the archive as a file system, under ctx. Entries whose names are
// no valid paths are not in it.
func (a *Archive) FS(ctx context.Context) fs.FS { return archiveFS{a, ctx} }

type archiveFS struct {
	a   *Archive
	ctx context.Context
}

// lookup finds what name is, links not followed.
func (f archiveFS) lookup(op, name string) (Entry, error) {
	if !fs.ValidPath(name) {
		return Entry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return Entry{Name: ".", Kind: format.Dir}, nil
	}
	e, err := f.a.Lookup(f.ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return e, err
}

// maxLinks is how many links are followed, one leading to the next.
const maxLinks = 40

// resolve finds what name leads to. Links lead through the archive only.
func (f archiveFS) resolve(op, name string) (Entry, error) {
	at := name
	for range maxLinks {
		e, err := f.lookup(op, at)
		if err != nil || e.Kind != format.Symlink && e.Kind != format.HardLink {
			return e, err
		}
		if at = e.Link; e.Kind == format.Symlink {
			at = path.Join(path.Dir(e.Name), e.Link)
		}
		if !fs.ValidPath(at) || path.IsAbs(e.Link) {
			return e, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return Entry{}, &fs.PathError{Op: op, Path: name, Err: errors.New("too many links")}
}

func (f archiveFS) Open(name string) (fs.File, error) {
	e, err := f.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if e.Kind == format.Dir {
		return &openDir{f: f, e: e}, nil
	}
	return f.a.OpenEntry(f.ctx, e)
}

func (f archiveFS) Stat(name string) (fs.FileInfo, error) {
	e, err := f.resolve("stat", name)
	return fileInfo{e}, err
}

// Lstat and ReadLink make it an fs.ReadLinkFS.
func (f archiveFS) Lstat(name string) (fs.FileInfo, error) {
	e, err := f.lookup("lstat", name)
	return fileInfo{e}, err
}

func (f archiveFS) ReadLink(name string) (string, error) {
	e, err := f.lookup("readlink", name)
	if err == nil && e.Kind != format.Symlink {
		err = &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return e.Link, err
}

func (f archiveFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if _, err := f.lookup("readdir", name); err != nil {
		return nil, err
	}
	var out []fs.DirEntry
	for e, err := range f.a.ReadDir(f.ctx, name) {
		if err != nil {
			return nil, err
		}
		if fs.ValidPath(e.Name) {
			out = append(out, fs.FileInfoToDirEntry(fileInfo{e}))
		}
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// openDir is a directory being read.
type openDir struct {
	f    archiveFS
	e    Entry
	rest []fs.DirEntry
	read bool
}

func (d *openDir) Stat() (fs.FileInfo, error) { return fileInfo{d.e}, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.e.Name, Err: errors.New("is a directory")}
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.read {
		all, err := d.f.ReadDir(d.e.Name)
		if err != nil {
			return nil, err
		}
		d.rest, d.read = all, true
	}
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out, nil
}
