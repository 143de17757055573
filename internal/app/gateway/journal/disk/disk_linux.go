package disk

import (
	"errors"
	"syscall"
)

func (f osFile) Allocate(size int64) error {
	err := again(func() error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.extend(size) // then each write makes its own room
	}
	return err
}

func (f osFile) Datasync() error {
	return again(func() error { return syscall.Fdatasync(int(f.Fd())) })
}

func again(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}
