package oak

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/sweep"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storekit"
)

type CleanupOptions struct {
	// Retain is how many generations are kept; 0 is 1. A running Oak keeps 2.
	Retain int
	// Tail means that the last compaction was of the tail only.
	Tail bool

	keep func(segment.ID) bool // segments to keep, even if they are garbage
}

// A Cleanup describes the garbage in a store and what a cleanup does with its tars. It can be
// applied while the store is open.
type Cleanup struct {
	Tars   []TarCleanup `json:"tars"` // newest first
	Before int64        `json:"before"`
	After  int64        `json:"after"` // includes the garbage of tars that are kept unchanged
	Notes  []string     `json:"notes"`

	s    *Store
	plan *sweep.Plan
	head repo.Head
}

type TarCleanup struct {
	Name         string `json:"name"`
	Action       string `json:"action"` // keep, keep-garbage, keep-last-letter, keep-damaged, rewrite, drop
	NewName      string `json:"new_name,omitempty"`
	Segments     int    `json:"segments"`
	Garbage      int    `json:"garbage"` // segments
	Bytes        int64  `json:"bytes"`
	GarbageBytes int64  `json:"garbage_bytes"`
}

// PlanCleanup finds garbage by the rules of Oak's own offline cleanup, and keeps what the newest
// revision or a checkpoint needs even if it is garbage by these rules: they depend on the order of
// the tars, on graphs and on gc.log, which may be wrong. It writes nothing.
func (s *Store) PlanCleanup(ctx context.Context, o CleanupOptions) (*Cleanup, error) {
	c, err := s.planCleanup(ctx, o)
	if err != nil || !c.Changes() {
		return c, err
	}
	used, err := c.removesInUse(ctx)
	if err != nil || len(used) == 0 {
		return c, err
	}
	keep := o.keep
	o.keep = func(id segment.ID) bool {
		_, is := used[id]
		return is || keep != nil && keep(id)
	}
	if c, err = s.planCleanup(ctx, o); err != nil {
		return nil, err
	}
	switch more, err := c.removesInUse(ctx); {
	case err != nil:
		return nil, err
	case len(more) > 0:
		return nil, refuse("it would remove %d segments in use", len(more))
	}
	c.Notes = append(c.Notes, fmt.Sprintf("kept %d segments in use that a cleanup of Oak would delete, because of the order of the tars, a graph or gc.log; 'holdall oak check --fix-gc' makes the store safe from it", len(used)))
	return c, nil
}

// removesInUse returns the segments that the newest revision and its checkpoints need and the plan
// removes. It refuses a plan if it is not certain what they need.
func (c *Cleanup) removesInUse(ctx context.Context) (used map[segment.ID]struct{}, err error) {
	r := c.s.r
	var bad *format.Problem
	var others []segment.ID
	if c.plan.Newer { // an old journal makes a compaction look like one that was interrupted
		j, err := c.s.PlanJournal(ctx)
		if err != nil && !errors.Is(err, ErrNothingGood) {
			return nil, err
		}
		if n := len(j.found); n > 0 {
			others = append(others, j.found[n-1].Segment)
			if !c.plan.Keeps(others[0]) {
				return nil, refuse("a cleanup would remove revision %s, the newest in the segments, which the journal does not have: 'holdall oak recover-journal' writes a journal that has it", j.Head.Revision)
			}
		}
	}
	used = map[segment.ID]struct{}{}
	_, err = r.audit().Needed(ctx, others, func(p audit.Problem) {
		if bad == nil && p.Class != audit.Order && (p.Severity == audit.Error || p.Class == audit.JournalEnd || p.Class == audit.TooLarge) {
			f := r.problemOf(p)
			bad = &f
		}
	}, func(_, to audit.Place) {
		if c.plan.Removes(to.Tar, to.Entry) {
			used[r.tars[to.Tar].At(to.Entry).ID] = struct{}{}
		}
	})
	if err == nil && bad != nil {
		err = refuse("it is not certain what the newest revision needs: %s: %s", cmp.Or(bad.Entry, bad.Volume), bad.Message)
	}
	return used, r.storeFault(err)
}

