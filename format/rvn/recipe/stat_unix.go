//go:build unix

package recipe

import (
	"io/fs"
	"syscall"
)

// nonBlocking keeps the opening of what has become a FIFO from waiting for who
// writes to it.
const nonBlocking = syscall.O_NONBLOCK

// hasSeveralNames says whether a file has hard links. The reference looks for
// libraries only in files that have none.
func hasSeveralNames(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
