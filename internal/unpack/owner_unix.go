//go:build unix

package unpack

import (
	"io/fs"

	"github.com/holdall/holdall/format"
)

// ownerOf returns the numbers of an entry's owner and group, if we may give files
// away and both are known here.
func (x *extraction) ownerOf(e format.Entry) (uid, gid int, ok bool) {
	if !x.owners || e.Owner == "" || e.Group == "" {
		return 0, 0, false
	}
	uid, okUser := x.people.UID(e.Owner)
	gid, okGroup := x.people.GID(e.Group)
	return uid, gid, okUser && okGroup
}

// chown gives an open file to its owner. It says whether it did.
func (x *extraction) chown(f output, e format.Entry) bool {
	uid, gid, ok := x.ownerOf(e)
	return ok && f.Chown(uid, gid) == nil
}

// modeFor is what an entry's mode may be: set-id bits only where the file is its
// owner's.
func modeFor(e format.Entry, owned bool) fs.FileMode {
	mode := e.Mode.Perm()
	if owned {
		mode |= e.Mode & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	return mode
}
