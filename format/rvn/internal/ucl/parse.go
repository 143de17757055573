package ucl

import (
	"fmt"
	"strings"
)

// A SyntaxError says where a text stops being UCL.
type SyntaxError struct {
	Line, Col       int // from 1; Col in bytes
	Expected, Found string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("metadata: line %d, column %d: expected %s, found %s", e.Line, e.Col, e.Expected, e.Found)
}

// Parse reads a text of at most [MaxText] bytes: what the reference packer
// writes, UCL as people write it, and JSON. A key that is repeated stands for the
// array of its values; words before an opening brace are keys within each other.
//
// It takes what libucl takes, and means the same by it, but for this: macros
// (.include) are refused, by name. Variables ($NAME) stay as they are. A number
// that does not fit 64 bits is refused; nan and inf are strings. A value may be
// on the line below its key, without = or :, only if it begins with a bracket, a
// quote or <<. Nothing may follow the bracket that closes the whole. Control
// bytes may stand in quoted strings, because the reference writes them there.
func Parse(text []byte) (Value, error) {
	p := parser{src: string(text)}
	if len(text) > MaxText {
		fault := p.faultAt(MaxText, "at most %d bytes", MaxText)
		fault.Found = fmt.Sprintf("%d", len(text))
		return Value{}, fault
	}
	p.accept("\ufeff")
	v, err := p.document()
	if err != nil {
		return Value{}, err
	}
	if nesting(v) > MaxDepth { // the arrays of repeated keys, which no bracket opened
		return Value{}, p.fault("at most %d arrays and objects within each other, those of repeated keys included", MaxDepth)
	}
	return v, nil
}

func nesting(v Value) int {
	deepest := 0
	switch x := v.v.(type) {
	case []Value:
		for _, e := range x {
			deepest = max(deepest, nesting(e))
		}
	case []Member:
		for _, m := range x {
			deepest = max(deepest, nesting(m.Value))
		}
	default:
		return 0
	}
	return 1 + deepest
}

// A parser goes over src once, from left to right; only moreKeys looks ahead, to
// the end of a line.
type parser struct {
	src   string
	pos   int
	depth int // containers open
}

func (p *parser) document() (Value, error) {
	if err := p.space(); err != nil {
		return Value{}, err
	}
	var v Value
	var err error
	if c := p.peek(); c == '{' || c == '[' {
		v, err = p.value()
	} else {
		p.depth++
		v, err = p.members()
	}
	if err != nil {
		return Value{}, err
	}
	if _, err := p.separator(); err != nil {
		return Value{}, err
	}
	if !p.atEnd() {
		return Value{}, p.fault("the end of the text")
	}
	return v, nil
}

// members reads "key value" until a closing brace or the end of the text.
func (p *parser) members() (Value, error) {
	var obj objectBuilder
	for {
		if err := p.space(); err != nil {
			return Value{}, err
		}
		if p.closing() {
			return Object(obj.list...), nil
		}
		m, err := p.member()
		if err != nil {
			return Value{}, err
		}
		obj.add(m)
		if err := p.delimiter(m.Value); err != nil {
			return Value{}, err
		}
	}
}

func (p *parser) member() (Member, error) {
	key, err := p.key()
	if err != nil {
		return Member{}, err
	}
	assigned, err := p.assignment()
	if err != nil {
		return Member{}, err
	}
	if assigned {
		if err := p.space(); err != nil {
			return Member{}, err
		}
	} else if p.moreKeys() {
		if err := p.descend(); err != nil {
			return Member{}, err
		}
		inner, err := p.member()
		p.depth--
		return Member{key, Object(inner)}, err
	} else if c := p.peek(); c == '\n' || c == '\r' {
		if err := p.space(); err != nil {
			return Member{}, err
		}
		if !strings.ContainsRune(`{["'<`, rune(p.peek())) {
			return Member{}, p.fault("a value for key %q", key)
		}
	}
	v, err := p.value()
	return Member{key, v}, err
}

// assignment reads over what stands between a key and its value, on the line of
// the key, and says whether that was = or :.
func (p *parser) assignment() (bool, error) {
	assigned := false
	for {
		switch c := p.peek(); {
		case isBlank(c):
			p.pos++
		case (c == '=' || c == ':') && assigned:
			return false, p.fault("a value")
		case c == '=' || c == ':':
			p.pos++
			assigned = true
		case p.atComment():
			if err := p.comment(); err != nil {
				return false, err
			}
		default:
			return assigned, nil
		}
	}
}

