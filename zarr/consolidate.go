package zarr

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"
)

// A seen is a group or an array: where it is seen, and where it is. They differ below soft links.
type seen struct {
	at, is string
	array  bool
	link   bool // it is a soft link that is not followed
}

// maxSeen is how many nodes may be looked at through soft links, beside four times those that there are: links to groups
// that have links make many of few.
const maxSeen = 10_000

// hierarchy is the groups and arrays of version 2.
type hierarchy struct {
	src    Source
	paths  []string          // in order
	arrays map[string]bool   // by path; false of groups
	links  map[string]string // from groups that are soft links, to where they lead
	seen   []seen
	steps  int // that were taken to find them
}

// readHierarchy finds them by the names of all keys.
func readHierarchy(ctx context.Context, src Source, keys iter.Seq2[string, error]) (*hierarchy, error) {
	h := &hierarchy{src: src, arrays: map[string]bool{}, links: map[string]string{}}
	for key, err := range keys {
		if err != nil {
			return nil, err
		}
		at, last := path.Split(key)
		at = strings.TrimSuffix(at, "/")
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
		// What cannot be followed stays a group.
		if to, err := follow(ctx, src, at); err == nil && to != nil {
			h.links[at] = *to
		}
	}
	slices.Sort(h.paths)
	h.seen = make([]seen, 0, len(h.paths))
	if err := h.walk(ctx, "", "", nil); err != nil {
		return nil, err
	}
	// A node counts only in a group.
	groups := map[string]bool{"": true}
	h.seen = slices.DeleteFunc(h.seen, func(n seen) bool {
		if n.at == "" {
			return false
		}
		in := groups[strings.TrimSuffix(path.Dir("/" + n.at)[1:], "/")]
		groups[n.at] = in && !n.array
		return !in
	})
	return h, ctx.Err()
}

// walk goes through what is below a path, which is seen at another; through are the links that led there.
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
			// A source may not follow links: then there is nothing to be had there.
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
			continue // below a link, where nobody sees it
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

// missing reports whether what is seen at another place is not to be had there.
func (h *hierarchy) missing(ctx context.Context, n seen) (bool, error) {
	if n.at == n.is {
		return false, nil
	}
	name := ".zgroup"
	if n.array {
		name = ".zarray"
	}
	_, ok, err := get(ctx, h.src, path.Join(n.at, name), metaLimit)
	return !ok, err
}

// within reports whether a path is another, or below it.
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

// each calls fn with the nodes in order, and what describes them; raw is the .zarray of arrays, else nil.
// What cannot be read is left out: failed says what.
func (h *hierarchy) each(ctx context.Context, fn func(n seen, raw, attrs []byte) error, failed func(at string, err error)) error {
	for _, n := range h.seen {
		if n.link {
			n.is = n.at // it is the group that it is
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

// errTooLong ends what is put together.
var errTooLong = &marked{"all metadata together takes more than the limit", ErrLimit}

// Consolidate makes the .zmetadata of a hierarchy of version 2: of all keys that describe groups and arrays, those
// too that soft links lead to. It is an error if that takes more than limit bytes.
func Consolidate(ctx context.Context, src Source, keys iter.Seq2[string, error], limit int64) ([]byte, error) {
	h, err := readHierarchy(ctx, src, keys)
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

// Root3 makes the zarr.json of the root of a hierarchy of version 2, which has those of all that is below it. What is
// left out of it, since version 3 cannot say it, is told to left. What is seen through soft links is told to through, with
// where it is, and whether there is a group at its place, which is the link. The text may take limit bytes, and chunks
// that are made anew chunk.
func Root3(ctx context.Context, src Source, keys iter.Seq2[string, error], limit, chunk int64, left func(at string, err error), through func(at, is string, own bool)) ([]byte, error) {
	h, err := readHierarchy(ctx, src, keys)
	if err != nil {
		return nil, err
	}
	root := group3(nil)
	out := []byte(`,"consolidated_metadata":{"kind":"inline","must_understand":false,"metadata":{`)
	err = h.each(ctx, func(n seen, raw, attrs []byte) error {
		text := group3(attrs)
		if n.array {
			t, err := version3Of(raw, attrs, chunk)
			if err != nil {
				return err
			}
			text = t.text
		}
		if int64(len(out)+len(text)+len(n.at)+100) > limit {
			return errTooLong
		}
		if n.at == "" {
			root = text
			return nil
		}
		if n.at != n.is {
			_, own := h.arrays[n.at]
			through(n.at, n.is, own)
		}
		if out[len(out)-1] == '}' {
			out = append(out, ',')
		}
		out = append(append(appendQuoted(out, n.at), ':'), text...)
		return nil
	}, left)
	if h.arrays[""] {
		return root, err // which is an array, with nothing below it
	}
	return append(append(root[:len(root)-1:len(root)-1], out...), `}}}`...), err
}
