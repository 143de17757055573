package book

import (
	"context"
	"math/bits"
	"slices"

	"github.com/holdall/holdall/internal/app/catalog/rows"
)

// Runs of about the same size are merged when there are some of them: a name is then looked for in
// few runs, and a row is written again about as often as its run gets tierBits times larger.
const tierBits = 3 // a tier has sizes up to 1<<tierBits times those of the one below

// tierRuns is how many runs of a tier are merged. Filters of up to 32,767 rows, tier 5, come with the head
// of the catalogue. Of larger ones, each takes a reader a request, so there are fewer.
func tierRuns(tier int) int { return min(max(9-tier, 2), 4) }

func tier(rows int64) int { return (bits.Len64(uint64(rows)) + tierBits - 1) / tierBits }

// toMerge returns the runs that are to be merged next, or none.
func (s *State) toMerge() (some []RunRef) {
	of := map[int][]RunRef{}
	most := 0
	for _, r := range s.Runs {
		t := tier(r.Rows)
		of[t] = append(of[t], r)
		most = max(most, t)
	}
	for t := 0; t <= most; t++ {
		// With a tier, what is smaller is merged too.
		if some = append(some, of[t]...); len(of[t]) >= tierRuns(t) {
			return some
		}
	}
	return nil
}

// merge merges runs while some are to be merged.
func (b *Book) merge(ctx context.Context) error {
	for {
		s, err := b.full(ctx, b.current())
		if err != nil {
			return err
		}
		some := s.toMerge()
		if len(some) < 2 {
			return nil
		}
		if err := b.mergeRuns(ctx, s, some, nil); err != nil {
			return err
		}
	}
}

// mergeRuns makes one run of some. It leaves out deletions of names that are erased.
func (b *Book) mergeRuns(ctx context.Context, s *State, some []RunRef, erased map[string]bool) error {
	runs, err := b.runsOf(ctx, some)
	if err == nil {
		err = b.fetch(ctx, runs, "")
	}
	if err != nil {
		return err
	}
	most, c := int64(0), Commit{Base: s.Number}
	for _, r := range some {
		most += r.Rows
		c.Merged = append(c.Merged, r.id())
	}
	if len(some) == len(s.Runs) {
		c.Forget = slices.Clone(s.Dropped)
	}
	about := func(id rows.ArchiveID) (rows.Archive, bool) {
		i, ok := s.at[idOf(id)]
		if !ok {
			return rows.Archive{}, false
		}
		return s.Archives[i].shown(), true
	}
	ref, more, err := b.writeRun(ctx, s.Number, most, about, func(yield func(*rows.Row, error) bool) {
		group := grouping{s: s, whole: len(some) == len(s.Runs), erased: erased}
		for x, err := range rows.Merged(ctx, runs, "") {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(group.rows) > 0 && group.rows[0].Name != x.Name && !group.flush(yield) {
				return
			}
			group.rows = append(group.rows, x.Row)
		}
		group.flush(yield)
	})
	if err != nil {
		return err
	}
	if c.Runs, c.inline = []RunRef{ref}, more; ref.Rows == 0 {
		c.Runs, c.inline = nil, nil
	}
	_, err = b.commitNow(ctx, func(now *State) (*Commit, error) {
		for _, id := range c.Merged {
			if !slices.ContainsFunc(now.Runs, func(r RunRef) bool { return r.id() == id }) {
				return nil, nil // another has merged it
			}
		}
		k := c
		return &k, nil
	})
	return err
}

// A grouping has the rows of a name, and leaves out those that nobody needs.
type grouping struct {
	s      *State
	whole  bool // there are no others
	erased map[string]bool
	rows   []rows.Row
}

func (g *grouping) flush(yield func(*rows.Row, error) bool) bool {
	files, oldest := map[int64]bool{}, int64(0) // by Seq
	source := g.s.Source != "" && len(g.rows) > 0 && !g.erased[g.rows[0].Name]
	for i := range g.rows {
		if r := &g.rows[i]; r.What == rows.Put && !g.s.dropped[idOf(r.Archive)] {
			files[r.Seq], oldest = true, r.Seq
		}
	}
	fates := map[int64]bool{}
	for i := range g.rows {
		r := &g.rows[i]
		switch r.What {
		case rows.Put:
			if g.s.dropped[idOf(r.Archive)] {
				continue
			}
		case rows.Delete:
			// What is committed from now on began at the floor or later. The source may have the name: one deletion stays.
			if g.whole && r.Seq < g.s.Floor && (len(files) == 0 || oldest >= r.Seq) && !source {
				continue
			}
			source = false
		case rows.Fate:
			if fates[r.Of] || g.whole && !files[r.Of] {
				continue
			}
			fates[r.Of] = true
		}
		if !yield(r, nil) {
			return false
		}
	}
	g.rows = g.rows[:0]
	return true
}
