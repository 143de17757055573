// Package hierarchy reads the metadata of the groups and arrays of a Zarr hierarchy in an
// archive, and the metadata of NWB files. It reads keys, so the archive may have any format.
// Package zarr reads the elements of arrays.
package hierarchy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/zarr"
)

const (
	maxText = 64 << 20  // bytes that describe one group or array
	maxTold = 256 << 20 // bytes that describe all of them
)

// A Hierarchy holds the descriptions of groups and arrays. It is a source for
// package zarr: anything else is read from the archive.
type Hierarchy struct {
	Arrays []Array // in the order of their paths

	in    *holdall.Archive
	texts map[string]told
	array map[string]bool // by path; false of groups
}

// An Array is an array's path and description, or the error that prevents one.
type Array struct {
	Path string
	Meta *zarr.Meta
	Err  error
}

// told is the value of a key that describes a group or an array, or the error
// from reading it.
type told struct {
	text []byte
	err  error
}

// Is reports whether the names in an archive are the keys of a hierarchy.
func Is(ctx context.Context, in *holdall.Archive) bool {
	return slices.ContainsFunc([]string{".zgroup", ".zarray", zarr.MetaName}, func(name string) bool {
		_, err := in.Lookup(ctx, name)
		return err == nil
	})
}

// Read reads the descriptions of groups and arrays. It reads many texts at
// once, adjacent ones together.
func Read(ctx context.Context, in *holdall.Archive) (*Hierarchy, error) {
	h := &Hierarchy{in: in, texts: map[string]told{}, array: map[string]bool{}}
	err := in.ContentsOf(ctx, h.describing(ctx), func(e holdall.Entry, content io.Reader, err error) error {
		t := told{err: err}
		switch {
		case err != nil:
		case e.Size > maxText:
			t.err = fmt.Errorf("%d bytes, over the limit of %d: %w", e.Size, maxText, zarr.ErrLimit)
		default:
			t.text, t.err = io.ReadAll(content)
		}
		h.texts[e.Name] = t
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(h.texts)) {
		h.parse(key, h.texts[key])
	}
	slices.SortFunc(h.Arrays, func(a, b Array) int { return strings.Compare(a.Path, b.Path) })
	return h, nil
}

// describing yields the entries that describe groups or arrays.
func (h *Hierarchy) describing(ctx context.Context) iter.Seq2[holdall.Entry, error] {
	return func(yield func(holdall.Entry, error) bool) {
		room := int64(maxTold)
		for e, err := range h.in.Entries(ctx) {
			if err == nil && !describes(e.Name) {
				continue
			}
			if room -= min(e.Size, maxText) + int64(len(e.Name)); err == nil && room < 0 {
				err = fmt.Errorf("the metadata of groups and arrays exceeds %d bytes: %w", maxTold, zarr.ErrLimit)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// describes reports whether the value of a key describes a group or an array.
func describes(key string) bool { return zarrkey.IsMeta(key) && path.Base(key) != ".zmetadata" }

// parse records the group or the array that a key's value describes.
func (h *Hierarchy) parse(key string, t told) {
	at, parse, _ := zarr.MetaOf(key)
	x := Array{Path: at, Err: t.err}
	if parse != nil && x.Err == nil {
		x.Meta, x.Err = parse(t.text)
	}
	known := h.array[at]
	h.array[at] = known || parse != nil && !errors.Is(x.Err, zarr.ErrGroup)
	if h.array[at] && !known {
		h.Arrays = append(h.Arrays, x)
	}
}

// Get returns the value of a key.
func (h *Hierarchy) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	t, ok := h.texts[key]
	switch {
	case !ok && describes(key): // an archive may follow soft links, and the target has other attributes
		return nil, &fs.PathError{Op: "get", Path: key, Err: fs.ErrNotExist}
	case !ok:
		return h.in.Get(ctx, key, limit)
	case t.err == nil && int64(len(t.text)) > limit:
		return nil, fmt.Errorf("%d bytes, over the limit of %d: %w", len(t.text), limit, zarr.ErrLimit)
	}
	return t.text, t.err
}

// GetRange returns a part of the value of a key.
func (h *Hierarchy) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return h.in.GetRange(ctx, key, off, n)
}
