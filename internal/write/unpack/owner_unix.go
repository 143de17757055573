//go:build unix

package unpack

import (
	"io/fs"

	"github.com/holdall/holdall/format"
)

// ownerOf returns the numbers of an entry's owner and group, if we may change owners and both exist
// on this system.
func (x *extraction) ownerOf(e format.Entry) (uid, gid int, ok bool) {
	if !x.owners || e.Owner == "" || e.Group == "" {
		return 0, 0, false
	}
	uid, okUser := x.people.UID(e.Owner)
	gid, okGroup := x.people.GID(e.Group)
	return uid, gid, okUser && okGroup
}

// chown sets the owner of an open file. It reports whether it succeeded.
func (x *extraction) chown(f output, e format.Entry) bool {
	uid, gid, ok := x.ownerOf(e)
	return ok && f.Chown(uid, gid) == nil
}

// modeFor returns the mode for an entry. It has set-id bits only if the file has the entry's owner.
func modeFor(e format.Entry, owned bool) fs.FileMode {
	mode := e.Mode.Perm()
	if owned {
		mode |= e.Mode & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	return mode
}
