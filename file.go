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
	"github.com/holdall/holdall/internal/read/content"
)

// A File is an entry open for reading. Its reads use the context that it was opened with, and
// compare content as [Archive.Compares] reports. ReadAt may be called from several goroutines at
// once; the other methods must be called from one goroutine at a time.
type File struct {
	a      *Archive
	e      Entry
	ctx    context.Context
	off    int64
	seq    io.ReadCloser // reads ahead from off while reads are sequential
	closed bool
}

// Open opens the file called name. If there is none, the error wraps [fs.ErrNotExist]. The caller
// must close the file.
func (a *Archive) Open(ctx context.Context, name string) (*File, error) {
	e, err := a.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return a.OpenEntry(ctx, e)
}

// OpenEntry opens an entry that the archive returned. The caller must close the file.
func (a *Archive) OpenEntry(ctx context.Context, e Entry) (*File, error) {
	if err := a.openable(e); err != nil {
		return nil, err
	}
	return &File{a: a, e: e, ctx: ctx}, nil
}

// openable returns why an entry cannot be opened.
func (a *Archive) openable(e Entry) error {
	if !e.Kind.HasContent() {
		return &fs.PathError{Op: "open", Path: e.Name, Err: errors.New("is a " + kindWord(e.Kind))}
	}
	return a.src.Fault(e)
}

// kindWord is what people call a kind.
func kindWord(k format.Kind) string {
	if k == format.Dir {
		return "folder"
	}
	return k.String()
}

// Entry returns the file's entry.
func (f *File) Entry() Entry { return f.e }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return f.e.Size }

// fail wraps err with the operation, or returns fs.ErrClosed if the file is closed.
func (f *File) fail(op string, err error) error {
	if f.closed {
		err = fs.ErrClosed
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.e.Name, Err: err}
}

// ReadAt implements [io.ReaderAt].
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

// Seek implements [io.Seeker].
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

// Close closes the file. Later reads fail with [fs.ErrClosed].
func (f *File) Close() error {
	f.stop()
	err := f.fail("close", nil)
	f.closed = true
	return err
}

// Stat implements [fs.File].
func (f *File) Stat() (fs.FileInfo, error) {
	if err := f.fail("stat", nil); err != nil {
		return nil, err
	}
	return fileInfo{f.e}, nil
}

// WriteContent copies the whole content of e to w and compares it with its digest, if it has one.
// Content of up to 1 MiB is compared before its first byte is written. Longer content is compared
// while it is copied; if it is damaged, WriteContent returns a [*DigestError] at the end.
func (a *Archive) WriteContent(ctx context.Context, w io.Writer, e Entry) error {
	if err := a.openable(e); err != nil {
		return err
	}
	return a.src.Copy(ctx, w, e)
}

// Get returns the whole content of the entry called name, compared as by [Archive.WriteContent].
// If the content is longer than limit, Get returns an error without reading it. Get, GetRange and
// GetAll make an Archive a source of keys for package zarr.
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

// entryFor returns the entry called name, if it has content of at most limit bytes.
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

// Batches reports whether GetAll is faster than a call of Get for each name. That is so if
// reading takes network requests.
func (a *Archive) Batches() bool { return !a.IsNear() }

// GetAll calls each with the content of each entry in names, and with its position in names. The
// names must be distinct. Contents are limited and compared as by [Archive.Get], and reads of
// neighbouring entries are joined. The calls come in any order and from several goroutines. An
// error that each returns ends the call.
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
	return a.src.Sweep(ctx, all, content.AnyOrder, func(c content.Content, err error) error {
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

// GetRange returns n bytes of the content of the entry called name, compared as by
// [Archive.ReadAt]. If off is negative, it counts from the end of the content.
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

// fileInfo implements fs.FileInfo for an Entry.
type fileInfo struct{ e Entry }

func (i fileInfo) Name() string       { return path.Base(i.e.Name) }
func (i fileInfo) Size() int64        { return i.e.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.e.FileMode() }
func (i fileInfo) ModTime() time.Time { return i.e.ModTime }
func (i fileInfo) IsDir() bool        { return i.e.Kind == format.Dir }
func (i fileInfo) Sys() any           { return i.e }

// FS returns the archive as a file system that uses ctx for all reads. Entries whose names are
// not valid for [fs.ValidPath] are not in it.
func (a *Archive) FS(ctx context.Context) fs.FS { return archiveFS{a, ctx} }

type archiveFS struct {
	a   *Archive
	ctx context.Context
}

// lookup returns the entry called name, without following links.
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

// maxLinks is the longest chain of links that is followed.
const maxLinks = 40

// Resolve returns the entry that a name leads to, through links, also to folders on the way. Links
// that lead out of the archive lead nowhere.
func (a *Archive) Resolve(ctx context.Context, name string) (Entry, error) {
	nowhere := func(err error) (Entry, error) {
		return Entry{}, &fs.PathError{Op: "lookup", Path: name, Err: err}
	}
	at := name
	for range maxLinks {
		if at == "." {
			return Entry{Name: ".", Kind: format.Dir}, nil
		}
		e, below, err := a.link(ctx, at)
		if err != nil {
			return e, err
		}
		switch e.Kind {
		case format.Symlink:
			if e.Link == "" || path.IsAbs(e.Link) {
				return nowhere(fs.ErrNotExist)
			}
			at = path.Join(path.Dir(e.Name), e.Link, below)
		case format.HardLink:
			at = e.Link
		default:
			return e, nil
		}
		if at != path.Clean(at) || path.IsAbs(at) || at == ".." || strings.HasPrefix(at, "../") {
			return nowhere(fs.ErrNotExist)
		}
	}
	return nowhere(fmt.Errorf("too many links: %w", fs.ErrNotExist))
}

// link returns the entry called name or, if there is none, the first symlink on the way to it, with
// the part of name below that.
func (a *Archive) link(ctx context.Context, name string) (_ Entry, below string, _ error) {
	e, err := a.Lookup(ctx, name)
	if err == nil || a.Format().Keeps&format.KeepsSymlinks == 0 || !errors.Is(err, fs.ErrNotExist) {
		return e, "", err
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		up, uerr := a.Lookup(ctx, name[:i])
		if uerr == nil && up.Kind == format.Symlink {
			return up, name[i+1:], nil
		}
		if uerr != nil && !errors.Is(uerr, fs.ErrNotExist) {
			return up, "", uerr
		}
	}
	return e, "", err
}

// resolve is Resolve for package fs.
func (f archiveFS) resolve(op, name string) (Entry, error) {
	if !fs.ValidPath(name) {
		return Entry{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	e, err := f.a.Resolve(f.ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return e, err
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

// Lstat and ReadLink implement [fs.ReadLinkFS].
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

// openDir is a directory open for reading.
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
