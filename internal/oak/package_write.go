package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/vault"
)

type PackageOptions struct {
	Datastore
	Scratch func() (sorter.Scratch, error)
	// Lost is called for everything that is damaged, or that a package cannot represent.
	Lost func(path, what string)
}

// packageFolders are the types of nodes that become a folder of a package each, so that they can
// be installed one by one. Other nodes are written with the folder that contains them.
var packageFolders = map[string]bool{"nt:folder": true, "sling:Folder": true, "sling:OrderedFolder": true, "cq:Page": true, "dam:Asset": true}

// Package writes nodes with all below them as a package of FileVault. It commits to.
func (t *Tree) Package(ctx context.Context, to format.Writer, names []string, o PackageOptions) (Exported, error) {
	p := &packer{t: t.t.paths, to: to, o: o, buf: make([]byte, 256<<10), done: map[string]bool{}, types: map[string]bool{}, seed: maphash.MakeSeed()}
	var err error
	if p.has, err = t.t.namespaces(ctx); err != nil {
		return Exported{}, t.t.corrupt(err, "/"+systemName+"/"+namespacesName)
	}
	if p.has == nil {
		p.has = namespaces
	}
	p.ask = vault.NewWriter(io.Discard, p.uri)
	var tops []spot
	for _, said := range names {
		s, err := t.t.findNode(ctx, nodePath(said))
		if err != nil {
			return Exported{}, err
		}
		path := shownPath(s.name)
		if s.depth == 0 || path == "/"+systemName || strings.HasPrefix(path, "/"+systemName+"/") {
			return Exported{}, fmt.Errorf("oak: %s: a package needs a path below the root and outside %s: %w", path, systemName, fs.ErrInvalid)
		}
		for _, other := range tops {
			if within(other.name, s.name) || within(s.name, other.name) {
				return Exported{}, fmt.Errorf("oak: %s and %s: expected paths that do not contain each other: %w", shownPath(other.name), path, fs.ErrInvalid)
			}
		}
		if !placeable(s) {
			return Exported{}, fmt.Errorf("oak: %s: a package cannot have folders with such names, or names that end in .dir: %w", path, fs.ErrInvalid)
		}
		stored, err := storedNames(s.name)
		for _, name := range stored {
			if err == nil {
				err = p.ask.Check(name)
			}
		}
		if err != nil {
			return Exported{}, fmt.Errorf("oak: %s: %w", path, err)
		}
		tops = append(tops, s)
	}
	if err := p.about(ctx, tops); err != nil {
		return p.said, err
	}
	for _, s := range tops {
		if err := p.top(ctx, s); err != nil {
			return p.said, err
		}
	}
	types, err := p.nodeTypesFile(ctx)
	if err == nil && len(types) > 0 {
		err = p.add(ctx, vault.NodeTypes, p.at(), int64(len(types)), bytes.NewReader(types))
	}
	if err == nil {
		_, err = to.Commit(ctx)
	}
	return p.said, err
}

// within reports whether name is top or below it.
func within(name, top string) bool { return name == top || strings.HasPrefix(name, top+"/") }

type packer struct {
	t     *treeReader
	to    format.Writer
	o     PackageOptions
	has   map[string]string // namespaces
	ask   *vault.Writer     // checks which names can be represented
	types map[string]bool   // of nodes that were written
	said  Exported
	done  map[string]bool // folders above the requested nodes
	buf   []byte
	seed  maphash.Seed
}

func (p *packer) lose(path, what string) {
	p.said.Lost++
	p.o.Lost(path, what)
}

// lost is lose for damage. It returns other errors unchanged.
func (p *packer) lost(path string, err error) error {
	if l, ok := p.t.lostAsJSON(err); ok {
		p.lose(path, l.What)
		return nil
	}
	if e, ok := errors.AsType[*kit.RefusedError](err); ok {
		p.lose(path, "not a valid file name in a package: "+e.Why)
		return nil
	}
	if _, ok := errors.AsType[*vault.NameError](err); ok || errors.Is(err, errNotUTF8) {
		p.lose(path, err.Error())
		return nil
	}
	return err
}

func (p *packer) uri(prefix string) (string, bool) {
	uri, ok := p.has[prefix]
	return uri, ok
}

// storedNames returns the stored names of a path.
func storedNames(name string) ([]string, error) { return importPath(shownPath(name)) }

func platformPath(names []string) string {
	dir := vault.Root
	for _, name := range names {
		dir += "/" + vault.PlatformName(name)
	}
	return dir
}

