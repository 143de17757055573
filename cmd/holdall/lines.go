package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// pathJSON is a name for programs.
type pathJSON struct {
	Path    string `json:"path"`
	PathHex string `json:"path_hex,omitempty"`
}

func pathOf(name string) (j pathJSON) {
	j.Path, j.PathHex = shown(name)
	return j
}

// shown returns a name in the form in which it is printed. If that differs
// from the stored bytes, it also returns these in hexadecimal.
func shown(name string) (path, pathHex string) {
	path = format.Escape(name)
	if path != name {
		pathHex = hex.EncodeToString([]byte(name))
	}
	return path, pathHex
}

// humanSize formats a size for people: 12.3 MiB.
func (a *app) humanSize(n int64) string {
	if a.exact || n < 0 {
		return strconv.FormatInt(n, 10)
	}
	return humanSize(n)
}

func humanSize(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, units := float64(n)/1024, "KMGTPE"
	for f >= 999.95 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", f, units[0])
}

// appendJSONString appends a JSON string without reflection: a listing has
// millions.
func appendJSONString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0 // the whole string is nearly always plain
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n - 1
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}

// appendEntry appends an entry as one JSON object with the fields in
// docs/reference.md. If damage hides where the content is, that becomes the entry's
// Fault.
func appendEntry(ctx context.Context, b []byte, a *holdall.Archive, run func(holdall.Entry) (format.Extent, bool), e *holdall.Entry) (_ []byte, err error) {
	str := func(key, v string) {
		if v != "" {
			b = append(append(append(b, ',', '"'), key...), '"', ':')
			b = appendJSONString(b, v)
		}
	}
	path, pathHex := shown(e.Name)
	b = append(b, `{"path":`...)
	b = appendJSONString(b, path)
	str("path_hex", pathHex)
	str("kind", e.Kind.String())
	if e.Fault == nil {
		b = strconv.AppendInt(append(b, `,"size":`...), e.Size, 10)
	}
	if e.HasMode {
		str("mode", octal(e.Mode))
	}
	if !e.ModTime.IsZero() {
		str("mtime", e.ModTime.UTC().Format(time.RFC3339Nano))
	}
	str("owner", e.Owner)
	str("group", e.Group)
	link, _ := shown(e.Link)
	str("link", link)
	str("digest", e.Digest.String())
	if a.Unproven(ctx, *e) {
		b = append(b, `,"unproven":true`...)
	}
	if len(e.Attr) > 0 {
		b = append(b, `,"attributes":{`...)
		for i, key := range slices.Sorted(maps.Keys(e.Attr)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSONString(b, key), ':')
			v, _ := shown(e.Attr[key])
			b = appendJSONString(b, v)
		}
		b = append(b, '}')
	}
	if e.Fault == nil && e.Kind.HasContent() {
		x, ok := format.Extent{}, false
		if run != nil {
			x, ok = run(*e)
		}
		if ok {
			b = append(appendSpan(append(b, `,"spans":[`...), x), ']')
		} else if b, err = appendSpans(ctx, b, a, e); err != nil {
			return b, err
		}
	}
	if p := e.Fault; p != nil {
		b = append(b, `,"error":{"code":`...)
		b = appendJSONString(b, string(p.Code))
		str("class", p.Class)
		str("message", p.Message)
		b = append(b, '}')
	}
	return append(b, '}', '\n'), nil
}

func appendSpans(ctx context.Context, b []byte, a *holdall.Archive, e *holdall.Entry) ([]byte, error) {
	sep, from := `,"spans":[`, len(b)
	for x, err := range a.Extents(ctx, *e) {
		if c, damaged := errors.AsType[*format.CorruptError](err); damaged {
			e.Fault = &c.Problem // the other fields are listed nevertheless
			return b[:from], nil
		}
		if err != nil {
			return b, err
		}
		b, sep = appendSpan(append(b, sep...), x), ","
	}
	if sep != "," {
		b = append(b, sep...)
	}
	return append(b, ']'), nil
}

func appendSpan(b []byte, x format.Extent) []byte {
	b = append(b, `{"volume":`...)
	b = appendJSONString(b, x.Object)
	b = strconv.AppendInt(append(b, `,"offset":`...), x.Off, 10)
	b = strconv.AppendInt(append(b, `,"length":`...), x.Len, 10)
	b = appendJSONString(append(b, `,"codec":`...), cmp.Or(x.Codec, "raw"))
	if x.External {
		b = append(b, `,"external":true`...)
	}
	return append(b, '}')
}

func octal(m fs.FileMode) string {
	n := uint32(m.Perm())
	for i, bit := range []fs.FileMode{fs.ModeSticky, fs.ModeSetgid, fs.ModeSetuid} {
		if m&bit != 0 {
			n |= 0o1000 << i
		}
	}
	return fmt.Sprintf("%04o", n)
}
