package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Across tells of the journal, of the log of garbage collections, and of segments
// that are referred to and not there. It comes after all other units. An error is one
// of the source.
func (a *Audit) Across(ctx context.Context, report func(Problem)) error {
	if slices.ContainsFunc(a.tars, func(t *unit) bool { return t.refs != nil }) {
		a.known = table{} // there is no need for both
		a.known = newTable(a.tars)
	}
	t := newTeller(report)
	defer t.end()
	head, ok, err := a.journal(ctx, t)
	if err != nil {
		return err
	}
	r := &reach{a: a, t: t, next: make([][]uint32, len(a.tars)), missing: map[tarfile.ID]*referrer{}}
	for _, x := range a.tars {
		r.needed = append(r.needed, make(bits, (x.Len()+63)/64))
	}
	if ok {
		if err := a.head(ctx, t, head); err != nil {
			return err
		}
		if err := r.from(ctx, head.Segment); err != nil {
			return err
		}
	}
	if err := r.garbage(ctx); err != nil {
		return err
	}
	return a.gcLog(ctx, t, r)
}

// journal tells of the journal and returns the head, if there is one.
func (a *Audit) journal(ctx context.Context, t *teller) (head repo.Head, ok bool, err error) {
	obj, err := a.open(ctx, repo.Journal)
	if err != nil {
		return head, false, err
	}
	if obj == nil {
		if len(a.tars) > 0 {
			t.about(NoJournal, Error, repo.Journal, -1, "there is no such file, expected one beside tars")
		}
		return head, false, nil
	}
	defer obj.Close()
	rewound, first := 0, int64(-1)
	for e, err := range repo.Entries(ctx, obj) {
		if bad, isBad := errors.AsType[*repo.Error](err); isBad {
			t.about(BadJournal, Warning, repo.Journal, bad.Offset, "%s", bad.What)
			continue
		}
		if err != nil {
			return head, false, err
		}
		if ok {
			continue // older ones may be gone
		}
		if _, ok = a.known.find(e.Segment); ok {
			head = repo.Head{Entry: e, Rewound: rewound}
			continue
		}
		if rewound++; rewound == 1 {
			first = e.Offset
		}
	}
	switch {
	case rewound > 0 && a.unread():
		t.about(HeadUnknown, Warning, repo.Journal, first, "the segments of %d revisions are in no index, the newest at this place", rewound)
	case !ok:
		t.about(NoJournal, Error, repo.Journal, -1, "journal: expected a line with a revision that is there, found %d lines with others", rewound)
	case rewound > 0:
		t.about(HeadRewound, Error, repo.Journal, first, "the segments of the %d newest revisions are not there, the newest at this place; Oak shows %s", rewound, head.Revision)
	}
	return head, ok, nil
}

// head looks at the one record that everything begins with.
func (a *Audit) head(ctx context.Context, t *teller, head repo.Head) error {
	p, _ := a.known.find(head.Segment)
	x := a.tars[p.tar]
	records := segment.NewReader(a.segments())
	off := x.At(int(p.entry)).Pos
	rec, err := records.Record(ctx, head.Revision)
	what := ""
	if err == nil {
		off += int64(rec.Pos())
		if rec.Type() != segment.NodeRecord {
			what = fmt.Sprintf("expected a node, found a %s", rec.Type())
		} else if _, what, err = records.Down(ctx, head.Revision, "root"); what != "" {
			what = "expected the node above the tree, found one without a child root"
		}
	}
	if err != nil {
		if err := ignoreDamage(err); err != nil {
			return err
		}
		what = err.Error()
	}
	if what != "" {
		t.of(HeadBroken, Error, x.Name, off, head.Segment, "head %s: %s", head.Revision, what)
	}
	return nil
}

// gcLog tells of the log of garbage collections. Its newest line says which segment a
// cleanup takes for the last of the newest compaction: what is compacted and newer
// is for it the leftovers of one that failed.
func (a *Audit) gcLog(ctx context.Context, t *teller, r *reach) error {
	obj, err := a.open(ctx, repo.GCLog)
	if err != nil || obj == nil {
		return err
	}
	defer obj.Close()
	var last repo.GC
	for g, err := range repo.GCs(ctx, obj) {
		if bad, isBad := errors.AsType[*repo.Error](err); isBad {
			t.about(BadGCLog, Warning, repo.GCLog, bad.Offset, "%s", bad.What)
			g.Offset = bad.Offset
		} else if err != nil {
			return err
		}
		if last.Offset == 0 && last.Text == "" {
			last = g
		}
	}
	if !last.HasRoot {
		return nil
	}
	root, ok := a.known.find(last.Root.Segment)
	if !ok && a.unread() {
		t.about(Unknown, Warning, repo.GCLog, last.Offset, "revision %s is in no index", last.Root)
		return nil
	}
	needed, first := r.compactedSince(root, ok)
	switch {
	case !ok && needed == 0:
		t.about(NoGCRoot, Note, repo.GCLog, last.Offset, "revision %s is not there; no segment that is in use is compacted", last.Root)
	case !ok:
		t.about(NoGCRoot, Error, repo.GCLog, last.Offset, "revision %s is not there; %d compacted segments are in use", last.Root, needed)
	case needed > 0:
		x := a.tars[first.tar]
		e := x.At(int(first.entry))
		t.of(StaleGCLog, Error, x.Name, e.Pos, e.ID,
			"%d compacted segments that are in use, the newest at this place, are newer than revision %s of the newest line of %s", needed, last.Root, repo.GCLog)
	}
	return nil
}

func (a *Audit) describe(p place) string {
	x := a.tars[p.tar]
	return fmt.Sprintf("segment %s in %s", x.At(int(p.entry)).ID, x.Name)
}
