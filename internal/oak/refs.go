package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Referrers show what keeps a segment from being garbage.
type Referrers struct {
	Segment string    `json:"segment"`
	Tar     string    `json:"tar,omitempty"` // empty if it is not there
	Direct  []InTar   `json:"direct"`        // segments that refer to it
	More    int       `json:"more,omitempty"`
	Head    string    `json:"head"` // the revision whose segment the path begins with
	Path    []InTar   `json:"path"` // a shortest path from the head to the segment; empty if there is none
	Nodes   []NodeUse `json:"nodes,omitempty"`
	Lost    int64     `json:"lost,omitempty"` // nodes that damage hid
}

type InTar struct {
	Segment string `json:"segment"`
	Tar     string `json:"tar"`
}

type NodeUse struct {
	Path string `json:"path"`
	What string `json:"what"` // the kind of record there
}

// mostReferrers is how many referrers are listed.
const mostReferrers = 1000

// Referrers finds the segments that refer to one, and a path to it from the segment of a tree's
// revision, using the graphs of the tars. If nodes is greater than 0, it also walks the tree to
// find up to that many nodes with records in the segment.
func (t *Tree) Referrers(ctx context.Context, id string, nodes int) (x Referrers, err error) {
	target, err := segment.ParseID(id)
	if err != nil {
		return x, err
	}
	x = Referrers{Segment: id, Head: t.Revision(), Direct: []InTar{}, Path: []InTar{}}
	r := &segmentReader{repository: t.t.repository}
	if tar, _, ok := r.locate(target); ok {
		x.Tar = tar.Name
	}
	if err := x.direct(ctx, r, target); err != nil {
		return x, err
	}
	if x.Tar == "" && len(x.Direct) == 0 {
		return x, fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
	}
	if err := x.way(ctx, r, t.t.super.Segment, target); err != nil {
		return x, err
	}
	if nodes > 0 {
		f := &nodeFinder{t: t.t, target: target, most: nodes}
		w := &walker{t: t.t, visit: f.node}
		if err := w.all(ctx); err != nil && err != errEnough {
			return x, err
		}
		x.Nodes, x.Lost = f.found, w.lost
	}
	return x, nil
}

func (x *Referrers) direct(ctx context.Context, r *segmentReader, target segment.ID) error {
	for _, t := range slices.Backward(r.tars) {
		for _, e := range t.All() {
			if !e.ID.IsData() {
				continue
			}
			to, err := r.targets(ctx, t, e)
			if err != nil {
				return err
			}
			for id := range to.All() {
				if id != target {
					continue
				}
				if len(x.Direct) == mostReferrers {
					x.More++
				} else {
					x.Direct = append(x.Direct, InTar{e.ID.String(), t.Name})
				}
				break
			}
		}
	}
	return ctx.Err()
}

// wayBytes is how many bytes the search for a path keeps for each segment.
const wayBytes = 100

// way finds a shortest path from one segment to another.
func (x *Referrers) way(ctx context.Context, r *segmentReader, from, target segment.ID) error {
	by := map[segment.ID]segment.ID{from: from}
	for queue := []segment.ID{from}; len(queue) > 0; queue = queue[1:] {
		if _, found := by[target]; found {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t, e, ok := r.locate(queue[0])
		if !ok || !e.ID.IsData() {
			continue
		}
		to, err := r.targets(ctx, t, e)
		if err != nil {
			return err
		}
		for id := range to.All() {
			if _, seen := by[id]; seen {
				continue
			}
			if int64(len(by))*wayBytes > r.limits.Index {
				return fault(indexLimit, t.path, -1, "paths to a segment: more than %d bytes", r.limits.Index)
			}
			by[id] = e.ID
			queue = append(queue, id)
		}
	}
	if _, found := by[target]; !found {
		return nil
	}
	for id := target; ; id = by[id] {
		at := InTar{Segment: id.String()}
		if t, _, ok := r.locate(id); ok {
			at.Tar = t.Name
		}
		if x.Path = append(x.Path, at); id == from {
			break
		}
	}
	slices.Reverse(x.Path)
	return nil
}

// errEnough ends a walk that has found enough.
var errEnough = errors.New("enough")

type nodeFinder struct {
	t      *treeReader
	target segment.ID
	most   int
	found  []NodeUse
}

func (f *nodeFinder) node(ctx context.Context, s spot, n segment.Node) error {
	what, err := f.what(ctx, n)
	if f.t.unlessDamage(err) != nil {
		return err
	}
	if what == "" {
		return nil
	}
	f.found = append(f.found, NodeUse{shownPath(s.name), what})
	if len(f.found) >= f.most {
		return errEnough
	}
	return nil
}

// what returns which record of a node is in the segment.
func (f *nodeFinder) what(ctx context.Context, n segment.Node) (string, error) {
	switch f.target {
	case n.ID().Segment:
		return "the node", nil
	case n.Template().ID.Segment:
		return "its template", nil
	}
	var damage error
	for p, err := range n.Properties(ctx) {
		there := false
		if err == nil {
			there, err = f.has(ctx, p)
		}
		if there {
			return "property " + writeTreeName(p.Name, false), nil
		}
		if err != nil {
			damage = err
		}
	}
	return "", damage
}

func (f *nodeFinder) has(ctx context.Context, p segment.Property) (bool, error) {
	for v, err := range p.Values(ctx) {
		if err != nil {
			return false, err
		}
		if v.ID().Segment == f.target {
			return true, nil
		}
		if v.Kind() != segment.Long {
			continue
		}
		for piece, err := range v.Pieces(ctx, 0, v.Len()) {
			if err == nil && piece.Segment == f.target {
				return true, nil
			}
			if e, damaged := errors.AsType[*segment.Error](err); damaged && e.Segment == f.target {
				return true, nil // it is missing, and needed
			}
			if f.t.unlessDamage(err) != nil {
				return false, err
			}
		}
	}
	return false, nil
}
