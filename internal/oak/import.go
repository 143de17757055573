package oak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/newtree"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
)

type Imported struct {
	Nodes   int64    `json:"nodes"`
	Lost    int64    `json:"lost"`    // values and nodes without content in the export
	Omitted int64    `json:"omitted"` // contents that the export left out
	Bytes   int64    `json:"bytes"`   // of files
	Files   []string `json:"files"`
}

// Import makes a store from an export, in the folder name of to. Lines may be in any order, as
// long as the parts of a node follow its line. If the export is a part of a tree, the nodes above
// it have no properties.
func Import(ctx context.Context, from io.Reader, to store.Store, name string, o format.CreateOptions) (Imported, error) {
	return importItems(ctx, lines(from), true, to, name, o)
}

// importItems makes a store of nodes. If bare is set, nodes that are only implied have no type.
func importItems(ctx context.Context, from items, bare bool, to store.Store, name string, o format.CreateOptions) (_ Imported, err error) {
	out, err := create(ctx, to, name, o)
	if err != nil {
		return Imported{}, err
	}
	w := out.(*treeWriter)
	defer func() { err = errors.Join(err, w.Abort()) }()
	if bare {
		w.tree.Bare()
	}
	if !w.timed {
		w.time = time.Now()
	}
	in := importer{tree: w.tree}
	if err := in.all(ctx, from); err != nil {
		return in.res, err
	}
	sum, err := w.Commit(ctx)
	in.res.Bytes, in.res.Files = sum.Stored, sum.Volumes
	return in.res, err
}

// An importer adds the contents of an export to a tree.
type importer struct {
	tree  *newtree.Tree
	below []string // only nodes at or below this path are imported
	res   Imported

	passed bool                         // the last node was skipped
	path   []string                     // of the last node, relative to below
	has    map[string]*importedProperty // of the last node, by their written names
}

// items are the parts of an export, or of an equivalent source.
type items = iter.Seq2[nodejson.Item, error]

func lines(r io.Reader) items {
	return func(yield func(nodejson.Item, error) bool) {
		d := nodejson.NewDecoder(r)
		for item, err := d.Next(); err != io.EOF && yield(item, err) && err == nil; item, err = d.Next() {
		}
	}
}

func (in *importer) all(ctx context.Context, from items) error {
	for item, err := range from {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = in.item(ctx, item)
		}
		if err != nil {
			return err
		}
	}
	return in.endNode()
}

// An importedProperty is a property that more values may follow.
type importedProperty struct {
	newtree.Property
	several bool
	count   int  // of its values, if there may be several
	lacking bool // a value is missing: then none is imported, because positions matter
}

func (in *importer) item(ctx context.Context, item nodejson.Item) error {
	switch item.Kind {
	case nodejson.LostItem:
		// A lost item without a readable path could be anywhere.
		if path, err := importPath(item.Path); err != nil || in.takes(path) {
			in.res.Lost++
		}
		return nil
	case nodejson.ElementItem:
		return in.element(ctx, item)
	case nodejson.NodeItem:
		if err := in.endNode(); err != nil {
			return err
		}
		path, err := in.checkedPath(item.Path)
		if err != nil {
			return err
		}
		if in.passed = !in.takes(path); !in.passed {
			in.path, in.has = path[len(in.below):], map[string]*importedProperty{}
		}
	}
	if in.passed {
		return nil
	}
	switch item.Kind {
	case nodejson.NodeItem:
		if !item.Again {
			in.res.Nodes++
		}
		return in.properties(ctx, item)
	case nodejson.MoreItem:
		return in.properties(ctx, item)
	case nodejson.ValuesItem:
		for i, v := range item.Values {
			if err := in.value(ctx, in.has[item.Property], item.From+i, v); err != nil {
				return err
			}
		}
	case nodejson.ContentItem:
		return in.content(ctx, in.has[item.Property], item.From, item.Content)
	}
	return nil
}

func (in *importer) checkedPath(said string) ([]string, error) {
	path, err := importPath(said)
	if err == nil {
		err = in.tree.CheckPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("path %.200q: %w", said, err)
	}
	return path, nil
}

// element adds one of several values of a property, in any order.
func (in *importer) element(ctx context.Context, item nodejson.Item) error {
	path, err := in.checkedPath(item.Path)
	if err != nil || !in.takes(path) {
		return err
	}
	name, err := importName(item.Property, false)
	if err != nil {
		return err
	}
	v, err := in.tree.Read(ctx, item.Content)
	if err != nil {
		return err
	}
	return in.tree.SetElement(path[len(in.below):], name, item.From, v)
}

// takes reports whether a path is to be imported: whether it is at or below one that was
// selected.
func (in *importer) takes(path []string) bool {
	return len(path) >= len(in.below) && slices.Equal(path[:len(in.below)], in.below)
}

// endNode adds the properties with several values, which are all known by now.
func (in *importer) endNode() error {
	for _, name := range slices.Sorted(maps.Keys(in.has)) {
		p := in.has[name]
		if !p.several || p.lacking {
			continue
		}
		if err := in.tree.SetElements(in.path, p.Property, p.count); err != nil {
			return err
		}
	}
	in.has = nil
	return nil
}

func (in *importer) properties(ctx context.Context, item nodejson.Item) error {
	var texts []segment.NewProperty
	for _, said := range item.Properties {
		name, err := importName(said.Name, false)
		if err != nil {
			return err
		}
		p := &importedProperty{newtree.Property{Name: name, Type: said.Type}, said.Multi, len(said.Values), said.Lost != nil}
		if said.Kind == nodejson.Follows {
			p.count = said.Count
		}
		in.has[said.Name] = p
		if p.lacking {
			in.res.Lost++
			continue
		}
		if v := said.Values; !p.several && len(v) == 1 && v[0].Kind == nodejson.Here && p.Type != segment.Binary {
			texts = append(texts, textOf(name, p.Type, v[0].Content))
			continue
		}
		for i, v := range said.Values {
			if err := in.value(ctx, p, i, v); err != nil {
				return err
			}
		}
	}
	return in.tree.Node(ctx, in.path, texts)
}

// value adds a value, unless its content follows.
func (in *importer) value(ctx context.Context, p *importedProperty, i int, v nodejson.Value) error {
	switch v.Kind {
	case nodejson.Here:
		return in.content(ctx, p, i, strings.NewReader(v.Content))
	case nodejson.External:
		return in.set(p, i, newtree.External(v.Content))
	case nodejson.Omitted:
		in.res.Omitted++
		p.lacking = true
	case nodejson.Missing:
		in.res.Lost++
		p.lacking = true
	}
	return nil
}

func (in *importer) content(ctx context.Context, p *importedProperty, i int, r io.Reader) error {
	v, err := in.tree.Read(ctx, r)
	if _, lost := errors.AsType[*nodejson.Lost](err); lost {
		in.res.Lost++
		p.lacking = true
		return nil
	}
	if err != nil {
		return err
	}
	return in.set(p, i, v)
}

func (in *importer) set(p *importedProperty, i int, v newtree.Value) error {
	if p.several {
		return in.tree.SetElement(in.path, p.Name, i, v)
	}
	return in.tree.Set(in.path, p.Property, v)
}

func importPath(path string) (names []string, err error) {
	for elem := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "/" {
			break
		}
		name, err := importName(elem, len(names) == 0)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func importName(elem string, top bool) (string, error) {
	n, ok := readTreeName(elem, top)
	if !ok || n.property || n.lost > 0 {
		return "", fmt.Errorf("name: expected the form of an export, found %.100q", elem)
	}
	return n.name, nil
}
