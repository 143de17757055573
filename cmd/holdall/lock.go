package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdall/holdall/internal/base/sysfile"
)

// lockRepository takes the lock of a segment store: an fcntl lock on all of
// repo.lock. Oak waits for the lock silently; lockRepository instead fails
// with an error that names the holder. Systems without such locks need none: a
// running Oak has its files open, which cannot be removed there.
func lockRepository(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, "repo.lock")
	_, existed := os.Lstat(name)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	by, err := sysfile.LockRecord(f)
	if by != "" {
		err = fmt.Errorf("the store is in use: %s holds the lock on %s", by, name)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		if existed != nil {
			os.Remove(name) // it was not there before
		}
		sysfile.UnlockRecord(f)
	}, nil
}
