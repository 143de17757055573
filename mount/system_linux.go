package mount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const device = "/dev/fuse"

// canSplice means that the kernel can copy from file to device.
const canSplice = true

// mayGoUnopened means that the kernel can omit requests for opened files, if it supports that.
const mayGoUnopened = true

// direct mounts without a helper program, if that is permitted.
func direct(o *fuse.MountOptions) {
	if os.Geteuid() == 0 {
		o.DirectMountStrict = true
		o.DirectMountFlags = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_RDONLY
		return
	}
	o.Options = append(o.Options, "ro")
}

// willNeed is a hint that a part of a file will be read soon.
func willNeed(f *os.File, off, n int64) {
	_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_WILLNEED)
}

// helper returns the program that mounts and unmounts for users.
func helper() (string, error) {
	path, err := exec.LookPath("fusermount3")
	if err != nil {
		path, err = exec.LookPath("fusermount")
	}
	return path, err
}

func helperMissing(err error) bool {
	if os.Geteuid() == 0 || err == nil {
		return false
	}
	_, herr := helper()
	return herr != nil
}

func unmount(dir string, lazily bool) error {
	if os.Geteuid() == 0 {
		flags := 0
		if lazily {
			flags = syscall.MNT_DETACH
		}
		return os.NewSyscallError("umount", syscall.Unmount(dir, flags))
	}
	path, err := helper()
	if err != nil {
		return err
	}
	args := "-u"
	if lazily {
		args = "-uz"
	}
	out, err := exec.Command(path, args, "--", dir).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return errors.New(strings.TrimSpace(string(out)))
	}
	return err
}

func howToUnmount(dir string) string {
	path, err := helper()
	if err != nil {
		return "umount " + dir
	}
	return filepath.Base(path) + " -u " + dir
}

// readAheadMore is a hint that lets the kernel request more than 128 KiB at a time. Only root can
// set that, and only after mounting.
func readAheadMore(dir string) {
	var st syscall.Stat_t
	if os.Geteuid() != 0 || syscall.Stat(dir, &st) != nil {
		return
	}
	major, minor := st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&0xfff00
	_ = os.WriteFile(fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", major, minor), []byte("1024"), 0)
}
