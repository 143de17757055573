package fleet

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Status is the progress of a plan.
type Status struct {
	Plan     Plan
	Archives int64 // of its sources, in the catalogue
	Objects  int64 // in them
	Bytes    int64 // of the archives
	// Waiting are the chunks that are not packed, and what is in them.
	Waiting, WaitingObjects, WaitingBytes int64
	// Jobs counts what is handed out, and Problems are the jobs that failed the last time, or were set aside.
	Jobs     map[string]map[queue.Status]int
	Problems []queue.State
	Left     map[Outcome]int64 // objects that could not be packed
	// Proven counts the packed objects by the checksum that they were compared with. "unknown" counts those
	// without a record of it.
	Proven map[string]int64
	// Damaged are objects that are damaged at the source, at most a thousand.
	Damaged []Member
}

// StatusOf returns the progress of a plan.
func StatusOf(ctx context.Context, f Fleet, p Plan) (Status, error) {
	s := Status{Plan: p, Proven: map[string]int64{}, Left: map[Outcome]int64{}}
	j, err := open(ctx, p)
	if err != nil {
		return s, err
	}
	of, err := j.scope(ctx, f.Book)
	if err != nil {
		return s, err
	}
	for _, a := range of {
		s.Archives++
		s.Objects += a.Entries
		s.Bytes += a.Size
		if unknown := a.Entries - countProven(s.Proven, a.Proven); unknown > 0 {
			s.Proven["unknown"] += unknown
		}
	}
	all, err := f.waiting(ctx, j)
	if err != nil {
		return s, err
	}
	for _, k := range all {
		if k.done {
			continue
		}
		if k, err = f.sized(ctx, j, k); errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return s, err
		}
		s.Waiting++
		s.WaitingObjects += k.Count
		s.WaitingBytes += k.Bytes
	}
	if s.Jobs, err = f.Queue.Counts(ctx, p.Name); err != nil {
		return s, err
	}
	for k, err := range f.Queue.Jobs(ctx, p.Name) {
		if err != nil {
			return s, err
		}
		if k.Status == queue.Failed || k.Status == queue.SetAside {
			s.Problems = append(s.Problems, k)
		}
	}
	for m, err := range Left(ctx, f, p) {
		if err != nil {
			return s, err
		}
		if s.Left[m.Outcome]++; m.Outcome == Damaged && len(s.Damaged) < 1000 {
			s.Damaged = append(s.Damaged, m)
		}
	}
	return s, nil
}

// countProven adds counts in the form of catalog.Archive.Proven, and returns how many there are.
func countProven(sum map[string]int64, counts string) (n int64) {
	for by := range strings.FieldsSeq(counts) {
		by, n1, _ := strings.Cut(by, ":")
		objects, _ := strconv.ParseInt(n1, 10, 64)
		sum[by] += objects
		n += objects
	}
	return n
}

// A scope is the archives with the same roots, by their IDs.
type scope map[int64]catalog.Archive

func (s scope) has(id int64) bool { _, ok := s[id]; return ok }

// scope returns the archives with the same roots as a plan's.
func (j *job) scope(ctx context.Context, b *book.Book) (scope, error) {
	all, err := b.Archives(ctx)
	of, roots := scope{}, j.roots()
	for _, a := range all {
		if a.Roots == roots {
			of[a.ID] = a
		}
	}
	return of, err
}

// writes tells the objects that the plan's workers write: what their names begin with, and which they are.
func (j *job) writes() (head string, mine func(name string) bool) {
	if j.format.Parts != nil {
		return strings.TrimSuffix(strings.TrimSuffix(j.name, "/"), path.Ext(j.name)), j.ownsPart
	}
	head, _ = j.around()
	return head, func(name string) bool { return j.owns(strings.TrimSuffix(name, parity.Suffix)) }
}

// sweep aborts unfinished uploads of a plan's archives.
func (j *job) sweep(ctx context.Context) error {
	head, mine := j.writes()
	_, err := storekit.Abandon(ctx, j.target, head, func(u store.Upload) bool { return mine(u.Name) })
	return err
}

// ownsPart reports whether a name is below an archive of a plan that is written in parts.
func (j *job) ownsPart(name string) bool {
	first := j.whole(j.plan.first, 0)
	stem := strings.TrimSuffix(first, path.Ext(first))
	rest, ok := strings.CutPrefix(name, stem)
	if !ok {
		return false
	}
	folder, _, ok := strings.Cut(rest, "/")
	return ok && strings.Trim(strings.TrimSuffix(folder, path.Ext(folder)), "-0123456789") == "" && path.Ext(folder) == path.Ext(first)
}
