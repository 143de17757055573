package oak

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Kinds of a Step, beside those of a Change.
const (
	StepSame   = "unchanged"
	StepAbsent = "absent"
	StepFirst  = "first" // there is no older revision to compare with
)

// A Step is what a revision changed in a node, or several revisions that changed nothing.
type Step struct {
	Revision   string       `json:"revision"`
	Millis     int64        `json:"millis"` // since 1970, -1 if the journal does not record it
	Change     string       `json:"change"`
	Properties []NameChange `json:"properties,omitempty"`
	Children   []NameChange `json:"children,omitempty"`
	More       bool         `json:"more,omitempty"` // more names than are listed differ
	Revisions  int          `json:"revisions"`
	Oldest     string       `json:"oldest,omitempty"` // if it covers several revisions
	Lost       string       `json:"lost,omitempty"`
	Segment    string       `json:"segment,omitempty"`
}

type NameChange struct {
	Name   string `json:"name"`
	Change string `json:"change"`
}

type HistoryOptions struct {
	Last int  // how many revisions are examined; 0 is all
	All  bool // also list revisions that changed nothing
}

// mostChanged is how many names a step lists of each kind.
const mostChanged = 100

// History yields what the revisions of the journal changed in a node, the newest first. Each
// revision is compared with the next older one that can be read.
func (s *Store) History(ctx context.Context, name string, o HistoryOptions) iter.Seq2[Step, error] {
	return pipe.Told(func(tell func(Step) error) error {
		h := &history{s: s, o: o, name: nodePath(name), out: tell}
		return h.run(ctx)
	})
}

type history struct {
	s    *Store
	o    HistoryOptions
	name string
	out  func(Step) error

	newer  *moment // whose changes are not known yet
	gap    *Step   // lost revisions after it
	folded *Step
	told   int
}

type moment struct {
	repo.Entry
	t     *treeReader
	at    spot
	there bool
}

func (h *history) run(ctx context.Context) error {
	r := h.s.r
	if r.list.Journal == nil {
		return fmt.Errorf("oak: history: %w", repo.NoHead("no journal"))
	}
	for e, err := range r.revisions(ctx) {
		if err == nil {
			err = h.entry(ctx, e)
		}
		if err != nil {
			return err
		}
		if h.full() {
			break
		}
	}
	if h.newer != nil && !h.full() {
		kind := StepFirst
		if !h.newer.there {
			kind = StepAbsent
		}
		if err := h.tell(h.step(kind)); err != nil {
			return err
		}
	}
	if err := h.close(); err != nil || h.folded == nil {
		return err
	}
	return h.out(*h.folded)
}

func (h *history) full() bool { return h.o.Last > 0 && h.told >= h.o.Last }

// entry moves to the next older revision.
func (h *history) entry(ctx context.Context, e repo.Entry) error {
	if h.newer != nil && h.newer.Revision == e.Revision {
		return nil // a repeated line
	}
	m, err := h.moment(ctx, e)
	if err != nil {
		l, ok := h.s.r.lostAsJSON(err)
		if !ok {
			return err
		}
		if h.gap == nil {
			h.gap = &Step{Revision: e.Revision.String(), Millis: e.Millis, Change: NodeLost, Lost: l.What, Segment: l.Segment}
		}
		h.gap.add(e.Revision.String())
		if h.newer == nil && h.o.Last > 0 && h.gap.Revisions >= h.o.Last {
			return h.close()
		}
		return nil
	}
	if h.newer != nil {
		step, err := h.compare(ctx, m)
		if err == nil {
			err = h.tell(step)
		}
		if err != nil {
			return err
		}
	}
	h.newer = m
	return h.close()
}

// close reports lost revisions before the next revision is known.
func (h *history) close() error {
	gap := h.gap
	if h.gap = nil; gap == nil || h.full() {
		return nil
	}
	return h.tell(*gap)
}

