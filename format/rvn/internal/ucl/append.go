package ucl

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A ValueError reports why a tree cannot be written.
type ValueError struct {
	Path  []string // keys down to it
	Fault string   // "expected …, found …"
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("metadata: %q: %s", strings.Join(e.Path, "."), e.Fault)
}

// Append writes v, an object, as the reference packer does: keys in the order of their bytes, one
// element a line, text of several lines unchanged between <<EOD and EOD. It differs only where no
// reader could read back what the reference would write:
//
//   - Floats are written with all their digits; the reference writes 1.5 as 2.-5.
//   - Text of several lines is quoted if it ends with a newline, which would be
//     lost, or has a line that would end it.
//   - Control bytes in a string that have no escape of their own become \u00NN.
//   - Keys keep their quotes, backslashes and bytes beyond ASCII, and those that
//     begin with a hyphen are quoted. A key that is empty, has control bytes or
//     occurs twice is refused.
//   - Nulls are written; see [Value.WithoutNulls].
func Append(dst []byte, v Value) ([]byte, error) {
	if k := v.Kind(); k != KindObject {
		return dst, &ValueError{Fault: fmt.Sprintf("expected an object, found %s", k)}
	}
	e := emitter{buf: dst}
	e.members(v.Members())
	if e.err != nil {
		return dst, e.err
	}
	return e.buf, nil
}

// An emitter writes until there is an error.
type emitter struct {
	buf   []byte
	depth int // containers open, the one without braces not counted
	path  []string
	err   error
}

func (e *emitter) members(list []Member) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
	for i, m := range list {
		e.path = append(e.path, m.Key)
		if i > 0 && list[i-1].Key == m.Key {
			e.fault("expected each key once, found it again")
		}
		e.indent()
		e.key(m.Key)
		e.buf = append(e.buf, ": "...)
		e.value(m.Value)
		e.path = e.path[:len(e.path)-1]
	}
}

func (e *emitter) value(v Value) {
	if e.err != nil {
		return
	}
	switch x := v.v.(type) {
	case bool:
		e.buf = strconv.AppendBool(e.buf, x)
	case int64:
		e.buf = strconv.AppendInt(e.buf, x, 10)
	case float64:
		if math.IsInf(x, 0) || math.IsNaN(x) {
			e.fault("expected a finite number, found %v", x)
		}
		e.buf = appendFloat(e.buf, x)
	case string:
		if fitsHeredoc(x) {
			e.buf = append(append(append(e.buf, "<<EOD\n"...), x...), "\nEOD"...)
		} else {
			e.buf = appendQuoted(e.buf, x)
		}
	case []Value:
		e.container('[', ']', func() {
			for _, elem := range x {
				e.indent()
				e.value(elem)
			}
		})
	case []Member:
		e.container('{', '}', func() { e.members(x) })
	default:
		e.buf = append(e.buf, "null"...)
	}
	e.buf = append(e.buf, '\n')
}

func (e *emitter) container(open, closing byte, inside func()) {
	if e.depth++; e.depth >= MaxDepth {
		e.fault("expected at most %d arrays and objects within each other, found more", MaxDepth)
	}
	e.buf = append(e.buf, open, '\n')
	inside()
	e.depth--
	e.indent()
	e.buf = append(e.buf, closing)
}

func (e *emitter) indent() {
	e.buf = append(e.buf, bytes.Repeat([]byte("  "), e.depth)...)
}

func (e *emitter) key(key string) {
	if key == "" {
		e.fault("expected a key, found none")
	}
	bare := !strings.HasPrefix(key, "-")
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c == 0x7f:
			e.fault("expected a key without control bytes, found 0x%02x", c)
		case !isDigit(c) && !isLetter(c) && c != '_' && c != '-':
			bare = false
		}
	}
	if bare {
		e.buf = append(e.buf, key...)
		return
	}
	// A single quote needs no escape, but gets one from the reference.
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, keyEscapes.Replace(key)...)
	e.buf = append(e.buf, '"')
}

var keyEscapes = strings.NewReplacer(`'`, `\'`, `"`, `\"`, `\`, `\\`)

func (e *emitter) fault(format string, args ...any) {
	if e.err == nil {
		e.err = &ValueError{slices.Clone(e.path), fmt.Sprintf(format, args...)}
	}
}

// fitsHeredoc reports whether s is text of several lines that reads back as it is
// when written between <<EOD and EOD.
func fitsHeredoc(s string) bool {
	if !strings.Contains(s, "\n") || strings.HasSuffix(s, "\n") {
		return false
	}
	for line := range strings.SplitSeq(s, "\n") {
		if rest, ok := strings.CutPrefix(line, "EOD"); ok && endsHeredoc(rest) {
			return false
		}
	}
	return true
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n', '\f', '\t', '\b', '\r':
			dst = append(dst, '\\', "nftbr"[strings.IndexByte("\n\f\t\b\r", c)])
		default:
			if c < 0x20 {
				dst = fmt.Appendf(dst, `\u%04x`, c)
			} else {
				dst = append(dst, c)
			}
		}
	}
	return append(dst, '"')
}

// appendFloat writes f so that it reads back as a float, in UCL and in JSON.
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}
