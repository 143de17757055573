//go:build darwin || freebsd

package mount

import (
	"os"
	"os/exec"
	"runtime"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// device exists if FUSE is installed. For macFUSE it is a folder.
var device = map[bool]string{true: "/Library/Filesystems/macfuse.fs", false: "/dev/fuse"}[runtime.GOOS == "darwin"]

const canSplice = false

// mayGoUnopened is false, like canSplice, because this has not been tried.
const mayGoUnopened = false

func willNeed(*os.File, int64, int64) {}

func direct(o *fuse.MountOptions) { o.Options = append(o.Options, "ro") }

func helperMissing(error) bool { return false }

func unmount(dir string, lazily bool) error {
	args := []string{dir}
	if lazily {
		args = []string{"-f", dir}
	}
	return exec.Command("umount", args...).Run()
}

func howToUnmount(dir string) string { return "umount " + dir }

func readAheadMore(string) {}
