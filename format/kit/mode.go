package kit

import "io/fs"

// unixBits are the bits of a mode that Unix has in other places than package fs.
var unixBits = [...]struct {
	unix uint32
	mode fs.FileMode
}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}}

// UnixMode returns permission and set-id bits as Unix has them.
func UnixMode(m fs.FileMode) uint32 {
	u := uint32(m.Perm())
	for _, b := range unixBits {
		if m&b.mode != 0 {
			u |= b.unix
		}
	}
	return u
}

// ModeOfUnix is the opposite of UnixMode. Other bits are left out.
func ModeOfUnix(u uint32) fs.FileMode {
	m := fs.FileMode(u & 0o777)
	for _, b := range unixBits {
		if u&b.unix != 0 {
			m |= b.mode
		}
	}
	return m
}
