//go:build !linux && !darwin

package local

import "io/fs"

func inode(fs.FileInfo) (ino uint64, ctime int64) { return 0, 0 }
