package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/store"
)

// Amend opens an object for changes in place. Each write makes a new version, so that readers of
// an older version get an error. As in a file, what is written after the object was replaced or
// removed is visible only to the amendment.
func (m *Mem) Amend(ctx context.Context, name string) (store.Amendment, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err, v := ctx.Err(), m.objs[name]
	if err == nil && v == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, failed("amend", name, -1, 0, err)
	}
	if m.amended[name] {
		return nil, &store.LockedError{Name: name, Holder: "another amendment in this test"}
	}
	if m.amended == nil {
		m.amended = map[string]bool{}
	}
	m.amended[name] = true
	// The slice is clipped, because the bytes after it may be another amendment's.
	return &memAmendment{m: m, v: v, name: name, data: slices.Clip(v.data)}, nil
}

type memAmendment struct {
	m      *Mem
	v      *memVersion // the version whose data this is
	name   string
	data   []byte // bytes within it never change, because versions share them
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
	return failed(op, a.name, off, n, err)
}

func (a *memAmendment) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	var wrong error
	switch {
	case off < 0:
		wrong = errNegative
	case int64(len(p)) > a.Size()-off:
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
	switch {
	case off < 0:
		wrong = errNegative
	case off > a.Size():
		wrong = errHole
	}
	if err := a.usable(ctx, "write", off, int64(len(p)), wrong); err != nil {
		return err
	}
	if off < a.Size() {
		a.data = append(make([]byte, 0, max(len(a.data), int(off)+len(p))), a.data...)
	}
	// An append needs no copy, because older versions end before it.
	n := copy(a.data[off:], p)
	a.change(append(a.data, p[n:]...))
	return nil
}

var (
	errHole     = errors.New("write beyond the end would leave a hole")
	errNegative = errors.New("negative offset")
)

func (a *memAmendment) Truncate(ctx context.Context, size int64) error {
	var wrong error
	if size < 0 || size > a.Size() {
		wrong = fs.ErrInvalid
	}
	if err := a.usable(ctx, "truncate", size, 0, wrong); err != nil {
		return err
	}
	a.change(a.data[:size:size])
	return nil
}

// change makes data the object's new version, unless the object was replaced or removed.
func (a *memAmendment) change(data []byte) {
	a.data = data
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.m.objs[a.name] == a.v {
		a.v = a.m.add(a.name, data)
	}
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

// Patch replaces bytes that were written.
func (w *memWriter) Patch(ctx context.Context, p []byte, off int64) error {
	err := ctx.Err()
	switch size := int64(w.buf.Len()); {
	case w.done:
		err = fs.ErrClosed
	case err != nil:
	case off < 0 || int64(len(p)) > size-off:
		err = fmt.Errorf("only %d bytes written", size)
	default:
		copy(w.buf.Bytes()[off:], p)
	}
	return failed("patch", w.name, off, int64(len(p)), err)
}
