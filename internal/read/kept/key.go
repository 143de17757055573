package kept

import (
	"strings"

	"github.com/holdall/holdall/format/kit/naming"
)

// place is the position of a name among the rows, where the direct children of a directory are
// adjacent. A name that is not a path is in the root as a whole. A directory that is only implied
// by other names has a slash at its end, and is where the first of them would be.
type place struct {
	dir, base string
	whole     bool
}

func placeOf(name string) place {
	if !naming.ValidPath(name) {
		return place{base: name, whole: true}
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return place{dir: name[:i], base: name[i+1:]}
	}
	return place{base: name}
}

// appendKey appends the key of a place, which has the order of rows. In a name, "\0" becomes
// "\0\xff"; "\0\1" ends the name.
func (p place) appendKey(b []byte) []byte {
	b = appendText(b, p.dir)
	b = appendText(b, p.base)
	if p.whole {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			break
		}
		b = append(append(b, s[:i+1]...), 0xff)
		s = s[i+1:]
	}
	return append(append(b, s...), 0, 1)
}

// appendDeeper appends the common beginning of all keys in directories below dir.
func appendDeeper(b []byte, dir string) []byte {
	b = appendText(b, dir)
	return append(b[:len(b)-2], '/')
}
