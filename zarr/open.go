package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// DefaultLimit is the default of Array.Limit.
const DefaultLimit = 1 << 30

// Names of LINDI's attributes in .zattrs, and the longest chain of soft links that is followed.
const (
	markSoftLink = "_SOFT_LINK"
	markScalar   = "_SCALAR"
	markCompound = "_COMPOUND_DTYPE"
	markExternal = "_EXTERNAL_ARRAY_LINK"

	maxLinks = 40
)

// An Array is an array of a hierarchy. Its methods may be called from several goroutines at once.
type Array struct {
	Meta
	// Path is the path of the array after following links. It is "" for the root.
	Path string
	// Attrs are the attributes, with values as in Meta.Fill.
	Attrs map[string]any
	// Scalar means that the array, which has one element, represents a value without a shape. It
	// is written as such a value.
	Scalar bool
	// External is set if the elements are in an HDF5 file. They can be read if the Source has the
	// chunks of that file.
	External *External
	// Limit is the memory that one row of chunks along the first axis may take, and the chunks
	// that are being decoded. If a row needs more, reading fails with [ErrLimit].
	Limit int64

	src  Source
	part *part // nil if it is the whole array
}

// External is the HDF5 file and the dataset in it that contain an array's elements.
type External struct{ URL, Name string }

// ErrUnwritten is the error of a Source for a chunk of an array in an HDF5 file, if the Source
// has all chunks of that file and the file does not have this one. It wraps [fs.ErrNotExist].
var ErrUnwritten = fmt.Errorf("the chunk was never written: %w", fs.ErrNotExist)

// ParseExternal returns where the elements of an array with these attributes are. It reports
// false if the attributes do not say that.
func ParseExternal(zattrs []byte) (External, bool) {
	attrs, err := parseObject(zattrs)
	if err != nil {
		return External{}, false
	}
	return external(attrs)
}

func external(attrs map[string]any) (External, bool) {
	o, _ := attrs[markExternal].(map[string]any)
	url, ok := o["url"].(string)
	name, ok2 := o["name"].(string)
	return External{url, name}, ok && ok2
}

// A CompoundField is a field of the elements of an object array that represents a compound HDF5
// dataset. Each element is a list of the values of the fields.
type CompoundField struct{ Name, Type string }

// Open opens the array at a path; "" is the root. It reads .zarray and .zattrs, or zarr.json, but
// no chunks. If there is no array, the error wraps [fs.ErrNotExist] or [ErrGroup].
//
// Open follows LINDI's soft links, on the path or at its end. The target of a link is relative to
// the group that contains the link, or to the root if it begins with a slash.
func Open(ctx context.Context, src Source, name string) (*Array, error) {
	at := clean(name)
	for range maxLinks + 1 {
		raw, ok, err := get(ctx, src, path.Join(at, ".zarray"), metaLimit)
		if err != nil {
			return nil, err
		}
		var a *Array
		if ok {
			a, err = openAt(ctx, src, at, raw)
		} else {
			a, err = open3(ctx, src, at)
		}
		// A source may follow links itself, but the attributes are still those of the link.
		if err != nil || a != nil && a.Attrs[markSoftLink] == nil {
			return a, err
		}
		next, err := follow(ctx, src, at)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return nil, absent(ctx, src, at)
		}
		at = *next
	}
	return nil, &KeyError{clean(name), corrupt("more than %d soft links, or a loop of them", maxLinks)}
}

// clean makes a path relative to the root. It never leads out of it.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// follow returns the path with its first soft link replaced by the link's target, or nil if there
// is none.
func follow(ctx context.Context, src Source, name string) (*string, error) {
	for end := 0; end < len(name); {
		end++
		if i := strings.IndexByte(name[end:], '/'); i >= 0 {
			end += i
		} else {
			end = len(name)
		}
		group := name[:end]
		attrs, err := readAttrs(ctx, src, group)
		if err != nil {
			return nil, err
		}
		link, ok := attrs[markSoftLink]
		if !ok {
			continue
		}
		o, _ := link.(map[string]any)
		target, ok := o["path"].(string)
		if !ok {
			return nil, &KeyError{path.Join(group, ".zattrs"), corrupt("%s: expected an object with a path, found %s", markSoftLink, brief(link))}
		}
		next := zarrkey.LinkTarget(group, target+"/"+name[end:])
		return &next, nil
	}
	return nil, nil
}

