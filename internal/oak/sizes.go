package oak

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A SizeNode shows where a tree's bytes are. What nodes share is counted where it is first met.
type SizeNode struct {
	Path     string      `json:"path"`
	Nodes    int64       `json:"nodes"`
	Records  int64       `json:"records"`  // bytes of nodes, names, texts and lists
	Binaries int64       `json:"binaries"` // bytes of binaries in the store
	External int64       `json:"external"` // bytes of binaries in a data store, according to their ids
	Children []*SizeNode `json:"children,omitempty"`
	// Others is how many smaller children are not listed.
	Others int64 `json:"others,omitempty"`
	Lost   int64 `json:"lost,omitempty"` // places that damage hid
}

func (n *SizeNode) Total() int64 { return n.Records + n.Binaries }

func (n *SizeNode) add(m *SizeNode) {
	n.Nodes += m.Nodes
	n.Records += m.Records
	n.Binaries += m.Binaries
	n.External += m.External
	n.Lost += m.Lost
}

type SizesOptions struct {
	Depth int // levels of children that are listed; -1 is all
	Top   int // how many of the largest; 0 is 20
}

func (t *Tree) Sizes(ctx context.Context, name string, o SizesOptions) (*SizeNode, error) {
	top, err := t.t.findNode(ctx, nodePath(name))
	if err != nil {
		return nil, err
	}
	m := &measure{t: t.t, depth: lastLevel(top.depth, o.Depth), top: cmp.Or(o.Top, 20), seen: recordSet{}}
	return m.tree(ctx, top)
}

// lastLevel returns the deepest of so many levels below top; -1 is all levels.
func lastLevel(top, levels int) int {
	if levels < 0 || levels > math.MaxInt-top {
		return math.MaxInt
	}
	return top + levels
}

// NodeSizes yields the size of each node without its children, parents first. A node that was
// already counted is omitted, with everything below it.
func (t *Tree) NodeSizes(ctx context.Context, name string) iter.Seq2[SizeNode, error] {
	return pipe.Told(func(tell func(SizeNode) error) error {
		top, err := t.t.findNode(ctx, nodePath(name))
		if err != nil {
			return err
		}
		m := &measure{t: t.t, depth: -1, top: 1, seen: recordSet{}, tell: tell}
		_, err = m.tree(ctx, top)
		return err
	})
}

type measure struct {
	t     *treeReader
	depth int
	top   int
	seen  recordSet
	tell  func(SizeNode) error // may be nil; called with the size of each node without its children
}

func (m *measure) tree(ctx context.Context, s spot) (*SizeNode, error) {
	sum := &SizeNode{Path: shownPath(s.name)}
	n, err := m.t.node(ctx, s)
	if err != nil {
		sum.Lost++
		if err = m.t.unlessDamage(err); err == nil {
			err = m.told(sum)
		}
		return sum, err
	}
	if !m.seen.add(s.id) {
		return sum, ctx.Err()
	}
	err = m.node(ctx, n, sum)
	if err == nil {
		err = m.told(sum)
	}
	if err != nil {
		return sum, err
	}
	for c, err := range m.t.children(ctx, s) {
		var below *SizeNode
		if err == nil {
			below, err = m.tree(ctx, c)
		}
		if err != nil {
			return sum, err
		}
		sum.add(below)
		if s.depth < m.depth {
			if sum.Children = append(sum.Children, below); len(sum.Children) >= 2*m.top {
				sum.keep(m.top)
			}
		}
	}
	sum.keep(m.top)
	return sum, nil
}

func (m *measure) told(own *SizeNode) error {
	if m.tell == nil {
		return nil
	}
	return m.tell(*own)
}

func (n *SizeNode) keep(top int) {
	slices.SortStableFunc(n.Children, func(a, b *SizeNode) int {
		return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(b.External, a.External))
	})
	if more := len(n.Children) - top; more > 0 {
		n.Others += int64(more)
		clear(n.Children[top:])
		n.Children = n.Children[:top]
	}
}

// Sizes of records, derived from the format, because they are not stored.
const (
	idBytes     = 6
	nodeBytes   = 2 * idBytes
	leafEntry   = 4 + 2*idBytes // of a map, for each child
	stableBytes = 20
)

func aligned(n int64) int64 { return (n + 3) &^ 3 }

// node adds what belongs to the node itself.
func (m *measure) node(ctx context.Context, n segment.Node, sum *SizeNode) error {
	sum.Nodes++
	shape := n.Template()
	own := int64(nodeBytes)
	if shape.Rule != segment.NoChild {
		own += idBytes
	}
	if k := int64(len(shape.Properties)); k > 0 {
		own += idBytes
		if k > 1 {
			sum.Records += aligned(k * idBytes)
		}
	}
	sum.Records += aligned(own)
	if id, err := n.StableID(ctx); err == nil && id != n.ID() {
		sum.Records += stableBytes
	}
	m.template(shape, sum)
	if shape.Rule == segment.ManyChildren {
		for c, err := range n.Children(ctx) {
			if err == nil {
				sum.Records += leafEntry
				err = m.value(ctx, c.Key, false, sum)
			}
			if m.t.unlessDamage(err) != nil {
				return err
			}
		}
	}
	for p, err := range n.Properties(ctx) {
		if err == nil {
			err = m.property(ctx, p, sum)
		}
		if m.t.unlessDamage(err) != nil {
			return err
		}
		if err != nil {
			sum.Lost++
		}
	}
	return nil
}

func (m *measure) template(t *segment.Template, sum *SizeNode) {
	if !m.seen.add(t.ID) {
		return
	}
	ids, text := int64(len(t.Mixins)), int64(len(t.Child))
	if t.Rule == segment.OneChild {
		ids++
	}
	if t.Primary != nil {
		ids++
	}
	for _, p := range t.Properties {
		ids, text = ids+1, text+int64(len(p.Name))
	}
	sum.Records += aligned(4 + idBytes*ids + int64(len(t.Properties)) + text)
}

func (m *measure) property(ctx context.Context, p segment.Property, sum *SizeNode) error {
	if p.Multi {
		sum.Records += aligned(4 + idBytes*int64(p.Len()+1))
	}
	for v, err := range p.Values(ctx) {
		if err == nil {
			err = m.value(ctx, v.ID(), p.Type == segment.Binary, sum)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value adds a value that was not counted before.
func (m *measure) value(ctx context.Context, id segment.RecordID, isBinary bool, sum *SizeNode) error {
	v, err := m.t.records.Value(ctx, id)
	if err != nil || !m.seen.add(id) {
		return err
	}
	switch v.Kind() {
	case segment.Small, segment.Medium:
		sum.Records += aligned(v.Len() + 2)
	case segment.Long:
		blocks := (v.Len() + segment.BlockSize - 1) / segment.BlockSize
		sum.Records += aligned(8 + idBytes*(blocks+1))
		if isBinary {
			sum.Binaries += v.Len()
		} else {
			sum.Records += v.Len()
		}
	default:
		name, err := v.BlobID(ctx, mostBlobID)
		if err != nil {
			return err
		}
		size, _, _ := blobPlace(name, false)
		sum.External += size
		sum.Records += aligned(int64(len(name)) + 2)
	}
	return nil
}
