package zarr3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/zarr"
)

// A Node is what the names of all keys say of a group or an array of version 2.
type Node struct {
	Array   bool
	Chunks  int64 // how many keys are in the array besides its metadata
	Largest int64 // the largest size of one
}

// Nodes are groups and arrays by their paths.
type Nodes map[string]*Node

// NodesOf returns the groups and arrays that a new archive, which is called name and is a title, is made of. Keys of
// version 3 alone, and names that are no keys, are an error.
func NodesOf(keys []format.Entry, name, title string) (Nodes, error) {
	all, newer := Nodes{}, false
	for _, e := range keys {
		switch at, last := zarrkey.Split(e.Name); last {
		case ".zarray":
			all[at] = &Node{Array: true}
		case ".zgroup":
			if all[at] == nil {
				all[at] = &Node{}
			}
		case zarr.MetaName:
			newer = true
		}
	}
	switch {
	case len(all) > 0:
	case newer:
		return nil, fmt.Errorf("%s: %s is made of a Zarr hierarchy of version 2, found version 3: %w", name, title, errors.ErrUnsupported)
	default:
		return nil, fmt.Errorf("%s: %s is made of a Zarr hierarchy, found no .zgroup: %w", name, title, errors.ErrUnsupported)
	}
	for _, e := range keys {
		if zarrkey.IsMeta(e.Name) {
			continue
		}
		if _, x := all.Within(e.Name); x != nil {
			x.Chunks++
			x.Largest = max(x.Largest, e.Size)
		}
	}
	return all, nil
}

// Within returns the array that a key or a path is in, and its path, or nil if there is none.
func (all Nodes) Within(key string) (at string, _ *Node) {
	for at = key; at != ""; {
		at, _ = zarrkey.Split(at)
		if x := all[at]; x != nil && x.Array {
			return at, x
		}
	}
	return "", nil
}

// ReadKey returns a content of at most most bytes.
func ReadKey(ctx context.Context, e format.Entry, r io.Reader, buf []byte, most int64) ([]byte, error) {
	if e.Size > most {
		return nil, kit.Refuse(e.Name, "%d bytes exceed the limit of %d", e.Size, most)
	}
	b := bytes.NewBuffer(make([]byte, 0, min(e.Size, 1<<20)))
	err := kit.CopyContent(ctx, e, r, buf, nil, func(p []byte) error { b.Write(p); return nil })
	return b.Bytes(), err
}

// CopyChunk appends a chunk as it is stored, and fills up one that is short.
func CopyChunk(ctx context.Context, to *kit.Appender, m *zarr.Meta, e format.Entry, r io.Reader, buf []byte) error {
	whole := m.Whole()
	if whole >= 0 && (e.Size > whole || e.Size < whole && (m.Filled() == 0 || e.Size == 0)) {
		return kit.Refuse(e.Name, "expected a chunk of %d bytes, found %d", whole, e.Size)
	}
	start := to.Pos
	if err := kit.CopyContent(ctx, e, r, buf, nil, to.Append); err != nil {
		if to.Err == nil {
			to.TakeBack(start) // otherwise nothing refers to it
		}
		return err
	}
	for left := whole - e.Size; left > 0; left -= min(left, int64(len(zeros))) {
		if err := to.Append(zeros[:min(left, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	return nil
}

var zeros [32 << 10]byte

// Refused returns the error of an entry that cannot be stored, if err says what is wrong with it; otherwise err.
func Refused(e format.Entry, err error) error {
	_, refused := errors.AsType[kit.EntryError](err)
	_, of := errors.AsType[*zarr.KeyError](err)
	if !refused && (of || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, zarr.ErrCorrupt) || errors.Is(err, zarr.ErrLimit)) {
		return kit.Refuse(e.Name, "%s", err.Error())
	}
	return err
}

// Values is a source of values that are in memory, by their keys.
type Values map[string][]byte

// Get returns the value of a key.
func (v Values) Get(_ context.Context, key string, limit int64) ([]byte, error) {
	b, ok := v[key]
	if !ok {
		return nil, &fs.PathError{Op: "get", Path: key, Err: fs.ErrNotExist}
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%d bytes, over the limit of %d: %w", len(b), limit, zarr.ErrLimit)
	}
	return b, nil
}

// GetRange returns a part of the value of a key.
func (v Values) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := v.Get(ctx, key, 1<<62)
	if err == nil {
		off, err = zarr.Within(off, n, int64(len(b)))
	}
	if err != nil {
		return nil, err
	}
	return b[off : off+n], nil
}
