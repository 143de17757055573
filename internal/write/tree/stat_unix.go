//go:build unix

package tree

import (
	"io/fs"
	"syscall"
)

func OwnerOf(info fs.FileInfo) (uid, gid int, ok bool) {
	if st, is := info.Sys().(*syscall.Stat_t); is {
		return int(st.Uid), int(st.Gid), true
	}
	return 0, 0, false
}

// Same identifies a file that has several names.
type Same struct{ dev, inode uint64 }

// SameOf returns the identity that all names of a file share, and false if it has only one name.
func SameOf(info fs.FileInfo) (Same, bool) {
	st, is := info.Sys().(*syscall.Stat_t)
	if !is || st.Nlink < 2 {
		return Same{}, false
	}
	return Same{uint64(st.Dev), st.Ino}, true
}
