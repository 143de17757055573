package lindi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/holdall/holdall/internal/pyjson"
)

// An rfs is the reference file system of lindi.json: keys, and where or what
// their values are. It keeps the text and finds values in it.
type rfs struct {
	text      []byte
	refs      []ref // in the text's order; of equal keys the last counts
	templates map[string]string
	top       []member // all at the top but "refs"
}

// A ref is one key, and the range of the text that is its value.
type ref struct {
	key     string
	at, len uint32
}

func (x *rfs) Len() int               { return len(x.refs) }
func (x *rfs) Name(i int) string      { return x.refs[i].key }
func (x *rfs) value(r ref) []byte     { return x.text[r.at : r.at+r.len] }
func (x *rfs) member(k string) []byte { return find(x.top, k) }

// version is what lindi.json says of its own; what was made empty says nothing.
func (x *rfs) version() string {
	if x != nil {
		if v := strings.Trim(string(x.member("version")), `"`); v != "" {
			return v
		}
	}
	return "1"
}

// find returns the value of a key, nil if it is not there.
func find(in []member, key string) (value []byte) {
	for _, m := range in {
		if str(m.key) == key {
			value = m.value
		}
	}
	return value
}

// parseRFS reads the text of lindi.json. It must not change afterwards.
func parseRFS(text []byte, depth int) (*rfs, error) {
	x := &rfs{text: text}
	s := &scanner{b: text, depth: depth}
	refs := false
	err := s.members(func(key []byte) error {
		if string(key) != `"refs"` {
			v, err := s.value()
			x.top = append(x.top, member{key, v})
			return err
		}
		refs = true
		x.refs = make([]ref, 0, len(text)/40)
		if s.peek() != '{' {
			return s.fail(`"refs" is not an object`)
		}
		return s.members(func(key []byte) error {
			at := s.i
			if end := fastRefAt(s.b, at); end > 0 {
				s.i = end
			} else if err := s.skip(); err != nil {
				return err
			}
			x.refs = append(x.refs, ref{shared(key), uint32(at), uint32(s.i - at)})
			return nil
		})
	})
	if err == nil {
		err = s.end()
	}
	if err == nil && !refs {
		err = &textError{msg: `no "refs"`}
	}
	if err != nil {
		return nil, err
	}
	return x, x.parseTemplates(depth)
}

func (x *rfs) parseTemplates(depth int) error {
	v := x.member("templates")
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	s := &scanner{b: v, depth: depth}
	x.templates = map[string]string{}
	return s.members(func(key []byte) error {
		v, err := s.value()
		if err == nil && v[0] == '"' {
			x.templates[str(key)] = str(v)
		}
		return err
	})
}

// maxExpanded bounds what templates may make of one address.
const maxExpanded = 64 << 10

// expand replaces each {{name}} by the template of that name, once.
func (x *rfs) expand(s string) (string, error) {
	if len(x.templates) == 0 || !strings.Contains(s, "{{") {
		return s, nil
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "{{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}}")
		value, known := x.templates[name]
		if !ok || !known {
			b.WriteString("{{")
			s = rest
			continue
		}
		if b.WriteString(value); b.Len() > maxExpanded {
			return "", fmt.Errorf("an address of more than %d bytes", maxExpanded)
		}
		s = after
	}
}

// A target is where a reference leads, templates replaced.
type target struct {
	address string // "./" and a member's name, or an address outside
	off, n  int64
}

// inside returns the member's name, if the target is one.
func (t target) inside() (string, bool) { return strings.CutPrefix(t.address, "./") }

// target reads the value of a reference: [address, offset, length].
func (x *rfs) target(value []byte) (t target, err error) {
	s := &scanner{b: value, depth: 2}
	i := 0
	err = s.elements(func() error {
		v, err := s.value()
		if err != nil {
			return err
		}
		ok := true
		switch i {
		case 0:
			if ok = v[0] == '"'; ok {
				t.address = str(v)
			}
		case 1:
			t.off, ok = whole(v)
		case 2:
			t.n, ok = whole(v)
		}
		if i++; !ok || i > 3 {
			return s.fail("expected an address, an offset and a length")
		}
		return nil
	})
	if err == nil && i != 3 {
		err = s.fail("expected an address, an offset and a length")
	}
	if err == nil {
		t.address, err = x.expand(t.address)
	}
	return t, err
}

// inside returns the member that a value leads to, and where in it, if it leads to one.
func (x *rfs) inside(value []byte) (name string, t target, ok bool) {
	if len(value) == 0 || value[0] != '[' {
		return "", t, false
	}
	t, err := x.target(value)
	if err == nil {
		name, ok = t.inside()
	}
	return name, t, ok
}

// meta returns the JSON text that a value is, or is a string of; nil if it is none.
func (x *rfs) meta(r ref) []byte {
	v := x.value(r)
	if v[0] == '"' {
		v, _ = inline(v)
	}
	return v
}

const base64Mark = "base64:"

// inline returns the content of a value that is no reference. Objects are given
// as Python's json.dumps writes them, which is what the reference reads.
func inline(value []byte) ([]byte, error) {
	switch {
	case value[0] == '{':
		s := &scanner{b: value, depth: len(value)}
		return s.dumps(nil)
	case value[0] != '"':
		return nil, fmt.Errorf("%.40q is neither content nor a reference", value)
	case !bytes.HasPrefix(value[1:], []byte(base64Mark)):
		return []byte(str(value)), nil
	}
	return base64.StdEncoding.AppendDecode(nil, []byte(str(value)[len(base64Mark):]))
}

// inlineSize returns how long inline's result is, without making it where that
// is not needed.
func inlineSize(value []byte) (int64, error) {
	if value[0] == '"' && plain(value) {
		text := value[1 : len(value)-1]
		if !bytes.HasPrefix(text, []byte(base64Mark)) {
			return int64(len(text)), nil
		}
	}
	b, err := inline(value)
	return int64(len(b)), err
}

// isMeta reports whether a key's value is kept as a JSON object.
func isMeta(key string) bool {
	for _, end := range [...]string{".zattrs", ".zgroup", ".zarray", "zarr.json"} {
		if strings.HasSuffix(key, end) {
			return true
		}
	}
	return false
}

// blobFrom is the length from which content becomes a member of its own.
const blobFrom = 1000

// isInline says whether a value of that length lies in lindi.json itself.
func isInline(key string, size int64) bool {
	last := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(last, ".") || strings.HasSuffix(last, ".json") || size < blobFrom
}

// appendInline appends content as the value of a key.
func appendInline(p []byte, key string, content []byte) []byte {
	if isMeta(key) {
		s := &scanner{b: content, depth: 200} // Python's own parser stops near 1000
		if s.peek() == '{' {
			at := len(p)
			out, err := s.dumps(p)
			if err == nil && s.end() == nil {
				return out
			}
			p = p[:at]
		}
	}
	ascii := !bytes.HasPrefix(content, []byte(base64Mark)) // which a reader would decode
	for _, c := range content {
		if c >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return pyjson.AppendString(p, string(content))
	}
	p = append(p, `"`+base64Mark...)
	p = base64.StdEncoding.AppendEncode(p, content)
	return append(p, '"')
}

// appendRef appends a reference.
func appendRef(p []byte, t target) []byte {
	p = append(p, '[')
	p = pyjson.AppendString(p, t.address)
	p = fmt.Appendf(p, ", %d, %d]", t.off, t.n)
	return p
}
