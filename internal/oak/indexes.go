package oak

import (
	"context"
	"iter"
	"slices"
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
	_, has, err := t.t.definition(ctx, x.Path)
	if c := t.t.damage(err); c != nil {
		x.Problem = c.Message
	} else if err != nil {
		return err
	}
	x.Type, x.Async, x.Reindex = one(has, "type"), laneOf(has["async"]), one(has, "reindex") == "true"
	x.ReindexCount, _ = strconv.ParseInt(one(has, "reindexCount"), 10, 64)
	sum, err := t.Sizes(ctx, x.Path, SizesOptions{})
	if err == nil {
		x.Nodes, x.Records, x.Binaries, x.External, x.Lost = sum.Nodes, sum.Records, sum.Binaries, sum.External, sum.Lost
	}
	return err
}

// definitionNames are the properties of a definition that matter here.
var definitionNames = []string{"type", "async", "reindex", "reindexCount", "corrupt", "propertyNames", "declaringNodeTypes", "unique", "valuePattern",
	"valueIncludedPrefixes", "valueExcludedPrefixes", "includedPaths", "excludedPaths", "saveDirListing"}

// definition finds a definition.
func (t *treeReader) definition(ctx context.Context, name string) (s spot, has map[string][]string, err error) {
	s, err = t.findNode(ctx, nodePath(name))
	var n segment.Node
	if err == nil {
		n, err = t.node(ctx, s)
	}
	if err == nil {
		has, err = texts(ctx, n, func(name string) bool { return slices.Contains(definitionNames, name) })
	}
	return s, has, err
}

// laneOf returns the lane that updates an index. The other words say that it is updated earlier,
// too.
func laneOf(async []string) string {
	i := slices.IndexFunc(async, func(s string) bool { return s != "nrt" && s != "sync" })
	if i < 0 {
		return ""
	}
	return async[i]
}
