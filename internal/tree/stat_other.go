//go:build !unix

package tree

import "io/fs"

// OwnerOf knows no owners here.
func OwnerOf(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// Same identifies a file that has several names.
type Same struct{}

// SameOf cannot tell files that have several names.
func SameOf(fs.FileInfo) (Same, bool) { return Same{}, false }
