package oak

import (
	"context"
	"encoding/json"
	"iter"
	"path"
	"runtime"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

type FindOptions struct {
	// Where has conditions that must all be true.
	Where []Where
	// Name, if not nil, selects the names of nodes.
	Name func(string) bool
	// After is the path of a node. The search continues with the next one.
	After string
	// Properties requests the properties too.
	Properties bool
}

// Found is a node that matches, or one that may match but cannot be read.
type Found struct {
	Path       string          `json:"path"`
	Properties json.RawMessage `json:"properties,omitempty"` // as in an export, except what is longer than a megabyte
	Lost       string          `json:"lost,omitempty"`       // lost because of damage
}

// Find yields the nodes of a tree that match the conditions, in stored order, and those that
// damage hides.
func (t *Tree) Find(ctx context.Context, name string, o FindOptions) iter.Seq2[Found, error] {
	type some struct {
		nodes []told
		found []Found
		err   error
	}
	s := &search{t: t.t, o: o, how: t.t.jsonOptions()}
	return pipe.Told(func(tell func(Found) error) error {
		top, err := t.t.findNode(ctx, nodePath(name))
		if err != nil {
			return err
		}
		hands := pipe.Told(func(tell func(*some) error) error {
			h := &some{}
			x := exporter{t: t.t, above: map[segment.RecordID]bool{}, depth: -1, tell: func(n told) error {
				if h.nodes = append(h.nodes, n); len(h.nodes) < exportHandful {
					return nil
				}
				full := h
				h = &some{}
				return tell(full)
			}}
			if o.After != "" {
				err = x.resume(ctx, top, o.After, true)
			} else {
				err = x.node(ctx, top)
			}
			if err != nil {
				return err
			}
			return tell(h)
		})
		return pipe.Ordered(ctx, hands, runtime.GOMAXPROCS(0), func(ctx context.Context, h *some) {
			h.found, h.err = s.among(ctx, h.nodes)
		}, func(h *some) error {
			for _, f := range h.found {
				if err := tell(f); err != nil {
					return err
				}
			}
			return h.err
		}, func(*some) {})
	})
}

type search struct {
	t   *treeReader
	o   FindOptions
	how nodejson.Options
}

func (s *search) among(ctx context.Context, nodes []told) (all []Found, err error) {
	for _, n := range nodes {
		f := Found{Path: n.path}
		if n.lost != nil {
			f.Lost = n.lost.What
			all = append(all, f)
			continue
		}
		if s.o.Name != nil && !s.o.Name(path.Base(n.path)) {
			continue
		}
		ok, err := s.node(ctx, n.id, &f)
		if err != nil {
			l, damaged := s.t.lostAsJSON(err)
			if !damaged {
				return all, err
			}
			f.Lost = l.What
		}
		if ok || err != nil {
			all = append(all, f)
		}
	}
	return all, nil
}

func (s *search) node(ctx context.Context, id segment.RecordID, f *Found) (bool, error) {
	n, err := s.t.records.Node(ctx, id)
	if err != nil {
		return false, err
	}
	for _, w := range s.o.Where {
		if ok, err := w.match(ctx, n); err != nil || !ok {
			return false, err
		}
	}
	if s.o.Properties {
		f.Properties, _, err = nodejson.AppendProperties(ctx, nil, n, s.how)
	}
	return true, err
}
