package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// Across checks the journal, the log of garbage collections, and references to missing segments.
// It must be called after all other units. It returns an error only if the source fails.
func (a *Audit) Across(ctx context.Context, report func(Problem)) error {
	if slices.ContainsFunc(a.tars, func(t *unit) bool { return t.refs != nil }) {
		a.known = segmentTable{} // only one of the two is needed
		a.known = newTable(a.tars)
	}
	t := newTeller(report)
	defer t.end()
	if err := a.start(ctx, t); err != nil {
		return err
	}
	r := newReach(a, t)
	var err error
	if a.Head != nil {
		err = r.from(ctx, a.Head.Segment)
	}
	if err == nil {
		err = r.garbage(ctx)
	}
	late := false
	if err == nil {
		late, err = a.order(ctx, t, r)
	}
	if err == nil {
		err = a.gcLog(ctx, t, r, late)
	}
	return err
}

// order reports segments in use that a cleanup of Oak deletes for their place: compacted ones after
// the newest revision, whatever gc.log has, and bulk segments after all that refer to them.
func (a *Audit) order(ctx context.Context, t *teller, r *reach) (late bool, err error) {
	if a.Head == nil || a.src.Written {
		return false, nil
	}
	for _, id := range append([]tarfile.ID{a.Head.Segment}, a.src.Roots...) {
		root, ok := a.known.find(id)
		if n, last := r.compactedSince(root, ok); ok && n > 0 {
			e := a.tars[last.tar].At(int(last.entry))
			t.of(Order, Error, a.tars[last.tar].Name, e.Pos, e.ID, "%d compacted segments in use come after %s, which the newest revision begins with; the last is here", n, a.describe(root))
			late = true
			break
		}
	}
	first, err := a.late(ctx, r)
	if err != nil {
		return late, err
	}
	if n := len(a.Late); n > 0 {
		e := a.tars[first.tar].At(int(first.entry))
		t.of(Order, Error, a.tars[first.tar].Name, e.Pos, e.ID, "%d bulk segments in use come after all segments that refer to them; this is one", n)
	}
	return late, nil
}

// late finds the bulk segments in use that come after all segments that refer to them, and returns
// one. A cleanup of Oak also keeps what is compacted of the head's full generation, needed or not.
func (a *Audit) late(ctx context.Context, r *reach) (first tarEntry, err error) {
	a.Late = nil
	p, _ := a.known.find(a.Head.Segment)
	full := a.tars[p.tar].At(int(p.entry)).Generation.Full
	others := map[tarfile.ID]struct{}{} // to which such segments refer
	for i, x := range a.tars {
		var refers *edges // once it is needed
		for _, k := range slices.Backward(x.ByPosition()) {
			e, needed := x.At(int(k)), r.needed[i].Has(int(k))
			_, held := others[e.ID]
			switch {
			case e.ID.IsData() && !needed && e.Generation.Compacted && e.Generation.Full == full:
				if refers == nil {
					if refers, err = a.edges(ctx, i); err != nil {
						return first, err
					}
				}
				to, err := refers.targets(ctx, int(k))
				if err != nil {
					return first, err
				}
				for id := range to.All() {
					if !id.IsData() {
						others[id] = struct{}{}
					}
				}
			case !e.ID.IsData() && needed && !held && !r.held[i].Has(int(k)):
				first = tarEntry{uint32(i), k}
				a.Late = append(a.Late, e.ID)
			}
		}
	}
	return first, nil
}

// Needed calls edge, if it is not nil, for each reference of a segment that the newest revision, its checkpoints and
// other existing segments need to an existing segment. It follows references in the segments and in the graphs, because
// either may be damaged. It reports what Start reports, references to missing segments, and segments
// in an order that a cleanup of Oak does not expect. It returns how many segments are needed. Without
// a newest revision that is none.
func (a *Audit) Needed(ctx context.Context, others []tarfile.ID, report func(Problem), edge func(from, to Place)) (n int, err error) {
	t := newTeller(report)
	defer t.end()
	if err := a.start(ctx, t); err != nil || a.Head == nil {
		return 0, err
	}
	r := newReach(a, t)
	r.edge = edge
	if err = r.from(ctx, append(others, a.Head.Segment)...); err == nil {
		_, err = a.order(ctx, t, r)
	}
	return r.n, err
}

