package local

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// copyRange copies up to n bytes between files within the kernel. If the kernel cannot do that,
// the error wraps errors.ErrUnsupported.
func copyRange(dst *os.File, dstOff int64, src *os.File, srcOff, n int64) (int64, error) {
	from, err := src.SyscallConn()
	if err != nil {
		return 0, err
	}
	var did int
	var errCopy error
	// Another goroutine may close src. Control prevents its descriptor from being reused in the
	// meantime. Only this goroutine closes dst.
	err = from.Control(func(fd uintptr) {
		for {
			did, errCopy = unix.CopyFileRange(int(fd), &srcOff, int(dst.Fd()), &dstOff, int(n), 0)
			if errCopy != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return 0, err
	}
	switch errCopy {
	case unix.EXDEV, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM: // EPERM: some sandboxes
		return 0, errors.ErrUnsupported
	}
	return int64(max(did, 0)), errCopy
}

// beginWriteback asks the system to start writing, without waiting for it.
func beginWriteback(f *os.File, off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
