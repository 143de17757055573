package nodejson

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// memory is a store of segments.
type memory map[segment.ID]*segment.Segment

func (m memory) Segment(_ context.Context, id segment.ID) (*segment.Segment, error) {
	if s := m[id]; s != nil {
		return s, nil
	}
	return nil, fs.ErrNotExist
}

// maker writes nodes into memory, always under the same ids.
type maker struct {
	t testing.TB
	*segment.Builder
	memory
}

func newMaker(t testing.TB) maker {
	rnd := rand.New(rand.NewPCG(1, 2))
	m := maker{t: t, memory: memory{}}
	m.Builder = segment.NewBuilder(segment.BuilderOptions{
		NewID: func() (id [16]byte) {
			for i := range id {
				id[i] = byte(rnd.Uint32())
			}
			return id
		},
		Millis: func() int64 { return 1 },
	}, func(_ context.Context, f segment.Finished) error {
		s, err := segment.Parse(f.ID, bytes.Clone(f.Data))
		m.memory[f.ID] = s
		return err
	})
	return m
}

// value is one of a property's that is to be written, and that was read.
type value struct {
	text    string
	blob    bool
	omitted bool
	lost    bool
}

type property struct {
	name    string
	typ     segment.PropertyType
	multi   bool
	values  []value
	omitted bool
	lost    bool
}

func (m maker) node(props ...property) segment.Node {
	m.t.Helper()
	var all []segment.NewProperty
	for _, p := range props {
		x := segment.NewProperty{Name: p.name, Type: p.typ, Multi: p.multi}
		for _, v := range p.values {
			var id segment.RecordID
			var err error
			switch {
			case v.blob:
				id, err = m.External(m.t.Context(), v.text)
			default: // a Builder makes UTF-8 of strings, and leaves binaries as they are
				id, err = m.Binary(m.t.Context(), bytes.NewReader([]byte(v.text)))
			}
			if err != nil {
				m.t.Fatal(err)
			}
			x.Values = append(x.Values, segment.NewValue{Record: id, IsID: true})
		}
		all = append(all, x)
	}
	id, err := m.Node(m.t.Context(), segment.NewNode{Properties: all})
	if err == nil {
		err = m.Flush(m.t.Context())
	}
	if err != nil {
		m.t.Fatal(err)
	}
	n, err := segment.NewReader(m.memory).Node(m.t.Context(), id)
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// lostSegments reports errors of segments as lost.
func lostSegments(err error) (Lost, bool) {
	e, ok := errors.AsType[*segment.Error](err)
	if !ok {
		return Lost{}, false
	}
	return Lost{What: e.What, Segment: e.Segment.String(), Tar: "data00000a.tar"}, true
}

var plain = Options{Name: func(s string) string { return s }, Lost: lostSegments}

type node struct {
	path       string
	lost       *Lost
	properties []property
}

// decode reads an export into memory.
func decode(r io.Reader) (all []node, err error) {
	d := NewDecoder(r)
	for {
		item, err := d.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		switch item.Kind {
		case NodeItem, LostItem:
			all = append(all, node{path: item.Path, lost: item.Lost})
		}
		n := &all[len(all)-1]
		for _, p := range item.Properties {
			x := property{name: p.Name, typ: p.Type, multi: p.Multi, omitted: p.Kind == Omitted, lost: p.Kind == Missing}
			x.add(p.Values)
			n.properties = append(n.properties, x)
		}
		if item.Property == "" && item.Kind != ContentItem && item.Kind != ValuesItem {
			continue
		}
		p := n.find(item.Property)
		if item.Kind == ValuesItem {
			p.add(item.Values)
			continue
		}
		v := &p.values[item.From]
		for {
			b, err := io.ReadAll(item.Content)
			v.text += string(b)
			if err == nil {
				break
			}
			if _, ok := err.(*Lost); !ok {
				return all, err
			}
			v.lost = true
		}
	}
}

func (p *property) add(values []Value) {
	for _, v := range values {
		p.values = append(p.values, value{text: v.Content, blob: v.Kind == External, omitted: v.Kind == Omitted, lost: v.Kind == Missing})
	}
}

func (n *node) find(name string) *property {
	for i := range n.properties {
		if n.properties[i].name == name {
			return &n.properties[i]
		}
	}
	return &property{}
}
