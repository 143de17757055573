package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
)

// Amend opens an object for changes. Each write makes a new version, so that
// readers of an older one are told.
func (m *Mem) Amend(ctx context.Context, name string) (store.Amendment, error) {
	fail := func(err error) error { return &store.Error{Op: "amend", Name: name, Off: -1, Err: err} }
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.objs[name]
	if v == nil {
		return nil, fail(fs.ErrNotExist)
	}
	if m.amended[name] {
		return nil, &store.LockedError{Name: name, Holder: "another amendment in this test"}
	}
	if m.amended == nil {
		m.amended = map[string]bool{}
	}
	m.amended[name] = true
	return &memAmendment{m: m, name: name, data: v.data}, nil
}

type memAmendment struct {
	m      *Mem
	name   string
	data   []byte // never changed, only replaced
	closed bool
}

func (a *memAmendment) Size() int64 { return int64(len(a.data)) }

func (a *memAmendment) usable(ctx context.Context, op string, off, n int64, wrong error) error {
	err := ctx.Err()
	if a.closed {
		err = fs.ErrClosed
	}
	if err == nil {
		err = wrong
	}
	if err != nil {
		return &store.Error{Op: op, Name: a.name, Off: off, Len: n, Err: err}
	}
	return nil
}

func (a *memAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	var wrong error
	if off < 0 || off > a.Size() || int64(len(p)) > a.Size()-off {
		wrong = io.ErrUnexpectedEOF
	}
	if err := a.usable(ctx, "read", off, int64(len(p)), wrong); err != nil {
		return err
	}
	copy(p, a.data[off:])
	return nil
}

func (a *memAmendment) WriteAt(ctx context.Context, p []byte, off int64) error {
	var wrong error
	if off < 0 || off > a.Size() {
		wrong = errHole
	}
	if err := a.usable(ctx, "write", off, int64(len(p)), wrong); err != nil {
		return err
	}
	a.data = patched(a.data, p, off)
	a.m.put(a.name, a.data)
	return nil
}

var errHole = errors.New("a write behind the end would leave a hole")

// patched returns data with p at off, in memory of its own.
func patched(data, p []byte, off int64) []byte {
	out := make([]byte, max(len(data), int(off)+len(p)))
	copy(out, data)
	copy(out[off:], p)
	return out
}

func (a *memAmendment) Truncate(ctx context.Context, size int64) error {
	var wrong error
	if size < 0 || size > a.Size() {
		wrong = fs.ErrInvalid
	}
	if err := a.usable(ctx, "truncate", size, 0, wrong); err != nil {
		return err
	}
	a.data = bytes.Clone(a.data[:size])
	a.m.put(a.name, a.data)
	return nil
}

func (a *memAmendment) Sync(ctx context.Context) error { return a.usable(ctx, "sync", -1, 0, nil) }

func (a *memAmendment) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	delete(a.m.amended, a.name)
	return nil
}

// Patch replaces what was written.
func (w *memWriter) Patch(ctx context.Context, p []byte, off int64) error {
	err := ctx.Err()
	switch {
	case err != nil:
	case w.done:
		err = fs.ErrClosed
	case off < 0 || off+int64(len(p)) > int64(w.buf.Len()):
		err = fmt.Errorf("bytes %d+%d of %d written", off, len(p), w.buf.Len())
	}
	if err != nil {
		return w.fail("patch", err)
	}
	copy(w.buf.Bytes()[off:], p)
	return nil
}

// PatchLimit is all that was written.
func (w *memWriter) PatchLimit() int64 { return 1<<63 - 1 }
