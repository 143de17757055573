package mount

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/base/blake3"
)

// Names that are valid in a file system are shown unchanged, whatever their bytes. Other names
// are shown with escapes: the entry "../x" is the file ..\x2fx in the root, because
// [holdall.Archive.ReadDir] lists names that are not paths there. To make this reversible, \x in
// a name becomes \x5cx.
//
// A name of more than 255 bytes is cut and followed by a digest of the whole name. The attribute
// user.holdall.name has the whole name.

const (
	mostName = 255
	cutMark  = `\x~`
	cutSum   = 16 // bytes of the digest
)

// shown returns the name under which the entry called name is shown in the folder dir.
func shown(dir, name string) string {
	if dir != "." {
		name = strings.TrimPrefix(name, dir+"/")
	}
	if isPlain(name) {
		return name
	}
	return cut(escape(name), name)
}

func isPlain(name string) bool {
	return name != "" && len(name) <= mostName && name != "." && name != ".." && strings.IndexByte(name, '/') < 0 && strings.IndexByte(name, 0) < 0 && !strings.Contains(name, `\x`)
}

var escapes = strings.NewReplacer("/", `\x2f`, "\x00", `\x00`, `\x`, `\x5cx`)

func escape(name string) string {
	switch name {
	case "":
		return `\x`
	case ".", "..":
		return strings.Repeat(`\x2e`, len(name))
	}
	return escapes.Replace(name)
}

var unescapes = strings.NewReplacer(`\x2f`, "/", `\x00`, "\x00", `\x5cx`, `\x`, `\x2e`, ".")

func unescape(s string) string {
	if s == `\x` {
		return ""
	}
	return unescapes.Replace(s)
}

func cut(s, name string) string {
	if len(s) <= mostName {
		return s
	}
	n := mostName - len(cutMark) - 2*cutSum
	if i := strings.LastIndexByte(s[:n], '\\'); i >= 0 && n-i < len(`\x5cx`) {
		n = i // not within an escape
	}
	for k := n; k > n-utf8.UTFMax && k > 0; k-- {
		if utf8.RuneStart(s[k]) {
			n = k // nor within a character
			break
		}
	}
	sum := blake3.Sum256([]byte(name))
	return s[:n] + cutMark + hex.EncodeToString(sum[:cutSum])
}

// isCut reports whether only a listing of the folder can show which entry is meant.
func isCut(s string) bool { return len(s) > len(cutMark)+2*cutSum && strings.Contains(s, cutMark) }

// named returns the name of the entry that is shown as s in the folder dir. It returns false if
// no entry can be shown as s.
func named(dir, s string) (string, bool) {
	name := s
	if !isPlain(s) {
		if name = unescape(s); escape(name) != s {
			return "", false
		}
	}
	if dir == "." {
		// A path with slashes is in another folder.
		return name, strings.IndexByte(name, '/') < 0 || !naming.ValidPath(name)
	}
	name = dir + "/" + name
	return name, naming.ValidPath(name)
}
