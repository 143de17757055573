package zarr

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
)

// A Source gives the values of a hierarchy's keys, such as "a/b/.zarray". Calls
// may be made in parallel.
type Source interface {
	// Get gives a key's value, which is not changed. One that is not there is
	// fs.ErrNotExist. A value longer than limit is an error, and no memory is taken for it.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// GetRange gives n bytes of a key's value, all of them; a negative offset is from its end.
	GetRange(ctx context.Context, key string, off, n int64) ([]byte, error)
}

// A Batcher is a Source that can read values together, as one behind a network does by
// fewer requests.
type Batcher interface {
	Source
	// Batches reports whether that is better than Get of each.
	Batches() bool
	// GetAll hands the value of each key to each, by the key's place in keys, in any order
	// and by several goroutines. The same holds of values and errors as for Get. What each
	// returns ends it.
	GetAll(ctx context.Context, keys []string, limit int64, each func(i int, value []byte, err error) error) error
}

// Files makes a source of a file system: each file is a key.
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
		if err == io.EOF { // which may come with the last byte
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

// Within gives the offset from the beginning that a Source's GetRange of a value of a size is
// asked for, if the value has what is wanted.
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

// get is src.Get whose errors name the key. A missing value is nil, false.
func get(ctx context.Context, src Source, key string, limit int64) ([]byte, bool, error) {
	b, err := src.Get(ctx, key, limit)
	return got(key, limit, b, err)
}

// got is what get makes of a value.
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
