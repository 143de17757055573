// Package storetest has what tests of stores and of their users share: a store in memory,
// wrappers that trace requests, inject faults and cut the power, a journal of what a crash can
// leave of an object that is changed in place, and the conformance suite of stores. It is only
// for tests.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Mem is a store in memory with the abilities of files. It is not Near, so that tests see the
// requests that a remote store would get. Its zero value is an empty store.
//
// An Object of a Mem belongs to the version that existed when it was opened. After Put, Commit or
// Remove of the same name, its reads fail with store.ErrChanged or, after Remove, with an error
// that wraps fs.ErrNotExist. A bucket with conditional requests behaves like that. Tests can so
// detect changes that a store with old versions would hide.
type Mem struct {
	// Now is the clock of the store; nil means that of the system.
	Now func() time.Time

	mu   sync.RWMutex
	objs map[string]*memVersion
	last int64 // number of the latest version of any object

	amended map[string]bool // objects that are open for changes
}

// memVersion is one version of an object. Its fields never change.
type memVersion struct {
	info store.Info
	data []byte
}

// Put makes a copy of content the new version of an object, even if the bytes are the same.
func (m *Mem) Put(name string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(name, append([]byte{}, content...))
}

// add is like Put for callers that hold the lock and no longer use content.
func (m *Mem) add(name string, content []byte) *memVersion {
	if m.objs == nil {
		m.objs = map[string]*memVersion{}
	}
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	m.last++
	v := &memVersion{data: content, info: store.Info{
		Name:    name,
		Size:    int64(len(content)),
		ModTime: now(),
		Version: strconv.FormatInt(m.last, 10),
	}}
	m.objs[name] = v
	return v
}

// Get returns a copy of an object's content, or nil if there is no such object.
func (m *Mem) Get(name string) []byte {
	v := m.current(name)
	if v == nil {
		return nil
	}
	return append([]byte{}, v.data...)
}

// Clone returns a store with the same objects and versions that is independent of m. A crash test
// begins each round with a clone.
func (m *Mem) Clone() *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return &Mem{Now: m.Now, objs: maps.Clone(m.objs), last: m.last}
}

func (m *Mem) current(name string) *memVersion {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.objs[name]
}

// Can returns the abilities of a Mem.
func (m *Mem) Can() store.Abilities {
	return store.Abilities{List: m.List, Create: m.CreateAs, Remove: m.Remove, RemoveAs: m.RemoveAs, Amend: m.Amend}
}

// Open returns the current version of an object.
func (m *Mem) Open(ctx context.Context, name string) (store.Object, error) {
	err, v := ctx.Err(), m.current(name)
	if err == nil && v == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, failed("open", name, -1, 0, err)
	}
	return &memObject{m: m, v: v}, nil
}

// failed wraps err as that of a request; nil stays nil. off is -1 if there is no range.
func failed(op, name string, off, n int64, err error) error {
	if err == nil {
		return nil
	}
	return &store.Error{Op: op, Name: name, Off: off, Len: n, Err: err}
}

// List yields the objects that exist when it is called.
func (m *Mem) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		m.mu.RLock()
		objs := maps.Clone(m.objs)
		m.mu.RUnlock()
		for _, name := range slices.Sorted(maps.Keys(objs)) {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(store.Info{}, failed("list", prefix, -1, 0, err))
				return
			}
			if !yield(objs[name].info, nil) {
				return
			}
		}
	}
}

// Remove deletes an object.
func (m *Mem) Remove(ctx context.Context, name string) error {
	return m.remove(ctx, name, func(store.Info) error { return nil })
}

// RemoveAs deletes an object if it is still the version of info.
func (m *Mem) RemoveAs(ctx context.Context, info store.Info) error {
	return m.remove(ctx, info.Name, func(now store.Info) error { return storekit.Unchanged(info, now) })
}

func (m *Mem) remove(ctx context.Context, name string, may func(now store.Info) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := ctx.Err()
	if v := m.objs[name]; err == nil && v == nil {
		err = fs.ErrNotExist
	} else if err == nil {
		err = may(v.info)
	}
	if err == nil {
		delete(m.objs, name)
	}
	return failed("remove", name, -1, 0, err)
}

