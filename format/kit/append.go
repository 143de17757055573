package kit

import (
	"cmp"
	"context"
	"errors"
	"hash"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// appendBlock is short enough to be in a level-2 cache until it is written.
const appendBlock = 128 << 10

// An Appender writes an archive from front to back: contents and the bytes of the format between
// them. It gathers small pieces and writes long ones directly.
type Appender struct {
	Out io.Writer // a store.Writer, or a sorter.Scratch
	Pos int64     // of what comes next
	Err error     // sticky: the state of Out is unknown

	// Block is how many bytes are gathered; 0 means 128 KiB, a negative value none.
	Block int

	// Contents without a digest of this algorithm get one from NewHash.
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

// Content appends e's content and returns its digest: that of e or r if one of them knows it, or a
// new one. Plain contents have none.
func (a *Appender) Content(ctx context.Context, e format.Entry, r io.Reader, plain bool) (string, error) {
	if a.hasher == nil {
		a.hasher = a.NewHash()
	}
	known := ""
	if e.Digest.Algo == a.Algo && len(e.Digest.Sum) == a.hasher.Size() && !plain {
		known = e.Digest.Sum
	}
	if s, ok := r.(*Section); ok && (plain || known != "" || s.Sum != nil || s.Unread) {
		if s.N != e.Size {
			return "", &SizeError{Name: e.Name, Said: e.Size, Found: s.N}
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

// section copies content that is a section of an object. Short sections are cheaper to read than to
// copy through the system.
func (a *Appender) section(ctx context.Context, s *Section) error {
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
	if err := storekit.WriteRange(ctx, out, s.Object, s.Off, s.N); err != nil {
		// It is unknown how much was written. If the writer cannot rewind, nothing may follow.
		if !a.rewind(a.Pos) {
			a.Err = err
		}
		return err
	}
	a.Pos += s.N
	return nil
}

// atOnce has the store copy content. If the store cannot, nothing is appended.
func (a *Appender) atOnce(ctx context.Context, out store.Writer, s *Section) error {
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

// TakeBack removes everything from start on, after a source failed. It reports whether it
// succeeded.
func (a *Appender) TakeBack(start int64) bool {
	if out := a.Pos - int64(len(a.gathered)); start >= out { // it is still gathered
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
