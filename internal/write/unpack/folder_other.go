//go:build !linux

package unpack

import (
	"io/fs"
	"os"
	"time"
)

// A folder is open to write files into. Walking to it from the root for every file would cost more
// than the files.
type folder struct {
	name string
	root *os.Root
}

func openFolder(root *os.Root, name string, _ int64) (*folder, error) {
	in, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &folder{name, in}, nil
}

func maskOfProcess() int64 { return -1 }

func (d *folder) Close() error { return d.root.Close() }

// has reports whether the name exists, even as a dangling link.
func (d *folder) has(base string) bool {
	_, err := d.root.Lstat(base)
	return err == nil
}

// create creates a file that does not exist yet. It gets its mode later, because not every system
// can write to a file without write permission.
func (d *folder) create(base string, _ fs.FileMode) (output, error) {
	f, err := d.root.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err // no output that is a nil file
	}
	return f, nil
}

// finish closes a file that was created here, and sets its time, unless that is zero.
func (d *folder) finish(f output, base string, t time.Time) error {
	err := f.Close()
	if err == nil && !t.IsZero() {
		err = d.root.Chtimes(base, t, t)
	}
	return err
}

func (d *folder) rename(from, to string) error { return d.root.Rename(from, to) }

func (d *folder) remove(base string) { _ = d.root.Remove(base) }
