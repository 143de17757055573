package zarr

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// seen is a group or an array. at is the path where it is seen, and is its own path; they differ
// below soft links.
type seen struct {
	at, is string
	array  bool
	link   bool // it is a soft link that is not followed
}

// maxSeen is the number of nodes that may be visited through soft links, in addition to four
// times the number of nodes. Links to groups that contain links can multiply nodes.
const maxSeen = 10_000

// hierarchy has the groups and arrays of version 2.
type hierarchy struct {
	src    Source
	paths  []string          // sorted
	arrays map[string]bool   // by path; false for groups
	links  map[string]string // from the paths of soft links to their targets
	seen   []seen
	steps  int  // nodes visited so far
	direct bool // the source follows no links, and nothing is read through them
}

// readHierarchy finds groups and arrays by the names of all keys.
func readHierarchy(ctx context.Context, src Source, keys iter.Seq2[string, error], direct bool) (*hierarchy, error) {
	h := &hierarchy{src: src, direct: direct, arrays: map[string]bool{}, links: map[string]string{}}
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		at, last := zarrkey.Split(key)
		if last == ".zarray" || last == ".zgroup" {
			h.arrays[at] = h.arrays[at] || last == ".zarray"
		}
	}
	for at, isArray := range h.arrays {
		h.paths = append(h.paths, at)
		if isArray {
			continue
		}
		text, _, err := get(ctx, src, path.Join(at, ".zattrs"), attrLimit)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(string(text), markSoftLink) {
			continue
		}
		// If the link cannot be followed, the node stays a group.
		if to, err := follow(ctx, src, at); err == nil && to != nil {
			h.links[at] = *to
		}
	}
	slices.Sort(h.paths)
	h.seen = make([]seen, 0, len(h.paths))
	if err := h.walk(ctx, "", "", nil); err != nil {
		return nil, err
	}
	// A node counts only if its parent is a group.
	groups := map[string]bool{"": true}
	h.seen = slices.DeleteFunc(h.seen, func(n seen) bool {
		if n.at == "" {
			return false
		}
		above, _ := zarrkey.Split(n.at)
		in := groups[above]
		groups[n.at] = in && !n.array
		return !in
	})
	return h, ctx.Err()
}

// walk visits everything below the path is, which is seen at the path at. through has the links
// that led there.
func (h *hierarchy) walk(ctx context.Context, at, is string, through []string) error {
	var err error
	from, _ := slices.BinarySearch(h.paths, is)
	for _, p := range h.paths[from:] {
		below, ok := strings.CutPrefix(p, is)
		if !ok {
			break
		}
		if is != "" && below != "" && below[0] != '/' {
			continue // "a-b" is not below "a"
		}
		h.steps++
		n := seen{at: at + below, is: p, array: h.arrays[p]}
		to, isLink := h.resolve(p)
		if !isLink {
			// The source may not follow links, and then has nothing at that path.
			if n.link, err = h.missing(ctx, n); err != nil {
				return err
			}
			if _, own := h.arrays[n.at]; own || !n.link {
				n.array = n.array && !n.link
				h.seen = append(h.seen, n)
			}
			continue
		}
		if h.links[p] == "" {
			continue // it is below a link, where nothing is visible
		}
		_, there := h.arrays[to]
		n.link = !there || h.steps > 4*len(h.paths)+maxSeen || len(through) > maxLinks ||
			within(p, to) || slices.ContainsFunc(through, func(t string) bool { return within(t, to) })
		if n.link {
			h.seen = append(h.seen, n)
			continue
		}
		if err = h.walk(ctx, n.at, to, append(through[:len(through):len(through)], p)); err != nil {
			return err
		}
	}
	return nil
}

// missing reports whether the source has no such node at the path where it is seen.
func (h *hierarchy) missing(ctx context.Context, n seen) (bool, error) {
	if n.at == n.is || h.direct {
		return false, nil
	}
	name := ".zgroup"
	if n.array {
		name = ".zarray"
	}
	_, ok, err := get(ctx, h.src, path.Join(n.at, name), metaLimit)
	return !ok, err
}

// within reports whether p is the path other or below it.
func within(p, other string) bool {
	return other == "" || p == other || strings.HasPrefix(p, other+"/")
}

// resolve follows the links on the way to a path.
func (h *hierarchy) resolve(p string) (to string, isLink bool) {
	for range maxLinks {
		at, ok := p, false
		for i := 0; i <= len(p); i++ {
			if i < len(p) && p[i] != '/' {
				continue
			}
			if to, ok = h.links[p[:i]]; ok {
				at = path.Join(to, p[i:])
				break
			}
		}
		if !ok {
			return p, isLink
		}
		p, isLink = at, true
	}
	return p, isLink
}

