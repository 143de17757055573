package kit

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// WriteBytes makes an object of b.
func WriteBytes(ctx context.Context, st store.Store, name string, b []byte) error {
	_, err := storekit.Write(ctx, st, name, func(w store.Writer) error {
		_, err := w.Write(b)
		return err
	})
	return err
}

// Copy makes an object from an existing one. It replaces the beginning with head, which has as
// many bytes as it replaces, and appends tail.
func Copy(ctx context.Context, to store.Store, name string, st store.Store, from string, head, tail []byte) error {
	o, info, err := storekit.OpenInfo(ctx, st, from)
	if err != nil {
		return err
	}
	defer o.Close()
	_, err = storekit.Write(ctx, to, name, func(w store.Writer) error {
		_, err := w.Write(head)
		if err == nil {
			err = storekit.WriteRange(ctx, w, o, int64(len(head)), info.Size-int64(len(head)))
		}
		if err == nil {
			_, err = w.Write(tail)
		}
		return err
	})
	return err
}

// Remove removes objects, the last first, if the store can. It ignores objects that do not exist.
func Remove(ctx context.Context, st store.Store, names []string) error {
	var errs []error
	for _, name := range slices.Backward(names) {
		err := storekit.Remove(ctx, st, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Fetch reads ahead if st supports it: on a network, several requests at once take as long as
// one.
func Fetch(ctx context.Context, st store.Store, want []store.Range) (release func()) {
	if fetch := st.Can().Fetch; fetch != nil {
		return fetch(ctx, want)
	}
	return func() {}
}

// Alike reports whether two objects have the same bytes. The error is fs.ErrNotExist if b does not
// exist.
func Alike(ctx context.Context, st store.Store, a, b string) (bool, error) {
	second, y, err := storekit.OpenInfo(ctx, st, b)
	if err != nil {
		return false, err
	}
	defer second.Close()
	first, x, err := storekit.OpenInfo(ctx, st, a)
	if err != nil {
		return false, err
	}
	defer first.Close()
	if x.Size != y.Size {
		return false, nil
	}
	p, q := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < x.Size; off += int64(len(p)) {
		n := min(int64(len(p)), x.Size-off)
		if err := errors.Join(first.ReadAt(ctx, p[:n], off), second.ReadAt(ctx, q[:n], off)); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:n], q[:n]) {
			return false, nil
		}
	}
	return true, nil
}
