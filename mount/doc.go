// Package mount mounts archives as read-only file systems with FUSE. It supports Linux, macOS and
// FreeBSD; on other systems [New] returns [ErrNoFUSE].
//
//	m, err := mount.New("/mnt/docs", []mount.Tree{{Archive: a}}, mount.Options{})
//	…
//	<-m.Done()
//
// Directories are read when they are listed, and files when they are looked up. The kernel caches
// names and attributes as long as the archive does not change. Contents are read with
// [holdall.Archive.ReadAt], and compared as described there.
package mount

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdall/holdall"
)

// A Tree is an archive to be mounted.
type Tree struct {
	// Name is the name of the archive's folder, if archives have folders.
	Name    string
	Archive *holdall.Archive
	// Reopen, if not nil, opens the archive again after it has changed. Without it, reads of a
	// changed archive fail with ESTALE.
	Reopen func(context.Context) (*holdall.Archive, error)
	// Version returns a text that identifies the current version of the archive, or "" if it is
	// not known. If Reopen is set, it is called from time to time to find changes that no read
	// would notice.
	Version func(context.Context) string
	// Aside, if not nil, is called concurrently with each version of the archive, which is not
	// closed before it returns. Its context ends with the mount. If it returns an archive, the
	// mount owns that and uses it instead: it must have the same entries and bytes, and is
	// opened by an index, for example.
	Aside func(context.Context, *holdall.Archive) *holdall.Archive
	// Opened is the result of Version before the archive was opened.
	Opened string
}

// Options are options for a mount. The zero value suits most programs.
type Options struct {
	// Source is the name of the file system in the table of mounts.
	Source string
	// AllowOther allows access by other users, as far as modes and owners permit.
	AllowOther bool
	// Owner, if not nil, is the owner of all files.
	Owner *Owner
	// NonEmpty allows mounting over a folder that is not empty, which hides its contents.
	NonEmpty bool
	// Folders gives each archive a folder, even if there is only one.
	Folders bool
	// Poll is how often archives are checked for changes. This applies to archives with Reopen,
	// and to those on this machine. 0 means every 2 s on this machine and every 30 s on a
	// network.
	Poll time.Duration
	// Wait is how long a read waits for a server that does not answer, at least; then it fails.
	Wait time.Duration
	// Log gets errors. If it is nil, they are not logged.
	Log *slog.Logger

	// These are for tests. opens makes the kernel report when files are opened and closed, as old
	// kernels do in any case. rest replaces restAfter.
	opens bool
	rest  time.Duration
}

// An Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// ErrStale means that a folder is a mount point whose process has ended.
var ErrStale = errors.New("is a mount point whose process has ended")

// ErrNoFUSE means that the system has no FUSE, or does not permit its use. It wraps
// [errors.ErrUnsupported].
var ErrNoFUSE error = noFUSE{}

type noFUSE struct{}

func (noFUSE) Error() string { return "this system has no FUSE" }
func (noFUSE) Unwrap() error { return errors.ErrUnsupported }
