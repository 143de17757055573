package storetest

import (
	"context"
	"iter"

	"github.com/holdall/holdall/store"
)

// request is a call of a store, an object, a writer or an amendment. op, name, off and n are
// those of an [Injector].
type request struct {
	op, name string
	off, n   int64
	p        []byte // what an amendment writes
	of       ender  // the writer or amendment that the request begins, uses or ends
}

// ender is a writer or amendment that a store has open.
type ender interface{ end() error }

// hook makes a request by calling act with the number of bytes to process, or does not.
type hook func(r request, act func(n int64) error) error

// got calls act through a hook and returns its result.
func got[T any](do hook, r request, act func() (T, error)) (found T, err error) {
	err = do(r, func(int64) (err error) {
		found, err = act()
		return err
	})
	return found, err
}

// hooked is a store that passes requests on to another store through a hook.
type hooked struct {
	st  store.Store
	do  hook
	can store.Abilities
}

func newHooked(st store.Store, do hook) *hooked {
	h := &hooked{st: st, do: do}
	below := st.Can()
	h.can.Near = below.Near
	if below.Create != nil {
		h.can.Create = func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
			w := &hookedWriter{do: do, name: name}
			err := do(request{op: "create", name: name, off: -1, of: w}, func(int64) (err error) {
				w.Writer, err = below.Create(ctx, name, wish)
				return err
			})
			if err != nil {
				return nil, err
			}
			return w, nil
		}
	}
	if below.List != nil {
		h.can.List = func(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
			if err := do(request{op: "list", name: prefix, off: -1}, func(int64) error { return nil }); err != nil {
				return func(yield func(store.Info, error) bool) { yield(store.Info{}, err) }
			}
			return below.List(ctx, prefix)
		}
	}
	if below.ListHeaders != nil {
		h.can.ListHeaders = func(ctx context.Context, prefix string) iter.Seq2[store.Headed, error] {
			if err := do(request{op: "list", name: prefix, off: -1}, func(int64) error { return nil }); err != nil {
				return func(yield func(store.Headed, error) bool) { yield(store.Headed{}, err) }
			}
			return below.ListHeaders(ctx, prefix)
		}
	}
	if below.Append != nil {
		h.can.Append = func(ctx context.Context, name string, p []byte, at int64) error {
			return do(request{op: "append", name: name, off: -1}, func(int64) error { return below.Append(ctx, name, p, at) })
		}
	}
	h.can.Lease = below.Lease
	if below.Remove != nil {
		h.can.Remove = func(ctx context.Context, name string) error {
			return do(request{op: "remove", name: name, off: -1}, func(int64) error { return below.Remove(ctx, name) })
		}
	}
	if below.Amend != nil {
		h.can.Amend = func(ctx context.Context, name string) (store.Amendment, error) {
			a := &hookedAmendment{do: do, name: name}
			err := do(request{op: "amend", name: name, off: -1, of: a}, func(int64) (err error) {
				a.Amendment, err = below.Amend(ctx, name)
				return err
			})
			if err != nil {
				return nil, err
			}
			return a, nil
		}
	}
	return h
}

// Can returns the abilities to list, create, remove and amend that the store below has.
func (h *hooked) Can() store.Abilities { return h.can }

// Open opens an object of the store below.
func (h *hooked) Open(ctx context.Context, name string) (store.Object, error) {
	o := &hookedObject{do: h.do, name: name}
	err := h.do(request{op: "open", name: name, off: -1}, func(int64) (err error) {
		o.Object, err = h.st.Open(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

type hookedObject struct {
	store.Object
	do   hook
	name string
}

func (o *hookedObject) Info(ctx context.Context) (store.Info, error) {
	return got(o.do, request{op: "info", name: o.name, off: -1}, func() (store.Info, error) { return o.Object.Info(ctx) })
}

func (o *hookedObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.do(request{op: "read", name: o.name, off: off, n: int64(len(p))}, func(n int64) error {
		return o.Object.ReadAt(ctx, p[:n], off)
	})
}

// Can returns ReadEnd if the object below has it.
func (o *hookedObject) Can() (can store.ObjectAbilities) {
	if read := o.Object.Can().ReadEnd; read != nil {
		can.ReadEnd = func(ctx context.Context, p []byte, tail bool) (int, error) {
			op := "head"
			if tail {
				op = "tail"
			}
			return got(o.do, request{op: op, name: o.name, off: -1, n: int64(len(p))}, func() (int, error) { return read(ctx, p, tail) })
		}
	}
	return can
}

type hookedWriter struct {
	store.Writer
	do   hook
	name string
	size int64
}

func (w *hookedWriter) request(op string, off, n int64) request {
	return request{op, w.name, off, n, nil, w}
}

func (w *hookedWriter) Write(p []byte) (n int, err error) {
	err = w.do(w.request("write", w.size, int64(len(p))), func(k int64) (err error) {
		n, err = w.Writer.Write(p[:k])
		w.size += int64(n)
		return err
	})
	return n, err
}

// Can returns the abilities to copy, rewind and patch that the writer below has.
func (w *hookedWriter) Can() store.WriterAbilities {
	below := w.Writer.Can()
	can := store.WriterAbilities{PatchLimit: below.PatchLimit}
	if below.WriteRange != nil {
		can.WriteRange = func(ctx context.Context, from store.Object, off, n int64) error {
			return w.do(w.request("write", w.size, n), func(k int64) error {
				err := below.WriteRange(ctx, from, off, k)
				if err == nil {
					w.size += k
				}
				return err
			})
		}
	}
	if below.Rewind != nil {
		can.Rewind = func(to int64) error {
			return w.do(w.request("rewind", to, 0), func(int64) error {
				err := below.Rewind(to)
				if err == nil {
					w.size = to
				}
				return err
			})
		}
	}
	if below.Patch != nil {
		can.Patch = func(ctx context.Context, p []byte, off int64) error {
			return w.do(w.request("patch", off, int64(len(p))), func(k int64) error { return below.Patch(ctx, p[:k], off) })
		}
	}
	return can
}

func (w *hookedWriter) Commit(ctx context.Context) (store.Info, error) {
	return got(w.do, w.request("commit", -1, 0), func() (store.Info, error) { return w.Writer.Commit(ctx) })
}

func (w *hookedWriter) Abort() error {
	return w.do(w.request("abort", -1, 0), func(int64) error { return w.end() })
}

func (w *hookedWriter) end() error { return w.Writer.Abort() }

type hookedAmendment struct {
	store.Amendment
	do   hook
	name string
}

func (a *hookedAmendment) request(op string, off int64, p []byte) request {
	return request{op: op, name: a.name, off: off, n: int64(len(p)), p: p, of: a}
}

func (a *hookedAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	return a.do(a.request("read", off, p), func(n int64) error { return a.Amendment.ReadAt(ctx, p[:n], off) })
}

func (a *hookedAmendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	return a.do(a.request("write", off, p), func(n int64) error { return a.Amendment.WriteAt(ctx, p[:n], off) })
}

func (a *hookedAmendment) Truncate(ctx context.Context, size int64) error {
	return a.do(a.request("truncate", size, nil), func(int64) error { return a.Amendment.Truncate(ctx, size) })
}

func (a *hookedAmendment) Sync(ctx context.Context) error {
	return a.do(a.request("sync", -1, nil), func(int64) error { return a.Amendment.Sync(ctx) })
}

func (a *hookedAmendment) Close() error {
	return a.do(a.request("release", -1, nil), func(int64) error { return a.end() })
}

func (a *hookedAmendment) end() error { return a.Amendment.Close() }
