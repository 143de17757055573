package audit

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// recorded is what a tar records about its segments.
type recorded struct {
	graph *tarfile.Graph               // nil if there is none; Tail reports that
	refs  map[tarfile.ID]tarfile.Texts // nil if there are none
}

func (x *unit) recorded(ctx context.Context) (r recorded, err error) {
	r.graph, err = x.t.Graph(ctx)
	if err := ignoreDamage(err); err != nil {
		return r, err
	}
	refs, err := x.t.Binaries(ctx)
	if err != nil {
		return r, ignoreDamage(err)
	}
	r.refs = make(map[tarfile.ID]tarfile.Texts, refs.Len())
	for s := range refs.All() {
		r.refs[s.ID] = s.Refs
	}
	return r, nil
}

// A comparison compares what a tar records about its segments with the segments.
type comparison struct {
	recorded
	a          *Audit
	x          *unit
	t          *teller
	reader     *segment.Reader
	src        *segment.Recent
	wrongGraph bool

	in, out []tarfile.ID // in a table of references, and in a list of the graph
}

func newComparison(a *Audit, x *unit, t *teller, r recorded) *comparison {
	c := &comparison{recorded: r, a: a, x: x, t: t, src: a.segments()}
	c.reader = segment.NewReader(c.src)
	return c
}

// edges compares the list of a segment in the graph with its table of references. A cleanup omits
// the segments that it deletes from the lists, but leaves the tables unchanged.
func (c *comparison) edges(e tarfile.Entry, s *segment.Segment) {
	list, _ := c.graph.Targets(e.ID)
	head, _ := segment.ParseHead(s.Bytes())
	if bytes.Equal(list, head.Refs) {
		return
	}
	c.in, c.out = sorted(c.in[:0], head.Refs), sorted(c.out[:0], list)
	if slices.Equal(c.in, c.out) {
		return
	}
	has := func(ids []tarfile.ID, id tarfile.ID) bool {
		_, ok := slices.BinarySearchFunc(ids, id, tarfile.ID.Compare)
		return ok
	}
	lost := slices.DeleteFunc(slices.Clone(c.in), func(id tarfile.ID) bool {
		_, ok := c.a.known.find(id)
		return !ok || has(c.out, id)
	})
	more := slices.DeleteFunc(slices.Clone(c.out), func(id tarfile.ID) bool { return has(c.in, id) })
	severity := Warning
	if slices.ContainsFunc(lost, func(id tarfile.ID) bool { return !id.IsData() }) {
		severity = Error
	}
	var what []string
	if len(lost) > 0 {
		what = append(what, fmt.Sprintf("%d references of the segment are missing, the first to %s", len(lost), lost[0]))
	}
	if len(more) > 0 {
		what = append(what, fmt.Sprintf("%d references are not in the segment, the first to %s", len(more), more[0]))
	}
	if what != nil {
		c.wrongGraph = true
		c.t.of(WrongGraph, severity, c.x.Name, e.Pos, e.ID, "graph: %s", strings.Join(what, "; "))
	}
}

// sorted appends IDs in order, without duplicates.
func sorted(to []tarfile.ID, ids tarfile.IDs) []tarfile.ID {
	for id := range ids.All() {
		to = append(to, id)
	}
	slices.SortFunc(to, tarfile.ID.Compare)
	return slices.Compact(to)
}

const maxBlobID = 1 << 20

// binaries compares the ids of binaries in a segment's records with those of the tar.
func (c *comparison) binaries(ctx context.Context, e tarfile.Entry, s *segment.Segment) error {
	said, ok := c.refs[e.ID]
	var has map[string]bool
	for record := range s.External() {
		if has == nil {
			has = map[string]bool{}
			c.src.Current = s
		}
		id, err := c.reader.BlobID(ctx, record, maxBlobID)
		if err != nil {
			return ignoreDamage(err) // reported by the check of records, or with its references
		}
		has[id] = true
	}
	if !ok && has == nil {
		return nil
	}
	more := 0
	var first string
	for ref := range said.All() {
		if has[ref] {
			has[ref] = false // found
		} else if _, twice := has[ref]; !twice {
			if more == 0 {
				first = ref
			}
			more++
		}
	}
	maps.DeleteFunc(has, func(_ string, missing bool) bool { return !missing })
	lost := slices.Sorted(maps.Keys(has))
	var what []string
	severity := Warning
	if len(lost) > 0 {
		severity = Error
		what = append(what, fmt.Sprintf("%d of the segment are missing, the first %.80q", len(lost), lost[0]))
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("%d are not in the segment, the first %.80q", more, first))
	}
	if what != nil {
		c.t.of(WrongBinaries, severity, c.x.Name, e.Pos, e.ID, "binary references: %s", strings.Join(what, "; "))
	}
	return nil
}

// ignoreDamage returns errors of the source only.
func ignoreDamage(err error) error {
	if tarfile.IsDamage(err) {
		return nil
	}
	return err
}

// segments returns the segments of all tars, for the few that are needed to interpret others.
func (a *Audit) segments() *segment.Recent {
	return &segment.Recent{Most: 1, Load: func(ctx context.Context, id segment.ID) (*segment.Segment, error) {
		p, ok := a.known.find(id)
		if !ok {
			return nil, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
		}
		x := a.tars[p.tar]
		var b []byte
		var err error
		switch e := x.At(int(p.entry)); {
		case x.read != nil:
			b, err = x.read(ctx, e)
		case x.t != nil:
			b, err = x.t.Read(ctx, int(p.entry), nil)
		default:
			b = make([]byte, e.Len)
			err = x.obj.ReadAt(ctx, b, e.Pos)
		}
		if err != nil {
			return nil, err
		}
		return segment.Parse(id, b)
	}}
}