func (s *Store) planCleanup(ctx context.Context, o CleanupOptions) (*Cleanup, error) {
	if s.r.single {
		return nil, refuse("a cleanup needs the whole store: other tars may need the segments of this one")
	}
	c := &Cleanup{s: s, Notes: []string{}}
	taken := map[string]bool{}
	for _, t := range s.r.list.Tars {
		taken[t.Name] = true
	}
	if s.r.writer != "" {
		return nil, refuse("%s is writing to the store", s.r.writer)
	}
	var tars []sweep.Tar
	for _, t := range s.r.tars {
		if t.file == nil {
			return nil, refuse("%s has no index: 'holdall repair' rebuilds it", t.Name)
		}
		tars = append(tars, sweep.Tar{Name: t.Name, Number: t.Number, Letter: t.Letter, Object: t.obj, Tar: t.file})
	}
	var err error
	if c.head, err = s.r.head(ctx); err != nil {
		return nil, err
	}
	if n := c.head.Rewound + c.head.Bad; n > 0 {
		return nil, refuse("the newest %d revisions of the journal are lost, and a cleanup would use an older one: 'holdall verify' shows why", n)
	}
	_, e, _ := s.r.locate(c.head.Segment)
	opt := sweep.Options{Retain: o.Retain, Root: &c.head.Segment, Keep: o.keep, Taken: func(name string) bool { return taken[name] },
		Report: func(tar string, p tarfile.Problem) { c.Notes = append(c.Notes, tar+": "+p.What) }}
	if o.Tail {
		opt.Kind = sweep.Tail
	}
	if c.plan, err = sweep.Mark(ctx, tars, sweep.Head{Segment: c.head.Segment, Generation: e.Generation}, opt); err != nil {
		return nil, s.r.storeFault(err)
	}
	for i := range c.plan.Tars {
		t := &c.plan.Tars[i]
		c.Tars = append(c.Tars, TarCleanup{Name: t.Name, Action: t.Action.String(), NewName: t.NewName, Segments: t.Entries, Garbage: t.Garbage, Bytes: t.Before, GarbageBytes: t.Before - t.After})
		c.Before += t.Before
		switch t.Action {
		case sweep.Drop:
		case sweep.Rewrite:
			c.After += t.After
		default:
			c.After += t.Before
		}
	}
	return c, nil
}

func refuse(msg string, args ...any) error { return &sweep.Refused{Err: fmt.Errorf(msg, args...)} }

// refused reports whether err means that a store must not be cleaned up, though it could be read.
func refused(err error) bool {
	_, refused := errors.AsType[*sweep.Refused](err)
	_, noHead := errors.AsType[*repo.Error](err)
	return refused || noHead || errors.Is(err, format.ErrCorrupt)
}

func (c *Cleanup) Changes() bool {
	return slices.ContainsFunc(c.plan.Tars, func(t sweep.TarPlan) bool { return t.Action == sweep.Rewrite || t.Action == sweep.Drop })
}

// Apply applies a cleanup: it rewrites tars, then gc.log, and then removes what has been replaced.
// If it is interrupted at any time, the store can be opened: of two letters, the newer one counts.
// The open store must then be closed and opened again.
func (c *Cleanup) Apply(ctx context.Context) error {
	r := c.s.r
	prefix := r.list.Path("")
	for i := range c.plan.Tars {
		if c.plan.Tars[i].Action != sweep.Rewrite {
			continue
		}
		if _, err := c.plan.Sweep(ctx, r.st, prefix, i); err != nil {
			return r.corrupt(r.storeFault(err), "")
		}
	}
	if err := c.log(ctx); err != nil {
		return err
	}
	for i := range c.plan.Tars {
		t := &c.plan.Tars[i]
		if t.Action != sweep.Rewrite && t.Action != sweep.Drop {
			continue
		}
		// Without this tar, letters that were not used would be used again. Letters of tars that
		// stay may be needed to recover damage in them.
		for _, name := range r.others(t.Number) {
			if err := storekit.Remove(ctx, r.st, r.list.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := storekit.Remove(ctx, r.st, r.list.Path(t.Name)); err != nil {
			return err
		}
	}
	return nil
}

// maxLog is the size of the longest gc.log that is rewritten.
const maxLog = 64 << 20

// log removes lines from gc.log that do not match the tars that remain.
func (c *Cleanup) log(ctx context.Context) error {
	r := c.s.r
	old, err := r.wholeFile(ctx, repo.GCLog, maxLog)
	if err != nil {
		return err
	}
	log, gone := c.plan.Log(old, repo.GC{RepoSize: c.After, Reclaimed: c.Before - c.After, Millis: time.Now().UnixMilli(), Root: c.head.Revision})
	if gone > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("removed %d lines of gc.log, because their revisions are gone", gone))
	}
	if bytes.Equal(log, old) {
		return nil
	}
	return kit.WriteBytes(ctx, r.st, r.list.Path(repo.GCLog), log)
}
