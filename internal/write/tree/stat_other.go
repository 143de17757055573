//go:build !unix

package tree

import "io/fs"

// OwnerOf always returns false here.
func OwnerOf(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// Same identifies a file that has several names.
type Same struct{}

// SameOf always returns false here.
func SameOf(fs.FileInfo) (Same, bool) { return Same{}, false }
