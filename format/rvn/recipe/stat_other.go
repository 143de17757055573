//go:build !unix

package recipe

import "io/fs"

const nonBlocking = 0

// hasSeveralNames returns false, because it cannot be determined here.
func hasSeveralNames(fs.FileInfo) bool { return false }
