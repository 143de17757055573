package audit

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

const (
	// rounds is how often all tars may be gone through: in each one all is followed
	// that leads to the same tar or an older one, and nearly all does.
	rounds = 100
	// manyMissing is of how many segments it is kept who refers to them.
	manyMissing = 100_000
)

// A reach finds out which segments the head needs: as a cleanup does, by what
// segments refer to each other, which is some more than what the tree's records do.
type reach struct {
	a       *Audit
	t       *teller
	needed  []bits     // of each tar
	next    [][]uint32 // data segments of each tar of which the references are to be followed
	missing map[tarfile.ID]*referrer
	order   []tarfile.ID // of missing
	more    int          // missing references that are not kept
	ok      bool         // there is a head
}

// referrer is the first segment that refers to one that is missing.
type referrer struct {
	place
	n int
}

type bits []uint64

func (b bits) has(i uint32) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bits) set(i uint32)      { b[i/64] |= 1 << (i % 64) }

// from follows all references from a segment that is there, and tells of those to none.
func (r *reach) from(ctx context.Context, head tarfile.ID) error {
	r.ok = true
	p, _ := r.a.known.find(head)
	r.add(p, head)
	defer r.tell()
	for round, pending := 0, true; pending; round++ {
		pending = false
		for i := range r.a.tars {
			if len(r.next[i]) == 0 {
				continue
			}
			if round == rounds {
				r.t.about(TooLarge, Warning, r.a.tars[i].Name, -1, "references lead to and fro between tars: not all of them were followed")
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

func (r *reach) add(p place, id tarfile.ID) {
	if !r.needed[p.tar].has(p.entry) {
		r.needed[p.tar].set(p.entry)
		if id.IsData() {
			r.next[p.tar] = append(r.next[p.tar], p.entry)
		}
	}
}

// follow follows the references of what is needed of tar i.
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
			} else {
				r.miss(id, place{uint32(i), k})
			}
		}
	}
	return nil
}

func (r *reach) miss(id tarfile.ID, by place) {
	if m := r.missing[id]; m != nil {
		m.n++
	} else if len(r.missing) < manyMissing {
		r.missing[id] = &referrer{by, 1}
		r.order = append(r.order, id)
	} else {
		r.more++
	}
}

// tell tells of what is missing, by the place of the first that refers to it.
func (r *reach) tell() {
	slices.SortFunc(r.order, func(x, y tarfile.ID) int {
		a, b := r.missing[x], r.missing[y]
		return cmp.Or(cmp.Compare(a.tar, b.tar), cmp.Compare(r.a.pos(a.place), r.a.pos(b.place)), x.Compare(y))
	})
	if len(r.order) > 0 && r.a.unread() {
		m := r.missing[r.order[0]]
		r.t.of(Unknown, Warning, r.a.tars[m.tar].Name, r.a.pos(m.place), r.order[0],
			"%d segments are in no index that the head needs; this is the first, %s refers to it", len(r.order)+r.more, r.a.describe(m.place))
		return
	}
	for _, id := range r.order {
		m := r.missing[id]
		r.t.of(Missing, Error, r.a.tars[m.tar].Name, r.a.pos(m.place), id,
			"it is in no tar; %s, which the head needs, refers to it, the first of %d", r.a.describe(m.place), m.n)
	}
	if r.more > 0 {
		r.t.about(TooMany, Error, "", -1, "%s: %d references more", Missing, r.more)
	}
}

// garbage tells, for each tar once, of references of segments that nothing needs.
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
			if r.ok && r.needed[i].has(uint32(k)) || !from.ID.IsData() {
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
			r.t.of(GarbageRefs, Note, x.Name, at, first, "it is in no tar; so are all that %d references lead to, of %d segments that nothing needs; this is the first", n, segments)
		default:
			r.t.of(Unknown, Warning, x.Name, at, first, "it is in no index; so are all that %d references lead to, of %d segments of which it is not known whether they are needed; this is the first", n, segments)
		}
	}
	return nil
}

// compactedSince counts needed segments that a compaction wrote, from the newest of
// the store to the one at root, or all. It returns the newest of them.
func (r *reach) compactedSince(root place, ok bool) (n int, newest place) {
	for i, x := range r.a.tars {
		for _, k := range slices.Backward(x.ByPosition()) {
			p := place{uint32(i), k}
			if ok && p == root {
				return n, newest
			}
			if e := x.At(int(k)); e.ID.IsData() && r.needed[i].has(k) && e.Generation.Compacted {
				if n == 0 {
					newest = p
				}
				n++
			}
		}
	}
	return n, newest
}

func (a *Audit) pos(p place) int64 { return a.tars[p.tar].At(int(p.entry)).Pos }

// edges says what the segments of a tar refer to: by its graph, by what was found in
// it, or, where there is neither, by the segments.
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
		e.gone = true // as Tail tells
	case err != nil:
		return e, ignoreDamage(err)
	}
	e.graph = g
	return e, nil
}

// targets is good until the next call.
func (e *edges) targets(ctx context.Context, i int) (tarfile.IDs, error) {
	id := e.x.At(i).ID
	if e.x.refs != nil {
		return e.x.refs[id], nil
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
