package content

import (
	"context"
	"hash/maphash"
	"io"
	"io/fs"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/internal/read/digest"
)

// compared records the contents that were compared: what is wrong with long ones, and which were
// right. It forgets some of the right ones if there are more than a million.
type compared struct {
	seed  maphash.Seed
	right atomic.Pointer[[]atomic.Uint64]

	mu    sync.Mutex
	many  int // in right
	wrong map[mark]error
	any   atomic.Bool // is wrong
}

const (
	fewRight  = 1 << 16 // 512 KiB
	mostRight = 1 << 20 // 8 MiB
	rightWays = 4       // places that a key may have
)

// A mark identifies a content: where it lies, and what it should be. Both are computed side by
// side, as neither is in the processor's cache.
type mark struct {
	place uint64
	what  uint64 // never 0
}

// markOf returns e's mark. If the content is not one run, the mark includes the name, which stands
// for where the rest lies.
func (s *Source) markOf(ctx context.Context, e *Entry) mark {
	x, ok := s.run(*e)
	if !ok {
		x, _ = s.first(ctx, *e, 0, e.Size)
	}
	h := maphash.String(s.compared.seed, e.Digest.Sum)
	if !ok {
		h = bits.RotateLeft64(h, 21) ^ maphash.String(s.compared.seed, e.Name)
	}
	if x.Object != s.Name {
		h = bits.RotateLeft64(h, 21) ^ maphash.String(s.compared.seed, x.Object)
	}
	const odd = 0x9e3779b97f4a7c15
	place := uint64(x.Off)*odd + uint64(x.Skip)*(odd>>1|1)
	return mark{place >> 32, (h ^ place) | 1}
}

// wasRight reports whether a content was found right.
func (c *compared) wasRight(m mark) bool {
	all := c.right.Load()
	if all == nil {
		return false
	}
	for i := range uint64(rightWays) {
		if (*all)[(m.place+i)&uint64(len(*all)-1)].Load() == m.what {
			return true
		}
	}
	return false
}

// remember notes that a content was right; mu must be held. If there is no room, it replaces an
// older mark.
func (c *compared) remember(m mark) {
	all := c.right.Load()
	if all == nil || c.many > len(*all)/2 && len(*all) < mostRight {
		// Contents recorded before are compared once more when they are read again.
		t := make([]atomic.Uint64, fewRight)
		if all != nil {
			t = make([]atomic.Uint64, mostRight)
		}
		all, c.many = &t, 0
		c.right.Store(all)
	}
	c.many++
	for i := range uint64(rightWays) {
		p := &(*all)[(m.place+i)&uint64(len(*all)-1)]
		if was := p.Load(); was == 0 || was == m.what || i == rightWays-1 {
			p.Store(m.what)
			return
		}
	}
}