func (p *packer) add(ctx context.Context, name string, at time.Time, size int64, r io.Reader) error {
	return p.to.Add(ctx, format.Entry{Name: name, Size: size, ModTime: at}, r)
}

// at returns when the revision was written, if that is recorded.
func (p *packer) at() time.Time { return time.UnixMilli(max(p.t.shown.Millis, 0)).UTC() }

// about writes the package's own description.
func (p *packer) about(ctx context.Context, tops []spot) error {
	var roots []string
	for _, s := range tops {
		names, err := storedNames(s.name)
		if err != nil {
			return err
		}
		roots = append(roots, "/"+strings.Join(names, "/"))
	}
	at := p.at()
	name := strings.ReplaceAll(strings.Trim(roots[0], "/"), "/", "-")
	if len(roots) > 1 {
		name += fmt.Sprintf("-and-%d-more", len(roots)-1)
	}
	name = strings.Map(func(r rune) rune {
		if r == ':' || r < ' ' || r == utf8.RuneError {
			return '_'
		}
		return r
	}, name)
	version := at.Format("2006.01.02.150405")
	b := []byte(`<?xml version="1.0" encoding="UTF-8" standalone="no"?>` + "\n" +
		`<!DOCTYPE properties SYSTEM "http://java.sun.com/dtd/properties.dtd">` + "\n<properties>\n")
	for _, kv := range [][2]string{
		{"name", name}, {"group", "holdall"}, {"version", version}, {"created", at.Format("2006-01-02T15:04:05.000Z")},
		{"description", "Written by holdall from revision " + p.t.shown.Revision.String()}, {"acHandling", "overwrite"},
	} {
		b = append(b, `<entry key="`+kv[0]+`">`...)
		b = append(vault.AppendXML(b, kv[1]), "</entry>\n"...)
	}
	b = append(b, "</properties>\n"...)
	var manifest []byte
	for _, line := range []string{"Manifest-Version: 1.0", "Content-Package-Id: holdall:" + name + ":" + version, "Content-Package-Roots: " + strings.Join(roots, ",")} {
		// A line has at most 72 bytes with its end. It is continued after a space.
		for n := 70; len(line) > n; n = 69 {
			for !utf8.RuneStart(line[n]) {
				n--
			}
			manifest = append(manifest, line[:n]+"\r\n "...)
			line = line[n:]
		}
		manifest = append(manifest, line+"\r\n"...)
	}
	for _, f := range []struct {
		name string
		b    []byte
	}{
		{"META-INF/MANIFEST.MF", append(manifest, "\r\n"...)},
		{"META-INF/vault/properties.xml", b},
		{vault.FilterXML, vault.AppendFilter(nil, roots)},
	} {
		if err := p.add(ctx, f.name, at, int64(len(f.b)), strings.NewReader(string(f.b))); err != nil {
			return err
		}
	}
	return nil
}

// top writes a requested node, and the types of the nodes above it.
func (p *packer) top(ctx context.Context, top spot) error {
	names, err := storedNames(top.name)
	if err != nil {
		return err
	}
	for i := 1; i < len(names); i++ {
		dir := platformPath(names[:i])
		if p.done[dir] {
			continue
		}
		p.done[dir] = true
		elems := strings.SplitN(top.name, "/", i+1)
		s, err := p.t.findNode(ctx, strings.Join(elems[:i], "/"))
		if err != nil {
			return err
		}
		d := p.document()
		d.typesOnly = true
		if err := p.write(ctx, dir, d, s); err != nil {
			return err
		}
	}
	dir := platformPath(names)
	if n, err := p.t.node(ctx, top); err == nil && p.isFile(ctx, n, names[len(names)-1]) {
		return p.file(ctx, top, dir)
	}
	return p.folder(ctx, top, dir)
}

