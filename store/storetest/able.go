package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdall/holdall/store"
)

// able returns st with just those of the optional abilities that are not nil,
// so that a wrapper can do what it wraps can do, and a type assertion tells
// the same.
func able(st wrapper, c store.Creator, l store.Lister, r store.Remover) store.Store {
	type (
		s  = wrapper
		cr = store.Creator
		li = store.Lister
		rm = store.Remover
	)
	if w, ok := c.(store.Wisher); ok && l != nil && r != nil {
		// Wishers are stores that can do everything.
		return struct {
			s
			cr
			li
			rm
			store.Wisher
		}{st, c, l, r, w}
	}
	switch {
	case c != nil && l != nil && r != nil:
		return struct {
			s
			cr
			li
			rm
		}{st, c, l, r}
	case c != nil && l != nil:
		return struct {
			s
			cr
			li
		}{st, c, l}
	case c != nil && r != nil:
		return struct {
			s
			cr
			rm
		}{st, c, r}
	case l != nil && r != nil:
		return struct {
			s
			li
			rm
		}{st, l, r}
	case c != nil:
		return struct {
			s
			cr
		}{st, c}
	case l != nil:
		return struct {
			s
			li
		}{st, l}
	case r != nil:
		return struct {
			s
			rm
		}{st, r}
	}
	return st
}

// A wrapper is as near as what it wraps, and amends what that can: a store may
// say of each object that it cannot, so wrapping one that is no Amender loses
// nothing.
type wrapper interface {
	store.Store
	store.Near
	store.Amender
}

// reading returns o, which is a Header and a Tailer too if h and t are not nil.
func reading(o store.Object, h store.Header, t store.Tailer) store.Object {
	type (
		ob = store.Object
		he = store.Header
		ta = store.Tailer
	)
	switch {
	case h != nil && t != nil:
		return struct {
			ob
			he
			ta
		}{o, h, t}
	case h != nil:
		return struct {
			ob
			he
		}{o, h}
	case t != nil:
		return struct {
			ob
			ta
		}{o, t}
	}
	return o
}

// rewinding returns w, which is a Rewinder too if r is not nil.
func rewinding(w wrappedWriter, r store.Rewinder) store.Writer {
	if r == nil {
		return w
	}
	return struct {
		wrappedWriter
		store.Rewinder
	}{w, r}
}

// A wrappedWriter is what every wrapped writer is: a RangeWriter may say of each
// range that it cannot, and a Patcher that nothing can be patched, so wrapping
// one that is none loses nothing.
type wrappedWriter interface {
	store.Writer
	store.RangeWriter
	store.Patcher
}

// patch patches w, if it can be.
func patch(ctx context.Context, w store.Writer, p []byte, off int64) error {
	if pw, ok := w.(store.Patcher); ok {
		return pw.Patch(ctx, p, off)
	}
	return fmt.Errorf("patch: %w", errors.ErrUnsupported)
}