// each calls fn with the nodes in order, their attributes, and the .zarray of arrays; raw is nil
// for groups. It omits nodes that cannot be read and calls failed for them.
func (h *hierarchy) each(ctx context.Context, fn func(n seen, raw, attrs []byte) error, failed func(at string, err error)) error {
	for _, n := range h.seen {
		if n.link {
			n.is = n.at // it stays the group at its own path
		}
		var raw []byte
		var err error
		ok := true
		if n.array {
			raw, ok, err = get(ctx, h.src, path.Join(n.is, ".zarray"), metaLimit)
		}
		var attrs []byte
		if err == nil && ok {
			attrs, _, err = get(ctx, h.src, path.Join(n.is, ".zattrs"), attrLimit)
		}
		if err == nil && ok {
			_, err = parseObject(attrs)
		}
		if err == nil && ok {
			err = fn(n, raw, attrs)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errTooLong):
			return err
		case err != nil && failed != nil:
			failed(n.at, err)
		}
	}
	return nil
}

// errTooLong means that the result exceeds the limit.
var errTooLong = &marked{"all metadata together takes more than the limit", ErrLimit}

// Consolidate returns the .zmetadata of a hierarchy of version 2, given all its keys. It has all
// keys that describe groups and arrays, including those seen through soft links. If it would take
// more than limit bytes, the error wraps [ErrLimit].
func Consolidate(ctx context.Context, src Source, keys iter.Seq2[string, error], limit int64) ([]byte, error) {
	h, err := readHierarchy(ctx, src, keys, false)
	if err != nil {
		return nil, err
	}
	out := []byte(`{"metadata":{`)
	add := func(n seen, name string, text []byte) {
		if out[len(out)-1] == '}' {
			out = append(out, ',')
		}
		out = append(append(appendQuoted(out, path.Join(n.at, name)), ':'), text...)
	}
	err = h.each(ctx, func(n seen, raw, attrs []byte) error {
		if int64(len(out)+len(raw)+len(attrs)+2*len(n.at)+100) > limit {
			return errTooLong
		}
		if n.array {
			if _, err := parseObject(raw); err != nil {
				return err
			}
			add(n, ".zarray", raw)
		} else {
			add(n, ".zgroup", []byte(`{"zarr_format":2}`))
		}
		if len(attrs) > 0 {
			add(n, ".zattrs", attrs)
		}
		return nil
	}, nil)
	return append(out, `},"zarr_consolidated_format":1}`...), err
}

// A Seen3 is a group or an array of version 2 that is seen in version 3.
type Seen3 struct {
	At, Is string    // the path where it is seen, and its own; they differ below soft links
	Own    bool      // there is a group at the path At in version 2; it is a link if that is not Is
	Array  *Version3 // nil for a group
	Text   []byte    // zarr.json; of the root without the metadata of everything below it
}

// Root3 returns the zarr.json of the root of a hierarchy of version 2, given all its keys. It
// includes the metadata of everything below the root. Root3 calls left for nodes that version 3
// cannot represent, which it omits. It calls through for nodes that are seen through soft links:
// at is where a node is seen, is its own path, and own reports whether there is a group at the
// path at, which is then the link. The text may take limit bytes, and a chunk that is encoded
// anew may take chunk bytes.
func Root3(ctx context.Context, src Source, keys iter.Seq2[string, error], limit, chunk int64, left func(at string, err error), through func(at, is string, own bool)) ([]byte, error) {
	return See3(ctx, src, keys, See3Options{Limit: limit, Chunk: chunk, Left: left, See: func(x *Seen3) {
		if x.At != x.Is {
			through(x.At, x.Is, x.Own)
		}
	}})
}

// See3Options are options of See3.
type See3Options struct {
	Limit, Chunk int64                      // bytes of the text, and of a chunk that is encoded anew
	Direct       bool                       // nodes are seen through soft links although the source follows none
	Left         func(at string, err error) // called for nodes that version 3 cannot represent
	See          func(*Seen3)               // called for all others, and may change the text
}

// See3 is [Root3] with options, and with a view of each group and array.
func See3(ctx context.Context, src Source, keys iter.Seq2[string, error], o See3Options) ([]byte, error) {
	h, err := readHierarchy(ctx, src, keys, o.Direct)
	if err != nil {
		return nil, err
	}
	root := group3(nil)
	out := []byte(`,"consolidated_metadata":{"kind":"inline","must_understand":false,"metadata":{`)
	err = h.each(ctx, func(n seen, raw, attrs []byte) error {
		_, own := h.arrays[n.at]
		x := Seen3{At: n.at, Is: n.is, Own: own, Text: group3(attrs)}
		if n.array {
			t, err := version3Of(raw, attrs, o.Chunk)
			if err != nil {
				return err
			}
			x.Array, x.Text = t, t.text
		}
		o.See(&x)
		if int64(len(out)+len(x.Text)+len(n.at)+100) > o.Limit {
			return errTooLong
		}
		if n.at == "" {
			root = x.Text
			return nil
		}
		if out[len(out)-1] == '}' {
			out = append(out, ',')
		}
		out = append(append(appendQuoted(out, n.at), ':'), x.Text...)
		return nil
	}, o.Left)
	if h.arrays[""] {
		return root, err // the root is an array, with nothing below it
	}
	return append(append(root[:len(root)-1:len(root)-1], out...), `}}}`...), err
}
