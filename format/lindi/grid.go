package lindi

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
)

// A zarray is what a .zarray says of its array.
type zarray struct {
	shape, chunks []int64 // -1 for what is no number
	separator     byte
	item          int64 // bytes of one of its numbers, 0 if they are not stored as they are
	coded         bool  // chunks are compressed, or go through filters
}

// parseArray reads the text of a .zarray.
func parseArray(text []byte, depth int) (z zarray, err error) {
	z.separator = '.'
	s := &scanner{b: text, depth: depth}
	err = s.members(func(key []byte) (err error) {
		switch string(key) {
		case `"shape"`:
			z.shape, err = s.numbers()
			return err
		case `"chunks"`:
			z.chunks, err = s.numbers()
			return err
		}
		v, err := s.value()
		if err != nil {
			return err
		}
		switch string(key) {
		case `"dimension_separator"`:
			if string(v) == `"/"` {
				z.separator = '/'
			}
		case `"compressor"`, `"filters"`:
			z.coded = z.coded || string(v) != "null" && string(bytes.ReplaceAll(v, []byte(" "), nil)) != "[]"
		case `"dtype"`:
			if len(v) < 5 || v[0] != '"' {
				return nil
			}
			if t := str(v); strings.ContainsRune("<>|", rune(t[0])) && strings.ContainsRune("iuf", rune(t[1])) {
				z.item, _ = whole([]byte(t[2:]))
			}
		}
		return nil
	})
	if err == nil {
		err = s.end()
	}
	return z, err
}

// rawChunk returns how long a chunk is whose numbers are stored as they are; 0 for any
// other.
func (z zarray) rawChunk() int64 {
	if z.coded || z.item <= 0 || z.item > 16 {
		return 0
	}
	n := z.item
	for _, c := range z.chunks {
		if c < 0 || c > 0 && n > z.item*math.MaxInt32*1024/c {
			return 0
		}
		n *= c
	}
	return n
}

// A grid is how an array is cut into chunks.
type grid struct {
	counts    []int64 // of chunks along each axis
	separator byte
}

var errGrid = errors.New("shape and chunks do not fit each other")

func (z zarray) grid() (grid, error) {
	g := grid{separator: z.separator}
	if len(z.shape) != len(z.chunks) {
		return g, errGrid
	}
	for i, n := range z.shape {
		c := z.chunks[i]
		if n < 0 || c < 0 || c == 0 && n != 0 {
			return g, errGrid
		}
		c = max(c, 1)
		g.counts = append(g.counts, (n+c-1)/c)
	}
	return g, nil
}

// chunks returns how many there are.
func (g grid) chunks() int64 {
	n := int64(1)
	for _, c := range g.counts {
		if c > 0 && n > math.MaxInt64/c {
			return math.MaxInt64
		}
		n *= c
	}
	return n
}

// key returns the last part of the key of the i-th chunk, in the order in which
// the reference writes them.
func (g grid) key(i int64) string {
	if len(g.counts) == 0 {
		return "0"
	}
	at := make([]int64, len(g.counts))
	for d := len(g.counts) - 1; d >= 0; d-- {
		at[d], i = i%g.counts[d], i/g.counts[d]
	}
	var b []byte
	for d, n := range at {
		if d > 0 {
			b = append(b, g.separator)
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}
