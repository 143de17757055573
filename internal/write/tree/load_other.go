//go:build !linux

package tree

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Load reads the file at p. If it fits in buf, all of it is read, and n is its length; otherwise
// rest is the opened file, not yet read.
func Load(p string, buf []byte, follow bool) (m Meta, n int, rest *os.File, err error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	info, err := stat(p)
	if err != nil {
		return m, 0, nil, err
	}
	if !info.Mode().IsRegular() {
		return m, 0, nil, &fs.PathError{Op: "open", Path: p, Err: errNotRegular}
	}
	m = Meta{Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime(), UID: -1, GID: -1}
	if uid, gid, ok := OwnerOf(info); ok {
		m.UID, m.GID = uid, gid
	}
	m.Same, m.Several = SameOf(info)
	f, err := os.Open(p)
	if err != nil {
		return m, 0, nil, err
	}
	if info.Size() >= int64(len(buf)) {
		return m, 0, f, nil
	}
	defer f.Close()
	n, err = io.ReadFull(f, buf[:info.Size()+1])
	if err == nil || int64(n) != info.Size() {
		return m, 0, nil, &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("%w: %d bytes, then %d", ErrChanged, info.Size(), n)}
	}
	return m, n, nil, nil
}