// folder writes a node that is a folder of the package: first the binaries in its document, then
// the document, and then the folders and files that are written separately.
func (p *packer) folder(ctx context.Context, s spot, dir string) error {
	d := p.document()
	if err := d.binaries(ctx, s, dir, true); err != nil {
		return err
	}
	if err := p.write(ctx, dir, d, s); err != nil {
		return err
	}
	if d.apart == 0 {
		return nil
	}
	for c, err := range p.children(ctx, s) {
		if err != nil {
			return err
		}
		kind, name, err := p.kind(ctx, s, c)
		switch file := dir + "/" + vault.PlatformName(name); {
		case err != nil:
		case kind == asFile:
			err = p.file(ctx, c, file)
		case kind == asFolder:
			err = p.folder(ctx, c, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// What a child of a folder's node is in a package.
const (
	inDocument = iota
	asFolder
	asFile
)

// kind returns what a child of a folder's node is in a package. If it cannot be read, the
// document reports that.
func (p *packer) kind(ctx context.Context, parent, c spot) (kind int, name string, err error) {
	n, err := p.t.node(ctx, c)
	if err != nil {
		return inDocument, "", p.t.unlessDamage(err)
	}
	if name, err = lastName(c); err != nil || p.ask.Check(name) != nil {
		return inDocument, "", nil
	}
	primary := n.Template().Primary
	switch {
	case primary == nil:
	case packageFolders[primary.Text] && fits(name):
		kind = asFolder
	case p.isFile(ctx, n, name):
		// A folder of that name would be of the file without .dir.
		stem, is := strings.CutSuffix(name, ".dir")
		taken := false
		if is {
			var up segment.Node
			if up, err = p.t.node(ctx, parent); err == nil {
				_, taken, err = up.Child(ctx, stem)
			}
		}
		if err == nil && !taken && fits(stem) {
			kind = asFile
		}
	}
	return kind, name, p.t.unlessDamage(err)
}

func lastName(s spot) (string, error) {
	return importName(s.name[strings.LastIndexByte(s.name, '/')+1:], s.depth == 1)
}

// fits reports whether a node's name can be the name of a file or folder in a package, and
// whether the reference decodes it. It does not decode an escape after an underscore.
func fits(name string) bool {
	file := vault.PlatformName(name)
	misread := len(name) > 1 && name[0] == '_' && strings.IndexByte("\\<>|\"/?%:", name[1]) >= 0
	return utf8.ValidString(name) && !misread && !strings.HasSuffix(name, ".dir") && !vault.Excluded(file) && file != vault.ContentXML &&
		naming.Fault(vault.Root+"/"+file) == "" && !strings.ContainsFunc(name, unicode.IsControl)
}

// isFile reports whether a node can be written as a file of a package: it must be an nt:file with
// everything that an installation adds to such a file if it is missing.
func (p *packer) isFile(ctx context.Context, n segment.Node, name string) bool {
	shape := n.Template()
	if shape.Primary == nil || shape.Primary.Text != fileType || strings.HasSuffix(name, ".binary") {
		return false
	}
	if is, ok := shapeOf(shape, created); !ok || is.Multi || is.Type != segment.Date {
		return false
	}
	id, ok, err := n.Child(ctx, jcrContent)
	if err != nil || !ok {
		return false
	}
	c, err := p.t.records.Node(ctx, id)
	if err != nil || c.Template().Primary == nil {
		return false
	}
	for name, t := range map[string]segment.PropertyType{dataName: segment.Binary, mimeName: segment.String, lastModified: segment.Date} {
		if is, ok := shapeOf(c.Template(), name); !ok || is.Multi || is.Type != t {
			return false
		}
	}
	if !strings.HasSuffix(name, ".xml") {
		return true
	}
	data, ok, err := c.Property(ctx, dataName)
	if err != nil || !ok {
		return false
	}
	r, size, err := p.binary(ctx, data, 0)
	if err != nil {
		return false
	}
	defer r.Close()
	b := make([]byte, min(size, 1024))
	_, err = io.ReadFull(r, b)
	return err == nil && !vault.IsDocument(b)
}

// file writes an nt:file: its content, and beside it everything else that it has.
func (p *packer) file(ctx context.Context, s spot, name string) error {
	d := p.document()
	content := s.under(jcrContent)
	n, err := p.t.findNode(ctx, content)
	var c segment.Node
	if err == nil {
		c, err = p.t.records.Node(ctx, n.id)
	}
	var data segment.Property
	if err == nil {
		data, _, err = c.Property(ctx, dataName)
	}
	if err == nil {
		var at time.Time
		if at, err = p.t.date(ctx, c, lastModified); err == nil {
			err = p.value(ctx, name, at, data, 0)
		}
	}
	if err := p.lost(shownPath(content)+" property "+dataName, err); err != nil {
		return err
	}
	d.lost[content+"/"+dataName] = true // or written
	if err := d.binaries(ctx, s, name+".dir", false); err != nil {
		return err
	}
	return p.write(ctx, name+".dir", d, s)
}

// binary opens a binary.
func (p *packer) binary(ctx context.Context, of segment.Property, i int) (io.ReadCloser, int64, error) {
	v, err := of.At(ctx, i)
	if err != nil {
		return nil, 0, err
	}
	if !v.External() {
		return io.NopCloser(&valueReader{ctx: ctx, v: v, left: v.Len()}), v.Len(), nil
	}
	id, err := v.BlobID(ctx, mostBlobID)
	if err != nil {
		return nil, 0, err
	}
	size, object, what := blobPlace(id, p.o.Cloud)
	if p.o.Store == nil {
		what = "the content is in a data store, but none is set"
	}
	if what != "" {
		return nil, 0, p.t.treeFault(externalBlob, v.ID().Segment, -1, "blob %.200q: %s", id, what)
	}
	obj, err := p.o.Store.Open(ctx, p.o.path(object))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, p.t.treeFault(externalBlob, v.ID().Segment, -1, "blob %.200q: missing in the data store", id)
	}
	if err != nil {
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&kit.RangeReader{Ctx: ctx, Object: obj, End: size}, obj}, size, nil
}

// value writes a value of a property as a file.
func (p *packer) value(ctx context.Context, name string, at time.Time, of segment.Property, i int) error {
	r, size, err := p.binary(ctx, of, i)
	if err != nil {
		return err
	}
	defer r.Close()
	return p.add(ctx, name, at, size, r)
}

type valueReader struct {
	ctx       context.Context
	v         segment.Value
	off, left int64
}

func (r *valueReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), r.left)]
	if err := r.v.ReadAt(r.ctx, b, r.off); err != nil {
		return 0, err
	}
	r.off, r.left = r.off+int64(len(b)), r.left-int64(len(b))
	return len(b), nil
}

