package repo

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdall/holdall/store"
)

const (
	maxManifest    = 64 << 10
	versionKey     = "store.version"
	newestVersion  = 2
	assumedVersion = 2
)

// NewManifest returns the manifest of a new store.
const NewManifest = "store.version=2\n"

type Properties struct {
	Version int  // 1 for Oak 1.6, 2 from Oak 1.8 on
	Assumed bool // there was no number; Oak then assumes 2
}

// ReadManifest reads a manifest: properties as Java writes them. An [*Error] means that Oak does
// not open the store because of it; Properties then has the lines that could be read.
func ReadManifest(ctx context.Context, manifest store.Object) (Properties, error) {
	info, err := manifest.Info(ctx)
	if err != nil {
		return Properties{}, err
	}
	if info.Size > maxManifest {
		return Properties{}, &Error{Object: Manifest, Offset: -1, What: fmt.Sprintf("file: expected at most %d bytes, found %d", maxManifest, info.Size)}
	}
	b := make([]byte, info.Size)
	if err := manifest.ReadAt(ctx, b, 0); err != nil {
		return Properties{}, err
	}
	p := Properties{Version: assumedVersion, Assumed: true}
	all, err := parseProperties(b)
	if err != nil {
		return p, err
	}
	if n, err := strconv.ParseInt(all[versionKey], 10, 32); err == nil {
		p.Version, p.Assumed = int(n), false
	}
	if p.Version < 1 || p.Version > newestVersion {
		return p, &Error{Object: Manifest, Offset: -1, What: fmt.Sprintf("%s: expected 1 or %d, found %d", versionKey, newestVersion, p.Version)}
	}
	return p, nil
}

const blanks = " \t\f"

// parseProperties parses what java.util.Properties does. If a key occurs twice, the last one
// counts.
func parseProperties(b []byte) (map[string]string, error) {
	all := map[string]string{}
	for at := 0; at < len(b); {
		text, n := logicalLine(b[at:])
		key, value := splitProperty(text)
		k, ok := unescape(key)
		v, ok2 := unescape(value)
		if !ok || !ok2 {
			return all, &Error{Object: Manifest, Offset: int64(at), What: fmt.Sprintf("properties: %.80q: expected four hex digits after \\u", text)}
		}
		if text != "" {
			all[k] = v
		}
		at += n
	}
	return all, nil
}

// logicalLine returns the first line with its continuation lines, and their length. For comments
// and blank lines the text is empty.
func logicalLine(b []byte) (string, int) {
	var s strings.Builder
	for at, first := 0, true; ; first = false {
		natural, next := b[at:], len(b)
		if i := bytes.IndexAny(natural, "\r\n"); i >= 0 {
			natural, next = natural[:i], at+i+1
			if b[at+i] == '\r' && next < len(b) && b[next] == '\n' {
				next++
			}
		}
		at = next
		text := bytes.TrimLeft(natural, blanks)
		if first && (len(text) == 0 || text[0] == '#' || text[0] == '!') {
			return "", at
		}
		slashes := len(text) - len(bytes.TrimRight(text, `\`))
		s.Write(text[:len(text)-slashes%2])
		if slashes%2 == 0 || at == len(b) {
			return s.String(), at
		}
	}
}

// splitProperty divides a line at the first blank, = or : without a backslash before it.
func splitProperty(text string) (key, value string) {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			i++
		} else if strings.IndexByte(blanks+"=:", text[i]) >= 0 {
			value = strings.TrimLeft(text[i:], blanks)
			if value != "" && (value[0] == '=' || value[0] == ':') {
				value = strings.TrimLeft(value[1:], blanks)
			}
			return text[:i], value
		}
	}
	return text, ""
}

// unescape also makes UTF-8 of the bytes, which are Latin 1.
func unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := rune(s[i])
		if c == '\\' && i+1 < len(s) {
			i++
			switch c = rune(s[i]); c {
			case 't':
				c = '\t'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 'f':
				c = '\f'
			case 'u':
				if i+4 >= len(s) {
					return "", false
				}
				n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
				if err != nil {
					return "", false
				}
				c = rune(n)
				i += 4
			}
		}
		b.WriteRune(c)
	}
	return b.String(), true
}
