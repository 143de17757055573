package tree

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Load reads the file at p. If it fits in buf, all of it is read, and n is its length; otherwise
// rest is the opened file, not yet read. A FIFO at p does not block Load.
//
// It makes only four system calls. Package os would add one to check whether the file can be
// polled, which a regular file cannot.
func Load(p string, buf []byte, follow bool) (m Meta, n int, rest *os.File, err error) {
	flags := syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	var fd int
	for {
		if fd, err = syscall.Open(p, flags, 0); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return m, 0, nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		syscall.Close(fd)
		return m, 0, nil, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		syscall.Close(fd)
		return m, 0, nil, &fs.PathError{Op: "open", Path: p, Err: errNotRegular}
	}
	m = metaOf(&st)
	if st.Size >= int64(len(buf)) {
		return m, 0, os.NewFile(uintptr(fd), p), nil
	}
	// It requests one byte more than the size: a short read is the end of the file.
	for n <= int(st.Size) {
		k, err := syscall.Read(fd, buf[n:st.Size+1])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Close(fd)
			return m, 0, nil, &fs.PathError{Op: "read", Path: p, Err: err}
		}
		n += k
		if k == 0 || n == int(st.Size) {
			break
		}
	}
	syscall.Close(fd)
	if int64(n) != st.Size {
		return m, 0, nil, &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("%w: %d bytes, then %d", ErrChanged, st.Size, n)}
	}
	return m, n, nil, nil
}

func metaOf(st *syscall.Stat_t) Meta {
	m := Meta{Size: st.Size, Mode: fs.FileMode(st.Mode & 0o777), ModTime: time.Unix(st.Mtim.Unix()), UID: int(st.Uid), GID: int(st.Gid), Same: Same{uint64(st.Dev), st.Ino}, Several: st.Nlink > 1}
	for _, bit := range [...]struct {
		sys  uint32
		mode fs.FileMode
	}{{syscall.S_ISUID, fs.ModeSetuid}, {syscall.S_ISGID, fs.ModeSetgid}, {syscall.S_ISVTX, fs.ModeSticky}} {
		if st.Mode&bit.sys != 0 {
			m.Mode |= bit.mode
		}
	}
	return m
}
