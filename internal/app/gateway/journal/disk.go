package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/base/sysfile"
)

// A disk is the folder of a log. A name is durable after Sync.
type disk interface {
	Create(name string) (file, error) // replaces what is there
	Open(name string) (file, error)
	List() ([]string, error)
	Rename(from, to string) error
	Remove(name string) error
	Sync() error
	Lock() (io.Closer, error) // *LockedError
}

// A file of a disk. What was written is durable after Datasync. After Sync, a smaller size is, too.
type file interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Allocate(size int64) error // makes the file that large, if it is not, with room on the disk
	Truncate(size int64) error
	Datasync() error
	Sync() error
	Close() error
}

// folder is a disk of the system.
type folder string

func openFolder(dir string) (folder, error) {
	err := os.Mkdir(dir, 0o777)
	if err == nil {
		err = folder(filepath.Dir(dir)).Sync()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return folder(dir), err
}

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

func (d folder) Create(name string) (file, error) { return d.open(name, os.O_CREATE|os.O_TRUNC) }
func (d folder) Open(name string) (file, error)   { return d.open(name, 0) }

func (d folder) open(name string, flags int) (file, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|flags, 0o666)
	return osFile{f}, err
}

func (d folder) List() (names []string, _ error) {
	all, err := os.ReadDir(string(d))
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

func (d folder) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d folder) Remove(name string) error     { return os.Remove(d.path(name)) }

func (d folder) Sync() error { return sysfile.SyncFolder(string(d)) }

// Lock locks the folder until the process ends or the lock is closed.
func (d folder) Lock() (io.Closer, error) {
	f, err := os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	held, err := sysfile.TryLock(f)
	if err == nil && !held {
		b, _ := io.ReadAll(io.LimitReader(f, 20))
		err = &LockedError{string(d), strings.TrimSpace(string(b))}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// It is only told to others. The disk may be full.
	if f.Truncate(0) == nil {
		_, _ = f.WriteString(strconv.Itoa(os.Getpid()))
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) extend(size int64) error {
	if now, err := f.Size(); err != nil || now >= size {
		return err
	}
	return f.Truncate(size)
}

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// volatile is a folder in which nothing needs to survive.
type volatile struct{ folder }

func (d volatile) Sync() error { return nil }

func (d volatile) Create(name string) (file, error) { return d.wrap(d.folder.Create(name)) }
func (d volatile) Open(name string) (file, error)   { return d.wrap(d.folder.Open(name)) }

func (d volatile) wrap(f file, err error) (file, error) { return volatileFile{f}, err }

type volatileFile struct{ file }

func (volatileFile) Sync() error     { return nil }
func (volatileFile) Datasync() error { return nil }