func (h *history) moment(ctx context.Context, e repo.Entry) (*moment, error) {
	if _, _, there := h.s.r.locate(e.Segment); !there {
		return nil, &segment.Error{Class: segment.Missing, Segment: e.Segment, Record: -1, Off: -1, What: "no such segment"}
	}
	param := map[string]string{revisionParam: e.Revision.String()}
	t, err := newTree(ctx, h.s.r, h.s.records, format.OpenOptions{Param: param}, false)
	if err != nil {
		return nil, err
	}
	m := &moment{Entry: e, t: t}
	m.at, m.there, err = t.nodeIfThere(ctx, h.name)
	return m, err
}

func (h *history) step(kind string) Step {
	return Step{Revision: h.newer.Revision.String(), Millis: h.newer.Millis, Change: kind, Revisions: 1}
}

// compare returns what the newer revision changed.
func (h *history) compare(ctx context.Context, older *moment) (Step, error) {
	newer := h.newer
	switch {
	case !newer.there && !older.there:
		return h.step(StepAbsent), nil
	case !older.there:
		return h.step(NodeAdded), nil
	case !newer.there:
		return h.step(NodeRemoved), nil
	}
	step := h.step(StepSame)
	same, err := newer.t.sameNode(ctx, older.at, newer.at)
	if err == nil && !same {
		err = step.compare(ctx, newer.t, older.at, newer.at)
	}
	if err != nil {
		l, ok := h.s.r.lostAsJSON(err)
		if !ok {
			return step, err
		}
		step.Change, step.Lost, step.Segment = NodeLost, l.What, l.Segment
	}
	return step, nil
}

// compare records the differences between two nodes.
func (s *Step) compare(ctx context.Context, t *treeReader, before, after spot) error {
	properties, err := t.propertyChanges(ctx, [2]segment.RecordID{before.id, after.id})
	if err != nil {
		return err
	}
	for _, p := range properties {
		kind := p.kind()
		if p.lost != nil {
			kind = NodeLost
		}
		s.note(&s.Properties, writeTreeName(p.name, false), kind)
	}
	for c, err := range t.records.ChildChanges(ctx, before.id, after.id) {
		kind := NodeChanged
		none := segment.RecordID{}
		switch {
		case err != nil:
			return err
		case c.Before == none:
			kind = NodeAdded
		case c.After == none:
			kind = NodeRemoved
		default:
			was, is := spot{name: c.Name, id: c.Before, depth: after.depth + 1}, spot{name: c.Name, id: c.After, depth: after.depth + 1}
			same, err := t.sameNode(ctx, was, is)
			if t.unlessDamage(err) != nil {
				return err
			}
			if same {
				continue
			}
		}
		if s.note(&s.Children, writeTreeName(c.Name, false), kind); s.More {
			break
		}
	}
	return nil
}

func (s *Step) note(to *[]NameChange, name, kind string) {
	s.Change = NodeChanged
	if len(*to) == mostChanged {
		s.More = true
		return
	}
	*to = append(*to, NameChange{name, kind})
}

func (s *Step) add(revision string) {
	if s.Revisions++; s.Revisions > 1 {
		s.Oldest = revision
	}
}

// tell yields a step, or merges it with earlier ones.
func (h *history) tell(s Step) error {
	h.told += s.Revisions
	quiet := !h.o.All && (s.Change == StepSame || s.Change == StepAbsent)
	last := h.folded
	if quiet && last != nil && last.Change == s.Change {
		last.add(s.Revision)
		return nil
	}
	h.folded = nil
	if last != nil {
		if err := h.out(*last); err != nil {
			return err
		}
	}
	if quiet {
		h.folded = &s
		return nil
	}
	return h.out(s)
}

// Time returns when the revision was made, or "" if that is not known.
func (s Step) Time() string {
	if s.Millis < 0 {
		return ""
	}
	return time.UnixMilli(s.Millis).UTC().Format(time.RFC3339)
}
