package ucl

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// peek returns the next byte, and 0 at the end.
func (p *parser) peek() byte {
	if p.atEnd() {
		return 0
	}
	return p.src[p.pos]
}

func (p *parser) atEnd() bool { return p.pos >= len(p.src) }

func (p *parser) accept(s string) bool {
	if strings.HasPrefix(p.src[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

// space reads over blanks, ends of lines and comments.
func (p *parser) space() {
	for {
		switch c := p.peek(); {
		case isBlank(c) || '\n' <= c && c <= '\r':
			p.pos++
		case p.atComment():
			p.comment()
		default:
			return
		}
	}
}

// separator skips space, commas and semicolons, and reports whether there was
// more than blanks.
func (p *parser) separator() (found bool) {
	for {
		start := p.pos
		for isBlank(p.peek()) {
			p.pos++
		}
		blanks := p.pos
		p.space()
		for c := p.peek(); c == ',' || c == ';'; c = p.peek() {
			p.pos++
		}
		found = found || p.pos > blanks
		if p.pos == start {
			return found
		}
	}
}

func (p *parser) atComment() bool {
	return p.peek() == '#' || strings.HasPrefix(p.src[p.pos:], "/*")
}

func (p *parser) comment() {
	if p.peek() == '#' {
		if n := strings.IndexByte(p.src[p.pos:], '\n'); n >= 0 {
			p.pos += n
		} else {
			p.pos = len(p.src)
		}
		return
	}
	opened := p.pos
	quoted := false // what is between quotes opens and closes nothing
	for nested := 0; ; {
		switch {
		case p.atEnd():
			line, col := p.lineCol(opened)
			p.fault("*/ for the /* of line %d, column %d", line, col)
			return
		case p.peek() == '"' && p.src[p.pos-1] != '\\':
			quoted = !quoted
			p.pos++
		case !quoted && p.accept("/*"):
			nested++
		case !quoted && p.accept("*/"):
			if nested--; nested == 0 {
				return
			}
		default:
			p.pos++
		}
	}
}

func (p *parser) key() string {
	start := p.pos
	switch c := p.peek(); {
	case c == '"':
		key := p.quoted()
		if key == "" {
			p.faultAt(start, "a key that is not empty")
		}
		return key
	case c == '.':
		for p.pos++; isKeyByte(p.peek()); {
			p.pos++
		}
		name := p.src[start:p.pos]
		p.faultAt(start, "a key").Found = "macro " + name + ", and macros are not supported"
		return ""
	case !isKeyStart(c):
		p.fault("a key")
		return ""
	}
	for isKeyByte(p.peek()) {
		p.pos++
	}
	key := p.src[start:p.pos]
	if c := p.peek(); !isBlank(c) && c != '=' && c != ':' {
		p.fault("'=', ':' or a space after key %q", key)
	}
	return key
}

// skipQuoted skips a string between double quotes, and reports whether it ends
// on its line.
func (p *parser) skipQuoted() bool {
	for p.pos++; !p.atEnd(); p.pos++ {
		switch p.src[p.pos] {
		case '"':
			p.pos++
			return true
		case '\n':
			return false
		case '\\':
			if p.pos+1 < len(p.src) && p.src[p.pos+1] != '\n' {
				p.pos++
			}
		}
	}
	return false
}

func (p *parser) quoted() string {
	opened := p.pos
	if !p.skipQuoted() {
		line, col := p.lineCol(opened)
		p.fault(`'"' for the one of line %d, column %d`, line, col)
		return ""
	}
	return p.unescape(opened+1, p.pos-1)
}

// unescape returns the text from start to end with its escapes resolved. Before any other
// character, a backslash is removed.
func (p *parser) unescape(start, end int) string {
	raw := p.src[start:end]
	if strings.IndexByte(raw, '\\') < 0 {
		return raw
	}
	b := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			b = append(b, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'n', 'r', 'b', 't', 'f':
			b = append(b, "\n\r\b\t\f"[strings.IndexByte("nrbtf", c)])
		case 'u':
			r, ok := hex4(raw[i+1:])
			if !ok {
				p.faultAt(start+i+1, `four hexadecimal digits after \u`)
				return ""
			}
			i += 4
			if low, ok := hex4(strings.TrimPrefix(raw[i+1:], `\u`)); ok && strings.HasPrefix(raw[i+1:], `\u`) {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					b = utf8.AppendRune(b, pair)
					i += 6
					continue
				}
			}
			if utf16.IsSurrogate(r) { // half a pair, spelt as if it were a character
				b = append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
			} else {
				b = utf8.AppendRune(b, r)
			}
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func hex4(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:4], 16, 16)
	return rune(n), err == nil
}

// singleQuoted reads a string in which a backslash is literal, except before a quote and at the
// end of a line, which it removes.
func (p *parser) singleQuoted() string {
	var b []byte
	opened := p.pos
	for p.pos++; !p.atEnd(); p.pos++ {
		switch c := p.src[p.pos]; {
		case c == '\'':
			p.pos++
			return string(b)
		case p.accept(`\'`):
			b = append(b, '\'')
			p.pos--
		case p.accept("\\\r\n"), p.accept("\\\n"):
			p.pos--
		case c == '\\' && p.pos+1 < len(p.src):
			p.pos++
			b = append(b, c, p.src[p.pos])
		default:
			b = append(b, c)
		}
	}
	line, col := p.lineCol(opened)
	p.fault(`"'" for the one of line %d, column %d`, line, col)
	return ""
}

// heredocWord returns WORD if the line ending in <<WORD begins here, otherwise "".
func (p *parser) heredocWord() string {
	rest, ok := strings.CutPrefix(p.src[p.pos:], "<<")
	if !ok {
		return ""
	}
	n := 0
	for n < len(rest) && 'A' <= rest[n] && rest[n] <= 'Z' {
		n++
	}
	if n == len(rest) || rest[n] != '\n' {
		return ""
	}
	return rest[:n]
}

// heredoc reads the lines up to the one that word begins and endsHeredoc accepts. It drops the
// last newline.
func (p *parser) heredoc(word string) string {
	opened := p.pos
	start := p.pos + len("<<") + len(word) + len("\n")
	for line := start; ; {
		if rest, ok := strings.CutPrefix(p.src[line:], word); ok && endsHeredoc(rest) {
			p.pos = line + len(word)
			return p.src[start:max(start, line-1)]
		}
		n := strings.IndexByte(p.src[line:], '\n')
		if n < 0 {
			p.pos = len(p.src)
			at, col := p.lineCol(opened)
			p.fault("a line %s for the <<%s of line %d, column %d", word, word, at, col)
			return ""
		}
		line += n + 1
	}
}

// endsHeredoc reports whether rest, after the word at the beginning of a line, makes
// that the end.
func endsHeredoc(rest string) bool {
	return rest == "" || rest[0] == '\n' || rest[0] == ';' || rest[0] == ','
}

// bare reads a value without quotes: null, a boolean, a number or otherwise a string. Pairs of
// brackets within it are part of it.
func (p *parser) bare() Value {
	start := p.pos
	var braces, squares int
scan:
	for !p.atEnd() {
		switch c := p.src[p.pos]; {
		case c == '{':
			braces++
		case c == '}' && braces > 0:
			braces--
		case c == '[':
			squares++
		case c == ']' && squares > 0:
			squares--
		case c == '\\' && p.pos+1 < len(p.src):
			p.pos++
		case strings.IndexByte("\n\r,;]}", c) >= 0 || p.atComment():
			break scan
		}
		p.pos++
	}
	word := strings.TrimRight(p.src[start:p.pos], " \t")
	switch word {
	case "":
		p.faultAt(start, "a value")
		return Value{}
	case "null":
		return Value{}
	}
	if len(word) <= len("false") {
		switch strings.ToLower(word) {
		case "true", "yes", "on":
			return Bool(true)
		case "false", "no", "off":
			return Bool(false)
		}
	}
	v, ok, err := number(word)
	if err != nil {
		p.faultAt(start, "a number of at most 64 bits").Found = word
	}
	if ok || err != nil {
		return v
	}
	return String(p.unescape(start, start+len(word)))
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isKeyStart accepts a hyphen because the reference writes it, though libucl does not read it.
func isKeyStart(c byte) bool {
	return isDigit(c) || isLetter(c) || c == '_' || c == '/' || c == '-' || c >= 0x80
}

func isKeyByte(c byte) bool { return isKeyStart(c) || c == '.' }
