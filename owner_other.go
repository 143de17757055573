//go:build !unix

package holdall

import (
	"io/fs"
	"os"
)

func (x *extraction) ownerOf(Entry) (uid, gid int, ok bool) { return 0, 0, false }

func (x *extraction) chown(*os.File, Entry) bool { return false }

func modeFor(e Entry, _ bool) fs.FileMode { return e.Mode.Perm() }
