package unpack

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A folder is open to write files into. Walking to it from the root for every file would cost
// more than the files, and so would registering files with Go's poller. So files are written with
// system calls only, and all their names are directly in the folder.
type folder struct {
	name string
	dir  *os.File
	fd   int
	mask int64 // for the modes of new files; -1 if that is not known
}

func openFolder(root *os.Root, name string, mask int64) (*folder, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	d := &folder{name: name, dir: dir, fd: int(dir.Fd()), mask: -1}
	_, err = syscall.Getxattr("/proc/self/fd/"+strconv.Itoa(d.fd), "system.posix_acl_default", nil)
	if err == syscall.ENODATA || err == syscall.EOPNOTSUPP { // no ACL determines modes
		d.mask = mask
	}
	return d, nil
}

// maskOfProcess returns the mask for the modes of new files, or -1. The system call that returns it
// also sets it, for all threads.
func maskOfProcess() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(status), "\nUmask:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(line), 8, 9)
	if err != nil {
		return -1
	}
	return int64(n)
}

func (d *folder) Close() error { return d.dir.Close() }

// told wraps a system error as package os does.
func told(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// again calls do until no signal has interrupted it.
func again(do func() error) error {
	for {
		if err := do(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// has reports whether the name exists, even as a dangling link.
func (d *folder) has(base string) bool {
	return again(func() error { return syscall.Faccessat(d.fd, base, 0, noFollow) }) == nil
}

// create creates a file that does not exist yet, with a mode as far as the mask permits.
func (d *folder) create(base string, mode fs.FileMode) (output, error) {
	fd := -1
	err := again(func() (err error) {
		fd, err = syscall.Openat(d.fd, base, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, uint32(mode.Perm()))
		return err
	})
	if err != nil {
		return nil, told("open", base, err)
	}
	f := &created{fd: fd, name: base, mode: -1}
	if d.mask >= 0 {
		f.mode = int64(mode.Perm()) &^ d.mask
	}
	return f, nil
}

// finish closes a file that was created here, and sets its time, unless that is zero.
func (d *folder) finish(f output, _ string, t time.Time) (err error) {
	c := f.(*created)
	if !t.IsZero() {
		err = told("chtimes", c.name, again(func() error { return setTimeOf(c.fd, t) }))
	}
	return cmp.Or(f.Close(), err)
}

func (d *folder) rename(from, to string) error {
	return told("rename", to, again(func() error { return syscall.Renameat(d.fd, from, d.fd, to) }))
}

func (d *folder) remove(base string) { _ = syscall.Unlinkat(d.fd, base) }

// created is a new file that no other program knows.
type created struct {
	fd   int
	name string
	mode int64 // -1 if it is not known
}

func (f *created) WriteAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		k := 0
		err = again(func() (err error) {
			k, err = syscall.Pwrite(f.fd, p[n:], off+int64(n))
			return err
		})
		if n += max(k, 0); err == nil && k <= 0 {
			err = syscall.EIO
		}
	}
	return n, told("write", f.name, err)
}

func (f *created) Truncate(size int64) error {
	return told("truncate", f.name, again(func() error { return syscall.Ftruncate(f.fd, size) }))
}

func (f *created) Chown(uid, gid int) error {
	f.mode = -1 // this may change it
	return told("chown", f.name, again(func() error { return syscall.Fchown(f.fd, uid, gid) }))
}

func (f *created) Chmod(mode fs.FileMode) error {
	bits := uint32(mode.Perm())
	for _, b := range [...]struct {
		is   fs.FileMode
		told uint32
	}{{fs.ModeSetuid, syscall.S_ISUID}, {fs.ModeSetgid, syscall.S_ISGID}, {fs.ModeSticky, syscall.S_ISVTX}} {
		if mode&b.is != 0 {
			bits |= b.told
		}
	}
	if f.mode == int64(bits) {
		return nil
	}
	return told("chmod", f.name, again(func() error { return syscall.Fchmod(f.fd, bits) }))
}

func (f *created) Close() error { return told("close", f.name, syscall.Close(f.fd)) }
