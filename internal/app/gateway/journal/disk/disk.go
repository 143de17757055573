// Package disk is what the log of a gateway needs of a disk.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/base/sysfile"
)

// A LockedError means that another process has the folder locked.
type LockedError struct{ Dir, PID string }

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s: process %s uses this log: only one gateway may", e.Dir, e.PID)
}

// A Disk is the folder of a log. A name is durable after Sync.
type Disk interface {
	Create(name string) (File, error) // replaces what is there
	Open(name string) (File, error)
	List() ([]string, error)
	Rename(from, to string) error
	Remove(name string) error
	Sync() error
	Lock() (io.Closer, error) // *LockedError
}

// A File is one of a Disk. What was written is durable after Datasync. After Sync, a smaller size is, too.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Allocate(size int64) error // makes the file that large, if it is not, with room on the disk
	Truncate(size int64) error
	Datasync() error
	Sync() error
	Close() error
}

// A Folder is one of the system.
type Folder string

// Open makes a folder, durably, if it is not there.
func Open(dir string) (Folder, error) {
	err := os.Mkdir(dir, 0o777)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = Folder(filepath.Dir(dir)).Sync()
	}
	return Folder(dir), err
}

func (d Folder) path(name string) string { return filepath.Join(string(d), name) }

func (d Folder) Create(name string) (File, error) { return d.open(name, os.O_CREATE|os.O_TRUNC) }
func (d Folder) Open(name string) (File, error)   { return d.open(name, 0) }

func (d Folder) open(name string, flags int) (File, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|flags, 0o666)
	return osFile{f}, err
}

func (d Folder) List() (names []string, _ error) {
	all, err := os.ReadDir(string(d))
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

func (d Folder) Rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d Folder) Remove(name string) error     { return os.Remove(d.path(name)) }

func (d Folder) Sync() error { return sysfile.SyncFolder(string(d)) }

// Lock locks the folder until the process ends or the lock is closed.
func (d Folder) Lock() (io.Closer, error) {
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

// A Volatile is a disk on which nothing needs to survive.
type Volatile struct{ Disk }

func (d Volatile) Sync() error { return nil }

func (d Volatile) Create(name string) (File, error) { return d.wrap(d.Disk.Create(name)) }
func (d Volatile) Open(name string) (File, error)   { return d.wrap(d.Disk.Open(name)) }

func (d Volatile) wrap(f File, err error) (File, error) { return volatileFile{f}, err }

type volatileFile struct{ File }

func (volatileFile) Sync() error     { return nil }
func (volatileFile) Datasync() error { return nil }
