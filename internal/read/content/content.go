package content

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/engine"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Content is the content of an entry, to be read front to back.
type Content struct {
	Entry Entry
	r     io.Reader
	// vouched says that each byte is proven before it is returned. It need not be compared with the
	// entry's digest: that was done when the digests of the pieces were made.
	vouched bool
	trusted bool           // it is not compared with its digest, or was already
	amiss   *error         // damage around it, known once it was read
	search  *digest.Search // for a wrong bit
	// cure, if it is not nil, returns the content healed after an error.
	cure func(error) (Content, bool)
	done func() // called by Close; may be nil
}

// Vouched reports whether each byte of c is proven before Read returns it.
func (c Content) Vouched() bool { return c.vouched }

// Amiss returns what is wrong with the stored data around c, although c itself matches its digest.
// Call it after reading c.
func (c Content) Amiss() error {
	if c.amiss == nil {
		return nil
	}
	return *c.amiss
}

// Read reads content. It verifies nothing unless c is vouched for: see Checked.
func (c Content) Read(p []byte) (int, error) { return c.r.Read(p) }

// Close ends the read.
func (c Content) Close() error {
	if c.done != nil {
		defer c.done()
	}
	if closer, ok := c.r.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Trusted returns c such that CopyTo, WithSmall and Checked do not compare it with its digest.
func (c Content) Trusted() Content {
	c.trusted = true
	return c
}

// Checked returns a reader of c that verifies what it reads. It verifies small content before it
// returns any of it. If other content does not match the digest of its entry, the last Read returns
// a *digest.Error and no bytes.
func (c Content) Checked() io.Reader {
	if c.Entry.Size <= Small && !c.vouched && !c.trusted {
		return &wholeReader{size: c.Entry.Size, load: func(p []byte) error {
			return c.WithSmall(func(b []byte) error {
				copy(p, b)
				return nil
			})
		}}
	}
	return c.Streamed()
}

// Streamed is Checked, but holds no content in memory, however small.
func (c Content) Streamed() io.Reader {
	if c.vouched || c.trusted {
		return c.r
	}
	return digest.NewChecked(c.r, c.Entry, nil)
}

// IsHeld reports whether the content is already in memory.
func (c Content) IsHeld() bool {
	_, held := c.inMemory()
	return held
}

// Small is the longest content that is held in memory and verified before any of it is returned.
// Longer content is verified while it is read, and the error comes at its end.
const Small = 1 << 20

// inMemory returns the content if it is already in memory.
func (c Content) inMemory() ([]byte, bool) {
	v, ok := c.r.(*bytes.Reader)
	if !ok || int64(v.Len()) != c.Entry.Size {
		return nil, false
	}
	var b grab
	_, err := v.WriteTo(&b)
	return b, err == nil
}

// grab keeps the slice that is written to it, without a copy.
type grab []byte

func (g *grab) Write(p []byte) (int, error) {
	*g = p
	return len(p), nil
}

// WithSmall verifies a small content and calls do with all of it.
func (c Content) WithSmall(do func([]byte) error) error {
	b, ok := c.inMemory()
	if !ok {
		spare := spareOf(c.Entry.Size)
		defer spares.Put(spare)
		b = *spare
		if _, err := io.ReadFull(c.r, b); err != nil {
			return err
		}
	}
	if !c.vouched && !c.trusted {
		if err := digest.Check(c.Entry, b, c.search); err != nil {
			if c.cure != nil {
				if h, ok := c.cure(err); ok {
					defer h.Close()
					return h.WithSmall(do)
				}
			}
			return err
		}
	}
	return do(b)
}

// copyingAhead counts contents that are read, hashed and written in parallel. Each takes 2 MiB, and
// it is of no use for more contents than processors.
var copyingAhead atomic.Int32

// CopyTo copies all of c to w and compares it with its digest, if it has one and is not vouched
// for. Small content is verified before the first byte is written. m counts the bytes as they are
// written.
func (c Content) CopyTo(ctx context.Context, w io.Writer, m *meter.Meter) error {
	e := c.Entry
	m.At(e.Name, e.Size)
	if e.Size <= Small {
		return c.WithSmall(func(b []byte) error {
			m.Add(0, e.Size)
			_, err := w.Write(b)
			return err
		})
	}
	if p, ok := c.r.(*provenReader); ok {
		return p.copyTo(ctx, w, m)
	}
	algo := e.Digest.Algo
	if c.vouched || c.trusted || !digest.Known(algo) {
		algo = ""
	}
	sink := &counting{ctx, w, m}
	if algo != "" {
		defer copyingAhead.Add(-1)
		if copyingAhead.Add(1) <= int32(runtime.GOMAXPROCS(0)) {
			in := digest.NewAhead(c.r, digest.AheadOptions{Algo: algo, Length: e.Size})
			defer in.Close()
			if _, err := in.WriteTo(sink); err != nil {
				return err
			}
			got, _ := in.ContentDigest()
			return digest.Compare(e, got)
		}
	}
	r := io.LimitReader(c.r, e.Size)
	var h *digest.Reader
	if algo != "" {
		h = digest.NewReader(r, algo)
		r = h
	}
	n, err := io.CopyBuffer(sink, r, make([]byte, 256<<10))
	switch {
	case err != nil:
		return err
	case n < e.Size:
		return io.ErrUnexpectedEOF
	case h == nil:
		return nil
	}
	return digest.Compare(e, h.Sum())
}

// counting writes until a context ends and counts the bytes.
type counting struct {
	ctx context.Context
	w   io.Writer
	m   *meter.Meter
}

func (w *counting) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.w.Write(p)
	w.m.Add(0, int64(n))
	return n, err
}

