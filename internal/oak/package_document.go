package oak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/vault"
)

// A document is the XML of a folder's node and everything below it, except for folders and files.
type document struct {
	*packer
	w         *vault.Writer
	above     map[segment.RecordID]bool
	typesOnly bool
	apart     int64           // children that are folders and files
	lost      map[string]bool // binaries that were reported as lost, or are elsewhere: paths
}

func (p *packer) document() *document {
	return &document{packer: p, w: p.ask, above: map[segment.RecordID]bool{}, lost: map[string]bool{}}
}

// node writes a node as an element.
func (d *document) node(ctx context.Context, s spot, top bool) error {
	path := shownPath(s.name)
	n, err := d.t.nodeBelow(ctx, s, d.above)
	var name string
	if err == nil && s.depth > 0 {
		if name, err = lastName(s); err != nil {
			d.lose(path, "the name is lost")
			return nil
		}
		err = d.w.Check(name)
		if top {
			err = nil // its name is that of the folder
		}
	}
	if err != nil {
		if err = d.packer.lost(path, err); err == nil && top {
			err = errNothing
		}
		return err
	}
	if !d.typesOnly {
		d.said.Nodes++
	}
	if shape := n.Template(); shape.Primary != nil {
		d.types[shape.Primary.Text] = true
	}
	for _, mixin := range n.Template().Mixins {
		d.types[mixin.Text] = true
	}
	d.w.Start(name)
	for prop, lost := range n.Properties(ctx) {
		isLost := prop.Type == segment.Binary && d.lost[s.under(writeTreeName(prop.Name, false))]
		if strings.HasPrefix(prop.Name, ":") || d.typesOnly && prop.Name != primaryTypeName && prop.Name != mixinTypesName || isLost {
			continue
		}
		err := lost
		if err == nil {
			err = d.property(ctx, prop)
		}
		if err = d.packer.lost(path+" property "+writeTreeName(prop.Name, false), err); err != nil {
			return err
		}
	}
	if _, ok := shapeOf(n.Template(), primaryTypeName); !ok {
		d.w.Attribute(primaryTypeName, segment.Name, false)
		d.w.Value()
		d.w.Write([]byte("nt:unstructured"))
		d.w.EndAttribute()
		d.lose(path, "no jcr:primaryType: written as nt:unstructured")
	}
	if n.Template().Rule != segment.NoChild && !d.typesOnly {
		_, ordered := shapeOf(n.Template(), childOrderName)
		if err := d.below(ctx, s, ordered, top && !isFileItself(n)); err != nil {
			return err
		}
	}
	return d.w.End()
}

// below writes the children of a node, except for children of the folder that are written
// separately.
func (d *document) below(ctx context.Context, s spot, ordered, apart bool) error {
	d.above[s.id] = true
	defer delete(d.above, s.id)
	for c, err := range d.packer.children(ctx, s) {
		if err != nil {
			return err
		}
		kind, name := inDocument, ""
		if apart {
			if kind, name, err = d.kind(ctx, s, c); err != nil {
				return err
			}
		}
		if kind == inDocument {
			if err := d.node(ctx, c, false); err != nil {
				return err
			}
			continue
		}
		d.apart++
		if ordered && d.w.Check(name) == nil {
			d.w.Start(name) // its place
			if err := d.w.End(); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFileItself reports whether a node is a file. The children of a file are written with it.
func isFileItself(n segment.Node) bool {
	return n.Template().Primary != nil && n.Template().Primary.Text == fileType
}

// property writes a property. It first checks whether it can be read completely and represented.
func (d *document) property(ctx context.Context, p segment.Property) error {
	if err := d.w.Check(p.Name); err != nil {
		return err
	}
	for i := 0; i < p.Len() && p.Type != segment.Binary; i++ {
		v, err := p.At(ctx, i)
		c := &textCheck{}
		if err == nil {
			err = d.text(ctx, v, c)
		}
		if err == nil {
			err = c.end()
		}
		if err != nil {
			return err
		}
		if p.Type == segment.Name || p.Type == segment.Path {
			for name := range strings.SplitSeq(string(c.head), "/") {
				d.w.Needs(name)
			}
		}
	}
	d.w.Attribute(p.Name, p.Type, p.Multi)
	for i := range p.Len() {
		d.w.Value()
		if p.Type == segment.Binary {
			if p.Len() == 1 {
				d.w.Empty()
			}
			continue
		}
		v, err := p.At(ctx, i)
		if err == nil && v.Len() == 0 && p.Len() == 1 {
			d.w.Empty()
		}
		if err == nil {
			err = d.text(ctx, v, d.w)
		}
		if err != nil {
			return err
		}
	}
	d.w.EndAttribute()
	return ctx.Err()
}

// text hands on a text.
func (d *document) text(ctx context.Context, v segment.Value, to io.Writer) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, &valueReader{ctx: ctx, v: v, left: v.Len()}, d.buf)
	return err
}

// A textCheck refuses text that is not UTF-8, and records the prefixes of names.
type textCheck struct {
	torn []byte
	head []byte // of a name or path
}

var errNotUTF8 = errors.New("a package can only store UTF-8")

func (c *textCheck) Write(p []byte) (int, error) {
	if room := mostName - len(c.head); room > 0 {
		c.head = append(c.head, p[:min(room, len(p))]...)
	}
	text := append(c.torn, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	c.torn = slices.Clone(text[end:])
	if !utf8.Valid(text[:end]) {
		return 0, errNotUTF8
	}
	return len(p), nil
}

// mostName limits how much of a name or path is searched for prefixes.
const mostName = 64 << 10

func (c *textCheck) end() error {
	if len(c.torn) > 0 {
		return errNotUTF8
	}
	return nil
}

// binaries writes the binaries in the document as files.
func (d *document) binaries(ctx context.Context, s spot, dir string, top bool) error {
	n, err := d.t.nodeBelow(ctx, s, d.above)
	if err != nil {
		return d.t.unlessDamage(err) // the document reports it
	}
	for p, lost := range n.Properties(ctx) {
		path := s.under(writeTreeName(p.Name, false))
		if p.Type != segment.Binary || strings.HasPrefix(p.Name, ":") || lost != nil || d.lost[path] {
			continue
		}
		err := d.w.Check(p.Name)
		if err == nil && !placeable(s) {
			err = kit.Refuse(shownPath(s.name), "a name in its path ends in .dir or is reserved in a package")
		}
		for i := 0; i < p.Len() && err == nil; i++ {
			name := dir + "/" + vault.PlatformName(p.Name)
			if p.Multi {
				name += fmt.Sprintf("[%d]", i)
			}
			err = d.value(ctx, name+".binary", time.Time{}, p, i)
		}
		if err != nil {
			if err := d.packer.lost(shownPath(s.name)+" property "+writeTreeName(p.Name, false), err); err != nil {
				return err
			}
			d.lost[path] = true
		}
	}
	if n.Template().Rule == segment.NoChild {
		return nil
	}
	d.above[s.id] = true
	defer delete(d.above, s.id)
	top = top && !isFileItself(n)
	for c, err := range d.packer.children(ctx, s) {
		if err != nil {
			return err
		}
		name, err := lastName(c)
		if err != nil || c.lost != nil {
			continue
		}
		if top {
			kind, _, err := d.kind(ctx, s, c)
			if err != nil {
				return err
			}
			if kind != inDocument {
				continue
			}
		}
		if err := d.binaries(ctx, c, dir+"/"+vault.PlatformName(name), false); err != nil {
			return err
		}
	}
	return nil
}
