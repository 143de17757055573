package rvn

import (
	"strings"

	"github.com/holdall/holdall/format"
)

// order compares entries in the order of records: in each directory first its subdirectories with
// everything in them, then everything else, both sorted by name. So the files of a directory
// follow all its subtrees.
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
		if !deeperX || !deeperY { // a directory precedes its contents
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