type Place struct{ Tar, Entry int }

// Start checks the journal, and the record with which reading begins. Whatever reports on a store
// reports this. It returns an error only if the source fails.
func (a *Audit) Start(ctx context.Context, report func(Problem)) error {
	t := newTeller(report)
	defer t.end()
	return a.start(ctx, t)
}

func (a *Audit) start(ctx context.Context, t *teller) error {
	head, ok, err := a.journal(ctx, t)
	if err != nil || !ok {
		return err
	}
	a.Head = &head
	return a.head(ctx, t, head)
}

// journal checks the journal, and returns the head, if there is one.
func (a *Audit) journal(ctx context.Context, t *teller) (head repo.Head, ok bool, err error) {
	obj, err := a.open(ctx, repo.Journal)
	if err != nil {
		return head, false, err
	}
	if obj == nil {
		if len(a.tars) > 0 {
			t.about(NoJournal, Error, repo.Journal, -1, "missing: expected beside tars")
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
			continue // segments of older revisions may be removed
		}
		if e.Doubt != "" {
			t.about(JournalCut, Error, repo.Journal, e.Offset, "%s", e.Doubt)
		} else if !e.Ended && !a.src.Written {
			t.about(JournalEnd, Warning, repo.Journal, e.Offset, "the last line has no end")
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
		t.about(HeadUnknown, Warning, repo.Journal, first, "the segments of %d revisions are in no index; the newest is here", rewound)
	case !ok:
		t.about(NoJournal, Error, repo.Journal, -1, "journal: expected a line with an existing revision, found %d lines with missing ones", rewound)
	case rewound == 0 && a.src.Newer != nil && !a.src.Written:
		newer, err := a.src.Newer(ctx, head)
		if err != nil {
			return head, ok, err
		}
		if newer != nil {
			t.about(JournalOld, Note, repo.Journal, head.Offset, "the newest line has revision %s, and revision %s was written later", head.Revision, newer)
		}
	case rewound > 0:
		t.about(HeadRewound, Error, repo.Journal, first, "the segments of the %d newest revisions are missing; the newest is here; Oak shows %s", rewound, head.Revision)
	}
	return head, ok, nil
}

// head checks the record with which everything begins.
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
			what = "expected the super root, found a node without a child root"
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

// gcLog checks the log of garbage collections. A cleanup uses its newest line as the last segment
// of the newest compaction. It treats newer compacted segments as leftovers of a failed
// compaction. If some come even after the newest revision, order has reported them.
func (a *Audit) gcLog(ctx context.Context, t *teller, r *reach, reported bool) error {
	if a.src.Listing.GCLog == nil { // opening it in a remote store would fail later
		return nil
	}
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
	if !last.HasRoot || a.src.Written { // the line of a compaction that is at work comes last
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
		t.about(NoGCRoot, Note, repo.GCLog, last.Offset, "revision %s is missing; no segment in use is compacted", last.Root)
	case !ok:
		t.about(NoGCRoot, Error, repo.GCLog, last.Offset, "revision %s is missing; %d compacted segments are in use", last.Root, needed)
	case needed > 0 && !reported:
		x := a.tars[first.tar]
		e := x.At(int(first.entry))
		t.of(StaleGCLog, Error, x.Name, e.Pos, e.ID,
			"%d compacted segments in use are newer than revision %s of the newest line of %s; the newest is here", needed, last.Root, repo.GCLog)
	}
	return nil
}

func (a *Audit) describe(p tarEntry) string {
	x := a.tars[p.tar]
	return fmt.Sprintf("segment %s in %s", x.At(int(p.entry)).ID, x.Name)
}

const (
	// rounds limits the passes over all tars. Each pass follows all references to the same tar or
	// an older one, as nearly all are.
	rounds = 100
	// manyMissing is for how many missing segments the first referrer is kept.
	manyMissing = 100_000
)

// A reach finds the segments that the head needs. Like a cleanup it follows references between
// segments, which include somewhat more than the references of the tree's records.
type reach struct {
	a       *Audit
	t       *teller
	edge    func(from, to Place) // or nil
	needed  []tarfile.Bits       // of each tar
	n       int                  // of all that are needed
	held    []tarfile.Bits       // of these, the bulk segments before a segment that refers to them
	next    [][]uint32           // data segments of each tar whose references are to be followed
	missing map[tarfile.ID]*referrer
	order   []tarfile.ID // of missing
	more    int          // missing references that are not kept
	ok      bool         // the head exists
}

type referrer struct {
	tarEntry
	n int
}

func newReach(a *Audit, t *teller) *reach {
	r := &reach{a: a, t: t, next: make([][]uint32, len(a.tars)), missing: map[tarfile.ID]*referrer{}}
	for _, x := range a.tars {
		r.needed, r.held = append(r.needed, tarfile.NewBits(x.Len())), append(r.held, tarfile.NewBits(x.Len()))
	}
	return r
}

// from follows all references from existing segments, and reports those to missing ones.
func (r *reach) from(ctx context.Context, heads ...tarfile.ID) error {
	r.ok = true
	for _, id := range heads {
		p, _ := r.a.known.find(id)
		r.add(p, id)
	}
	defer r.tell()
	for round, pending := 0, true; pending; round++ {
		pending = false
		for i := range r.a.tars {
			if len(r.next[i]) == 0 {
				continue
			}
			if round == rounds {
				r.t.about(TooLarge, Warning, r.a.tars[i].Name, -1, "references go back and forth between tars: some were not followed")
				return nil
			}
			pending = true
			if err := r.follow(ctx, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reach) add(p tarEntry, id tarfile.ID) {
	if !r.needed[p.tar].Has(int(p.entry)) {
		r.needed[p.tar].Set(int(p.entry))
		r.n++
		if id.IsData() {
			r.next[p.tar] = append(r.next[p.tar], p.entry)
		}
	}
}

// follow follows the references of the needed segments of tar i.
func (r *reach) follow(ctx context.Context, i int) error {
	e, err := r.a.edges(ctx, i)
	if err != nil {
		return err
	}
	for n := len(r.next[i]); n > 0; n = len(r.next[i]) {
		k := r.next[i][n-1]
		r.next[i] = r.next[i][:n-1]
		to, err := e.targets(ctx, int(k))
		if err != nil {
			return err
		}
		for id := range to.All() {
			if p, ok := r.a.known.find(id); ok {
				r.add(p, id)
				if int(p.tar) > i || int(p.tar) == i && e.x.At(int(p.entry)).Pos < e.x.At(int(k)).Pos {
					r.held[p.tar].Set(int(p.entry))
				}
				if r.edge != nil {
					r.edge(Place{i, int(k)}, Place{int(p.tar), int(p.entry)})
				}
			} else {
				r.miss(id, tarEntry{uint32(i), k})
			}
		}
	}
	return nil
}

func (r *reach) miss(id tarfile.ID, by tarEntry) {
	if m := r.missing[id]; m != nil {
		m.n++
	} else if len(r.missing) < manyMissing {
		r.missing[id] = &referrer{by, 1}
		r.order = append(r.order, id)
	} else {
		r.more++
	}
}

// tell reports missing segments, at the place of the first segment that refers to each.
func (r *reach) tell() {
	slices.SortFunc(r.order, func(x, y tarfile.ID) int {
		a, b := r.missing[x], r.missing[y]
		return cmp.Or(cmp.Compare(a.tar, b.tar), cmp.Compare(r.a.pos(a.tarEntry), r.a.pos(b.tarEntry)), x.Compare(y))
	})
	if len(r.order) > 0 && r.a.unread() {
		m := r.missing[r.order[0]]
		r.t.of(Unknown, Warning, r.a.tars[m.tar].Name, r.a.pos(m.tarEntry), r.order[0],
			"%d segments that the head needs are in no index; this is the first; %s refers to it", len(r.order)+r.more, r.a.describe(m.tarEntry))
		return
	}
	for _, id := range r.order {
		m := r.missing[id]
		r.t.of(Missing, Error, r.a.tars[m.tar].Name, r.a.pos(m.tarEntry), id,
			"missing; %s, which the head needs, refers to it, as the first of %d", r.a.describe(m.tarEntry), m.n)
	}
	if r.more > 0 {
		r.t.about(TooMany, Error, "", -1, "%s: %d more references", Missing, r.more)
	}
}

// garbage reports, once for each tar, references from segments that nothing needs.
func (r *reach) garbage(ctx context.Context) error {
	for i, x := range r.a.tars {
		e, err := r.a.edges(ctx, i)
		if err != nil {
			return err
		}
		segments, n := 0, 0
		var first tarfile.ID
		at := int64(-1)
		for k, from := range x.All() {
			if r.ok && r.needed[i].Has(k) || !from.ID.IsData() {
				continue
			}
			to, err := e.targets(ctx, k)
			if err != nil {
				return err
			}
			some := false
			for id := range to.All() {
				if _, ok := r.a.known.find(id); ok {
					continue
				}
				n++
				some = true
				if at < 0 || from.Pos < at {
					first, at = id, from.Pos
				}
			}
			if some {
				segments++
			}
		}
		switch {
		case n == 0:
		case r.ok && !r.a.unread():
			r.t.of(GarbageRefs, Note, x.Name, at, first, "missing; it is the first target of %d such references from %d unused segments", n, segments)
		default:
			r.t.of(Unknown, Warning, x.Name, at, first, "in no index; it is the first target of %d such references from %d segments that may be needed", n, segments)
		}
	}
	return nil
}

// compactedSince counts needed segments that a compaction wrote, from the newest in the store to
// the one at root, or all. It returns the newest of them.
func (r *reach) compactedSince(root tarEntry, ok bool) (n int, newest tarEntry) {
	for i, x := range r.a.tars {
		for _, k := range slices.Backward(x.ByPosition()) {
			p := tarEntry{uint32(i), k}
			if ok && p == root {
				return n, newest
			}
			if e := x.At(int(k)); e.ID.IsData() && r.needed[i].Has(int(k)) && e.Generation.Compacted {
				if n == 0 {
					newest = p
				}
				n++
			}
		}
	}
	return n, newest
}

func (a *Audit) pos(p tarEntry) int64 { return a.tars[p.tar].At(int(p.entry)).Pos }

// edges returns what the segments of a tar refer to: from its graph, from what was found in it
// or, if there is neither, from the segments.
type edges struct {
	x     *unit
	graph *tarfile.Graph
	gone  bool
	buf   []byte
}

func (a *Audit) edges(ctx context.Context, i int) (*edges, error) {
	e := &edges{x: a.tars[i]}
	if e.x.t == nil {
		return e, nil
	}
	g, err := e.x.t.Graph(ctx)
	switch {
	case errors.Is(err, store.ErrChanged):
		e.gone = true // reported by Tail
	case err != nil:
		return e, ignoreDamage(err)
	}
	e.graph = g
	return e, nil
}

// targets is valid until the next call.
func (e *edges) targets(ctx context.Context, i int) (tarfile.IDs, error) {
	id := e.x.At(i).ID
	if e.x.refs != nil {
		return e.x.refs[id], nil
	}
	if e.x.read != nil {
		b, err := e.x.read(ctx, e.x.At(i))
		h, _ := segment.ParseHead(b)
		var others tarfile.IDs
		if e.graph != nil {
			others, _ = e.graph.Targets(id)
		}
		return slices.Concat(h.Refs, others), ignoreDamage(err)
	}
	if e.x.t == nil || e.gone {
		return nil, nil
	}
	if e.graph == nil || e.x.noGraph || e.x.wrongGraph {
		b, err := e.x.t.Read(ctx, i, e.buf)
		if err != nil {
			return nil, ignoreDamage(err)
		}
		e.buf = b
		if h, ok := segment.ParseHead(b); ok {
			return h.Refs, nil
		}
		if e.graph == nil {
			return nil, nil
		}
	}
	ids, _ := e.graph.Targets(id)
	return ids, nil
}
