//go:build unix

package recipe

import (
	"io/fs"
	"syscall"
)

// nonBlocking prevents waiting for a writer if the file has become a FIFO.
const nonBlocking = syscall.O_NONBLOCK

// hasSeveralNames reports whether a file has hard links. The reference searches for libraries
// only in files without hard links.
func hasSeveralNames(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
