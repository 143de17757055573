package shelf

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/app/catalog"
)

type Summary struct {
	Buckets []BucketSummary // by their addresses
	Plans   []PlanSummary   // the oldest first
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
	Dead     int // archives without visible files
	Files    int64
	Bytes    int64 // of the archives
	Gone     int64 // files that were deleted
	Left     int64 // files whose originals were removed
}

type PlanSummary struct {
	catalog.Plan
	catalog.Totals
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
	var marks map[int64]catalog.Marks
	if sum.Counted = files <= mostCounted; sum.Counted {
		if c, ok := s.c.(*catalog.Catalog); ok {
			if marks, err = c.Marks(ctx); err != nil {
				return Summary{}, err
			}
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
			b.Gone, b.Left = b.Gone+marks[a.ID].Gone, b.Left+marks[a.ID].Left
			if !a.Verified.IsZero() {
				b.Verified++
			}
			if !a.Dead.IsZero() {
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
	c, ok := s.c.(*catalog.Catalog)
	if !ok {
		return sum, nil
	}
	plans, err := c.Plans(ctx)
	if err != nil {
		return Summary{}, err
	}
	for _, p := range plans {
		t, err := c.Totals(ctx, p.ID)
		if err != nil {
			return Summary{}, err
		}
		sum.Plans = append(sum.Plans, PlanSummary{p, t})
	}
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
