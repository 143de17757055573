package fleet

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Status is the progress of a plan.
type Status struct {
	Plan catalog.Plan
	catalog.Totals
	// Rate is how many bytes per second the active workers pack, and Left is how
	// long the rest takes at that rate. Both are zero if no worker is active.
	Rate float64
	Left time.Duration
	// Running are the chunks that are claimed. Problems are those that failed the
	// last time, and those that were set aside.
	Running, Problems []catalog.Chunk
	// Proven counts the packed objects by the checksum that they were compared
	// with, as holdall.Summary does. "unknown" counts those without a record of
	// it.
	Proven map[string]int64
	// Damaged are objects that are damaged at the source and are not planned
	// again, at most a thousand.
	Damaged []catalog.Member
}

// StatusOf returns the progress of a plan.
func StatusOf(ctx context.Context, c *catalog.Catalog, p catalog.Plan) (Status, error) {
	s := Status{Plan: p, Proven: map[string]int64{}}
	var err error
	if s.Totals, err = c.Totals(ctx, p.ID); err != nil {
		return s, err
	}
	now, unknown := time.Now(), s.Outcomes[catalog.Packed]
	for k, err := range c.Chunks(ctx, p.ID) {
		if err != nil {
			return s, err
		}
		for by := range strings.FieldsSeq(k.Proven) {
			by, n, _ := strings.Cut(by, ":")
			objects, _ := strconv.ParseInt(n, 10, 64)
			s.Proven[by] += objects
			unknown -= objects
		}
		if k.State == catalog.ChunkLeased && k.LeaseUntil.After(now) {
			s.Running = append(s.Running, k)
			if took := now.Sub(k.Started); took > 0 {
				s.Rate += float64(k.BytesDone) / took.Seconds()
			}
		} else if k.Problem != "" && k.State != catalog.ChunkDone {
			s.Problems = append(s.Problems, k)
		}
	}
	if unknown > 0 {
		s.Proven["unknown"] = unknown
	}
	for m, err := range c.LeftOut(ctx, p.ID, catalog.Damaged) {
		if err != nil {
			return s, err
		}
		if s.Damaged = append(s.Damaged, m); len(s.Damaged) == 1000 {
			break
		}
	}
	rest := s.States[catalog.ChunkPlanned].Bytes + s.States[catalog.ChunkLeased].Bytes - s.BytesDone
	if s.Rate >= 1 {
		s.Left = time.Duration(float64(max(rest, 0)) / s.Rate * float64(time.Second))
	}
	return s, nil
}

// Cancel ends the work on a plan, and aborts the uploads of archives that are
// not complete. Complete archives stay. It returns the number of aborted
// uploads.
func Cancel(ctx context.Context, c *catalog.Catalog, p catalog.Plan) (int, error) {
	j, err := open(ctx, p)
	if err != nil {
		return 0, err
	}
	if err := c.CancelPlan(ctx, p.ID); err != nil {
		return 0, err
	}
	return j.sweep(ctx, c)
}

// sweep aborts leftover uploads of archives that no worker is packing any
// more, and returns how many there were.
func (j *job) sweep(ctx context.Context, c *catalog.Catalog) (int, error) {
	over, err := j.over(ctx, c)
	if err != nil {
		return 0, err
	}
	head, _ := j.around()
	if j.format.Parts != nil {
		head = strings.TrimSuffix(j.whole(0), path.Ext(j.whole(0)))
	}
	return storekit.Abandon(ctx, j.target, head, func(u store.Upload) bool { return over(u.Name) })
}

// over returns a function that reports whether a name belongs to a chunk that
// no worker is packing any more. It also removes leftovers of the merging of
// finished archives.
func (j *job) over(ctx context.Context, c *catalog.Catalog) (func(name string) bool, error) {
	numbers, objects, folders := map[int]bool{}, map[string]bool{}, map[string]bool{}
	s := seat{}
	for k, err := range c.Chunks(ctx, j.plan.ID) {
		if err != nil {
			return nil, err
		}
		over := k.State != catalog.ChunkPlanned && k.State != catalog.ChunkLeased
		switch {
		case j.format.Parts == nil:
			numbers[k.Number] = over
			continue
		case k.Last:
			folders[j.whole(s.archive)+"/"] = over
			if k.State == catalog.ChunkDone {
				j.clear(ctx, j.whole(s.archive))
			}
		default:
			objects[j.format.Parts.Object(j.whole(s.archive), len(s.parts))] = over
		}
		s = s.next(k)
	}
	return func(name string) bool {
		if j.format.Parts == nil {
			return numbers[j.number(strings.TrimSuffix(name, parity.Suffix))]
		}
		if over, ok := objects[name]; ok {
			return over
		}
		for folder, over := range folders {
			if strings.HasPrefix(name, folder) {
				return over
			}
		}
		return false
	}, nil
}
