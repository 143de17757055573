package unpack

import (
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
	"unsafe"
)

// makeFifo makes a FIFO. It opens the folder first, so that no part of the path can be replaced
// meanwhile.
func makeFifo(root *os.Root, name string, mode fs.FileMode) error {
	return within(root, name, func(dir int, base string) error {
		return syscall.Mknodat(dir, base, syscall.S_IFIFO|uint32(mode.Perm()), 0)
	})
}

// setTime sets the time of a link or a FIFO, without following it.
func setTime(root *os.Root, name string, t time.Time) error {
	return within(root, name, func(dir int, base string) error { return setTimeAt(dir, base, t) })
}

const noFollow = 0x100 // AT_SYMLINK_NOFOLLOW

func setTimeAt(dir int, base string, t time.Time) error {
	p, err := syscall.BytePtrFromString(base)
	if err != nil {
		return err
	}
	return utimensat(dir, p, t, noFollow)
}

// setTimeOf sets the time of an open file.
func setTimeOf(fd int, t time.Time) error { return utimensat(fd, nil, t, 0) }

func utimensat(dir int, base *byte, t time.Time, flags uintptr) error {
	at := syscall.NsecToTimespec(t.UnixNano())
	times := [2]syscall.Timespec{at, at}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(dir), uintptr(unsafe.Pointer(base)), uintptr(unsafe.Pointer(&times)), flags, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func within(root *os.Root, name string, do func(dir int, base string) error) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := do(int(dir.Fd()), path.Base(name)); err != nil {
		return &fs.PathError{Op: "extract", Path: name, Err: err}
	}
	return nil
}
