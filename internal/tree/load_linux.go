package tree

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Load reads the file at p: all of it into buf if there is room, and then n is
// its length; otherwise rest is the file, still to be read. Files are opened so
// that a FIFO in their place cannot block.
//
// It makes the four system calls that this takes and no more: package os adds
// one to see whether the file can be polled, which no regular file can.
func Load(p string, buf []byte, follow bool) (info fs.FileInfo, n int, rest *os.File, err error) {
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
		return nil, 0, nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		syscall.Close(fd)
		return nil, 0, nil, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		syscall.Close(fd)
		return nil, 0, nil, &fs.PathError{Op: "open", Path: p, Err: errNotRegular}
	}
	meta := &statInfo{path: p, st: st}
	if st.Size >= int64(len(buf)) {
		return meta, 0, os.NewFile(uintptr(fd), p), nil
	}
	// One byte more than it has: a read that comes up short is its end.
	for n <= int(st.Size) {
		k, err := syscall.Read(fd, buf[n:st.Size+1])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			syscall.Close(fd)
			return nil, 0, nil, &fs.PathError{Op: "read", Path: p, Err: err}
		}
		n += k
		if k == 0 || n == int(st.Size) {
			break
		}
	}
	syscall.Close(fd)
	if int64(n) != st.Size {
		return nil, 0, nil, &fs.PathError{Op: "read", Path: p, Err: fmt.Errorf("%w: %d bytes, then %d", ErrChanged, st.Size, n)}
	}
	return meta, n, nil, nil
}

// statInfo is what fstat says, as package fs wants it.
type statInfo struct {
	path string
	st   syscall.Stat_t
}

func (i *statInfo) Name() string       { return filepath.Base(i.path) }
func (i *statInfo) Size() int64        { return i.st.Size }
func (i *statInfo) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i *statInfo) IsDir() bool        { return false }
func (i *statInfo) Sys() any           { return &i.st }

func (i *statInfo) Mode() fs.FileMode {
	m := fs.FileMode(i.st.Mode & 0o777)
	if i.st.Mode&syscall.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if i.st.Mode&syscall.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if i.st.Mode&syscall.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}
