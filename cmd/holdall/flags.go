package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

type choice struct {
	to    *string
	words []string
}

// newChoice returns a flag that accepts one of words. The first is the
// default.
func newChoice(to *string, words ...string) *choice {
	*to = words[0]
	return &choice{to, words}
}

func (c *choice) String() string { return "" }
func (c *choice) Type() string   { return "word" }

func (c *choice) Set(s string) error {
	if s == "" || !slices.Contains(c.words, s) {
		list := slices.DeleteFunc(slices.Clone(c.words), func(w string) bool { return w == "" })
		expected := strings.Replace(inWords(list), " and ", " or ", 1)
		if meant := nearest(s, c.words); meant != "" {
			return &misspeltError{fmt.Errorf("expected %s", expected), meant}
		}
		return fmt.Errorf("expected %s", expected)
	}
	*c.to = s
	return nil
}

// sizeFlag is a number of bytes: 4096, 30GB (decimal), 64MiB (binary).
type sizeFlag int64

func (s *sizeFlag) Type() string { return "size" }

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (s *sizeFlag) Set(v string) error {
	n, err := parseSize(v)
	*s = sizeFlag(n)
	return err
}

var units = []struct {
	name string
	n    float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40},
	{"b", 1},
}

func parseSize(v string) (int64, error) {
	s, unit := strings.ToLower(strings.TrimSpace(v)), 1.0
	for _, u := range units {
		if num, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = strings.TrimSpace(num), u.n
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n < 0 || n*unit >= math.MaxInt64 || math.IsNaN(n) {
		return 0, fmt.Errorf("expected a size such as 4096, 30GB or 64MiB")
	}
	return int64(n * unit), nil
}

// byteRange is --range START-END, half-open. END may be omitted. -N means the
// last N bytes.
type byteRange struct {
	set        bool
	start, end int64 // end -1: to the end; start -1: the last end bytes
}

func (r *byteRange) Type() string   { return "range" }
func (r *byteRange) String() string { return "" }

func (r *byteRange) Set(v string) error {
	from, to, ok := strings.Cut(v, "-")
	ends := [2]int64{-1, -1}
	for i, s := range []string{from, to} {
		if n, err := strconv.ParseUint(s, 10, 63); err == nil {
			ends[i] = int64(n)
		} else if s != "" {
			ok = false
		}
	}
	if !ok || from+to == "" || from != "" && to != "" && ends[1] < ends[0] {
		return errors.New("expected START-END, START- or -N")
	}
	*r = byteRange{true, ends[0], ends[1]}
	return nil
}

// of returns the range for a file of that size, clipped to its end.
func (r *byteRange) of(size int64) (off, n int64) {
	if r.start < 0 {
		n = min(r.end, size)
		return size - n, n
	}
	end := size
	if r.end >= 0 {
		end = min(r.end, size)
	}
	off = min(r.start, end)
	return off, end - off
}
