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
}

// Files makes a source of a file system: each file is a key.
func Files(fsys fs.FS) Source { return files{fsys} }

type files struct{ fsys fs.FS }

func (s files) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !fs.ValidPath(key) {
		return nil, &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	}
	f, err := s.fsys.Open(key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: key, Err: fs.ErrNotExist}
	case info.Size() > limit:
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

// get is src.Get whose errors name the key. A missing value is nil, false.
func get(ctx context.Context, src Source, key string, limit int64) ([]byte, bool, error) {
	b, err := src.Get(ctx, key, limit)
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