func (p *packer) write(ctx context.Context, dir string, d *document, s spot) error {
	content, size, release, err := kit.Spool(p.o.Scratch, func(w io.Writer) error {
		d.w = vault.NewWriter(w, p.uri)
		return d.node(ctx, s, true)
	})
	if err != nil {
		if err == errNothing {
			return nil
		}
		return err
	}
	defer release()
	return p.lost(shownPath(s.name), p.add(ctx, dir+"/"+vault.ContentXML, p.at(), size, content))
}

// errNothing means that the node of a document cannot be read.
var errNothing = errors.New("nothing to write")

// placeable reports whether folders of a package can be called as a node is, and those above it.
func placeable(s spot) bool {
	names, err := storedNames(s.name)
	return err == nil && !slices.ContainsFunc(names, func(name string) bool { return !fits(name) })
}

const childOrderName = ":childOrder"

// children yields the children of a node in content: those in the node's own order, then the
// others, without hidden ones.
func (p *packer) children(ctx context.Context, s spot) iter.Seq2[spot, error] {
	return pipe.Told(func(tell func(spot) error) error {
		n, err := p.t.records.Node(ctx, s.id)
		if err != nil {
			return err
		}
		told := map[uint64]struct{}{}
		if _, ok := shapeOf(n.Template(), childOrderName); ok {
			if err := p.ordered(ctx, s, told, tell); err != nil {
				return err
			}
		}
		for c, err := range p.t.children(ctx, s) {
			if err != nil {
				return err
			}
			name, err := lastName(c)
			if err == nil {
				if _, again := told[p.hash(name)]; again || strings.HasPrefix(name, ":") {
					continue
				}
			}
			if err := tell(c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *packer) hash(name string) uint64 { return maphash.String(p.seed, name) }

// ordered yields the names in the order of a node's children. It ignores a damaged order.
func (p *packer) ordered(ctx context.Context, s spot, told map[uint64]struct{}, tell func(spot) error) error {
	for i, more := 0, true; more; {
		// No segment stays in memory while a callback runs.
		n, err := p.t.records.Node(ctx, s.id)
		if err != nil {
			return err
		}
		order, ok, err := n.Property(ctx, childOrderName)
		if err != nil || !ok || !order.Multi {
			return p.t.unlessDamage(err)
		}
		var some []spot
		for ; i < order.Len() && len(some) < batchChildren; i++ {
			v, err := order.At(ctx, i)
			var name string
			if err == nil {
				name, err = v.Text(ctx, mostPath)
			}
			var id segment.RecordID
			ok := false
			if err == nil {
				id, ok, err = n.Child(ctx, name)
			}
			if p.t.unlessDamage(err) != nil {
				return err
			}
			if _, again := told[p.hash(name)]; err != nil || !ok || again || strings.HasPrefix(name, ":") {
				continue
			}
			told[p.hash(name)] = struct{}{}
			some = append(some, spot{s.under(writeTreeName(name, s.depth == 0)), id, s.depth + 1, nil})
		}
		more = i < order.Len()
		if err := tellAll(ctx, some, tell); err != nil {
			return err
		}
	}
	return nil
}
