package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// DefaultLimit is an Array's Limit unless it is changed.
const DefaultLimit = 1 << 30

// The names of LINDI's marks in .zattrs, and how far soft links are followed.
const (
	markSoftLink = "_SOFT_LINK"
	markScalar   = "_SCALAR"
	markCompound = "_COMPOUND_DTYPE"
	markExternal = "_EXTERNAL_ARRAY_LINK"

	maxLinks = 40
)

// An Array is an array of a hierarchy. Its methods may be called in parallel.
type Array struct {
	Meta
	// Path is where the array was found: links have been followed. It is "" for
	// the root.
	Path string
	// Attrs are the attributes, with values as in Meta.Fill.
	Attrs map[string]any
	// Scalar says that the array, of one element, stands for a value without a
	// shape. It is written as such.
	Scalar bool
	// External is set where the elements lie in an HDF5 file. They can be read if the Source
	// has the chunks of that file.
	External *External
	// Limit is how many bytes one row of chunks along the first axis may take, and the chunks
	// that are being decoded; a row that takes more is an error.
	Limit int64

	src Source
}

// External says where in an HDF5 file an array's elements are.
type External struct{ URL, Name string }

// ErrUnwritten is what a Source says of a chunk of an array whose elements lie in an HDF5 file,
// that it knows all chunks of, where that file has none: it is fs.ErrNotExist.
var ErrUnwritten = fmt.Errorf("the chunk was never written: %w", fs.ErrNotExist)

// ParseExternal returns where the elements of an array lie whose attributes are these, if they
// say so.
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

// A CompoundField is one field of the elements of an object array that stands
// for a compound HDF5 dataset: each element is a list of the fields' values.
type CompoundField struct{ Name, Type string }

// Open opens the array at a path, "" for the root. It reads .zarray and
// .zattrs, or zarr.json, no chunk. Where LINDI has put a soft link in the place of a group, on
// the path or at its end, the link is followed: a path that begins with a slash
// from the root, another one from the group the link is in.
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
		// A source may follow links, too, but not for the attributes, which the link has.
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

// clean makes a path relative to the root; it never leads out of it.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// follow replaces the first soft link on the path to a name. Without any it
// gives nil.
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
		if !strings.HasPrefix(target, "/") {
			target = path.Dir("/"+group) + "/" + target
		}
		next := clean(target + "/" + name[end:])
		return &next, nil
	}
	return nil, nil
}

// absent says what is there in place of an array.
func absent(ctx context.Context, src Source, at string) error {
	is := fs.ErrNotExist
	if _, ok, err := get(ctx, src, path.Join(at, ".zgroup"), metaLimit); err != nil {
		return err
	} else if ok {
		is = ErrGroup
	}
	return &fs.PathError{Op: "open array", Path: at, Err: is}
}

// open3 opens an array of version 3, if there is one; nil if not.
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

// Attributes gives the attributes of the group or the array at a path, with values as in
// Meta.Fill; none where there are none. Soft links are not followed: they are attributes.
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

// mark heeds LINDI's marks in the attributes, which the value of a key has.
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

// Compound gives the fields that the elements of an object array have; nil if
// the array is not marked so.
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
