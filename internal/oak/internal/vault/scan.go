package vault

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// mostMarkup limits how much of a document is in memory: an element with all its attributes.
	mostMarkup = 64 << 20
	// mostDepth bounds how deep elements are within each other.
	mostDepth = 1100
	// mostHeld limits the memory for open elements: their names and namespaces.
	mostHeld = 4 << 20
)

var errMarkup = fmt.Errorf("expected at most %d bytes between two elements' beginnings, found more", mostMarkup)

// A plain reads XML, and converts line ends and tabs in the values of attributes to blanks. XML
// requires that, but encoding/xml does not do it.
type plain struct {
	r     *bufio.Reader
	state int
	seen  [3]byte // before the next one
	left  int     // how many bytes may be read before it is set again
}

// States of a plain.
const (
	inText = iota
	inTag
	inDouble
	inSingle
	inComment
	inCDATA
	inInstruction
	inDirective
)

func (p *plain) ReadByte() (byte, error) {
	if p.left--; p.left < 0 {
		return 0, errMarkup
	}
	c, err := p.r.ReadByte()
	if err != nil {
		return 0, err
	}
	before := p.seen
	p.seen = [3]byte{before[1], before[2], c}
	switch p.state {
	case inText:
		if c == '<' {
			p.state = inTag
		}
	case inTag:
		switch {
		case c == '"':
			p.state = inDouble
		case c == '\'':
			p.state = inSingle
		case c == '>':
			p.state = inText
		case c == '?' && before[2] == '<':
			p.state = inInstruction
		case c == '!' && before[2] == '<':
			p.state = inDirective
		}
	case inDirective:
		switch {
		case c == '-' && string(before[1:]) == "!-":
			p.state = inComment
		case c == '[' && before[2] == '!':
			p.state = inCDATA
		case c == '>':
			p.state = inText
		}
	case inComment:
		if c == '>' && string(before[1:]) == "--" {
			p.state = inText
		}
	case inCDATA:
		if c == '>' && string(before[1:]) == "]]" {
			p.state = inText
		}
	case inInstruction:
		if c == '>' && before[2] == '?' {
			p.state = inText
		}
	case inDouble, inSingle:
		if c == '"' && p.state == inDouble || c == '\'' && p.state == inSingle {
			p.state = inTag
		}
		if c == '\t' || c == '\n' || c == '\r' {
			if c == '\n' && before[2] == '\r' {
				return p.ReadByte()
			}
			return ' ', nil
		}
	}
	return c, nil
}

func (p *plain) Read(b []byte) (n int, err error) {
	for ; n < len(b) && err == nil; n++ {
		b[n], err = p.ReadByte()
	}
	if err != nil {
		n--
	}
	return max(n, 0), err
}

// An element is the beginning or the end of an element.
type element struct {
	prefix, uri, local string
	attrs              []attr
	end                bool
}

// An attr is an attribute other than a declaration of a namespace.
type attr struct{ prefix, uri, local, value string }

// A scanner reads the elements of a document.
type scanner struct {
	p     *plain
	d     *xml.Decoder
	open  []string // names of elements, as they are written
	marks []int    // how many declarations there were when each began
	decls []declaration
	held  int // bytes of names and declarations
	ended bool
}

type declaration struct{ prefix, uri string }

func newScanner(r io.Reader) *scanner {
	p := &plain{r: bufio.NewReaderSize(r, 64<<10)}
	d := xml.NewDecoder(p)
	return &scanner{p: p, d: d, decls: []declaration{{"xml", "http://www.w3.org/XML/1998/namespace"}}}
}

func (s *scanner) line() int {
	line, _ := s.d.InputPos()
	return line
}

// uri returns the namespace of a prefix, if one was declared.
func (s *scanner) uri(prefix string) (string, bool) {
	for _, d := range slices.Backward(s.decls) {
		if d.prefix == prefix {
			return d.uri, true
		}
	}
	return "", prefix == ""
}

// next returns the next element, and io.EOF after the root element.
func (s *scanner) next() (element, error) {
	for {
		s.p.left = mostMarkup
		token, err := s.d.RawToken()
		if err == io.EOF && !s.ended {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return element{}, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			return s.start(t)
		case xml.EndElement:
			name := t.Name.Space + ":" + t.Name.Local
			last := len(s.open) - 1
			if last < 0 || s.open[last] != name {
				return element{}, fmt.Errorf("expected the end of another element, found that of %.100q", strings.TrimPrefix(name, ":"))
			}
			for _, d := range s.decls[s.marks[last]:] {
				s.held -= len(d.prefix) + len(d.uri)
			}
			s.held -= len(name)
			s.decls = s.decls[:s.marks[last]]
			s.open, s.marks = s.open[:last], s.marks[:last]
			s.ended = last == 0
			return element{end: true}, nil
		case xml.Directive:
			return element{}, errors.New("expected no declaration of a document type")
		}
	}
}

func (s *scanner) start(t xml.StartElement) (e element, err error) {
	switch {
	case s.ended:
		return e, errors.New("expected the end of the document, found another element")
	case len(s.open) == mostDepth:
		return e, fmt.Errorf("expected at most %d elements within each other, found more", mostDepth)
	}
	name := t.Name.Space + ":" + t.Name.Local
	s.held += len(name)
	s.open, s.marks = append(s.open, name), append(s.marks, len(s.decls))
	for _, a := range t.Attr {
		switch {
		case a.Name.Space == "xmlns":
			s.decls = append(s.decls, declaration{a.Name.Local, a.Value})
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			s.decls = append(s.decls, declaration{"", a.Value})
		}
	}
	for _, d := range s.decls[s.marks[len(s.marks)-1]:] {
		s.held += len(d.prefix) + len(d.uri)
	}
	if s.held > mostHeld {
		return e, fmt.Errorf("expected at most %d bytes of names and namespaces of elements within each other, found more", mostHeld)
	}
	space := func(prefix string) string {
		uri, ok := s.uri(prefix)
		if !ok && err == nil {
			err = fmt.Errorf("expected a declaration of the prefix %.100q", prefix)
		}
		return uri
	}
	e = element{prefix: t.Name.Space, local: t.Name.Local, uri: space(t.Name.Space)}
	for _, a := range t.Attr {
		if a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns" {
			continue
		}
		x := attr{prefix: a.Name.Space, local: a.Name.Local, value: a.Value}
		if x.prefix != "" {
			x.uri = space(x.prefix)
		}
		e.attrs = append(e.attrs, x)
	}
	return e, err
}
