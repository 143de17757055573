package storetest

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/holdall/holdall/store"
)

// Trace returns a store that writes one line to w for each request to an
// object of st, before it is made:
//
//	read NAME at OFF+LEN
//	head NAME LEN
//	tail NAME LEN
//	info NAME
//
// Lines of parallel requests are never mixed. The store can do what st can do;
// what it creates, lists, removes and amends is not traced. Compared with a golden
// file, the lines show every request that a change adds.
func Trace(st store.Store, w io.Writer) store.Store {
	c, _ := st.(store.Creator)
	l, _ := st.(store.Lister)
	r, _ := st.(store.Remover)
	return able(&traced{st: st, w: w}, c, l, r)
}

type traced struct {
	st store.Store
	mu sync.Mutex
	w  io.Writer
}

func (t *traced) line(format string, args ...any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := fmt.Fprintf(t.w, format+"\n", args...)
	return err
}

func (t *traced) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := t.st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	to := &tracedObject{Object: o, t: t, name: name}
	var (
		h  store.Header
		tl store.Tailer
	)
	if inner, ok := o.(store.Header); ok {
		h = tracedHeader{to, inner}
	}
	if inner, ok := o.(store.Tailer); ok {
		tl = tracedTailer{to, inner}
	}
	return reading(to, h, tl), nil
}

func (t *traced) Near() bool { return store.IsNear(t.st) }

func (t *traced) Amend(ctx context.Context, name string) (store.Amendment, error) {
	return store.Amend(ctx, t.st, name)
}

type tracedObject struct {
	store.Object
	t    *traced
	name string
}

func (o *tracedObject) Info(ctx context.Context) (store.Info, error) {
	if err := o.t.line("info %s", o.name); err != nil {
		return store.Info{}, err
	}
	return o.Object.Info(ctx)
}

func (o *tracedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.t.line("read %s at %d+%d", o.name, off, len(p)); err != nil {
		return err
	}
	return o.Object.ReadAt(ctx, p, off)
}

type tracedHeader struct {
	o    *tracedObject
	head store.Header
}

func (h tracedHeader) ReadHead(ctx context.Context, p []byte) (int, error) {
	if err := h.o.t.line("head %s %d", h.o.name, len(p)); err != nil {
		return 0, err
	}
	return h.head.ReadHead(ctx, p)
}

type tracedTailer struct {
	o    *tracedObject
	tail store.Tailer
}

func (t tracedTailer) ReadTail(ctx context.Context, p []byte) (int, error) {
	if err := t.o.t.line("tail %s %d", t.o.name, len(p)); err != nil {
		return 0, err
	}
	return t.tail.ReadTail(ctx, p)
}
