package unpack

import (
	"errors"
	"io/fs"
	"os"
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
}

func openFolder(root *os.Root, name string) (*folder, error) {
	dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &folder{name, dir, int(dir.Fd())}, nil
}

func (d *folder) Close() error { return d.dir.Close() }

// told is an error of the system, as package os tells it.
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

// has reports whether there is anything of that name, a link to nothing, too.
func (d *folder) has(base string) bool {
	return again(func() error { return syscall.Faccessat(d.fd, base, 0, noFollow) }) == nil
}

func (d *folder) create(base string) (output, error) {
	fd := -1
	err := again(func() (err error) {
		fd, err = syscall.Openat(d.fd, base, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o666)
		return err
	})
	if err != nil {
		return nil, told("open", base, err)
	}
	return &created{fd, base}, nil
}

func (d *folder) setTime(base string, t time.Time) error {
	return told("chtimes", base, again(func() error { return setTimeAt(d.fd, base, t) }))
}

func (d *folder) rename(from, to string) error {
	return told("rename", to, again(func() error { return syscall.Renameat(d.fd, from, d.fd, to) }))
}

func (d *folder) remove(base string) { _ = syscall.Unlinkat(d.fd, base) }

// created is a file that nothing but this program knows.
type created struct {
	fd   int
	name string
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
	return told("chmod", f.name, again(func() error { return syscall.Fchmod(f.fd, bits) }))
}

func (f *created) Close() error { return told("close", f.name, syscall.Close(f.fd)) }
