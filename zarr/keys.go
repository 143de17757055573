package zarr

import (
	"cmp"
	"context"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// SplitKey splits a key, or a path, at its last slash. at is "" in the root.
func SplitKey(key string) (at, last string) {
	i := strings.LastIndexByte(key, '/')
	return key[:max(i, 0)], key[i+1:]
}

// JoinKey undoes SplitKey.
func JoinKey(at, last string) string {
	if at == "" {
		return last
	}
	return at + "/" + last
}

// IsMeta reports whether a key is one of metadata, not of elements: .zgroup, .zarray, .zattrs, .zmetadata or zarr.json.
func IsMeta(key string) bool {
	_, last := SplitKey(key)
	return last == ".zgroup" || last == ".zarray" || last == ".zattrs" || last == ".zmetadata" || last == MetaName
}

// CompareKeys compares keys by their bytes, but numbers in them by their values. Chunks of an array are then together,
// in C order.
func CompareKeys(a, b string) int {
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
	return clean(to)
}

// ChunkAt returns the position in the grid of the chunk with a key, relative to the array's path. It reports false if
// there is no such chunk in an array of this number of dimensions.
func (m *Meta) ChunkAt(key string) (index []int64, ok bool) {
	if len(m.Shape) == 0 {
		return nil, key == m.ChunkKey()
	}
	numbers := strings.Split(strings.TrimPrefix(key, m.Prefix), m.Separator)
	if m.Prefix != "" {
		numbers = numbers[1:]
	}
	if len(numbers) != len(m.Shape) {
		return nil, false
	}
	index = make([]int64, len(numbers))
	for i, n := range numbers {
		var err error
		if index[i], err = strconv.ParseInt(n, 10, 64); err != nil || index[i] < 0 {
			return nil, false
		}
	}
	return index, m.ChunkKey(index...) == key
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
		return nil, overLimit("its value", int64(len(b)), limit)
	}
	return b, nil
}

// GetRange returns a part of the value of a key.
func (v Values) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b, err := v.Get(ctx, key, 1<<62)
	if err == nil {
		off, err = Within(off, n, int64(len(b)))
	}
	if err != nil {
		return nil, err
	}
	return b[off : off+n], nil
}
