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

// A Probe is the input of Format.Detect. It comes from two reads that serve all formats.
type Probe struct {
	Name  string   // last element of the archive's name
	Size  int64    // -1 for a folder
	Head  []byte   // the first ProbeSize bytes, or all
	Tail  []byte   // the last ProbeSize bytes, or all
	Names []string // objects in a folder, if the store can list them
}

// Match is the certainty with which a format was detected.
type Match uint8

// Degrees of certainty.
const (
	No       Match = iota
	Possible       // the bytes are part of such an archive, or contain one; another format explains more of them
	Likely         // the bytes are consistent with the format
	Certain        // the bytes identify the format
)

// ErrUnknown means that no format recognised an archive.
var ErrUnknown = errors.New("not an archive in any known format")

var (
	mu      sync.RWMutex
	formats Formats
)

// Register registers f. It panics if f has no Name, or neither Open nor FromZarr, or if its name is
// already registered.
func Register(f *Format) {
	mu.Lock()
	defer mu.Unlock()
	if f.Name == "" || f.Open == nil && f.FromZarr == nil {
		panic("format: Register needs a Name, and an Open or a FromZarr")
	}
	i, dup := slices.BinarySearchFunc(formats, f.Name, func(g *Format, n string) int { return cmp.Compare(g.Name, n) })
	if dup {
		panic("format: " + f.Name + " registered twice")
	}
	formats = slices.Insert(formats, i, f)
}

// ViewOf returns view, or the default view if view is empty.
func (f *Format) ViewOf(view string) string {
	if view == "" && len(f.Views) > 0 {
		return f.Views[0]
	}
	return view
}

// Formats is a list of formats, sorted by name.
type Formats []*Format

// All returns the registered formats.
func All() Formats {
	mu.RLock()
	defer mu.RUnlock()
	return slices.Clone(formats)
}

// Named returns the format called name. If there is none, the error lists the names in among.
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

// ByName returns the format called name, or nil.
func (among Formats) ByName(name string) *Format {
	for _, f := range among {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// ByExtension returns the format whose extension the name has, or nil. It is only a hint; the
// bytes of an archive decide.
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

// Shares reports whether another format has an extension that ends in one of f's, as ".lindi.tar"
// ends in ".tar".
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

// Detects returns a function that reports whether f recognises an object, and no other format is
// more certain.
func (among Formats) Detects(f *Format) func(Probe) bool {
	return func(p Probe) bool {
		found, err := among.Detect(p)
		if err == nil || errors.Is(err, ErrUnknown) {
			return found == f
		}
		return f.Detect != nil && f.Detect(p) != No // one of several that it may be
	}
}

// Detect returns the format that is most certain to recognise p. If two formats are equally
// certain, it returns an error. If none recognises p, the error is [ErrUnknown].
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
