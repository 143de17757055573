package sstable

import (
	"context"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// readAhead is how many bytes of a file that is read sequentially are requested at once.
const readAhead = 1 << 20

// A window is a range of an object's bytes, which moves as bytes are requested.
type window struct {
	obj   store.Object
	name  string
	size  int64
	ahead int
	off   int64 // of buf
	buf   []byte
}

// has reports whether bytes [from, to) need not be read.
func (w *window) has(from, to int64) bool { return from >= w.off && to <= w.off+int64(len(w.buf)) }

// at returns bytes [off, off+n), or fewer if the object ends before. They are valid until the
// next call.
func (w *window) at(ctx context.Context, off int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), w.size-off)))
	if w.has(off, off+int64(n)) {
		return w.buf[off-w.off:][:n], nil
	}
	want := int(min(int64(max(n, w.ahead)), w.size-off))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.off, w.buf = off, w.buf[:want]
	if err := w.obj.ReadAt(ctx, w.buf, off); err != nil {
		w.buf = w.buf[:0]
		return nil, readError(w.name, off, err)
	}
	return w.buf[:n], nil
}

// openWindow opens an object for reading through, beginning with up to head bytes
// that are read before the size is known.
func openWindow(ctx context.Context, st store.Store, name string, head int) (*window, error) {
	obj, err := st.Open(ctx, name)
	if err != nil {
		return nil, readError(name, -1, err)
	}
	w := &window{obj: obj, name: name, ahead: readAhead, buf: make([]byte, head)}
	n, err := storekit.ReadHead(ctx, obj, w.buf)
	if err == nil {
		w.buf = w.buf[:n]
		w.size = int64(n)
		if n == head {
			var info store.Info
			info, err = obj.Info(ctx)
			w.size = info.Size
		}
	}
	if err != nil {
		obj.Close()
		return nil, readError(name, -1, err)
	}
	return w, nil
}

func (w *window) close() { w.obj.Close() }
