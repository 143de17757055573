package oak

import (
	"context"
	"iter"
	"strconv"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A QueryIndex is the definition of an index, with the space that the index needs.
type QueryIndex struct {
	Path         string `json:"path"`
	Type         string `json:"type"`                    // lucene, property, counter and so on; disabled
	Async        string `json:"async,omitempty"`         // the lane that updates it; empty if it is updated at once
	Reindex      bool   `json:"reindex,omitempty"`       // it is to be rebuilt
	ReindexCount int64  `json:"reindex_count,omitempty"` // how often it was
	Nodes        int64  `json:"nodes"`
	Records      int64  `json:"records"`  // bytes of nodes, names and texts
	Binaries     int64  `json:"binaries"` // bytes in the store
	External     int64  `json:"external"` // bytes in a data store
	Lost         int64  `json:"lost,omitempty"`
	// Problem is why the definition cannot be read.
	Problem string `json:"problem,omitempty"`
}

// IndexesPath is the path of most definitions of indexes.
const IndexesPath = "/oak:index"

const definitionType = "oak:QueryIndexDefinition"

// Indexes yields the definitions of indexes at and below a path.
func (t *Tree) Indexes(ctx context.Context, name string) iter.Seq2[QueryIndex, error] {
	return pipe.Told(func(tell func(QueryIndex) error) error {
		is := FindOptions{Where: []Where{{name: primaryTypeName, op: "=", text: definitionType}}}
		for f, err := range t.Find(ctx, name, is) {
			if err != nil {
				return err
			}
			x := QueryIndex{Path: f.Path, Problem: f.Lost}
			if f.Lost == "" {
				if err := t.index(ctx, &x); err != nil {
					return err
				}
			}
			if err := tell(x); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *Tree) index(ctx context.Context, x *QueryIndex) error {
	s, err := t.t.findNode(ctx, nodePath(x.Path))
	var n segment.Node
	if err == nil {
		n, err = t.t.node(ctx, s)
	}
	if err != nil {
		return err
	}
	if err := t.describe(ctx, n, x); err != nil {
		c := t.t.damage(err)
		if c == nil {
			return err
		}
		x.Problem = c.Message
	}
	sum, err := t.Sizes(ctx, x.Path, SizesOptions{})
	if err == nil {
		x.Nodes, x.Records, x.Binaries, x.External, x.Lost = sum.Nodes, sum.Records, sum.Binaries, sum.External, sum.Lost
	}
	return err
}

func (t *Tree) describe(ctx context.Context, n segment.Node, x *QueryIndex) (err error) {
	if x.Type, err = textProperty(ctx, n, "type", mostWords); err != nil {
		return err
	}
	// The value is one lane, or a list that contains one.
	p, ok, err := n.Property(ctx, "async")
	if err == nil && ok && p.Len() > 0 {
		v, verr := p.At(ctx, 0)
		if err = verr; err == nil {
			x.Async, err = v.Text(ctx, mostWords)
		}
	}
	if err != nil {
		return err
	}
	again, err := textProperty(ctx, n, "reindex", mostWords)
	if err != nil {
		return err
	}
	x.Reindex, _ = strconv.ParseBool(again)
	x.ReindexCount, _, err = t.t.number(ctx, n, "reindexCount")
	return err
}
