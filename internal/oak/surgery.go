package oak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/compact"
	"github.com/holdall/holdall/internal/oak/internal/newtree"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// A Surgery is what a new revision changed at a path.
type Surgery struct {
	Action   string `json:"action"` // set, remove, replace
	Path     string `json:"path"`
	Property string `json:"property,omitempty"`
	Type     string `json:"type,omitempty"`   // of the new value
	Nodes    int64  `json:"nodes"`            // that were copied
	Shared   bool   `json:"shared,omitempty"` // nothing was copied: the store already has it
	Revised
}

// An operation is a place of the head that is to be changed.
type operation struct {
	v     *reviser
	names []string // on the way to the node
	whole *change
	at    *change // of the node
	said  Surgery
}

func (s *Store) operation(ctx context.Context, action, path, property string, dryRun bool) (*operation, error) {
	names, err := nodeNames(path)
	if err != nil {
		return nil, err
	}
	v, err := s.reviser(ctx, dryRun)
	if err != nil {
		return nil, err
	}
	o := &operation{v: v, names: names, whole: &change{}, said: Surgery{Action: action, Path: joinNames(names), Property: property}}
	o.at = o.whole.at(rootName).at(names...)
	return o, nil
}

func (o *operation) commit(ctx context.Context) (Surgery, error) {
	var err error
	o.said.Revised, err = o.v.commit(ctx, o.whole)
	return o.said, err
}

// node returns the node of the newest revision at the path names, or an error if there is none.
func (o *operation) node(ctx context.Context, names []string) (segment.Node, error) {
	s := o.v.s
	n, missing, err := s.records.NodeAt(ctx, o.v.super, append([]string{rootName}, names...)...)
	if missing != "" {
		return n, &fs.PathError{Op: "lookup", Path: joinNames(names), Err: fs.ErrNotExist}
	}
	return n, s.r.corrupt(err, joinNames(names))
}

// propertyName returns a name as the tree shows it.
func propertyName(said string) (string, error) {
	n, ok := readTreeName(said, false)
	if !ok || n.lost > 0 || n.name == "" {
		return "", fmt.Errorf("oak: property %.200q: expected a name, as in 'holdall ls': %w", said, fs.ErrInvalid)
	}
	return n.name, nil
}

type SetOptions struct {
	Type     string // of the values; "" is that of the property, or String
	Multiple bool   // any number of values; a property that has any keeps that
	DryRun   bool
}

// Set sets a property of a node in the newest revision. It does nothing else that Oak does in a
// commit: it does not check types of nodes, and does not update indexes.
func (s *Store) Set(ctx context.Context, path, property string, values []string, o SetOptions) (Surgery, error) {
	name, err := propertyName(property)
	if err != nil {
		return Surgery{}, err
	}
	op, err := s.operation(ctx, "set", path, property, o.DryRun)
	if err != nil {
		return Surgery{}, err
	}
	n, err := op.node(ctx, op.names)
	if err != nil {
		return op.said, err
	}
	p := segment.NewProperty{Name: name, Type: segment.String, Multi: o.Multiple || len(values) != 1}
	switch is, ok := shapeOf(n.Template(), name); {
	case ok && o.Type == "":
		p.Type, p.Multi = is.Type, p.Multi || is.Multi
	case name == primaryTypeName:
		p.Type = segment.Name
	case name == mixinTypesName:
		p.Type, p.Multi = segment.Name, true
	}
	if o.Type != "" {
		same := func(name string) bool { return strings.EqualFold(name, o.Type) }
		if p.Type = segment.PropertyType(slices.IndexFunc(segment.TypeNames, same) + 1); p.Type == 0 {
			return op.said, fmt.Errorf("oak: type %.80q: expected one of %s: %w", o.Type, strings.Join(segment.TypeNames, ", "), fs.ErrInvalid)
		}
	}
	for _, text := range values {
		text, ok := valueText(p.Type, text)
		if !ok {
			return op.said, fmt.Errorf("oak: value %.80q: expected one of type %s: %w", text, p.Type, fs.ErrInvalid)
		}
		v := segment.NewValue{Text: text}
		if p.Type == segment.Binary {
			v.IsID = true
			if v.Record, err = op.v.b.Binary(ctx, strings.NewReader(text)); err != nil {
				return op.said, err
			}
		}
		p.Values = append(p.Values, v)
	}
	op.said.Type = p.Type.String()
	op.at.properties = []segment.NewProperty{p}
	return op.commit(ctx)
}

const mixinTypesName = "jcr:mixinTypes"

// shapeOf finds a property in a template, so that it may be damaged.
func shapeOf(t *segment.Template, name string) (segment.PropertyName, bool) {
	switch {
	case name == primaryTypeName && t.Primary != nil:
		return segment.PropertyName{Name: name, Type: segment.Name}, true
	case name == mixinTypesName && t.HasMixins:
		return segment.PropertyName{Name: name, Type: segment.Name, Multi: true}, true
	}
	i := slices.IndexFunc(t.Properties, func(p segment.PropertyName) bool { return p.Name == name })
	if i < 0 {
		return segment.PropertyName{}, false
	}
	return t.Properties[i], true
}

