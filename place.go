package holdall

import (
	"context"
	"os"
	"time"

	"github.com/holdall/holdall/store"
)

// IsNear reports whether the archive is on this machine, so that reading it takes no
// round trips.
func (a *Archive) IsNear() bool { return store.IsNear(a.st) }

// Store returns the store that the archive is in, by its [Archive.Name]; nil of a folder of
// files.
func (a *Archive) Store() store.Store {
	if a.IsDir() {
		return nil
	}
	return a.st
}

// Options are how the archive was asked to be opened.
func (a *Archive) Options() OpenOptions { return a.asked }

// ModTime returns when the archive was written, zero if that is not known: of a folder
// it is not.
func (a *Archive) ModTime(ctx context.Context) time.Time {
	o, err := a.objects.open(ctx, a.name, false)
	if err != nil {
		return time.Time{}
	}
	info, err := o.Info(ctx)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime
}

// InFile returns the file of this machine in which all of e's content lies as it is, and
// where, so that the system can hand it on by itself. It reports false where there is no
// such file, or where content is proven when it is read. The file belongs to the archive
// and may have more bytes in it than it had; what is read of it is not looked at by
// anybody. Whoever reads on for long asks again.
func (a *Archive) InFile(ctx context.Context, e Entry) (f *os.File, off int64, ok bool, err error) {
	x, run := a.run(e)
	if !run || a.proves(e) {
		return nil, 0, false, nil
	}
	o, err := a.engine.Object(ctx, x)
	if err != nil {
		return nil, 0, false, err
	}
	file := o.Can().File
	if file == nil {
		return nil, 0, false, nil
	}
	f, err = file(ctx)
	return f, x.Off, err == nil, err
}

// Look finds out whether the files of this machine that a is being read from are still
// what they were; if one is not, it returns an error that is store.ErrChanged. Objects
// elsewhere are not asked, and those not that nothing has been read of.
func (a *Archive) Look(ctx context.Context) error {
	for _, o := range a.objects.held() {
		if file := o.Can().File; file != nil {
			if _, err := file(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
