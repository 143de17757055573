package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Wishes are what a new object is to keep to. The zero value wishes nothing: the
// object replaces what has its name.
type Wishes struct {
	// Once wants an object that was not there: if one has the name, Create or Commit
	// fails with an error wrapping fs.ErrExist, and whoever of several commits first
	// wins. Where a store can tell that what is there is what was written, byte for
	// byte, that is success: the answer to an earlier Commit may have been lost.
	Once bool

	// Resume goes on with what an earlier writer of the name had sent when it was
	// kept, or died. The writer is fed all bytes from the beginning; those that the
	// store proves to have are not sent again. What was kept need not be of the
	// same bytes: what differs is sent. It is no more than a wish, and where nothing
	// was kept everything is sent.
	Resume bool
}

// A Wisher creates objects as wished.
type Wisher interface {
	CreateAs(ctx context.Context, name string, wish Wishes) (Writer, error)
}

// CreateAs begins a new object in st. A store that cannot see to it that an object
// is created once says so by an error wrapping errors.ErrUnsupported; one that
// cannot resume begins anew.
func CreateAs(ctx context.Context, st Store, name string, wish Wishes) (Writer, error) {
	if wish == (Wishes{}) {
		return Create(ctx, st, name)
	}
	if w, ok := st.(Wisher); ok {
		return w.CreateAs(ctx, name, wish)
	}
	if wish.Once {
		return nil, fmt.Errorf("create %q: this store cannot refuse to replace an object: %w", name, errors.ErrUnsupported)
	}
	return Create(ctx, st, name)
}

// A Keeper is a Writer that can end without its work being lost.
type Keeper interface {
	// Keep ends the writer as Abort does, but what was sent stays, for a writer of
	// the same name that wishes to Resume. It tells how many bytes these are. Of
	// none nothing stays.
	Keep() (int64, error)
}

// Keep ends w and keeps what was sent, where the store can; else it aborts w.
func Keep(w Writer) (kept int64, err error) {
	if k, ok := w.(Keeper); ok {
		return k.Keep()
	}
	return 0, w.Abort()
}

// A Finisher is a Writer that can be told that no more comes, long before its
// object is to appear, and needs little memory from then on.
type Finisher interface {
	// Finish sends what is left. Only Commit, Abort and Keep may follow.
	Finish(ctx context.Context) error
}

// Finish tells w that no more comes.
func Finish(ctx context.Context, w Writer) error {
	if f, ok := w.(Finisher); ok {
		return f.Finish(ctx)
	}
	return nil
}

// A Saver is a Writer that knows which of its bytes did not pass through this program:
// those that the store copied by itself, and those that it was proven to have.
type Saver interface {
	Saved() (copied, proven int64)
}

// An Upload is an object that was begun and neither committed nor aborted, and takes
// up room that is paid for.
type Upload struct {
	Name  string
	ID    string // the store's own word for it
	Begun time.Time
}

// An Uploader knows what was begun in it, by whomever.
type Uploader interface {
	// Unfinished enumerates the uploads of names that begin with prefix. It does
	// not tell which of them somebody is still at work on.
	Unfinished(ctx context.Context, prefix string) iter.Seq2[Upload, error]
	// Abandon takes one away. One that is gone is no error.
	Abandon(ctx context.Context, u Upload) error
}

// Abandon takes away the uploads of names that begin with prefix which were begun
// before a time, and tells how many. A store that is no Uploader has none.
func Abandon(ctx context.Context, st Store, prefix string, before time.Time) (n int, err error) {
	up, ok := st.(Uploader)
	if !ok {
		return 0, nil
	}
	var old []Upload // what is listed does not change under the listing
	flush := func() error {
		for _, u := range old {
			if err := up.Abandon(ctx, u); err != nil {
				return err
			}
			n++
		}
		old = old[:0]
		return nil
	}
	for u, err := range up.Unfinished(ctx, prefix) {
		if err != nil {
			return n, err
		}
		if u.Begun.Before(before) {
			old = append(old, u)
		}
		if len(old) == maxOld {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}

// maxOld is how many uploads are remembered before they are taken away.
const maxOld = 10_000

// A Copier is a store that copies ranges of objects itself, without their bytes passing
// through this program.
type Copier interface {
	// CopiesFrom reports whether it does of what lies at an address.
	CopiesFrom(address string) bool
}

// CopiesFrom reports whether st copies ranges of what lies at an address itself.
func CopiesFrom(st Store, address string) bool {
	c, ok := st.(Copier)
	return ok && c.CopiesFrom(address)
}

// A Pinner opens an object as it was listed, with no request for what is known.
type Pinner interface {
	// OpenAs is Open of the version that info tells of: reads of another fail
	// with ErrChanged.
	OpenAs(ctx context.Context, info Info) (Object, error)
}

// OpenAs opens an object as it was listed. A store that is no Pinner is asked what
// is there now.
func OpenAs(ctx context.Context, st Store, info Info) (Object, error) {
	if p, ok := st.(Pinner); ok {
		return p.OpenAs(ctx, info)
	}
	o, err := st.Open(ctx, info.Name)
	if err != nil {
		return nil, err
	}
	now, err := o.Info(ctx)
	if err == nil && (now.Size != info.Size || info.Version != "" && now.Version != info.Version) {
		err = &Error{Op: "open", Name: info.Name, Off: -1, Err: ErrChanged}
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}