// moreKeys says whether nothing but further keys stand before the bracket that
// opens the value: section name {.
func (p *parser) moreKeys() bool {
	look := parser{src: p.src, pos: p.pos}
	for keys := 0; ; keys++ {
		for isBlank(look.peek()) {
			look.pos++
		}
		switch c := look.peek(); {
		case c == '{' || c == '[':
			return keys > 0
		case c == '"':
			if !look.skipQuoted() {
				return false
			}
		case isKeyStart(c):
			for isKeyByte(look.peek()) {
				look.pos++
			}
			if !isBlank(look.peek()) {
				return false
			}
		default:
			return false
		}
	}
}

func (p *parser) value() (Value, error) {
	switch p.peek() {
	case '{':
		return p.container('}', p.members)
	case '[':
		return p.container(']', p.elems)
	case '"':
		s, err := p.quoted()
		return String(s), err
	case '\'':
		s, err := p.singleQuoted()
		return String(s), err
	}
	if word := p.heredocWord(); word != "" {
		s, err := p.heredoc(word)
		return String(s), err
	}
	return p.bare()
}

func (p *parser) container(closing byte, inside func() (Value, error)) (Value, error) {
	if err := p.descend(); err != nil {
		return Value{}, err
	}
	opened := p.pos
	p.pos++
	v, err := inside()
	if err != nil {
		return Value{}, err
	}
	if p.peek() != closing {
		line, col := p.lineCol(opened)
		return Value{}, p.fault("%q for the %q of line %d, column %d", closing, p.src[opened], line, col)
	}
	p.pos++
	p.depth--
	return v, nil
}

func (p *parser) elems() (Value, error) {
	var elems []Value
	for {
		if err := p.space(); err != nil {
			return Value{}, err
		}
		if p.closing() {
			return Array(elems...), nil
		}
		e, err := p.value()
		if err != nil {
			return Value{}, err
		}
		elems = append(elems, e)
		if err := p.delimiter(e); err != nil {
			return Value{}, err
		}
	}
}

// closing says whether a container ends here, rightly or not.
func (p *parser) closing() bool { return p.atEnd() || p.peek() == '}' || p.peek() == ']' }

// delimiter reads over what separates v from what follows. Nothing need stand
// after a container, nor before a closing bracket.
func (p *parser) delimiter(v Value) error {
	found, err := p.separator()
	if err != nil || found || p.closing() {
		return err
	}
	if k := v.Kind(); k == KindObject || k == KindArray {
		return nil
	}
	return p.fault("a new line, ',' or ';' after the value")
}

// descend counts a container that opens here.
func (p *parser) descend() error {
	if p.depth == MaxDepth {
		return p.fault("at most %d arrays and objects within each other", MaxDepth)
	}
	p.depth++
	return nil
}

// An objectBuilder collects the members of an object, and makes arrays of those
// with the same key.
type objectBuilder struct {
	list     []Member
	at       map[string]int // where a key is, once there are many
	repeated map[int]bool   // members that are such arrays
}

func (b *objectBuilder) add(m Member) {
	const many = 8
	i, found := -1, false
	if b.at != nil {
		i, found = b.at[m.Key]
	} else {
		i = indexKey(b.list, m.Key)
		found = i >= 0
	}
	switch {
	case !found:
		b.list = append(b.list, m)
		if b.at != nil {
			b.at[m.Key] = len(b.list) - 1
		} else if len(b.list) > many {
			b.at = make(map[string]int, 2*many)
			for i, m := range b.list {
				b.at[m.Key] = i
			}
		}
	case b.repeated[i]:
		b.list[i].Value = Array(append(b.list[i].Value.Elems(), m.Value)...)
	default:
		if b.repeated == nil {
			b.repeated = map[int]bool{}
		}
		b.repeated[i] = true
		b.list[i].Value = Array(b.list[i].Value, m.Value)
	}
}

// fault says that something else was expected at the present place.
func (p *parser) fault(expected string, args ...any) *SyntaxError {
	return p.faultAt(p.pos, expected, args...)
}

func (p *parser) faultAt(pos int, expected string, args ...any) *SyntaxError {
	line, col := p.lineCol(pos)
	return &SyntaxError{line, col, fmt.Sprintf(expected, args...), describe(p.src[pos:])}
}

func (p *parser) lineCol(pos int) (line, col int) {
	before := p.src[:pos]
	return 1 + strings.Count(before, "\n"), pos - strings.LastIndexByte(before, '\n')
}

func describe(rest string) string {
	if rest == "" {
		return "the end of the text"
	}
	switch c := rest[0]; {
	case c == '\n', c == '\r' && strings.HasPrefix(rest, "\r\n"):
		return "the end of the line"
	case c < 0x20 || c >= 0x7f:
		return fmt.Sprintf("byte 0x%02x", c)
	default:
		return fmt.Sprintf("%q", c)
	}
}