// absent returns an error that says what is at the path instead of an array.
func absent(ctx context.Context, src Source, at string) error {
	is := fs.ErrNotExist
	if _, ok, err := get(ctx, src, path.Join(at, ".zgroup"), metaLimit); err != nil {
		return err
	} else if ok {
		is = ErrGroup
	}
	return &fs.PathError{Op: "open array", Path: at, Err: is}
}

// open3 opens an array of version 3. It returns nil if there is none.
func open3(ctx context.Context, src Source, at string) (*Array, error) {
	key := path.Join(at, MetaName)
	raw, ok, err := get(ctx, src, key, attrLimit)
	if err != nil || !ok {
		return nil, err
	}
	n, err := parseNode(raw)
	switch {
	case err != nil:
		return nil, &KeyError{key, err}
	case n.array == nil:
		return nil, &fs.PathError{Op: "open array", Path: at, Err: ErrGroup}
	}
	a := &Array{Meta: *n.array, Path: at, Attrs: n.attrs, Limit: DefaultLimit, src: src}
	return a, a.mark(key)
}

// Attributes returns the attributes of the group or the array at a path, with values as in
// Meta.Fill. It does not follow soft links, which are attributes themselves.
func Attributes(ctx context.Context, src Source, name string) (map[string]any, error) {
	at := clean(name)
	attrs, err := readAttrs(ctx, src, at)
	if attrs != nil || err != nil {
		return attrs, err
	}
	key := path.Join(at, MetaName)
	raw, ok, err := get(ctx, src, key, attrLimit)
	if err != nil || !ok {
		return nil, err
	}
	n, err := parseNode(raw)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, &KeyError{key, err}
	}
	return n.attrs, nil
}

func readAttrs(ctx context.Context, src Source, at string) (map[string]any, error) {
	key := path.Join(at, ".zattrs")
	raw, ok, err := get(ctx, src, key, attrLimit)
	if err != nil || !ok {
		return nil, err
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, &KeyError{key, err}
	}
	return o, nil
}

func openAt(ctx context.Context, src Source, at string, raw []byte) (*Array, error) {
	m, err := ParseMeta(raw)
	if err != nil {
		return nil, &KeyError{path.Join(at, ".zarray"), err}
	}
	a := &Array{Meta: *m, Path: at, Limit: DefaultLimit, src: src}
	if a.Attrs, err = readAttrs(ctx, src, at); err != nil {
		return nil, err
	}
	return a, a.mark(path.Join(at, ".zattrs"))
}

// mark applies LINDI's attributes, which are in the value of key.
func (a *Array) mark(key string) error {
	wrong := func(mark, expected string) error {
		return &KeyError{key, corrupt("%s: expected %s, found %s", mark, expected, brief(a.Attrs[mark]))}
	}
	a.Scalar = a.Attrs[markScalar] == true
	if a.Scalar && a.Elements() != 1 {
		return wrong(markScalar, "an array of one element")
	}
	if _, ok := a.Attrs[markExternal]; ok {
		e, ok := external(a.Attrs)
		if !ok {
			return wrong(markExternal, "a url and a name")
		}
		a.External = &e
	}
	return nil
}

// Compound returns the fields of the elements of an object array, or nil if the array does not
// represent a compound dataset.
func (a *Array) Compound() []CompoundField {
	list, _ := a.Attrs[markCompound].([]any)
	var out []CompoundField
	for _, v := range list {
		pair, _ := v.([]any)
		if len(pair) != 2 {
			return nil
		}
		name, ok := pair[0].(string)
		typ, ok2 := pair[1].(string)
		if !ok || !ok2 {
			return nil
		}
		out = append(out, CompoundField{name, typ})
	}
	return out
}

func brief(v any) string {
	if v == nil {
		return "null"
	}
	if n, ok := v.(json.Number); ok {
		return clip(string(n))
	}
	return clip(string(appendJSON(nil, v)))
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}
