package ucl

import (
	"fmt"
	"strings"
)

// A SyntaxError reports where a text stops being UCL.
type SyntaxError struct {
	Line, Col       int // from 1; Col in bytes
	Expected, Found string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("metadata: line %d, column %d: expected %s, found %s", e.Line, e.Col, e.Expected, e.Found)
}

// Parse reads a text of at most [MaxText] bytes: what the reference packer writes, UCL written by
// hand, and JSON. A key that is repeated has an array of its values. Words before an opening
// brace are nested keys.
//
// Parse accepts what libucl accepts, with the same meaning, with these exceptions. Macros
// (.include) are refused, by name. Variables ($NAME) are not expanded. A number that does not fit
// into 64 bits is refused; nan and inf are strings. A value may be on the line below its key,
// without = or :, only if it begins with a bracket, a quote or <<. Nothing may follow the bracket
// that closes the whole text. Quoted strings may contain control bytes, because the reference
// writes them there.
func Parse(text []byte) (Value, error) {
	p := parser{src: string(text)}
	if len(text) > MaxText {
		fault := p.faultAt(MaxText, "at most %d bytes", MaxText)
		fault.Found = fmt.Sprintf("%d", len(text))
		return Value{}, fault
	}
	p.accept("\ufeff")
	v := p.document()
	if p.err == nil && nesting(v) > MaxDepth { // the arrays of repeated keys, which no bracket opened
		p.fault("at most %d arrays and objects within each other, those of repeated keys included", MaxDepth)
	}
	if p.err != nil {
		return Value{}, p.err
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

// A parser reads src once, from left to right. Only moreKeys looks ahead, to the end of a line.
type parser struct {
	src   string
	pos   int // the end of src, once there is an error
	depth int // containers open
	err   *SyntaxError
}

func (p *parser) document() (v Value) {
	p.space()
	if c := p.peek(); c == '{' || c == '[' {
		v = p.value()
	} else {
		p.depth++
		v = p.members()
	}
	p.separator()
	if !p.atEnd() {
		p.fault("the end of the text")
	}
	return v
}

// members reads "key value" until a closing brace or the end of the text.
func (p *parser) members() Value {
	var obj objectBuilder
	for {
		p.space()
		if p.closing() {
			return Object(obj.list...)
		}
		m := p.member()
		obj.add(m)
		p.delimiter(m.Value)
	}
}

func (p *parser) member() Member {
	key := p.key()
	if p.assignment() {
		p.space()
	} else if p.moreKeys() {
		p.descend()
		inner := p.member()
		p.depth--
		return Member{key, Object(inner)}
	} else if c := p.peek(); c == '\n' || c == '\r' {
		p.space()
		if !strings.ContainsRune(`{["'<`, rune(p.peek())) {
			p.fault("a value for key %q", key)
		}
	}
	return Member{key, p.value()}
}

// assignment skips what is between a key and its value on the line of the key, and reports
// whether that was = or :.
func (p *parser) assignment() (assigned bool) {
	for {
		switch c := p.peek(); {
		case isBlank(c):
			p.pos++
		case (c == '=' || c == ':') && assigned:
			p.fault("a value")
		case c == '=' || c == ':':
			p.pos++
			assigned = true
		case p.atComment():
			p.comment()
		default:
			return assigned
		}
	}
}

// moreKeys reports whether only further keys precede the bracket that
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

func (p *parser) value() Value {
	switch p.peek() {
	case '{':
		return p.container('}', p.members)
	case '[':
		return p.container(']', p.elems)
	case '"':
		return String(p.quoted())
	case '\'':
		return String(p.singleQuoted())
	}
	if word := p.heredocWord(); word != "" {
		return String(p.heredoc(word))
	}
	return p.bare()
}

func (p *parser) container(closing byte, inside func() Value) Value {
	opened := p.pos
	if p.descend(); p.err != nil {
		return Value{}
	}
	p.pos++
	v := inside()
	if p.peek() != closing {
		line, col := p.lineCol(opened)
		p.fault("%q for the %q of line %d, column %d", closing, p.src[opened], line, col)
		return Value{}
	}
	p.pos++
	p.depth--
	return v
}

func (p *parser) elems() Value {
	var elems []Value
	for {
		p.space()
		if p.closing() {
			return Array(elems...)
		}
		e := p.value()
		elems = append(elems, e)
		p.delimiter(e)
	}
}

// closing reports whether a container ends here, rightly or not.
func (p *parser) closing() bool { return p.atEnd() || p.peek() == '}' || p.peek() == ']' }

// delimiter skips what separates v from what follows. No delimiter is needed after a container,
// nor before a closing bracket.
func (p *parser) delimiter(v Value) {
	k := v.Kind()
	if !p.separator() && !p.closing() && k != KindObject && k != KindArray {
		p.fault("a new line, ',' or ';' after the value")
	}
}

// descend counts a container that opens here.
func (p *parser) descend() {
	if p.depth == MaxDepth {
		p.fault("at most %d arrays and objects within each other", MaxDepth)
	}
	p.depth++
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

// fault reports that something else was expected at the current place.
func (p *parser) fault(expected string, args ...any) { p.faultAt(p.pos, expected, args...) }

func (p *parser) faultAt(pos int, expected string, args ...any) *SyntaxError {
	line, col := p.lineCol(pos)
	fault := &SyntaxError{line, col, fmt.Sprintf(expected, args...), describe(p.src[pos:])}
	if p.err == nil {
		p.err, p.pos = fault, len(p.src)
	}
	return fault
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