// CreateAs begins an object, which is invisible until its writer commits. Nothing is kept for
// Wishes.Resume.
func (m *Mem) CreateAs(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("create", name, -1, 0, err)
	}
	return &memWriter{m: m, name: name, once: wish.Once}, nil
}

type memObject struct {
	m *Mem
	v *memVersion

	closed atomic.Bool
}

// usable returns why o cannot be read, or nil if it can.
func (o *memObject) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if o.closed.Load() {
		return fs.ErrClosed
	}
	switch o.m.current(o.v.info.Name) {
	case o.v:
		return nil
	case nil:
		return fs.ErrNotExist
	}
	return store.ErrChanged
}

func (o *memObject) Info(ctx context.Context) (store.Info, error) {
	return o.v.info, failed("info", o.v.info.Name, -1, 0, o.usable(ctx))
}

func (o *memObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	err := o.usable(ctx)
	switch {
	case err != nil:
	case off < 0:
		err = errNegative
	case off > int64(len(o.v.data)) || int64(len(p)) > int64(len(o.v.data))-off:
		err = io.ErrUnexpectedEOF
	default:
		copy(p, o.v.data[off:])
	}
	return failed("read", o.v.info.Name, off, int64(len(p)), err)
}

func (o *memObject) Can() store.ObjectAbilities { return store.ObjectAbilities{ReadEnd: o.readEnd} }

func (o *memObject) readEnd(ctx context.Context, p []byte, tail bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	op, from := "head", 0
	if tail {
		op, from = "tail", max(0, len(o.v.data)-len(p))
	}
	if err := o.usable(ctx); err != nil {
		return 0, failed(op, o.v.info.Name, -1, int64(len(p)), err)
	}
	return copy(p, o.v.data[from:]), nil
}

func (o *memObject) Close() error {
	o.closed.Store(true)
	return nil
}

type memWriter struct {
	m    *Mem
	name string
	once bool
	buf  bytes.Buffer
	done bool
}

func (w *memWriter) fail(op string, err error) error { return failed(op, w.name, -1, 0, err) }

func (w *memWriter) Can() store.WriterAbilities {
	return store.WriterAbilities{WriteRange: w.WriteRange, Rewind: w.Rewind, Patch: w.Patch, PatchLimit: math.MaxInt64}
}

func (w *memWriter) Write(p []byte) (int, error) {
	if w.done {
		return 0, w.fail("write", fs.ErrClosed)
	}
	return w.buf.Write(p)
}

// WriteRange copies only from objects of a Mem. As in a bucket, objects of other stores must be
// read.
func (w *memWriter) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	src, ok := from.(*memObject)
	if !ok {
		return errors.ErrUnsupported
	}
	if w.done {
		return w.fail("write", fs.ErrClosed)
	}
	size := int64(len(src.v.data))
	err := src.usable(ctx)
	switch {
	case err != nil:
	case off < 0 || n < 0:
		err = errors.New("negative range")
	case off > size || n > size-off:
		err = io.ErrUnexpectedEOF
	default:
		w.buf.Write(src.v.data[off : off+n])
	}
	return failed("read", src.v.info.Name, off, n, err)
}

func (w *memWriter) Rewind(to int64) error {
	if w.done {
		return w.fail("rewind", fs.ErrClosed)
	}
	if to < 0 || to > int64(w.buf.Len()) {
		return w.fail("rewind", fmt.Errorf("to %d, only %d bytes written", to, w.buf.Len()))
	}
	w.buf.Truncate(int(to))
	return nil
}

func (w *memWriter) Commit(ctx context.Context) (store.Info, error) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	err := ctx.Err()
	switch {
	case err != nil:
	case w.done:
		err = fs.ErrClosed
	case w.once && w.m.objs[w.name] != nil:
		err = fs.ErrExist
	}
	if err != nil {
		return store.Info{}, w.fail("commit", err)
	}
	w.done = true
	return w.m.add(w.name, append([]byte{}, w.buf.Bytes()...)).info, nil
}

func (w *memWriter) Abort() error {
	w.done = true
	w.buf = bytes.Buffer{}
	return nil
}
