package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
)

// The listing of a large source may be handed out in ranges of names. Each is a job, which lists its range as
// a plan lists a part of the names.

const (
	mostRanges = 1000
	mostLevels = 500 // with the same depth, that are listed to find ranges
)

type listArgs struct {
	Since  int64   `json:"since"` // the commit that handed it out
	Number int     `json:"number"`
	From   string  `json:"from,omitempty"`   // escaped
	Before string  `json:"before,omitempty"` // escaped
	Gone   float64 `json:"gone,omitempty"`
	Waits  []chunk `json:"waits,omitempty"` // those with names of the range that waited then
}

func (a listArgs) name() string { return fmt.Sprintf("list-%016d-%06d", a.Since, a.Number) }

// mayHandOut returns an error if a plan cannot be listed in ranges.
func (j *job) mayHandOut() error {
	if j.format.Parts != nil {
		return fmt.Errorf("%s is one archive, which cannot be listed in ranges: %w", j.format.Name, errors.ErrUnsupported)
	}
	for _, o := range j.origins {
		if o.st.Can().ListFrom == nil {
			return fmt.Errorf("%s: cannot be listed in ranges: %w", format.Escape(o.address), errors.ErrUnsupported)
		}
	}
	return nil
}

// handedOut returns how many ranges of a plan are not listed yet.
func (f Fleet) handedOut(ctx context.Context, j *job) (n int, err error) {
	all, err := f.Queue.Counts(ctx, j.plan.Name)
	for _, k := range all[listKind] {
		n += k
	}
	return n, err
}

// handOut hands out the listing of the sources in about n ranges.
func (f Fleet) handOut(ctx context.Context, j *job, since int64, n int, gone float64) (int, error) {
	cuts, names, err := f.cuts(ctx, j, n)
	if err != nil {
		return 0, err
	}
	args := make([]listArgs, len(cuts)+1)
	for i := range args {
		args[i] = listArgs{Since: since, Number: i, Gone: gone}
		if i > 0 {
			args[i].From, args[i-1].Before = format.Escape(cuts[i-1]), format.Escape(cuts[i-1])
		}
	}
	begun, err := f.waiting(ctx, j)
	for _, k := range begun {
		if err == nil {
			err = f.waits(ctx, j, k, args)
		}
	}
	var jobs []queue.Job
	for _, a := range args {
		b, merr := json.Marshal(a)
		err = cmp.Or(err, merr)
		jobs = append(jobs, queue.Job{Plan: j.plan.Name, Kind: listKind, Name: a.name(), Args: b, Long: 10 * long(names/int64(len(args))/4, 0)})
	}
	if err == nil {
		_, err = f.Queue.Add(ctx, jobs...)
	}
	return len(jobs), err
}

// waits adds a chunk that waits to the ranges of which it may have names.
func (f Fleet) waits(ctx context.Context, j *job, k chunk, args []listArgs) error {
	r, err := f.openList(ctx, j, k)
	if errors.Is(err, errGone) { // it was packed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	for i := range args {
		a := &args[i]
		if of := unescapedSpan(a.From, a.Before); r.Within(of.from, of.before) {
			a.Waits = append(a.Waits, k)
		}
	}
	return r.Close()
}

// cuts returns at most n-1 names that cut those of a plan into ranges, and how many names there are, if that is
// known. It takes the first names of archives or, if there are fewer, prefixes at the sources.
func (f Fleet) cuts(ctx context.Context, j *job, n int) (cuts []string, names int64, err error) {
	of, err := j.scope(ctx, f.Book)
	if err != nil {
		return nil, 0, err
	}
	weight := map[string]int64{} // of what begins there
	for id, a := range of {
		first, _, err := f.Book.Bounds(ctx, id)
		if err != nil {
			return nil, 0, err
		}
		weight[first] += a.Entries
		names += a.Entries
	}
	if len(weight) < n {
		clear(weight)
		type level struct {
			origin
			below string
		}
		var todo []level
		for _, o := range j.origins {
			weight[o.prefix+o.begin] = 1
			todo = append(todo, level{o, o.begin})
		}
		for len(todo) > 0 && len(todo) <= mostLevels && len(weight) < 2*n {
			var next []level // all of them, so that no folder counts for more than another
			for _, x := range todo {
				of := x.st.Can().Level
				if of == nil {
					continue
				}
				all, more, err := of(ctx, x.below, maxBranches)
				if err != nil {
					return nil, 0, err
				}
				for _, b := range all {
					if b.All && !more {
						weight[x.prefix+b.Name] = 1
						next = append(next, level{x.origin, b.Name})
					}
				}
			}
			todo = next
		}
	}
	sum, total, last, before := int64(0), int64(0), int64(0), ""
	for _, w := range weight {
		total += w
	}
	for _, first := range slices.Sorted(maps.Keys(weight)) {
		if share := sum * int64(n) / max(total, 1); share > last {
			cuts, last = append(cuts, between(before, first)), share
		}
		sum += weight[first]
		before = first
	}
	return cuts, names, nil
}

// between returns the shortest text that is after one name and not after another. The catalogue keeps it, so it
// should not be a name: names may be erased.
func between(before, name string) string {
	n := 0
	for n < min(len(before), len(name)) && before[n] == name[n] {
		n++
	}
	return name[:min(n+1, len(name))]
}

// list lists a range. What an earlier attempt has planned is known.
func (w *worker) list(ctx context.Context, j *job, k queue.Job) error {
	var a listArgs
	if err := json.Unmarshal(k.Args, &a); err != nil || a.name() != k.Name {
		return queue.Never(fmt.Errorf("job %s: not that of a range of names", k.Name))
	}
	s, err := w.Book.Full(ctx)
	if err != nil {
		return err
	}
	name, earlier := j.id+"/"+a.name(), map[int64]bool{}
	for _, d := range s.Jobs {
		if d.Job == name {
			return nil
		}
		earlier[d.Commit] = earlier[d.Commit] || strings.HasPrefix(d.Job, name+"/")
	}
	begun, err := w.waiting(ctx, j)
	if err != nil {
		return err
	}
	begun = slices.DeleteFunc(begun, func(k chunk) bool { return !earlier[k.Listing] && !slices.Contains(a.Waits, k) })
	begins, err := w.Book.Do(ctx, book.Step{Begins: true, Job: name + "/" + rand.Text()})
	if err != nil {
		return err
	}
	p := Planned{Plan: j.plan}
	pl, err := w.planner(ctx, j, begins.Number, []span{unescapedSpan(a.From, a.Before)}, begun, &p)
	if err != nil {
		return err
	}
	defer pl.close()
	pl.most, pl.job = cmp.Or(a.Gone, 0.5), name
	if err = pl.run(ctx); err == nil {
		err = pl.finish(ctx)
	}
	if _, much := errors.AsType[*GoneError](err); much {
		err = queue.Never(err)
	}
	if err == nil {
		w.became(j.plan.Name, k.Name, Chunk{Planned: p})
	}
	return err
}
