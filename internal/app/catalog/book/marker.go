package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// A Marker is the name of a small object at a place where a catalogue has deleted originals or archives. It
// names a commit of the catalogue. One that does not have this commit is an old copy, which does not know
// what was deleted, and must delete nothing.
type Marker struct {
	Catalog string
	Commit  int64
	Hash    string // begins that of the commit
}

// markerPrefix is what the names of markers begin with, below their place.
const markerPrefix = ".holdall-catalogue-"

const markerHash = 32

func (m Marker) String() string {
	return fmt.Sprintf("%s%016d-%s", MarkersOf(m.Catalog), m.Commit, m.Hash)
}

// MarkersOf is what the names of markers of a catalogue begin with.
func MarkersOf(catalog string) string { return markerPrefix + catalog + "/" }

var markerName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(regexp.QuoteMeta(markerPrefix) + "([0-9A-Z]{26})/([0-9]{16})-([0-9a-f]{32})$")
})

// ParseMarker parses a name that ends like that of a marker.
func ParseMarker(name string) (m Marker, ok bool) {
	all := markerName().FindStringSubmatch(name)
	if all == nil {
		return m, false
	}
	n, err := strconv.ParseInt(all[2], 10, 64)
	return Marker{all[1], n, all[3]}, err == nil
}

// IsMarker reports whether a name is that of a marker.
func IsMarker(name string) bool {
	return strings.Contains(name, markerPrefix) && markerName().MatchString(name)
}

// Marker returns the marker of the newest commit.
func (b *Book) Marker() Marker {
	s := b.current()
	return Marker{s.Catalog, s.Number, s.Hash[:min(len(s.Hash), markerHash)]}
}

// Knows reports whether a marker is that of a commit of this catalogue.
func (b *Book) Knows(ctx context.Context, m Marker) (bool, error) {
	s, err := b.State(ctx)
	if err == nil && m.Commit > s.Number {
		err = b.follow(ctx)
		s = b.current()
	}
	if err != nil || m.Catalog != s.Catalog || m.Commit > s.Number {
		return false, err
	}
	c, err := b.commit(ctx, m.Commit)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, b.fail(commitName(m.Commit), err)
	}
	return c.hash[:markerHash] == m.Hash, nil
}
