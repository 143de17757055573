//go:build !unix

package unpack

import (
	"io/fs"

	"github.com/holdall/holdall/format"
)

func (x *extraction) ownerOf(format.Entry) (uid, gid int, ok bool) { return 0, 0, false }

func (x *extraction) chown(output, format.Entry) bool { return false }

func modeFor(e format.Entry, _ bool) fs.FileMode { return e.Mode.Perm() }
