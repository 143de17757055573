package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// A comparison holds what a tar says of its segments against what they say.
type comparison struct {
	a      *Audit
	x      *unit
	t      *teller
	graph  *tarfile.Graph // nil is none, as Tail tells
	refs   map[tarfile.ID]tarfile.Texts
	have   bool // refs
	reader *segment.Reader
	src    *segments

	in, out []tarfile.ID // in a table of references, and in a list of the graph
}

func newComparison(ctx context.Context, a *Audit, x *unit, t *teller) (*comparison, error) {
	c := &comparison{a: a, x: x, t: t, src: &segments{a: a}}
	c.reader = segment.NewReader(c.src)
	var err error
	if c.graph, err = x.t.Graph(ctx); err != nil {
		if err := ignoreDamage(err); err != nil {
			return nil, err
		}
		c.graph = nil
	}
	refs, err := x.t.Binaries(ctx)
	if err != nil {
		return c, ignoreDamage(err)
	}
	c.have, c.refs = true, make(map[tarfile.ID]tarfile.Texts, refs.Len())
	for s := range refs.All() {
		c.refs[s.ID] = s.Refs
	}
	return c, nil
}

func (c *comparison) segment(ctx context.Context, e tarfile.Entry, s *segment.Segment) error {
	if c.graph != nil {
		c.edges(e, s)
	}
	if c.have {
		return c.binaries(ctx, e, s)
	}
	return nil
}

// edges compares the list of a segment in the graph with its table of references. A
// cleanup leaves out of the lists what it deletes, and leaves the tables.
func (c *comparison) edges(e tarfile.Entry, s *segment.Segment) {
	list, _ := c.graph.Targets(e.ID)
	head, _ := tarfile.ParseSegmentHead(s.Bytes())
	if bytes.Equal(list, head.Refs) {
		return
	}
	c.in, c.out = sorted(c.in[:0], head.Refs), sorted(c.out[:0], list)
	lost, more, bulk := 0, 0, false
	var firstLost, firstMore tarfile.ID
	missing := func(id tarfile.ID) {
		if _, ok := c.a.known.find(id); !ok {
			return
		}
		if bulk = bulk || !id.IsData(); lost == 0 {
			firstLost = id
		}
		lost++
	}
	in, out := c.in, c.out
	for len(in) > 0 || len(out) > 0 {
		switch {
		case len(out) == 0 || len(in) > 0 && in[0].Compare(out[0]) < 0:
			missing(in[0])
			in = in[1:]
		case len(in) == 0 || in[0].Compare(out[0]) > 0:
			if more == 0 {
				firstMore = out[0]
			}
			more++
			out = out[1:]
		default:
			in, out = in[1:], out[1:]
		}
	}
	if lost == 0 && more == 0 {
		return
	}
	c.x.wrongGraph = true
	var what []string
	severity := Warning
	if lost > 0 {
		what = append(what, fmt.Sprintf("%d references of the segment are missing, the first to %s", lost, firstLost))
		if bulk {
			severity = Error
		}
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("%d are there that the segment does not have, the first to %s", more, firstMore))
	}
	c.t.of(WrongGraph, severity, c.x.Name, e.Pos, e.ID, "graph: %s", strings.Join(what, "; "))
}

// sorted appends ids in order, none twice.
func sorted(to []tarfile.ID, ids tarfile.IDs) []tarfile.ID {
	for id := range ids.All() {
		to = append(to, id)
	}
	slices.SortFunc(to, tarfile.ID.Compare)
	return slices.Compact(to)
}

const maxBlobID = 1 << 20

// binaries compares the ids of binaries that a segment's records have with those that
// the tar says.
func (c *comparison) binaries(ctx context.Context, e tarfile.Entry, s *segment.Segment) error {
	said, ok := c.refs[e.ID]
	var has map[string]bool
	for row := range s.Records() {
		if row.Type != segment.BlobID {
			continue
		}
		if has == nil {
			has = map[string]bool{}
			c.src.current = s
		}
		id, err := c.blobID(ctx, segment.RecordID{Segment: s.ID(), Number: row.Number})
		if err != nil {
			return ignoreDamage(err) // as the check of records tells, or what refers to it
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
	lost := slices.Sorted(func(yield func(string) bool) {
		for id, missing := range has {
			if missing && !yield(id) {
				return
			}
		}
	})
	var what []string
	severity := Warning
	if len(lost) > 0 {
		severity = Error
		what = append(what, fmt.Sprintf("%d of the segment are missing, the first %.80q", len(lost), lost[0]))
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("%d are there that the segment does not have, the first %.80q", more, first))
	}
	if what != nil {
		c.t.of(WrongBinaries, severity, c.x.Name, e.Pos, e.ID, "binary references: %s", strings.Join(what, "; "))
	}
	return nil
}

func (c *comparison) blobID(ctx context.Context, id segment.RecordID) (string, error) {
	v, err := c.reader.Value(ctx, id)
	if err != nil {
		return "", err
	}
	return v.BlobID(ctx, maxBlobID)
}

// ignoreDamage returns errors of the source only.
func ignoreDamage(err error) error {
	if _, ok := errors.AsType[*segment.Error](err); ok {
		return nil
	}
	if _, ok := errors.AsType[*tarfile.Error](err); ok {
		return nil
	}
	return err
}

// segments are those of all tars, for the few that are needed to understand another.
type segments struct {
	a       *Audit
	current *segment.Segment // the one that is looked at
	other   *segment.Segment // the last other one
}

func (s *segments) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	for _, have := range []*segment.Segment{s.current, s.other} {
		if have != nil && have.ID() == id {
			return have, nil
		}
	}
	p, ok := s.a.known.find(id)
	if !ok {
		return nil, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
	}
	b, err := s.a.tars[p.tar].read(ctx, int(p.entry))
	if err != nil {
		return nil, err
	}
	if s.other, err = segment.Parse(id, b); err != nil {
		s.other = nil
		return nil, err
	}
	return s.other, nil
}

// read reads segment i of a tar.
func (x *unit) read(ctx context.Context, i int) ([]byte, error) {
	if x.t != nil {
		return x.t.Read(ctx, i, nil)
	}
	b := make([]byte, x.size(i))
	return b, x.obj.ReadAt(ctx, b, x.pos(i))
}
