package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdall/holdall"

	"github.com/holdall/holdall/internal/base/sigv4"
)

// isPath reports whether name is valid both as a name in an archive and as a
// path of a URL. It is fs.ValidPath, but accepts any bytes.
func isPath(name string) bool {
	for elem := range strings.SplitSeq(name, "/") {
		if elem == "" || elem == "." || elem == ".." {
			return false
		}
	}
	return true
}

// reference returns a name as a URL relative to its folder. Because of the
// "./", a colon in the name does not make a scheme of the part before it.
func reference(name string) string { return "./" + sigv4.Path(name) }

// href returns a name as a link in a list. It leaves characters unescaped
// where browsers accept that, because clients that parse lists with a pattern,
// such as fsspec, use links as names. Such clients also treat a link that
// begins with "http" as an address, and "./" as a part of the name.
func href(name string) string {
	first, _, _ := strings.Cut(name, "/") // a colon here would make a scheme of the part before it
	b := make([]byte, 0, len(name)+8)
	for i, n := 0, 0; i < len(name); i += n {
		var c rune
		c, n = utf8.DecodeRuneInString(name[i:])
		plain := c != utf8.RuneError && unicode.IsPrint(c)
		switch {
		case c == ' ':
			plain = 0 < i && i < len(name)-1 // others are trimmed
		case c < utf8.RuneSelf:
			plain = plain && strings.IndexByte("\"#%&'<>?\\^`{|}", byte(c)) < 0 && (c != ':' || i >= len(first))
		}
		if i == 0 && strings.HasPrefix(name, "http") {
			plain = false
		}
		for _, raw := range []byte(name[i : i+n]) {
			if plain {
				b = append(b, raw)
			} else {
				b = fmt.Appendf(b, "%%%02X", raw)
			}
		}
	}
	return string(b)
}

// resolve returns the entry that name leads to, also if it is made for the view.
func (h *handler) resolve(ctx context.Context, name string) (holdall.Entry, error) {
	e, err := h.a.Resolve(ctx, name)
	if name == consolidatedName && errors.Is(err, fs.ErrNotExist) {
		if made, ok := h.consolidated(ctx); ok {
			return made, nil
		}
	}
	return e, err
}
