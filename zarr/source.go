package zarr

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
)

// A Source returns the values of a hierarchy's keys, such as "a/b/.zarray". Its methods may be
// called from several goroutines at once.
type Source interface {
	// Get returns the value of a key, which the caller does not change. If there is no such key,
	// the error must wrap [fs.ErrNotExist]. If the value is longer than limit, Get must return an
	// error without allocating memory for it.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// GetRange returns exactly n bytes of the value of a key. If off is negative, it counts from
	// the end.
	GetRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// A Batcher is a Source that can read several values together, such as one on a network that then
// needs fewer requests.
type Batcher interface {
	Source
	// Batches reports whether GetAll is faster than a call of Get for each key.
	Batches() bool
	// GetAll calls each with the value of each key, and with its position in keys. Values and
	// errors are as for Get. The calls may come in any order and from several goroutines. An
	// error that each returns ends the call.
	GetAll(ctx context.Context, keys []string, limit int64, each func(i int, value []byte, err error) error) error
}

// Files returns a source for a file system in which each file is a key.
func Files(fsys fs.FS) Source { return files{fsys} }

type files struct{ fsys fs.FS }

func (s files) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit {
		return nil, overLimit("its value", info.Size(), limit)
	}
	// A file may grow while it is read.
	var b bytes.Buffer
	b.Grow(int(max(info.Size(), 0)) + bytes.MinRead)
	if _, err := io.Copy(&b, io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, overLimit("its value", int64(b.Len()), limit)
	}
	return b.Bytes(), nil
}

func (s files) open(ctx context.Context, key string) (fs.File, fs.FileInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !fs.ValidPath(key) {
		return nil, nil, &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	f, err := s.fsys.Open(key)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	if err != nil {
		f.Close()
	}
	return f, info, err
}

func (s files) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if off, err = Within(off, n, info.Size()); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if at, ok := f.(io.ReaderAt); ok {
		_, err = at.ReadAt(b, off)
		if err == io.EOF { // EOF may come with the last byte
			err = nil
		}
		return b, err
	}
	if _, err := io.CopyN(io.Discard, f, off); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(f, b)
	return b, err
}

// Within converts the offset of GetRange to one from the start of a value of the given size. It
// returns an error if the value does not contain the range.
func Within(off, n, size int64) (int64, error) {
	from := off
	if off < 0 {
		from += size
	}
	if n < 0 || from < 0 || from > size-n {
		return 0, corrupt("%d bytes at %d are outside a value of %d", n, off, size)
	}
	return from, nil
}

// get is like src.Get, but its errors name the key. For a missing value it returns nil and false.
func get(ctx context.Context, src Source, key string, limit int64) ([]byte, bool, error) {
	b, err := src.Get(ctx, key, limit)
	return got(key, limit, b, err)
}

// got converts the result of Get to that of get.
func got(key string, limit int64, b []byte, err error) ([]byte, bool, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, &KeyError{key, err}
	case int64(len(b)) > limit:
		return nil, false, &KeyError{key, overLimit("its value", int64(len(b)), limit)}
	}
	return b, true, nil
}
