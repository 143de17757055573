package unpack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/base/sysfile"
)

// markName is a file that exists in the folder during an extraction into it, locked by all
// extractions. If it exists but is not locked, an extraction was killed and has left it, and may
// have left temporary files, too.
const markName = ".extract.holdall-lock"

// tempNames are the names that tempName makes.
var tempNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.holdall-[A-Z2-7]{12}-[0-9a-z]+\.tmp$`) })

// begin marks the folder, and removes what was left in it. It also finds out whether the folder
// distinguishes names by case.
func (x *extraction) begin(ctx context.Context) error {
	for {
		f, err := x.root.OpenFile(markName, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
		left := errors.Is(err, fs.ErrExist)
		if left {
			f, err = x.root.OpenFile(markName, os.O_RDWR|sysfile.DontWait, 0)
		}
		switch {
		case left && errors.Is(err, fs.ErrNotExist):
			continue // its holder has just ended
		case left && errors.Is(err, fs.ErrPermission):
			return nil // another user's
		case err != nil:
			return err
		}
		x.mark = f
		alone, err := sysfile.TryLock(f)
		if alone && left {
			x.removeLeft(ctx)
		}
		if err == nil {
			err = sysfile.ShareLock(f)
		}
		if _, cerr := x.root.Lstat(strings.ToUpper(markName)); cerr == nil {
			x.folds = true
		}
		if err != nil || x.marked() {
			return nil // without locks this is unknown, and nothing is removed
		}
		f.Close() // it has been removed in the meantime
	}
}

// marked reports whether the mark is still the one that was locked.
func (x *extraction) marked() bool {
	opened, err := x.mark.Stat()
	if err != nil {
		return false
	}
	named, err := x.root.Lstat(markName)
	return err == nil && os.SameFile(opened, named)
}

// end removes the mark, unless others extract into the folder.
func (x *extraction) end() {
	if x.mark == nil {
		return
	}
	if alone, err := sysfile.TryLock(x.mark); (alone || err != nil) && x.marked() {
		x.root.Remove(markName)
	}
	x.mark.Close()
}

// removeLeft removes temporary files of extractions that were killed. What cannot be
// removed stays.
func (x *extraction) removeLeft(ctx context.Context) {
	_ = fs.WalkDir(x.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && tempNames().MatchString(d.Name()) {
			x.root.Remove(p)
		}
		return context.Cause(ctx)
	})
}
