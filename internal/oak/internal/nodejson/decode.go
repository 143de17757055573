package nodejson

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// maxLine is the length of the longest line: what an Encoder writes into one, and a megabyte of
// names.
const maxLine = 16 << 20

// An Error reports which line is not valid in an export, and why.
type Error struct {
	Line   int64 // from 1
	Offset int64 // of the line
	What   string
	Err    error // cause, if any
}

func (e *Error) Error() string {
	s := fmt.Sprintf("line %d at %d: %s", e.Line, e.Offset, e.What)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// A ValueKind is where the content of a value is.
type ValueKind uint8

const (
	Here     ValueKind = iota + 1
	External           // in a data store, under the name Content
	Follows            // an Item of its own has it
	Omitted            // left out
	Missing            // lost
)

// A Value is one of a property's values.
type Value struct {
	Kind    ValueKind
	Content string
	Length  int64 // of the content that is here, follows, or was left out
	Lost    *Lost
}

type Property struct {
	Name   string // as it is written
	Type   segment.PropertyType
	Multi  bool
	Values []Value // unless they follow, were left out, or are lost
	// Count is how many values follow in Items of their own, if Kind is Follows.
	Count int
	Kind  ValueKind // Here if Values has all
	Lost  *Lost
}

// An ItemKind is the kind of an Item.
type ItemKind uint8

const (
	NodeItem    ItemKind = iota + 1 // a node with its properties
	MoreItem                        // more properties of the last node
	LostItem                        // a node that is lost
	ValuesItem                      // values of a property that follow
	ContentItem                     // the content of a value that follows
	ElementItem                     // the content of one of several values of any node; not in exports
)

// An Item is a part of an export. A node is followed by its long arrays and contents, in order.
type Item struct {
	Kind       ItemKind
	Path       string // as it is written
	Properties []Property
	Lost       *Lost
	Again      bool // the node occurs more than once; not in exports

	Property string    // as it is written, of a ValuesItem or a content
	From     int       // number of the first of Values, or of the value that Content is of
	Values   []Value   // of a ValuesItem
	Length   int64     // of Content
	Content  io.Reader // of a ContentItem or an ElementItem, valid until the next Item is requested
}

// A Decoder reads what an Encoder wrote. It keeps one line in memory. It must not be used in
// parallel.
type Decoder struct {
	r       *bufio.Reader
	line    []byte
	n, off  int64 // of the line
	next    int64
	path    string // of the last node
	started bool
	due     []due // parts that must follow, the next one last
	content *content
	err     error
}

// due is what was announced: a value's content, or the values of an array beginning with one of
// them.
type due struct {
	property string
	typ      segment.PropertyType
	from     int
	count    int // of an array, or 0
	length   int64
}

func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next Item, at the end io.EOF. It passes over unread content.
func (d *Decoder) Next() (Item, error) {
	if c := d.content; d.err == nil && c != nil {
		for c.err == nil && c.off < c.due.length {
			_, c.err = c.piece()
		}
		c.left, d.err, d.content = "", c.err, nil
	}
	var item Item
	if d.err == nil {
		item, d.err = d.item()
	}
	if d.err != nil {
		return Item{}, d.err
	}
	return item, nil
}

func (d *Decoder) item() (Item, error) {
	if n := len(d.due) - 1; n >= 0 && d.due[n].count == 0 {
		what := d.due[n]
		d.due = d.due[:n]
		d.content = &content{d: d, due: what}
		return Item{Kind: ContentItem, Path: d.path, Property: what.property, From: what.from, Length: what.length, Content: d.content}, nil
	}
	l, err := d.read()
	if err != nil {
		return Item{}, err
	}
	if len(d.due) > 0 {
		return d.values(l)
	}
	item := Item{Path: l.path}
	switch {
	case l.has == hasPath|hasLost:
		item.Kind, item.Lost = LostItem, &l.lost
	case l.has == hasPath|hasProperties:
		item.Kind, item.Properties = NodeItem, l.properties
	case l.has == hasPath|hasMore|hasProperties:
		if !d.started || l.path != d.path {
			return Item{}, d.errorf("path: expected that of the line before, which continues, found %.100q", l.path)
		}
		item.Kind, item.Properties = MoreItem, l.properties
	default:
		return Item{}, d.errorf("line: expected a node")
	}
	d.path, d.started = l.path, item.Kind != LostItem
	for i := len(l.properties) - 1; i >= 0; i-- {
		p := l.properties[i]
		if p.Kind == Follows {
			d.due = append(d.due, due{property: p.Name, typ: p.Type, count: p.Count})
		}
		d.announce(p.Name, p.Type, 0, p.Values)
	}
	return item, nil
}

// announce notes which contents of values have to follow.
func (d *Decoder) announce(property string, typ segment.PropertyType, from int, values []Value) {
	for i := len(values) - 1; i >= 0; i-- {
		if values[i].Kind == Follows {
			d.due = append(d.due, due{property: property, typ: typ, from: from + i, length: values[i].Length})
		}
	}
}

func (d *Decoder) values(l line) (Item, error) {
	last := &d.due[len(d.due)-1]
	switch {
	case l.has != hasPath|hasProperty|hasFrom|hasValues, l.path != d.path, l.property != last.property, l.from != int64(last.from):
		return Item{}, d.errorf("line: expected values %d and on of property %.100q", last.from, last.property)
	case len(l.values) == 0 || len(l.values) > last.count-last.from:
		return Item{}, d.errorf("values: expected 1 to %d, found %d", last.count-last.from, len(l.values))
	}
	for _, v := range l.values {
		if what := v.suits(last.typ); what != "" {
			return Item{}, d.errorf("property %.100q: %s", last.property, what)
		}
	}
	item := Item{Kind: ValuesItem, Path: l.path, Property: l.property, From: last.from, Values: l.values}
	typ := last.typ
	if last.from += len(l.values); last.from == last.count {
		d.due = d.due[:len(d.due)-1]
	}
	d.announce(l.property, typ, item.From, l.values)
	return item, nil
}

type content struct {
	d    *Decoder
	due  due
	off  int64
	left string
	err  error
}

// Read reads the stored content. A lost part is a *Lost error, after which reading can continue.
func (c *content) Read(p []byte) (int, error) {
	for c.left == "" {
		switch {
		case c.err != nil:
			return 0, c.err
		case c.d.content != c:
			return 0, errors.New("nodejson: the content was already read")
		case c.off == c.due.length:
			return 0, io.EOF
		}
		var lost *Lost
		if lost, c.err = c.piece(); lost != nil {
			return 0, lost
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *content) piece() (*Lost, error) {
	l, err := c.d.read()
	if err == io.EOF {
		err = c.d.errorf("end: expected %d more bytes of property %.100q", c.due.length-c.off, c.due.property)
	}
	if err != nil {
		return nil, err
	}
	const of = hasPath | hasProperty | hasIndex | hasOffset
	n := int64(len(l.data))
	switch {
	case l.has&of != of, l.path != c.d.path, l.property != c.due.property, l.index != int64(c.due.from), l.offset != c.off:
		return nil, c.d.errorf("line: expected value %d of property %.100q from %d", c.due.from, c.due.property, c.off)
	case l.has == of|hasLost|hasLength:
		n = l.length
	case l.has != of|hasBase64 && (l.has != of|hasText || c.due.typ == segment.Binary):
		return nil, c.d.errorf("line: expected a piece of a %s", c.due.typ)
	}
	if n <= 0 || n > c.due.length-c.off {
		return nil, c.d.errorf("piece: expected 1 to %d bytes, found %d", c.due.length-c.off, n)
	}
	c.off, c.left = c.off+n, l.data
	if l.has&hasLost != 0 {
		return &l.lost, nil
	}
	return nil, nil
}

func (d *Decoder) errorf(msg string, args ...any) *Error {
	return &Error{Line: d.n, Offset: d.off, What: fmt.Sprintf(msg, args...)}
}

func (d *Decoder) read() (line, error) {
	d.line, d.off, d.n = d.line[:0], d.next, d.n+1
	for {
		part, err := d.r.ReadSlice('\n')
		d.next += int64(len(part))
		if len(d.line)+len(part) > maxLine {
			return line{}, d.errorf("line: expected at most %d bytes, found more", maxLine)
		}
		d.line = append(d.line, part...)
		switch {
		case err == nil:
			return d.parse()
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(d.line) == 0 && len(d.due) == 0:
			return line{}, io.EOF
		case err == io.EOF:
			e := d.errorf("line: expected an end of the line")
			if len(d.line) == 0 {
				e.What = fmt.Sprintf("line: expected more of property %.100q", d.due[len(d.due)-1].property)
			}
			e.Err = io.ErrUnexpectedEOF
			return line{}, e
		default:
			return line{}, err
		}
	}
}

func (d *Decoder) parse() (line, error) {
	p := parserOf(d.line)
	l := p.line()
	if p.End(); p.Err != nil {
		return l, &Error{Line: d.n, Offset: d.off, What: "json", Err: p.Err}
	}
	return l, nil
}

// What a line has.
const (
	hasPath = 1 << iota
	hasProperties
	hasMore
	hasLost
	hasProperty
	hasFrom
	hasValues
	hasIndex
	hasOffset
	hasLength
	hasBase64
	hasText
)

// A line is an object of any kind.
type line struct {
	has        int
	path       string
	properties []Property
	lost       Lost
	property   string
	from       int64
	values     []Value
	index      int64
	offset     int64
	length     int64
	data       string
}

var errUnknown = errors.New("expected another key")

func (p *parser) line() (l line) {
	p.object(func(key string) {
		has := 0
		switch key {
		case "path":
			has, l.path = hasPath, p.text()
		case "properties":
			has, l.properties = hasProperties, p.properties()
		case "more":
			has = hasMore
			p.yes()
		case "lost":
			has, l.lost.What = hasLost, p.text()
		case "segment":
			l.lost.Segment = p.text()
		case "tar":
			l.lost.Tar = p.text()
		case "property":
			has, l.property = hasProperty, p.text()
		case "from":
			has, l.from = hasFrom, p.number()
		case "values":
			has, l.values = hasValues, p.values()
		case "index":
			has, l.index = hasIndex, p.number()
		case "offset":
			has, l.offset = hasOffset, p.number()
		case "length":
			has, l.length = hasLength, p.number()
		case "base64":
			has, l.data = hasBase64, p.base64()
		case "text":
			has, l.data = hasText, p.text()
		default:
			p.fail(errUnknown)
		}
		l.has |= has
	})
	if l.has&hasLost == 0 && l.lost != (Lost{}) {
		p.fail(errors.New("expected something lost of the segment"))
	}
	return l
}

func (p *parser) properties() (all []Property) {
	p.object(func(name string) {
		x := Property{Name: name}
		p.fail(p.property(&x))
		all = append(all, x)
	})
	return all
}

// maxValues is how many values a property can have: a list of three levels.
const maxValues = 255 * 255 * 255

// property reads a property. It first reads all members, and then interprets them.
func (p *parser) property(x *Property) error {
	var m members
	var count int64
	values, counted := false, false
	p.object(func(key string) {
		switch key {
		case "type":
			s := p.text()
			if x.Type = segment.TypeNamed(s); x.Type == 0 {
				p.fail(fmt.Errorf("expected a type, found %.60q", s))
			}
		case "multiple":
			x.Multi = true
			p.yes()
		case "values":
			values, x.Values = true, p.values()
		case "count":
			counted, count = true, p.number()
		default:
			p.member(key, &m)
		}
	})
	switch {
	case p.Err != nil:
		return p.Err
	case x.Type == 0:
		return errors.New("expected a type")
	case m.has == "lost":
		if x.Kind, x.Lost = Missing, &m.lost; values || counted {
			return errors.New("expected no values, which are lost")
		}
		return nil
	case x.Multi && values:
		if x.Kind = Here; counted || m.has != "" {
			return errors.New("expected nothing beside the values")
		}
	case x.Multi && counted && (m.has == "" || m.has == "follows"):
		if count > maxValues || count == 0 {
			return fmt.Errorf("count: expected 1 to %d, found %d", maxValues, count)
		}
		if x.Kind, x.Count = Omitted, int(count); m.has == "follows" {
			x.Kind = Follows
		}
		return nil
	case x.Multi || values || counted:
		return errors.New("expected values if there are multiple")
	default:
		v, err := m.value()
		if err != nil {
			return err
		}
		x.Kind, x.Values = Here, []Value{v}
	}
	for _, v := range x.Values {
		if what := v.suits(x.Type); what != "" {
			return errors.New(what)
		}
	}
	return nil
}

// members are the members of an object that is a value.
type members struct {
	has    string // their keys, with blanks between them, in the order of the format
	length int64
	text   string
	lost   Lost
}

// member reads one of a value's members.
func (p *parser) member(key string, m *members) {
	switch key {
	case "value", "blob":
		m.text = p.text()
	case "base64", "blob_base64":
		m.text = p.base64()
	case "length":
		m.length = p.number()
	case "follows":
		p.yes()
	case "lost":
		m.lost.What = p.text()
	case "segment":
		if m.lost.Segment = p.text(); m.has == "lost" {
			return
		}
	case "tar":
		if m.lost.Tar = p.text(); m.has == "lost" {
			return
		}
	default:
		p.fail(errUnknown)
	}
	m.has = strings.TrimPrefix(m.has+" "+key, " ")
}

func (m *members) value() (Value, error) {
	v := Value{Content: m.text, Length: m.length}
	switch m.has {
	case "value", "base64":
		v.Kind, v.Length = Here, int64(len(m.text))
	case "length base64":
		v.Kind = Here
		if v.Length != int64(len(m.text)) {
			return v, fmt.Errorf("base64: expected %d bytes, found %d", v.Length, len(m.text))
		}
	case "blob", "blob_base64":
		v.Kind = External
	case "length follows":
		v.Kind = Follows
		if v.Length == 0 {
			return v, errors.New("length: expected more than nothing to follow")
		}
	case "length":
		v.Kind = Omitted
	case "lost":
		v.Kind, v.Lost = Missing, &m.lost
	default:
		return v, fmt.Errorf("expected a value, found %.100q", m.has)
	}
	return v, nil
}

// suits returns why a type cannot have a value.
func (v Value) suits(t segment.PropertyType) string {
	if v.Kind == External && t != segment.Binary {
		return "expected no blob in a " + t.String()
	}
	return ""
}

func (p *parser) values() (all []Value) {
	for p.Begin('['); p.Next(']'); {
		m := members{has: "value"}
		if p.Space() == '{' {
			m.has = ""
			p.object(func(key string) { p.member(key, &m) })
		} else {
			m.text = p.text()
		}
		v, err := m.value()
		p.fail(err)
		all = append(all, v)
	}
	return all
}
