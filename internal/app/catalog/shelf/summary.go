package shelf

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
)

type Summary struct {
	Buckets []BucketSummary // by their addresses
	// Counted reports that the marks of files were counted. With very many files
	// they are not.
	Counted bool
}

// A BucketSummary describes the files packed from one bucket. An archive with
// files from several buckets counts for each.
type BucketSummary struct {
	Address  string // SCHEME://BUCKET; "" for archives without a recorded bucket
	Prefix   string // the common prefix of the names in the tree, if there is one
	Archives int
	Verified int // archives that were found sound
	Dead     int // archives without visible files; only if they are Counted
	Files    int64
	Bytes    int64 // of the archives
	Gone     int64 // files that were deleted
	Left     int64 // files whose originals were removed
}

// mostCounted is the largest number of files for which marks are counted.
const mostCounted = 2_000_000

func (s *Shelf) Summary(ctx context.Context) (Summary, error) {
	all, err := s.archives(ctx)
	if err != nil {
		return Summary{}, err
	}
	var sum Summary
	files := int64(0)
	for _, a := range all {
		files += a.Entries
	}
	var marks map[int64]*book.Usage
	if sum.Counted = files <= mostCounted; sum.Counted {
		if marks, err = s.c.Usage(ctx, nil); err != nil {
			return Summary{}, err
		}
	}
	of := map[string]*BucketSummary{}
	for _, a := range all {
		for address, prefix := range rootsOf(a) {
			b := of[address]
			if b == nil {
				b = &BucketSummary{Address: address, Prefix: prefix}
				of[address] = b
			}
			if b.Prefix != prefix {
				b.Prefix = ""
			}
			b.Archives++
			b.Files, b.Bytes = b.Files+a.Entries, b.Bytes+a.Size
			if u := marks[a.ID]; u != nil {
				b.Gone, b.Left = b.Gone+u.Deleted, b.Left+u.Retired
			}
			if !a.Verified.IsZero() {
				b.Verified++
			}
			if u := marks[a.ID]; sum.Counted && (u == nil || u.Files == 0) {
				b.Dead++
			}
		}
	}
	for _, b := range of {
		sum.Buckets = append(sum.Buckets, *b)
	}
	slices.SortFunc(sum.Buckets, func(x, y BucketSummary) int {
		return cmp.Or(cmp.Compare(len(y.Address), 0)-cmp.Compare(len(x.Address), 0), strings.Compare(x.Address, y.Address))
	})
	return sum, nil
}

// rootsOf returns the buckets that an archive was packed from, with the
// prefixes of the names there.
func rootsOf(a catalog.Archive) map[string]string {
	found := map[string]string{}
	for _, r := range a.Roots.All() {
		if scheme, name, _, ok := place(r.Address); ok {
			address := scheme + "://" + name
			if was, twice := found[address]; twice && was != r.Prefix {
				found[address] = ""
			} else {
				found[address] = r.Prefix
			}
		}
	}
	if len(found) == 0 {
		found[""] = ""
	}
	return found
}