var (
	doubleText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$|^NaN$|^-?Infinity$`)
	})
	decimalText = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)
	})
)

// valueText returns a value as Oak stores it, if it is valid for its type.
func valueText(t segment.PropertyType, s string) (string, bool) {
	switch t {
	case segment.Binary:
		return s, true
	case segment.Integer:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return s, false
		}
		return strconv.FormatInt(n, 10), true
	case segment.Double:
		return s, doubleText().MatchString(s)
	case segment.Decimal:
		return s, decimalText().MatchString(s)
	case segment.Boolean:
		return s, s == "true" || s == "false"
	case segment.Date:
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return s, false
		}
		return at.Format("2006-01-02T15:04:05.000Z07:00"), true
	}
	return s, utf8.ValidString(s)
}

type RemoveOptions struct {
	Property string // only this property; empty means the node and everything below it
	// Lost removes what cannot be read from a node: properties, and children whose names are
	// lost. It does not change anything below the children.
	Lost   bool
	DryRun bool
}

// Remove removes a node or a property from the newest revision. What is removed may be damaged.
func (s *Store) Remove(ctx context.Context, path string, o RemoveOptions) (Surgery, error) {
	op, err := s.operation(ctx, "remove", path, o.Property, o.DryRun)
	if err != nil {
		return Surgery{}, err
	}
	if o.Property == "" && !o.Lost {
		if len(op.names) == 0 {
			return op.said, fmt.Errorf("oak: /: the root cannot be removed: %w", fs.ErrInvalid)
		}
		last := len(op.names) - 1
		n, err := op.node(ctx, op.names[:last])
		if err != nil {
			return op.said, err
		}
		_, ok, err := n.Child(ctx, op.names[last])
		if err == nil && !ok {
			err = &fs.PathError{Op: "lookup", Path: op.said.Path, Err: fs.ErrNotExist}
		}
		if err != nil {
			return op.said, s.r.corrupt(err, op.said.Path)
		}
		op.at.gone = true
		return op.commit(ctx)
	}
	n, err := op.node(ctx, op.names)
	if err != nil {
		return op.said, err
	}
	if o.Lost {
		op.at.readable = true
		op.at.without, err = s.lostProperties(ctx, n)
	} else {
		var name string
		if name, err = propertyName(o.Property); err == nil {
			if _, ok := shapeOf(n.Template(), name); !ok {
				err = &fs.PathError{Op: "lookup", Path: op.said.Path + " property " + o.Property, Err: fs.ErrNotExist}
			}
		}
		op.at.without = []string{name}
	}
	if err != nil {
		return op.said, err
	}
	return op.commit(ctx)
}

// lostProperties returns the properties of a node that cannot be read completely.
func (s *Store) lostProperties(ctx context.Context, n segment.Node) (names []string, err error) {
	tr := s.r.trees(true, 1)
	err = tr.prover.Own(ctx, n, func(property string, _ *segment.Error) { names = append(names, property) })
	return names, err
}

// A Donor is where a node is copied from: a tree of this store or another one, an export, or a
// package.
type Donor struct {
	Tree    *Tree
	Export  io.Reader
	Package Package
	Scratch func() (sorter.Scratch, error) // for an export, and a package
}

type ReplaceOptions struct {
	Property string // only this property; empty means the node and everything below it
	DryRun   bool
}

// Replace copies a node of a donor, with everything below it, to the same path. The node at that
// path may be damaged or missing, but its parent must exist. Records of the same store and of the
// head's generation are referred to. Everything else is copied, because Oak's cleanup removes
// segments by generation. Binaries in a data store stay there. A damaged donor is refused.
func (s *Store) Replace(ctx context.Context, path string, from Donor, o ReplaceOptions) (Surgery, error) {
	op, err := s.operation(ctx, "replace", path, o.Property, o.DryRun)
	if err != nil {
		return Surgery{}, err
	}
	if last := len(op.names) - 1; last >= 0 {
		if _, err := op.node(ctx, op.names[:last]); err != nil {
			return op.said, err
		}
	}
	if from.Tree == nil {
		err = op.fromExport(ctx, from, o)
	} else {
		err = op.fromTree(ctx, from.Tree.t, o)
	}
	if err != nil {
		return op.said, err
	}
	return op.commit(ctx)
}

func (o *operation) fromExport(ctx context.Context, from Donor, wish ReplaceOptions) (err error) {
	if wish.Property != "" {
		return fmt.Errorf("oak: a single property: expected a store to copy it from: %w", errors.ErrUnsupported)
	}
	said, how := items(nil), newtree.Options{Scratch: from.Scratch, Depth: treeDepth}
	if from.Package != nil {
		if said, err = o.packaged(ctx, from); err != nil {
			return err
		}
		how.Missing = missingFolder
	} else {
		said = lines(from.Export)
	}
	tree := newtree.New(o.v.b, how)
	if from.Package == nil {
		tree.Bare()
	}
	defer func() { err = errors.Join(err, tree.Abort()) }()
	in := importer{tree: tree, below: o.names}
	if err := in.all(ctx, said); err != nil {
		return err
	}
	switch {
	case in.res.Nodes == 0:
		return fmt.Errorf("oak: %s: in the export: %w", o.said.Path, fs.ErrNotExist)
	case in.res.Lost+in.res.Omitted > 0:
		return refuse("%s: the export has lost %d nodes or values, and left out %d: they would be lost", o.said.Path, in.res.Lost, in.res.Omitted)
	}
	id, nodes, err := tree.Close(ctx)
	o.said.Nodes = nodes
	o.at.put = &id
	return err
}

func (o *operation) fromTree(ctx context.Context, from *treeReader, wish ReplaceOptions) error {
	c, prover, err := o.v.copier(from)
	if err != nil {
		return err
	}
	id, missing, err := from.records.Down(ctx, from.top, o.names...)
	if err == nil && missing != "" {
		return fmt.Errorf("oak: %s: in %s: %w", o.said.Path, from.name, fs.ErrNotExist)
	}
	if wish.Property != "" {
		var n segment.Node
		if err == nil {
			n, err = from.records.Node(ctx, id)
		}
		if err != nil {
			return from.corrupt(err, o.said.Path)
		}
		p, err := o.donated(ctx, c, from, n, wish.Property)
		if o.at.properties = []segment.NewProperty{p}; err == nil && len(o.names) > 0 {
			_, err = o.node(ctx, o.names)
		}
		return err
	}
	if err == nil {
		err = prover.soundTree(ctx, id, o.said.Path)
	}
	if err == nil {
		id, err = c.Node(ctx, id)
	}
	if at, ok := errors.AsType[*compact.Error](err); ok {
		err = at.Err
	}
	if err != nil {
		return from.corrupt(err, o.said.Path)
	}
	o.said.Nodes, o.said.Shared, o.at.put = c.Nodes(), c.Nodes() == 0, &id
	return nil
}

// donated copies an intact property.
func (o *operation) donated(ctx context.Context, c *compact.Copier, from *treeReader, n segment.Node, said string) (to segment.NewProperty, err error) {
	name, err := propertyName(said)
	if err != nil {
		return to, err
	}
	p, ok, err := n.Property(ctx, name)
	if err == nil && !ok {
		return to, &fs.PathError{Op: "lookup", Path: o.said.Path + " property " + said, Err: fs.ErrNotExist}
	}
	if err == nil {
		err = from.repository.trees(true, 1).prover.Property(ctx, p)
	}
	if err == nil {
		to, err = c.Property(ctx, p)
	}
	return to, from.corrupt(err, o.said.Path)
}

// soundTree returns an error if anything below a node is damaged.
func (t trees) soundTree(ctx context.Context, id segment.RecordID, path string) error {
	res, err := t.prover.Tree(ctx, id, path, nil)
	if err == nil && !res.Whole {
		return refuse("%s is damaged there too: 'holdall oak check' shows the damage, and finds an intact revision", path)
	}
	return err
}

// copier copies trees of a store into the new revision, and trees proves them.
func (v *reviser) copier(from *treeReader) (*compact.Copier, trees, error) {
	v.from = &mover{r: from.repository}
	source := &Store{r: from.repository, source: v.from.parsed()}
	prove := source.r.trees(true, 0)
	o := compact.Options{Depth: treeDepth}
	bulk := func(context.Context, segment.ID) error { return nil } // it exists, and is proven
	if from.repository == v.s.r {
		_, e, _ := v.s.r.locate(v.head.Segment)
		o.Shared = func(id segment.ID) bool {
			_, other, ok := v.s.r.locate(id)
			return ok && other.Generation.Gen == e.Generation.Gen && other.Generation.Full == e.Generation.Full
		}
	} else {
		bulk = func(ctx context.Context, id segment.ID) error {
			if !v.from.first(id) {
				return nil
			}
			err := v.s.r.anyCopy(ctx, id, func(t *segmentTar, e tarfile.Entry) error { return t.check(ctx, e, strict) })
			if err == nil || ctx.Err() != nil {
				return err
			}
			// It is missing or damaged. If there are two copies, the newer one counts.
			f, err := v.from.read(ctx, id, nil)
			if err != nil {
				return err
			}
			return v.write(ctx, f)
		}
	}
	return compact.New(segment.NewReader(source.source), v.b, bulk, o), prove, nil
}
