package store

import (
	"context"
	"errors"
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

	// Headers are kept with the object, as [ObjectAbilities.Headers] has them, but for
	// capitals, which a service may keep. It is no more than a wish: a disk keeps
	// none, and buckets of S3 are not told.
	Headers map[string]string
}

// Keep ends w and keeps what was sent, where the store can; else it aborts w.
func Keep(w Writer) (kept int64, err error) {
	if keep := w.Can().Keep; keep != nil {
		return keep()
	}
	return 0, w.Abort()
}

// An Upload is an object that was begun and neither committed nor aborted, and takes
// up room that is paid for.
type Upload struct {
	Name  string
	ID    string // the store's own word for it
	Begun time.Time
}

// Abandon takes away the uploads of names that begin with prefix which are over, and
// tells how many. A store that cannot tell has none. One that does not go keeps no other
// from going.
func Abandon(ctx context.Context, st Store, prefix string, over func(Upload) bool) (n int, err error) {
	can := st.Can()
	if can.Unfinished == nil {
		return 0, nil
	}
	var old []Upload // what is listed does not change under the listing
	flush := func() {
		for _, u := range old {
			gone := can.Abandon(ctx, u)
			if gone == nil {
				n++
			}
			err = errors.Join(err, gone)
		}
		old = old[:0]
	}
	for u, listed := range can.Unfinished(ctx, prefix) {
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

// maxOld is how many uploads are remembered before they are taken away.
const maxOld = 10_000

// OpenAs opens an object as it was listed. A store that cannot do so by itself is
// asked what is there now.
func OpenAs(ctx context.Context, st Store, info Info) (Object, error) {
	if open := st.Can().OpenAs; open != nil {
		return open(ctx, info)
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
