//go:build unix

package holdall

import (
	"os"
	"os/user"
	"strconv"
)

// chown gives an open file to the owner that its entry names, if we are root
// and both user and group are known here. It says whether it did.
func (x *extraction) chown(f *os.File, e Entry) bool {
	if x.o.NoOwner || os.Geteuid() != 0 || e.Owner == "" || e.Group == "" {
		return false
	}
	uid, ok := id(e.Owner, func(n string) (string, error) {
		u, err := user.Lookup(n)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	gid, ok2 := id(e.Group, func(n string) (string, error) {
		g, err := user.LookupGroup(n)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	return ok && ok2 && f.Chown(uid, gid) == nil
}

// id returns the number of a name, or of a number.
func id(name string, lookup func(string) (string, error)) (int, bool) {
	if s, err := lookup(name); err == nil {
		name = s
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0
}
