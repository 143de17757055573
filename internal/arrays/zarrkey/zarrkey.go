// Package zarrkey has what all code about Zarr needs of its keys. Package zarr has the rest.
package zarrkey

import (
	"cmp"
	"path"
	"strings"
)

// Split splits a key, or a path, at its last slash. at is "" in the root.
func Split(key string) (at, last string) {
	i := strings.LastIndexByte(key, '/')
	return key[:max(i, 0)], key[i+1:]
}

// Join undoes Split.
func Join(at, last string) string {
	if at == "" {
		return last
	}
	return at + "/" + last
}

// IsMeta reports whether a key is one of metadata, not of elements: .zgroup, .zarray, .zattrs, .zmetadata or zarr.json.
func IsMeta(key string) bool {
	_, last := Split(key)
	return last == ".zgroup" || last == ".zarray" || last == ".zattrs" || last == ".zmetadata" || last == "zarr.json"
}

// Compare compares keys by their bytes, but numbers in them by their values. Chunks of an array are then together,
// in C order.
func Compare(a, b string) int {
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m == 0 || n == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		p, q := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q), cmp.Compare(m, n)); c != 0 {
			return c
		}
		a, b = a[m:], b[n:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of digits at the start of a text.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// LinkTarget returns the path that a soft link at a path refers to, relative to the group that contains the link, or to
// the root if it begins with a slash.
func LinkTarget(at, to string) string {
	if !strings.HasPrefix(to, "/") {
		to = path.Dir("/"+at) + "/" + to
	}
	return strings.TrimPrefix(path.Clean("/"+to), "/")
}
