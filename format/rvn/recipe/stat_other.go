//go:build !unix

package recipe

import "io/fs"

const nonBlocking = 0

// hasSeveralNames cannot tell here.
func hasSeveralNames(fs.FileInfo) bool { return false }
