package storekit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
)

// Amend opens an object of st for changes in place. If the store does not support that, the error
// wraps [errors.ErrUnsupported].
func Amend(ctx context.Context, st store.Store, name string) (store.Amendment, error) {
	if amend := st.Can().Amend; amend != nil {
		return amend(ctx, name)
	}
	return nil, fmt.Errorf("change %q: objects of this store cannot be changed in place: %w", name, errors.ErrUnsupported)
}

// Create begins a new object in st. If the store is read-only, the error wraps
// [errors.ErrUnsupported].
func Create(ctx context.Context, st store.Store, name string) (store.Writer, error) {
	return CreateAs(ctx, st, name, store.Wishes{})
}

// CreateAs is like [Create] with wishes.
func CreateAs(ctx context.Context, st store.Store, name string, wish store.Wishes) (store.Writer, error) {
	if create := st.Can().Create; create != nil {
		return create(ctx, name, wish)
	}
	return nil, fmt.Errorf("create %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// Remove deletes an object of st. If the store is read-only, the error wraps
// [errors.ErrUnsupported].
func Remove(ctx context.Context, st store.Store, name string) error {
	if remove := st.Can().Remove; remove != nil {
		return remove(ctx, name)
	}
	return fmt.Errorf("remove %q: this store is read-only: %w", name, errors.ErrUnsupported)
}

// RemoveAs deletes an object of st if it is still the version of info. If info has no version,
// RemoveAs returns an error, so that it never deletes another version.
func RemoveAs(ctx context.Context, st store.Store, info store.Info) error {
	return removeAs(ctx, info, st.Can().RemoveAs)
}

// RemoveIf is like [RemoveAs], but if the store can, it relies on the server to compare the version.
func RemoveIf(ctx context.Context, st store.Store, info store.Info) error {
	remove := st.Can().RemoveIf
	if remove == nil {
		remove = st.Can().RemoveAs
	}
	return removeAs(ctx, info, remove)
}

func removeAs(ctx context.Context, info store.Info, remove func(context.Context, store.Info) error) error {
	if remove == nil {
		return fmt.Errorf("remove %q: this store does not remove one version only: %w", info.Name, errors.ErrUnsupported)
	}
	if info.Version == "" {
		return &store.Error{Op: "remove", Name: info.Name, Off: -1, Err: fs.ErrInvalid}
	}
	return remove(ctx, info)
}

// copyBlock is the size of the reads of CopyRange.
const copyBlock = 1 << 20

// WriteRange appends n bytes of from, starting at offset off, to w. If w can, the bytes do not
// pass through this program.
func WriteRange(ctx context.Context, w store.Writer, from store.Object, off, n int64) error {
	if off < 0 || n < 0 {
		return fmt.Errorf("copy range %d+%d: invalid range", off, n)
	}
	if n == 0 {
		return nil
	}
	if write := w.Can().WriteRange; write != nil {
		if err := write(ctx, from, off, n); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return CopyRange(ctx, w, from, off, n)
}

// CopyRange reads n bytes of from, starting at offset off, and writes them to w.
func CopyRange(ctx context.Context, w io.Writer, from store.Object, off, n int64) error {
	buf := make([]byte, min(n, copyBlock))
	for n > 0 {
		p := buf[:min(n, copyBlock)]
		if err := from.ReadAt(ctx, p, off); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	return nil
}

// Write creates an object with what the function write writes. If write returns an error, no
// object is created.
func Write(ctx context.Context, st store.Store, name string, write func(store.Writer) error) (store.Info, error) {
	w, err := Create(ctx, st, name)
	if err != nil {
		return store.Info{}, err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return store.Info{}, err
	}
	return w.Commit(ctx)
}

// Keep ends w and keeps what was sent, if the store supports that. Otherwise it aborts w.
func Keep(w store.Writer) (kept int64, err error) {
	if keep := w.Can().Keep; keep != nil {
		return keep()
	}
	return 0, w.Abort()
}

// Abandon discards the unfinished uploads of names that begin with prefix for which over returns
// true. It returns the number of discarded uploads. If one cannot be discarded, Abandon continues
// with the others and returns the errors. If the store cannot list uploads, there are none.
func Abandon(ctx context.Context, st store.Store, prefix string, over func(store.Upload) bool) (n int, err error) {
	unfinished := st.Can().Unfinished
	if unfinished == nil {
		return 0, nil
	}
	var old []store.Upload // uploads are discarded after they are listed, so that the listing does not change
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
