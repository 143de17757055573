package format

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// A Probe is what detection may look at: two reads, made once for all formats.
type Probe struct {
	Name  string   // last element of the archive's name
	Size  int64    // -1 for a prefix
	Head  []byte   // first ProbeSize bytes, or all
	Tail  []byte   // last ProbeSize bytes, or all
	Names []string // objects below a prefix, if the store can list
}

// ProbeSize is how much of either end of an object is read to recognise it.
// Formats with an index at the end read as much for their first guess, so that
// what detection fetched is not fetched again.
const ProbeSize = 64 << 10

// Match says how surely a format was recognised.
type Match uint8

const (
	No      Match = iota
	Likely        // the bytes are consistent with it
	Certain       // the bytes say so
)

// ErrUnknown means no format recognised an archive.
var ErrUnknown = errors.New("not an archive in any known format")

var (
	mu      sync.RWMutex
	formats Formats
)

// Register makes f known. It panics if the name is taken or Open is missing.
func Register(f *Format) {
	mu.Lock()
	defer mu.Unlock()
	if f.Name == "" || f.Open == nil {
		panic("format: Register needs a Name and an Open")
	}
	i, dup := slices.BinarySearchFunc(formats, f.Name, func(g *Format, n string) int { return cmp.Compare(g.Name, n) })
	if dup {
		panic("format: " + f.Name + " registered twice")
	}
	formats = slices.Insert(formats, i, f)
}

// ViewOf returns the view that is meant by an OpenOptions.View.
func (f *Format) ViewOf(view string) string {
	if view == "" && len(f.Views) > 0 {
		return f.Views[0]
	}
	return view
}

// Formats are some formats, by name.
type Formats []*Format

// All returns the registered formats.
func All() Formats {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Clone(formats)
}

// Named returns the format of that name among some, or an error that says which there
// are.
func (among Formats) Named(name string) (*Format, error) {
	if f := among.ByName(name); f != nil {
		return f, nil
	}
	var names []string
	for _, f := range among {
		names = append(names, f.Name)
	}
	return nil, fmt.Errorf("unknown format %q: expected one of %s", name, strings.Join(names, ", "))
}

// ByName returns the format of that name, or nil.
func (among Formats) ByName(name string) *Format {
	for _, f := range among {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// ByExtension returns the format whose files are usually called like name, or
// nil. It is a hint where to look first, never an answer.
func (among Formats) ByExtension(name string) *Format {
	base := strings.ToLower(path.Base(name))
	var found *Format
	longest := 0
	for _, f := range among {
		for _, ext := range f.Extensions {
			if strings.HasSuffix(base, ext) && len(ext) > longest {
				found, longest = f, len(ext)
			}
		}
	}
	return found
}

// Shares reports whether f's files may be called like those of a format that has
// more to say of them: every ".lindi.tar" is a ".tar" too.
func (among Formats) Shares(f *Format) bool {
	for _, other := range among {
		for _, theirs := range other.Extensions {
			for _, ours := range f.Extensions {
				if other != f && strings.HasSuffix(theirs, ours) {
					return true
				}
			}
		}
	}
	return false
}

// Detect returns the format that is surest of p. A tie is an error, not a guess.
func (among Formats) Detect(p Probe) (*Format, error) {
	var best []string
	var found *Format
	var sure Match
	for _, f := range among {
		if f.Detect == nil {
			continue
		}
		switch m := f.Detect(p); {
		case m > sure:
			found, sure, best = f, m, []string{f.Name}
		case m == sure && m != No:
			best = append(best, f.Name)
		}
	}
	switch {
	case found == nil:
		return nil, ErrUnknown
	case len(best) > 1:
		return nil, fmt.Errorf("%q could be %s: set the format", p.Name, strings.Join(best, " or "))
	}
	return found, nil
}
