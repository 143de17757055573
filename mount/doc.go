// Package mount shows archives as a file system, read-only, by FUSE.
//
// Nothing is kept of an archive before somebody looks at it: directories are read when
// they are listed, files when they are looked up, and the system's own caches keep what
// was found for as long as the archive is the same. Content is read by
// holdall.Archive.ReadAt, which proves it where it can be proven.
//
// Linux, macOS and FreeBSD have FUSE. Elsewhere [New] says that it is unsupported.
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
	// Name is the folder that it is in where several are mounted.
	Name    string
	Archive *holdall.Archive
	// Reopen opens the archive again once it has changed; nil is never: then reads of an
	// archive that changed fail with ESTALE.
	Reopen func(context.Context) (*holdall.Archive, error)
	// Version says what stands for the archive's bytes now, "" if that is not known. It
	// is asked from time to time if there is a Reopen, so that a change is noticed that
	// no read meets.
	Version func(context.Context) string
	// Aside, if it is not nil, is called beside the mount with each version of the archive,
	// which is not closed before it returns. Its context ends with the mount.
	Aside func(context.Context, *holdall.Archive)
	// Opened is what Version said before the archive was opened.
	Opened string
}

// Options are wishes for a mount; the zero value suits most.
type Options struct {
	// Source is what the table of mounts calls it.
	Source string
	// AllowOther lets other users in, as far as modes and owners let them.
	AllowOther bool
	// Owner, if it is not nil, has all files.
	Owner *Owner
	// NonEmpty mounts over a folder that is not empty. What is in it is out of sight.
	NonEmpty bool
	// Poll is how often archives are looked at that can be opened again, and others of
	// this machine; 0 is every 2 s on this machine, and every 30 s behind a network.
	Poll time.Duration
	// Log is told what goes wrong; nil is nobody.
	Log *slog.Logger

	// For tests: opens has the system say what is opened and closed, as old ones do
	// anyway, and rest is for restAfter.
	opens bool
	rest  time.Duration
}

// An Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// ErrStale means that a folder is a mount point whose process is gone.
var ErrStale = errors.New("is a mount point whose process has ended")

// ErrNoFUSE means that this system has no FUSE, or does not let us use it. It wraps
// errors.ErrUnsupported.
var ErrNoFUSE error = noFUSE{}

type noFUSE struct{}

func (noFUSE) Error() string { return "this system has no FUSE" }
func (noFUSE) Unwrap() error { return errors.ErrUnsupported }
