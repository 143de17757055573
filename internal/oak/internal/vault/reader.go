package vault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Files are the files of a package.
type Files interface {
	Name() string
	Entries(context.Context) iter.Seq2[format.Entry, error]
	Open(context.Context, format.Entry) (io.ReadCloser, error)
}

// Options are options of a Reader. All are required except Types.
type Options struct {
	// Escape writes a name as an export does.
	Escape func(name string, top bool) string
	// Prefix returns the target's prefix of a namespace for which a package uses another prefix.
	Prefix func(prefix, uri string) (string, error)
	// Types are the types of nodes in the target, and whether their children are ordered.
	Types map[string]bool
	// Check reports whether a value is valid for a type.
	Check    func(t segment.PropertyType, value string) bool
	MimeType func(name string) string
	Scratch  func() (sorter.Scratch, error)
}

// A Reader yields the nodes of a package.
type Reader struct {
	Filter *Filter
	files  Files
	o      Options
	types  map[string]bool

	special map[string]string // types of files that have a folder, unless they are nt:file
	order   *sorter.Sorter    // parent, 0, name: its number among the children, or that it has an order
	told    uint64            // children
	tell    func(nodejson.Item) error
}

// mostFilter bounds the filter, which is in memory.
const mostFilter = 16 << 20

// NewReader reads the package's own description.
func NewReader(ctx context.Context, files Files, o Options) (*Reader, error) {
	r := &Reader{files: files, o: o, types: map[string]bool{}, special: map[string]string{}}
	for e, err := range files.Entries(ctx) {
		if err != nil {
			return nil, err
		}
		switch e.Name {
		case FilterXML:
			if e.Size > mostFilter {
				return nil, r.errorf(e, 0, fmt.Errorf("expected at most %d bytes, found %d", mostFilter, e.Size))
			}
			err = r.read(ctx, e, func(in io.Reader) (line int, err error) {
				r.Filter, line, err = readFilter(in)
				return line, err
			})
		case NodeTypes:
			err = r.read(ctx, e, func(in io.Reader) (_ int, err error) {
				r.types, err = readNodeTypes(in)
				return 0, err
			})
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Filter == nil {
		return nil, &Error{Package: files.Name(), Entry: FilterXML, What: "expected one in a FileVault package, found none"}
	}
	for name, is := range o.Types {
		r.types[name] = is
	}
	return r, nil
}

// read opens an entry for do, and adds the entry to its error.
func (r *Reader) read(ctx context.Context, e format.Entry, do func(io.Reader) (line int, err error)) error {
	in, err := r.files.Open(ctx, e)
	if err != nil {
		return err
	}
	line, err := do(in)
	if err == errStop || ctx.Err() != nil {
		err = cmp.Or(ctx.Err(), err)
	} else if _, told := errors.AsType[*Error](err); err != nil && !told && !errors.Is(err, errTold) {
		err = &Error{Package: r.files.Name(), Entry: e.Name, Line: line, What: "cannot be imported", Err: err}
	}
	return errors.Join(err, in.Close())
}

var (
	// errStop ends the reading of a file.
	errStop = errors.New("stop")
	// errTold means that the consumer of the nodes failed, or has stopped.
	errTold = errors.New("the nodes were not imported")
)

// Kinds of files below jcr_root.
type kind uint8

const (
	documentFile kind = iota + 1 // nodes
	binaryFile                   // a property
	plainFile                    // an nt:file
	folder                       // an nt:folder, unless a document has its type
)

// A meaning is what a file represents.
type meaning struct {
	kind     kind
	names    []string // of a node
	property string   // of a binary
	index    int      // of a value among several, or -1
	ofFile   bool     // a document for which a file exists too
}

// Excluded reports whether a file or folder is not content, by the reference's rules.
func Excluded(name string) bool { return name == ".vlt" || strings.HasPrefix(name, ".vlt-") }

// place returns what a file represents. It opens a file that ends in .xml.
func (r *Reader) place(ctx context.Context, e format.Entry) (p meaning, ok bool, err error) {
	rest, ok := strings.CutPrefix(e.Name, Root+"/")
	if !ok || e.Kind != format.File && e.Kind != format.Dir {
		return p, false, nil
	}
	elems := strings.Split(rest, "/")
	last := len(elems) - 1
	for i, elem := range elems {
		if Excluded(elem) {
			return p, false, nil
		}
		name := repositoryName(elem)
		if i < last || e.Kind == format.Dir {
			name, p.ofFile = strings.CutSuffix(name, dirEnd)
		}
		p.names = append(p.names, name)
	}
	dir, base := p.names[:last], p.names[last]
	switch {
	case e.Kind == format.Dir:
		p.kind = folder
	case elems[last] == ContentXML:
		p.kind, p.names = documentFile, dir
	case strings.HasSuffix(base, binaryEnd):
		p.kind, p.names, p.index = binaryFile, dir, -1
		p.property = strings.TrimSuffix(base, binaryEnd)
		if name, digits, ok := strings.Cut(p.property, "["); ok && strings.HasSuffix(digits, "]") {
			if n, err := strconv.Atoi(strings.TrimSuffix(digits, "]")); err == nil && n >= 0 {
				p.property, p.index = name, n
			}
		}
	default:
		p.kind, p.ofFile = plainFile, false
		if strings.HasSuffix(base, xmlEnd) {
			is := false
			err = r.read(ctx, e, func(in io.Reader) (_ int, err error) {
				is, err = isDocument(in)
				return 0, err
			})
			if is {
				p.kind = documentFile
				p.names[last] = strings.TrimSuffix(base, xmlEnd)
			}
		}
	}
	for _, name := range p.names {
		if err == nil {
			err = r.checkName(name)
		}
	}
	if err != nil {
		err = r.errorf(e, 0, err)
	}
	return p, true, err
}

func (r *Reader) errorf(e format.Entry, line int, err error) error {
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, errTold) {
		return err
	}
	return &Error{Package: r.files.Name(), Entry: e.Name, Line: line, What: "cannot be imported", Err: err}
}

// isDocument checks the beginning of a file, as the reference does.
func isDocument(r io.Reader) (bool, error) {
	b := make([]byte, 1024)
	n, err := io.ReadFull(r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return IsDocument(b[:n]), err
}

// IsDocument reports whether a file that begins like this is treated as a document of nodes.
func IsDocument(b []byte) bool {
	b = b[:min(len(b), 1024)]
	return bytes.Contains(b, []byte("<jcr:root")) && bytes.Contains(b, []byte(`"`+jcrURI+`"`))
}

const jcrURI = "http://www.jcp.org/jcr/1.0"

// checkName returns an error if no node or property of JCR can have a name.
func (r *Reader) checkName(name string) error {
	if name == "" || name == "." || name == ".." || name[0] == ':' || strings.ContainsAny(name, "/\x00") || !utf8.ValidString(name) {
		return fmt.Errorf("name %.100q: expected one that JCR allows", name)
	}
	return nil
}

func pathOf(names []string) string { return "/" + strings.Join(names, "/") }

// Items yields all nodes of the package that its filter contains. They are in any order, and some
// occur more than once: the last one counts. Nodes above them have only their types.
func (r *Reader) Items(ctx context.Context) iter.Seq2[nodejson.Item, error] {
	return func(yield func(nodejson.Item, error) bool) {
		stopped := false
		r.tell = func(item nodejson.Item) error {
			if stopped = !yield(item, nil); stopped {
				return errTold
			}
			return nil
		}
		if err := r.all(ctx); err != nil && !stopped {
			yield(nodejson.Item{}, err)
		}
	}
}

func (r *Reader) all(ctx context.Context) error {
	r.order = sorter.New(sorter.Options{Scratch: r.o.Scratch, Duplicate: func([]byte) error { return nil }})
	defer func() { r.order.Close() }()
	// Later steps override earlier ones: documents override files, and binaries both.
	steps := []func(context.Context, format.Entry, meaning) error{r.look, r.file, r.document, r.binary}
	for _, step := range steps {
		for e, err := range r.files.Entries(ctx) {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil && e.Fault != nil {
				err = &format.CorruptError{Format: "zip", Problem: *e.Fault}
			}
			var p meaning
			ok := false
			if err == nil {
				p, ok, err = r.place(ctx, e)
			}
			if err == nil && ok {
				err = step(ctx, e, p)
			}
			if err != nil {
				return err
			}
		}
	}
	return r.orders()
}

// look determines what files with a folder are, and yields the nodes of folders.
func (r *Reader) look(ctx context.Context, e format.Entry, p meaning) error {
	if p.kind == folder && r.Filter.contains(pathOf(p.names)) {
		return r.tell(nodejson.Item{Kind: nodejson.NodeItem, Path: r.path(p.names), Again: true, Properties: []nodejson.Property{text("jcr:primaryType", segment.Name, "nt:folder")}})
	}
	if p.kind != documentFile {
		return nil
	}
	r.late(p.names)
	if !p.ofFile {
		return nil
	}
	err := r.read(ctx, e, func(in io.Reader) (int, error) {
		s := newScanner(in)
		root, err := s.next()
		if err != nil {
			return s.line(), err
		}
		for _, a := range root.attrs {
			if a.uri == jcrURI && a.local == "primaryType" && a.value != "nt:file" {
				r.special[pathOf(p.names)] = a.value
			}
		}
		return 0, errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return err
}

func (r *Reader) path(names []string) string {
	if len(names) == 0 {
		return "/"
	}
	b := make([]byte, 0, 64)
	for i, name := range names {
		b = append(append(b, '/'), r.o.Escape(name, i == 0)...)
	}
	return string(b)
}

func text(name string, t segment.PropertyType, value string) nodejson.Property {
	return nodejson.Property{Name: name, Type: t, Kind: nodejson.Here, Values: []nodejson.Value{{Kind: nodejson.Here, Content: value, Length: int64(len(value))}}}
}

// file yields the nodes that the reference would make of a file.
func (r *Reader) file(ctx context.Context, e format.Entry, p meaning) error {
	if p.kind != plainFile || !r.Filter.contains(pathOf(p.names)) {
		return nil
	}
	r.late(p.names)
	at := ""
	if !e.ModTime.IsZero() {
		at = e.ModTime.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	content := p.names
	if t := r.special[pathOf(p.names)]; t != "nt:resource" && t != "oak:Resource" {
		file := nodejson.Item{Kind: nodejson.NodeItem, Path: r.path(p.names), Properties: []nodejson.Property{text("jcr:primaryType", segment.Name, "nt:file")}}
		if at != "" {
			file.Properties = append(file.Properties, text("jcr:created", segment.Date, at))
		}
		if err := r.tell(file); err != nil {
			return err
		}
		content = append(slices.Clone(p.names), "jcr:content")
	}
	props := []nodejson.Property{text("jcr:primaryType", segment.Name, "nt:resource"), text("jcr:mimeType", segment.String, r.o.MimeType(p.names[len(p.names)-1]))}
	if at != "" {
		props = append(props, text("jcr:lastModified", segment.Date, at))
	}
	return r.content(ctx, e, r.path(content), "jcr:data", false, props)
}

// content yields a property with the content of a file, and other properties of its node.
func (r *Reader) content(ctx context.Context, e format.Entry, path, property string, again bool, props []nodejson.Property) error {
	props = append(props, nodejson.Property{Name: property, Type: segment.Binary, Kind: nodejson.Here, Values: []nodejson.Value{{Kind: nodejson.Follows, Length: e.Size}}})
	return r.read(ctx, e, func(in io.Reader) (int, error) {
		if err := r.tell(nodejson.Item{Kind: nodejson.NodeItem, Path: path, Properties: props, Again: again}); err != nil {
			return 0, err
		}
		return 0, r.tell(nodejson.Item{Kind: nodejson.ContentItem, Path: path, Property: property, Length: e.Size, Content: in})
	})
}

// binary yields a property that is a file.
func (r *Reader) binary(ctx context.Context, e format.Entry, p meaning) error {
	if p.kind != binaryFile || !r.Filter.contains(pathOf(p.names)) || !r.Filter.hasProperty(pathOf(append(slices.Clone(p.names), p.property))) {
		return nil
	}
	if err := r.checkName(p.property); err != nil {
		return r.errorf(e, 0, err)
	}
	path, property := r.path(p.names), r.o.Escape(p.property, false)
	if p.index < 0 {
		return r.content(ctx, e, path, property, true, nil)
	}
	return r.read(ctx, e, func(in io.Reader) (int, error) {
		return 0, r.tell(nodejson.Item{Kind: nodejson.ElementItem, Path: path, Property: property, From: p.index, Content: in})
	})
}

const (
	// mostPath bounds paths.
	mostPath = 256 << 10
	// mostTypes limits what is kept of an element that may not belong to the package.
	mostTypes = 4 << 10
)

// A frame is an open element.
type frame struct {
	names []string
	skip  bool                // with all below it
	held  []nodejson.Property // its types, if it is not in the package but something below it may be
	in    bool                // it is in the package
	next  uint64              // number of its next child
}

func (r *Reader) document(ctx context.Context, e format.Entry, p meaning) error {
	if p.kind != documentFile {
		return nil
	}
	return r.read(ctx, e, func(in io.Reader) (int, error) {
		s := newScanner(in)
		var open []frame
		for {
			x, err := s.next()
			if err == io.EOF {
				return 0, nil
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return s.line(), err
			}
			if x.end {
				open = open[:len(open)-1]
				continue
			}
			f := frame{names: p.names}
			if root := len(open) == 0; !root || x.uri != jcrURI || x.local != "root" {
				parent := p.names
				if !root {
					parent = open[len(open)-1].names
				} else if len(parent) > 0 {
					parent = parent[:len(parent)-1]
				}
				name, err := r.name(s, x.prefix, x.uri, x.local)
				if err != nil {
					return s.line(), err
				}
				f.names = append(parent[:len(parent):len(parent)], name)
			}
			path := pathOf(f.names)
			if len(path) > mostPath {
				return s.line(), fmt.Errorf("expected a path of at most %d bytes, found %d", mostPath, len(path))
			}
			if len(open) > 0 {
				up := &open[len(open)-1]
				if f.skip = up.skip; !f.skip && up.in && r.Filter.contains(path) {
					r.add(up.names, f.names[len(f.names)-1], up.next)
					up.next++
				}
			}
			if f.skip = f.skip || len(x.attrs) == 0; !f.skip {
				if err := r.node(s, open, &f, path, x, p.ofFile); err != nil {
					return s.line(), err
				}
			}
			open = append(open, f)
		}
	})
}

// name returns the name of an element or attribute, with the target's prefix.
func (r *Reader) name(s *scanner, prefix, uri, local string) (string, error) {
	name := readXMLName(local)
	if prefix != "" || uri != "" {
		p, err := r.o.Prefix(prefix, uri)
		if err != nil {
			return "", err
		}
		if name = p + ":" + name; p == "" {
			name = name[1:]
		}
	}
	return name, r.checkName(name)
}

// value returns a name or path that is a value, with the target's prefixes.
func (r *Reader) value(s *scanner, t segment.PropertyType, v string) (string, error) {
	if t == segment.Path {
		elems := strings.Split(v, "/")
		for i, elem := range elems {
			var err error
			if elems[i], err = r.value(s, segment.Name, elem); err != nil {
				return "", err
			}
		}
		return strings.Join(elems, "/"), nil
	}
	prefix, local := cutName(v)
	if prefix == "" {
		return v, nil
	}
	uri, ok := s.uri(prefix)
	if !ok {
		return v, nil // the repository must decide
	}
	p, err := r.o.Prefix(prefix, uri)
	return p + ":" + local, err
}

// node yields a node, if it is in the package or above it.
func (r *Reader) node(s *scanner, open []frame, f *frame, path string, x element, again bool) error {
	f.in = r.Filter.contains(path)
	item := nodejson.Item{Kind: nodejson.NodeItem, Path: r.path(f.names), Again: again}
	types := make([]nodejson.Property, 0, 2) // primary type and mixins
	primary := ""
	for _, a := range x.attrs {
		name, err := r.name(s, a.prefix, a.uri, a.local)
		if err != nil {
			return err
		}
		isType := name == "jcr:primaryType" || name == "jcr:mixinTypes"
		if !isType && (!f.in || !r.Filter.hasProperty(path+"/"+name)) {
			continue
		}
		p, err := r.property(s, name, a.value)
		if err != nil {
			return fmt.Errorf("attribute %.100q: %w", name, err)
		}
		if name == "jcr:primaryType" && len(p.Values) == 1 {
			primary = p.Values[0].Content
		}
		if isType {
			types = append(types, p)
		} else {
			item.Properties = append(item.Properties, p)
		}
	}
	if primary == "" {
		primary = "nt:unstructured"
		types = append(types, text("jcr:primaryType", segment.Name, primary))
	}
	if !f.in {
		set := r.Filter.set(path)
		if len(f.names) > 0 && (r.Filter.above(path) || set != nil && set.root == path) {
			item.Properties = types
			return r.tell(item)
		}
		size := 0
		for _, p := range types {
			for _, v := range p.Values {
				size += len(v.Content)
			}
		}
		if size <= mostTypes {
			f.held = types
		}
		return nil
	}
	for i := range open {
		// The element was omitted, but is needed because something below it is included.
		if up := &open[i]; up.held != nil && !up.in && len(up.names) > 0 {
			if err := r.tell(nodejson.Item{Kind: nodejson.NodeItem, Path: r.path(up.names), Properties: up.held}); err != nil {
				return err
			}
			up.held = nil
		}
	}
	item.Properties = append(types, item.Properties...)
	if Orderable(primary, r.types) {
		r.add(f.names, "", 0)
		// It has no children, unless the end shows otherwise.
		item.Properties = append(item.Properties, nodejson.Property{Name: childOrder, Type: segment.Name, Multi: true, Kind: nodejson.Here})
	}
	return r.tell(item)
}

func (r *Reader) property(s *scanner, name, value string) (p nodejson.Property, err error) {
	a, err := parseAttribute(value)
	if err != nil {
		return p, err
	}
	p = nodejson.Property{Name: r.o.Escape(name, false), Type: a.Type, Multi: a.Multi, Kind: nodejson.Here}
	switch {
	case name == "jcr:primaryType":
		p.Type = segment.Name
	case name == "jcr:mixinTypes":
		p.Type, p.Multi = segment.Name, true
	case p.Type == 0:
		p.Type = segment.String
	}
	for _, v := range a.Values {
		if a.Reference {
			p.Values = append(p.Values, nodejson.Value{Kind: nodejson.Missing, Lost: &nodejson.Lost{What: "a reference to a binary"}})
			continue
		}
		if p.Type == segment.Name || p.Type == segment.Path {
			if v, err = r.value(s, p.Type, v); err != nil {
				return p, err
			}
		}
		if p.Type == segment.Boolean {
			v = strings.ToLower(v)
		}
		if !r.o.Check(p.Type, v) {
			return p, fmt.Errorf("expected a %s, found %.100q", p.Type, v)
		}
		p.Values = append(p.Values, nodejson.Value{Kind: nodejson.Here, Content: v, Length: int64(len(v))})
	}
	return p, nil
}

// late puts a node after those that a document of its parent lists in order, unless it is one of
// them.
func (r *Reader) late(names []string) {
	if last := len(names) - 1; last >= 0 && r.Filter.contains(pathOf(names)) {
		r.add(names[:last], names[last], 1<<62+r.told)
		r.told++
	}
}

// add adds a row: about a child, or that a node orders its children. An error is returned when
// the rows are read.
func (r *Reader) add(parent []string, name string, rank uint64) {
	key := append(append([]byte(strings.Join(parent, "/")), 0), name...)
	r.order.Add(key, binary.BigEndian.AppendUint64(nil, rank))
}

// childOrder is where Oak keeps the order of children.
const childOrder = ":childOrder"

// orders yields the order of children.
func (r *Reader) orders() error {
	ranked := sorter.New(sorter.Options{Scratch: r.o.Scratch})
	defer ranked.Close()
	var has []byte // the node that has an order
	some := false
	for row, err := range r.order.Sorted() {
		if err != nil {
			return err
		}
		parent, name, _ := bytes.Cut(row.Key, []byte{0})
		if len(name) == 0 {
			has, some = bytes.Clone(parent), true
			continue
		}
		if some && bytes.Equal(has, parent) {
			key := append(append(bytes.Clone(parent), 0), row.Value...)
			if err := ranked.Add(append(key, name...), nil); err != nil {
				return err
			}
		}
	}
	var of []byte
	n := 0
	end := func() error {
		if n == 0 {
			return nil
		}
		return r.tell(nodejson.Item{Kind: nodejson.NodeItem, Path: r.path(names(of)), Again: true, Properties: []nodejson.Property{
			{Name: childOrder, Type: segment.Name, Multi: true, Kind: nodejson.Follows, Count: n},
		}})
	}
	for row, err := range ranked.Sorted() {
		if err != nil {
			return err
		}
		parent, rest, _ := bytes.Cut(row.Key, []byte{0})
		if n > 0 && !bytes.Equal(of, parent) {
			if err := end(); err != nil {
				return err
			}
			n = 0
		}
		if n == 0 {
			of = bytes.Clone(parent)
		}
		err := r.tell(nodejson.Item{Kind: nodejson.ElementItem, Path: r.path(names(of)), Property: childOrder, From: n, Content: bytes.NewReader(rest[8:])})
		if err != nil {
			return err
		}
		n++
	}
	return end()
}

func names(joined []byte) []string {
	if len(joined) == 0 {
		return nil
	}
	return strings.Split(string(joined), "/")
}
