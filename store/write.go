package store

import "context"

// Write makes an object of what write writes. Without an error from it, the object is
// there then; with one there is none.
func Write(ctx context.Context, st Store, name string, write func(Writer) error) (Info, error) {
	w, err := Create(ctx, st, name)
	if err != nil {
		return Info{}, err
	}
	defer w.Abort()
	if err := write(w); err != nil {
		return Info{}, err
	}
	return w.Commit(ctx)
}

// WriteBytes makes an object of b.
func WriteBytes(ctx context.Context, st Store, name string, b []byte) error {
	_, err := Write(ctx, st, name, func(w Writer) error {
		_, err := w.Write(b)
		return err
	})
	return err
}

// Copy makes an object of another one, with head in place of as many bytes at its
// beginning, and with tail behind it.
func Copy(ctx context.Context, to Store, name string, st Store, from string, head, tail []byte) error {
	o, err := st.Open(ctx, from)
	if err != nil {
		return err
	}
	defer o.Close()
	info, err := o.Info(ctx)
	if err != nil {
		return err
	}
	_, err = Write(ctx, to, name, func(w Writer) error {
		_, err := w.Write(head)
		if err == nil {
			err = WriteRange(ctx, w, o, int64(len(head)), info.Size-int64(len(head)))
		}
		if err == nil {
			_, err = w.Write(tail)
		}
		return err
	})
	return err
}