// Open returns e's content from offset off. It can only be compared with e's digest if off is 0.
func (s *Source) Open(ctx context.Context, e Entry, off int64) Content {
	return s.openAt(ctx, e, off, false)
}

// openAt is Open. whole says that the content will be read to its end.
func (s *Source) openAt(ctx context.Context, e Entry, off int64, whole bool) Content {
	if s.Parts != nil {
		m, own, release, err := s.Parts.Of(ctx, e)
		if err != nil {
			return Content{Entry: e, r: failed{err}}
		}
		c := m.openAt(ctx, own, off, whole)
		c.Entry.Ref, c.done = e.Ref, release
		return c
	}
	p := s.proof(e)
	if err := s.refusal(e, p); err != nil {
		return Content{Entry: e, r: failed{err}}
	}
	if (s.heal != nil || s.trusted) && p.whole && !p.pieces {
		r := &wholeReader{size: e.Size, off: off, load: func(b []byte) error { return ReadError(e, s.whole(ctx, e, b, 0)) }}
		return Content{Entry: e, r: r, trusted: true}
	}
	return s.healing(ctx, s.by(ctx, p, e.Size-off > Small).open(ctx, e, off, whole), off, true)
}

func (s *Source) open(ctx context.Context, e Entry, off int64, whole bool) Content {
	if s.proof(e).pieces {
		return Content{Entry: e, r: s.newProvenReader(ctx, e, off), vouched: true}
	}
	r := s.engine.NewReaderAt(ctx, s.Reader.Extents(ctx, e, off, e.Size-off), off, e.Size)
	if whole {
		r.Whole()
	}
	if off > 0 {
		return s.stored(e, &named{r, e})
	}
	return s.stored(e, &named{&guarded{s: s, ctx: ctx, e: e, Reader: r, first: r}, e})
}

// stored returns content that r reads as it is stored.
func (s *Source) stored(e Entry, r io.Reader) Content {
	return Content{Entry: e, r: r, trusted: s.Checking.skips(e), search: &s.search}
}

// named adds the name of the entry to its errors.
type named struct {
	io.ReadCloser
	e Entry
}

func (n *named) Read(p []byte) (int, error) {
	k, err := n.ReadCloser.Read(p)
	return k, ReadError(n.e, err)
}

// Copy copies all of e's content to w, as Content.CopyTo does.
func (s *Source) Copy(ctx context.Context, w io.Writer, e Entry) error {
	if s.Parts != nil {
		_, err := ofPart(ctx, s, e, func(m *Source, own Entry) (any, error) { return nil, m.Copy(ctx, w, own) })
		return err
	}
	p := s.proof(e)
	if p.pieces && 0 < e.Size && e.Size <= Small && s.heal == nil {
		b := spareOf(e.Size)
		defer spares.Put(b)
		_, err := s.readProven(ctx, e, *b, 0)
		if err == nil {
			_, err = w.Write(*b)
			return err
		}
		if !s.without(err) {
			return ReadError(e, err)
		}
		p = s.proof(e)
	}
	_, run := s.run(e)
	// Content without a digest that is one run of stored bytes is read as it is.
	plain := run && e.Size > 0 && !p.digest && s.heal == nil && !s.trusted
	if e.Size <= Small && (p.whole || plain) && !p.pieces {
		b := spareOf(e.Size)
		defer spares.Put(b)
		read := s.readStored
		if p.whole {
			read = s.whole
		}
		if err := read(ctx, e, *b, 0); err != nil {
			return ReadError(e, err)
		}
		_, err := w.Write(*b)
		return err
	}
	c := s.openAt(ctx, e, 0, true)
	defer c.Close()
	known, err := s.known(ctx, e)
	if err != nil {
		return err
	}
	if known {
		c = c.Trusted()
	}
	err = c.CopyTo(ctx, w, nil)
	if err == nil && !known && !c.vouched && p.digest && !s.heal.known() {
		err = s.learn(ctx, e, nil) // it need not be compared again
	}
	return err
}

