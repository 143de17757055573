package lindi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/holdall/holdall/format/kit/jsontext"
	"github.com/holdall/holdall/internal/arrays/pyjson"
)

// rfs is the reference file system of lindi.json: keys, and their values or where these are. It
// keeps the text and finds values in it.
type rfs struct {
	text      []byte
	refs      []ref  // in the order of the text; of equal keys, the last one counts
	body      []byte // the text of "refs"
	templates map[string]string
	top       []member // all members at the top except "refs"
}

// ref is a key, and the range of its value in the text.
type ref struct {
	key     string
	at, len uint32
}

func (x *rfs) Len() int               { return len(x.refs) }
func (x *rfs) Name(i int) string      { return x.refs[i].key }
func (x *rfs) value(r ref) []byte     { return x.text[r.at : r.at+r.len] }
func (x *rfs) member(k string) []byte { return find(x.top, k) }

// version returns the version in lindi.json, or "1" if there is none.
func (x *rfs) version() string {
	if x != nil {
		if v := strings.Trim(string(x.member("version")), `"`); v != "" {
			return v
		}
	}
	return "1"
}

// find returns the value of a key, or nil if there is none.
func find(in []member, key string) (value []byte) {
	for _, m := range in {
		if textOf(m.key) == key {
			value = m.value
		}
	}
	return value
}

// parseRFS parses the text of lindi.json, which must not change afterwards.
func parseRFS(text []byte, depth int) (*rfs, error) {
	x := &rfs{text: text}
	s := scannerOf(text, depth)
	refs := false
	for s.Begin('{'); s.Next('}'); {
		key := s.Key()
		if string(key) != "refs" {
			m := member{key, s.Value()}
			if textOf(key) == noteKey && s.Err == nil {
				m.value = withoutSeal(m.value, depth)
			}
			if m.value != nil {
				x.top = append(x.top, m)
			}
			continue
		}
		refs = true
		s.Space()
		from := s.At
		x.refs = make([]ref, 0, len(text)/40)
		for s.Begin('{'); s.Next('}'); {
			key := s.Key()
			s.Space()
			at := s.At
			if end := quickRef(text[at:]); end > 0 {
				s.At += end
			} else {
				s.Skip()
			}
			x.refs = append(x.refs, ref{shared(key), uint32(at), uint32(s.At - at)})
		}
		x.body = text[from:s.At]
	}
	if s.End(); !refs {
		s.Stop(textError(`no "refs"`))
	}
	if s.Err != nil {
		return nil, s.Err
	}
	return x, x.parseTemplates(depth)
}

// quickRef returns the length of a reference as holdall or the reference writes it, as nearly all
// values in a long lindi.json are. It returns 0 for any other value.
func quickRef(text []byte) (n int) {
	l := layout{n: `["`, o: `", `, s: ", ", end: "]"}
	if len(text) > 1 && text[1] == '\n' {
		l = layout{n: "[\n      \"", o: "\",\n      ", s: ",\n      ", end: "\n    ]"}
	}
	if len(text) < len(l.n) || string(text[:len(l.n)]) != l.n {
		return 0
	}
	k, high := jsontext.Plain(text[len(l.n):])
	_, b, ok := after(text[len(l.n)+k:], l.o)
	if ok && !high {
		_, b, ok = after(b, l.s)
	}
	if !ok || high || len(b) < len(l.end) || string(b[:len(l.end)]) != l.end {
		return 0
	}
	return len(text) - len(b) + len(l.end)
}

func (x *rfs) parseTemplates(depth int) error {
	v := x.member("templates")
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	s := scannerOf(v, depth)
	x.templates = map[string]string{}
	for s.Begin('{'); s.Next('}'); {
		key := textOf(s.Key())
		if s.Space() == '"' {
			x.templates[key] = textOf(s.String())
		} else {
			s.Skip()
		}
	}
	return s.Err
}

// maxExpanded limits the length of an address after templates are replaced.
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

// target is the target of a reference, with templates replaced.
type target struct {
	address string // "./" and the name of a member, or an address outside the archive
	off, n  int64
}

// inside returns the name of the member, if the target is one.
func (t target) inside() (string, bool) { return strings.CutPrefix(t.address, "./") }

// target parses the value of a reference: [address, offset, length].
func (x *rfs) target(value []byte) (t target, err error) {
	s := scannerOf(value, 2)
	i, ok := 0, true
	for s.Begin('['); ok && s.Next(']'); i++ {
		switch i {
		case 0:
			t.address = textOf(s.String())
		case 1:
			t.off, ok = s.Whole()
		case 2:
			t.n, ok = s.Whole()
		default:
			ok = false
		}
	}
	if !ok || i != 3 {
		s.Fail("expected an address, an offset and a length")
	}
	if s.Err != nil {
		return t, s.Err
	}
	t.address, err = x.expand(t.address)
	return t, err
}

// inside returns the member that a value refers to, and the place in it, if it refers to one.
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

// meta returns the value as JSON text, which may be in a string; nil if it is not JSON.
func (x *rfs) meta(r ref) []byte {
	v := x.value(r)
	if v[0] == '"' {
		v, _ = inline(v)
	}
	return v
}

const base64Mark = "base64:"

// inline returns the content of a value that is not a reference. Objects are written as by
// Python's json.dumps, which is what the reference returns.
func inline(value []byte) ([]byte, error) {
	switch {
	case value[0] == '{':
		s := scannerOf(value, len(value))
		return dumps(s, nil), s.Err
	case value[0] != '"':
		return nil, fmt.Errorf("%.40q is neither content nor a reference", value)
	case !bytes.HasPrefix(value[1:], []byte(base64Mark)):
		return []byte(str(value)), nil
	}
	return base64.StdEncoding.AppendDecode(nil, []byte(str(value)[len(base64Mark):]))
}

// inlineSize returns the size of the result of inline, without making it if possible.
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

// isMeta reports whether the value of a key is stored as a JSON object.
func isMeta(key string) bool {
	return slices.ContainsFunc([]string{".zattrs", ".zgroup", ".zarray", "zarr.json"}, func(end string) bool { return strings.HasSuffix(key, end) })
}

// blobFrom is the size from which content becomes a member of its own.
const blobFrom = 1000

// isInline reports whether a value of that size is stored in lindi.json itself.
func isInline(key string, size int64) bool {
	last := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(last, ".") || strings.HasSuffix(last, ".json") || size < blobFrom
}

// appendInline appends content as the value of a key.
func appendInline(p []byte, key string, content []byte) []byte {
	if isMeta(key) {
		s := scannerOf(content, 200) // the depth limit of Python's parser is about 1000
		if s.Space() == '{' {
			out := dumps(s, p)
			if s.End(); s.Err == nil {
				return out
			}
		}
	}
	ascii := !bytes.HasPrefix(content, []byte(base64Mark)) // readers would decode the rest
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
