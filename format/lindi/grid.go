package lindi

import (
	"errors"
	"math"
	"strconv"
)

// A grid is how an array is cut into chunks.
type grid struct {
	counts    []int64 // of chunks along each axis
	separator byte
}

var errGrid = errors.New("shape and chunks do not fit each other")

// parseGrid reads what a .zarray says of its chunks.
func parseGrid(zarray []byte, depth int) (g grid, err error) {
	var shape, chunks []int64
	g.separator = '.'
	list := func(s *scanner, to *[]int64) error {
		*to = nil
		return s.elements(func() error {
			v, err := s.value()
			n, ok := whole(v)
			if err == nil && !ok {
				err = errGrid
			}
			*to = append(*to, n)
			return err
		})
	}
	s := &scanner{b: zarray, depth: depth}
	err = s.members(func(key []byte) error {
		switch string(key) {
		case `"shape"`:
			return list(s, &shape)
		case `"chunks"`:
			return list(s, &chunks)
		case `"dimension_separator"`:
			v, err := s.value()
			if string(v) == `"/"` {
				g.separator = '/'
			}
			return err
		}
		return s.skip()
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && len(shape) != len(chunks) {
		err = errGrid
	}
	if err != nil {
		return g, err
	}
	for i, n := range shape {
		if chunks[i] == 0 {
			if n != 0 {
				return g, errGrid
			}
			chunks[i] = 1
		}
		g.counts = append(g.counts, (n+chunks[i]-1)/chunks[i])
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