// known reports whether e's content was compared before, and what was wrong.
func (s *Source) known(ctx context.Context, e Entry) (bool, error) {
	c := &s.compared
	if c.right.Load() == nil && !c.any.Load() || !s.proof(e).digest {
		return false, nil
	}
	m := s.markOf(ctx, &e)
	if c.wasRight(m) {
		return true, nil
	}
	if !c.any.Load() {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.wrong[m]
	return err != nil, err
}

// learn records that e's content was compared, and returns what is wrong with it. If the archive
// has changed, it returns that error instead.
func (s *Source) learn(ctx context.Context, e Entry, wrong error) error {
	if wrong != nil {
		if err := s.objects.changed(ctx); err != nil {
			return err
		}
		if s.proof(e).whole {
			return wrong // a second try may find it right
		}
	}
	c, m := &s.compared, s.markOf(ctx, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong == nil {
		c.remember(m)
		return nil
	}
	if c.wrong == nil || len(c.wrong) >= fewRight {
		c.wrong = map[mark]error{}
	}
	c.wrong[m] = wrong
	c.any.Store(true)
	return wrong
}

// readWhole fills p with content of e from off. All of the content is compared, unless it was
// compared before.
func (s *Source) readWhole(ctx context.Context, e Entry, p []byte, off int64) error {
	if known, _ := s.known(ctx, e); known {
		if err := s.readStored(ctx, e, p, off); !s.hasSecond(e, err) {
			return err
		}
	}
	b := p
	if int64(len(p)) < e.Size {
		spare := spareOf(e.Size)
		defer spares.Put(spare)
		b = *spare
	}
	err := s.readStored(ctx, e, b, 0)
	if s.hasSecond(e, err) && s.readSecond(ctx, e, b) == nil {
		err = nil
	}
	if err == nil {
		err = s.learn(ctx, e, s.check(e, b))
	}
	if err != nil {
		clear(p)
		return err
	}
	if int64(len(p)) < e.Size {
		copy(p, b[off:])
	}
	return nil
}

// touch verifies e's content, if that must be done before any of it is returned.
func (s *Source) touch(ctx context.Context, e Entry) error {
	if known, err := s.known(ctx, e); known || !s.proof(e).whole {
		return err
	}
	b := spareOf(e.Size)
	defer spares.Put(b)
	return ReadError(e, s.whole(ctx, e, *b, 0))
}

// check compares b with the digest of e.
func (s *Source) check(e Entry, b []byte) error { return digest.Check(e, b, &s.search) }

// Settle verifies e's content, unless the result is known.
func (s *Source) Settle(ctx context.Context, e Entry) error {
	known, err := s.known(ctx, e)
	if known {
		return err
	}
	r := s.ReadFrom(ctx, e, 0)
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// ReadFrom returns e's content from off on, for callers that verify nothing themselves. Long
// content is verified while it is read, if it is read from its beginning: the last Read returns the
// error.
func (s *Source) ReadFrom(ctx context.Context, e Entry, off int64) io.ReadCloser {
	if s.Parts != nil {
		m, own, release, err := s.Parts.Of(ctx, e)
		if err != nil {
			return &wholeReader{err: err}
		}
		return Content{r: m.ReadFrom(ctx, own, off), done: release}
	}
	known, wrong := s.known(ctx, e)
	if h, e := s.cure(ctx, e, wrong); h != nil {
		return h.ReadFrom(ctx, e, off)
	}
	p := s.proof(e)
	switch {
	case !p.digest || p.pieces || known && wrong == nil:
		return s.Open(ctx, e, off)
	case known:
		return &wholeReader{err: wrong}
	case p.whole:
		return &wholeReader{size: e.Size, off: off, load: func(b []byte) error { return ReadError(e, s.whole(ctx, e, b, 0)) }}
	}
	c := s.Open(ctx, e, off)
	if off > 0 {
		return c
	}
	return struct {
		io.Reader
		io.Closer
	}{digest.NewChecked(c, e, func(err error) error { return s.learn(ctx, e, err) }), c}
}

// A wholeReader reads content that is verified before any of it is returned.
type wholeReader struct {
	size, off int64
	load      func([]byte) error
	room      *[]byte
	err       error
}

func (r *wholeReader) Read(p []byte) (int, error) {
	if r.err == nil && r.room == nil {
		r.room = spareOf(r.size)
		r.err = r.load(*r.room)
	}
	switch {
	case r.err != nil:
		return 0, r.err
	case r.off >= r.size:
		return 0, io.EOF
	}
	n := copy(p, (*r.room)[r.off:])
	r.off += int64(n)
	return n, nil
}

func (r *wholeReader) Close() error {
	if r.room != nil {
		spares.Put(r.room)
	}
	r.room, r.err = nil, fs.ErrClosed
	return nil
}

// spares are buffers for small contents, of *[]byte.
var spares = sync.Pool{New: func() any { return new([]byte) }}

// spareOf returns a buffer of n bytes.
func spareOf(n int64) *[]byte {
	spare := spares.Get().(*[]byte)
	if int64(cap(*spare)) < n {
		*spare = make([]byte, n)
	}
	*spare = (*spare)[:n]
	return spare
}
