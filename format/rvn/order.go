package rvn

import (
	"strings"

	"github.com/holdall/holdall/format"
)

// order is the order of records: of what lies in a directory first each of its
// directories with all that is in it, then everything else, both by the bytes of
// their names. So a directory's files come after all its subtrees.
func order(a, b format.Entry) int {
	x, y := a.Name, b.Name
	for {
		p, restX, deeperX := strings.Cut(x, "/")
		q, restY, deeperY := strings.Cut(y, "/")
		dirX, dirY := deeperX || a.Kind == format.Dir, deeperY || b.Kind == format.Dir
		if dirX != dirY {
			if dirX {
				return -1
			}
			return 1
		}
		if c := strings.Compare(p, q); c != 0 {
			return c
		}
		if !deeperX || !deeperY { // a directory comes before what is in it
			switch {
			case deeperY:
				return -1
			case deeperX:
				return 1
			}
			return 0
		}
		x, y = restX, restY
	}
}
