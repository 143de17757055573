// Package formatkit has code that several formats share: appending and copying contents, reading
// the ends of objects, and reporting problems. Formats of third parties do not need it.
package formatkit

import (
	"cmp"
	"context"
	"errors"
	"hash"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// appendBlock is written while it is in a level-2 cache.
const appendBlock = 128 << 10

// An Appender writes an archive from front to back: contents, and what its format has
// between them. Small pieces are gathered, long ones go through.
type Appender struct {
	Out io.Writer // a store.Writer, or a format.Scratch
	Pos int64     // of what comes next
	Err error     // sticky: what is out there is not known

	// Block is how many bytes are gathered; 0 is 128 KiB, less is none.
	Block int

	// Contents without a digest of that name get one from NewHash.
	Algo    string
	NewHash func() hash.Hash

	gathered, buf []byte
	hasher        hash.Hash
}

// Append appends bytes.
func (a *Appender) Append(p []byte) error {
	a.Pos += int64(len(p))
	if len(a.gathered)+len(p) > a.block() {
		if err := a.Flush(); err != nil {
			return err
		}
		if len(p) >= a.block() {
			return a.hand(p)
		}
	}
	a.gathered = append(a.gathered, p...)
	return nil
}

func (a *Appender) block() int { return cmp.Or(a.Block, appendBlock) }

func (a *Appender) hand(p []byte) error {
	if _, err := a.Out.Write(p); err != nil {
		a.Err = err
	}
	return a.Err
}

// Flush writes what was gathered.
func (a *Appender) Flush() error {
	if len(a.gathered) == 0 {
		return a.Err
	}
	err := a.hand(a.gathered)
	a.gathered = a.gathered[:0]
	return err
}

// Content appends e's content and returns its digest: the one that e has, or that r can
// tell, or else a new one. Plain contents have none.
func (a *Appender) Content(ctx context.Context, e format.Entry, r io.Reader, plain bool) (string, error) {
	if a.hasher == nil {
		a.hasher = a.NewHash()
	}
	known := ""
	if e.Digest.Algo == a.Algo && len(e.Digest.Sum) == a.hasher.Size() && !plain {
		known = e.Digest.Sum
	}
	if s, ok := r.(*format.Section); ok && (plain || known != "" || s.Sum != nil || s.Unread) {
		if s.N != e.Size {
			return "", &format.SizeError{Name: e.Name, Said: e.Size, Found: s.N}
		}
		if err := a.section(ctx, s); err != nil || plain || known != "" || s.Sum == nil {
			return known, err
		}
		d, err := s.Sum()
		return d.Sum, err
	}
	if a.buf == nil {
		a.buf = make([]byte, 64<<10)
	}
	if plain {
		return "", CopyContent(ctx, e, r, a.buf, nil, a.Append)
	}
	return CopyDigested(ctx, e, r, a.buf, a.Algo, a.hasher, a.Append)
}

// section copies content that lies in one piece elsewhere. Short pieces are
// cheaper to read than to ask the system to copy.
func (a *Appender) section(ctx context.Context, s *format.Section) error {
	if k := len(a.gathered); !s.Far && s.N <= int64(a.block()-k) {
		a.gathered = slices.Grow(a.gathered, int(s.N))[:k+int(s.N)]
		if err := s.Object.ReadAt(ctx, a.gathered[k:], s.Off); err != nil {
			a.gathered = a.gathered[:k]
			return err
		}
		a.Pos += s.N
		return nil
	}
	out, ok := a.Out.(store.Writer)
	if !ok && s.AtOnce {
		return errors.ErrUnsupported
	}
	if !ok {
		return CopyContent(ctx, format.Entry{Size: s.N}, s, make([]byte, 64<<10), nil, a.Append)
	}
	if err := a.Flush(); err != nil {
		return err
	}
	if s.AtOnce {
		return a.atOnce(ctx, out, s)
	}
	if err := store.WriteRange(ctx, out, s.Object, s.Off, s.N); err != nil {
		// How much arrived is not known: without a way back nothing may follow.
		if !a.rewind(a.Pos) {
			a.Err = err
		}
		return err
	}
	a.Pos += s.N
	return nil
}

// atOnce has the store copy content, or nothing is appended.
func (a *Appender) atOnce(ctx context.Context, out store.Writer, s *format.Section) error {
	write := out.Can().CopyRange
	if write == nil {
		return errors.ErrUnsupported
	}
	err := write(ctx, s.Object, s.Off, s.N)
	switch {
	case err == nil:
		a.Pos += s.N
	case !errors.Is(err, errors.ErrUnsupported):
		a.Err = err
	}
	return err
}

// TakeBack forgets all from start on, after a source failed. It reports whether it
// could.
func (a *Appender) TakeBack(start int64) bool {
	if out := a.Pos - int64(len(a.gathered)); start >= out { // what has left
		a.gathered, a.Pos = a.gathered[:start-out], start
		return true
	}
	if !a.rewind(start) {
		return false
	}
	a.gathered, a.Pos = a.gathered[:0], start
	return true
}

func (a *Appender) rewind(to int64) bool {
	switch out := a.Out.(type) {
	case store.Writer:
		rewind := out.Can().Rewind
		return rewind != nil && rewind(to) == nil
	case io.Seeker:
		_, err := out.Seek(to, io.SeekStart)
		return err == nil
	}
	return false
}