// Each is called for each entry of a sweep with its content, or with the error that kept it from
// being read. If it returns an error, the sweep ends.
type Each func(c Content, err error) error

// Order says how a sweep calls Each.
type Order int

const (
	AnyOrder Order = iota // on several goroutines at once, in any order
	InOrder               // for one entry after the other, in their order
	// Compared is InOrder. In addition, content that is held in memory is compared with its digest
	// by the goroutines that read, so that Each need not do it.
	Compared
	// Sent is Compared for a client that may stop reading: little is read ahead until it has taken
	// much.
	Sent
)

// Sweep reads the contents of entries, many in parallel and neighbours together.
func (s *Source) Sweep(ctx context.Context, entries iter.Seq2[Entry, error], order Order, each Each) error {
	if s.Parts != nil {
		return s.sweepParts(ctx, entries, order, each)
	}
	if s.heal == nil {
		return s.sweep(ctx, entries, order, each)
	}
	by := s
	if s.heal.known() {
		by = s.heal.checked
	}
	return by.sweep(ctx, entries, order, func(c Content, err error) error {
		if err != nil {
			h, e := s.cure(ctx, c.Entry, err)
			if h == nil {
				return each(c, err)
			}
			c = h.Open(ctx, e, 0)
			defer c.Close()
			return each(c, nil)
		}
		c.cure = func(err error) (Content, bool) {
			h, e := s.cure(ctx, c.Entry, err)
			if h == nil {
				return c, false
			}
			return h.Open(ctx, e, 0), true
		}
		if _, small := c.r.(*bytes.Reader); small {
			return each(c, nil)
		}
		if by == s && c.Entry.Size > Small && s.heal.ready(ctx) && s.heal.known() {
			c = s.Open(ctx, c.Entry, 0) // on a network, found just now
		} else {
			c = s.healing(ctx, c, 0, false)
		}
		defer c.Close()
		return each(c, nil)
	})
}

func (s *Source) sweep(ctx context.Context, entries iter.Seq2[Entry, error], order Order, each Each) error {
	return s.sweepStored(ctx, entries, order, func(c Content, err error) error {
		if p := s.proof(c.Entry); err != nil || !p.pieces {
			if s.trusted && order == Sent && err == nil && !c.IsHeld() { // none of it is returned before it is compared
				c = s.Open(ctx, c.Entry, 0)
				defer c.Close()
			}
			return each(c, cmp.Or(err, s.refusal(c.Entry, p)))
		}
		if b, ok := c.inMemory(); ok {
			_, err := s.proven.checkAll(ctx, c.Entry, 0, b)
			if s.without(err) {
				return each(s.stored(c.Entry, bytes.NewReader(b)), nil)
			}
			return each(Content{Entry: c.Entry, r: bytes.NewReader(b), vouched: true}, err)
		}
		r := &provenReader{s: s, ctx: ctx, e: c.Entry, r: c.r, cancel: func() {}}
		defer r.Close()
		return each(Content{Entry: c.Entry, r: r, vouched: true}, nil)
	})
}

// sweepStored is Sweep without verifying anything.
func (s *Source) sweepStored(ctx context.Context, entries iter.Seq2[Entry, error], order Order, each Each) error {
	items := func(yield func(engine.Item, error) bool) {
		for e, err := range entries {
			it := engine.Item{Entry: e, Extents: s.Extents(ctx, e)}
			if x, ok := s.run(e); ok {
				it.Plain = !engine.Coded(x)
			}
			if p := s.proof(e); order >= Compared && err == nil && p.digest && !p.pieces {
				it.Check = isRight
			}
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
	take := func(it engine.Item, r io.Reader, err error) error {
		c := s.stored(it.Entry, r)
		if it.Right {
			c = c.Trusted()
		}
		if s.hasSecond(it.Entry, err) {
			if b := make([]byte, it.Entry.Size); s.readSecond(ctx, it.Entry, b) == nil {
				c.r, c.amiss, err = bytes.NewReader(b), new(err), nil
			}
		} else if _, small := r.(*bytes.Reader); !small && err == nil {
			g := &guarded{s: s, ctx: ctx, e: it.Entry, Reader: r}
			defer g.Close()
			c.r, c.amiss = g, &g.amiss
		}
		return each(c, err)
	}
	if order == Sent {
		return s.engine.Send(ctx, items, take)
	}
	return s.engine.Sweep(ctx, items, order != AnyOrder, take)
}

func isRight(e *Entry, content []byte) bool { return digest.Check(*e, content, nil) == nil }

// Passing returns err, with the name of its entry, if it is not about the content: it is temporary,
// or an object has been replaced. It returns nil for damage.
func Passing(e Entry, err error) error {
	if storekit.Temporary(err) || errors.Is(err, store.ErrChanged) {
		return fmt.Errorf("%s: %w", format.Escape(e.Name), err)
	}
	return nil
}
