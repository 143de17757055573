package store

import (
	"context"
	"errors"
	"time"
)

// Wishes are options for a new object. The zero value replaces an existing object of the same
// name.
type Wishes struct {
	// Once requires that no object of that name exists. If there is one, Create or Commit returns
	// an error that wraps [fs.ErrExist]. If several writers commit, the first one wins. If the
	// store can prove that the existing object has exactly the bytes that were written, Commit
	// succeeds, because the response to an earlier Commit may have been lost.
	Once bool

	// Resume continues what an earlier writer of the same name sent before it was kept or killed.
	// The writer must be given all bytes from the beginning; those that the store is proven to
	// have are not sent again. The bytes may differ from the earlier ones; the parts that differ
	// are sent. If nothing was kept or the store does not support Resume, everything is sent.
	Resume bool

	// Headers are stored with the object, with names as in [ObjectAbilities.Headers], though a
	// service may also keep capital letters. They are ignored by stores without headers: disks
	// keep none, and they are not sent to S3 buckets.
	Headers map[string]string
}

// Keep ends w and keeps what was sent, if the store supports that. Otherwise it aborts w.
func Keep(w Writer) (kept int64, err error) {
	if keep := w.Can().Keep; keep != nil {
		return keep()
	}
	return 0, w.Abort()
}

// An Upload is an object that was begun and neither committed nor aborted. It takes up storage
// that is paid for.
type Upload struct {
	Name  string
	ID    string // the store's identifier
	Begun time.Time
	// Abandon discards the upload. If it no longer exists, Abandon returns nil.
	Abandon func(context.Context) error
}

// Abandon discards the unfinished uploads of names that begin with prefix for which over returns
// true. It returns the number of discarded uploads. If one cannot be discarded, Abandon continues
// with the others and returns the errors. If the store cannot list uploads, there are none.
func Abandon(ctx context.Context, st Store, prefix string, over func(Upload) bool) (n int, err error) {
	unfinished := st.Can().Unfinished
	if unfinished == nil {
		return 0, nil
	}
	var old []Upload // uploads are discarded after they are listed, so that the listing does not change
	flush := func() {
		for _, u := range old {
			gone := u.Abandon(ctx)
			if gone == nil {
				n++
			}
			err = errors.Join(err, gone)
		}
		old = old[:0]
	}
	for u, listed := range unfinished(ctx, prefix) {
		if listed != nil {
			err = errors.Join(err, listed)
			break
		}
		if over(u) {
			old = append(old, u)
		}
		if len(old) == maxOld {
			flush()
		}
	}
	flush()
	return n, err
}

// maxOld is the largest number of uploads that are listed before they are discarded.
const maxOld = 10_000

// OpenAs opens the version of an object that a listing returned as info. If the store does not
// support that, OpenAs requests the current version and compares it; another version is
// [ErrChanged].
func OpenAs(ctx context.Context, st Store, info Info) (Object, error) {
	if open := st.Can().OpenAs; open != nil {
		return open(ctx, info)
	}
	o, now, err := OpenInfo(ctx, st, info.Name)
	if err == nil && (now.Size != info.Size || info.Version != "" && now.Version != info.Version) {
		o.Close()
		return nil, &Error{Op: "open", Name: info.Name, Off: -1, Err: ErrChanged}
	}
	return o, err
}
