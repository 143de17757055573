package content

import (
	"context"
	"hash/maphash"
	"io"
	"io/fs"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/internal/digest"
)

// Checking says what is compared when content is read.
type Checking struct {
	// None compares nothing.
	None bool
	// Whole is up to which length content is read whole and compared when any of it is
	// read; 0 is Small, a negative one is none.
	Whole int64
}

// comparesWhole reports whether all of e's content is compared with its digest before any
// of it is handed on.
func (s *Source) comparesWhole(e Entry) bool {
	most := s.Checking.Whole
	if most == 0 {
		most = Small
	}
	return !s.Checking.None && e.Size > 0 && e.Size <= most && e.Kind.HasContent() && digest.Known(e.Digest.Algo)
}

// Compares says what of e's content is compared before it is handed on: any part of it, or
// only all of it, read from its beginning to its end.
func (s *Source) Compares(e Entry) (parts, whole bool) {
	parts = s.proves(e) || s.comparesWhole(e)
	return parts, parts || !s.Checking.None && e.Kind.HasContent() && digest.Known(e.Digest.Algo)
}

// compared are the contents that were compared, by what they are and where they lie: what
// is wrong with long ones, and keys of those that were right. A new key takes the place of
// an old one where there is no room, so that of a few files it costs once, and of millions
// what it must.
type compared struct {
	seed  maphash.Seed
	right atomic.Pointer[[]atomic.Uint64]

	mu    sync.Mutex
	many  int // in right
	wrong map[uint64]error
	any   atomic.Bool // is wrong
}

const (
	fewRight  = 1 << 12
	mostRight = 1 << 20 // 8 MiB
	rightWays = 4       // places that a key may have
)

// key is what a content is known by, never 0: what it should be and where it lies. Of one
// that is not in one run the name stands for where the rest of it lies.
func (s *Source) key(ctx context.Context, e *Entry) uint64 {
	h := maphash.String(s.compared.seed, e.Digest.Sum)
	x, ok := s.run(*e)
	if !ok {
		x, _ = s.first(ctx, *e, 0, e.Size)
		h = bits.RotateLeft64(h, 21) ^ maphash.String(s.compared.seed, e.Name)
	}
	if len(x.Object) > 0 && x.Object != s.Name {
		h = bits.RotateLeft64(h, 21) ^ maphash.String(s.compared.seed, x.Object)
	}
	const odd = 0x9e3779b97f4a7c15
	return (h^uint64(x.Off)*odd^uint64(x.Skip))*odd | 1
}

// wasRight reports whether the content of a key was found right.
func (c *compared) wasRight(key uint64) bool {
	all := c.right.Load()
	if all == nil {
		return false
	}
	for i := range uint64(rightWays) {
		if (*all)[(key>>20+i)&uint64(len(*all)-1)].Load() == key {
			return true
		}
	}
	return false
}

// remember notes that the content of a key was right; mu must be held.
func (c *compared) remember(key uint64) {
	all := c.right.Load()
	switch {
	case all == nil:
		t := make([]atomic.Uint64, fewRight)
		all = &t
		c.right.Store(all)
	case c.many > len(*all)/2 && len(*all) < mostRight:
		t := make([]atomic.Uint64, 4*len(*all))
		c.many = 0
		for i := range *all {
			if k := (*all)[i].Load(); k != 0 {
				c.put(t, k)
			}
		}
		all = &t
		c.right.Store(all)
	}
	c.put(*all, key)
}

func (c *compared) put(all []atomic.Uint64, key uint64) {
	for i := range uint64(rightWays) {
		if p := &all[(key>>20+i)&uint64(len(all)-1)]; p.Load() == 0 || p.Load() == key {
			p.Store(key)
			c.many++
			return
		}
	}
	all[(key>>20+key%rightWays)&uint64(len(all)-1)].Store(key)
}

// Known reports whether e's content was compared before, and what was wrong.
func (s *Source) Known(ctx context.Context, e Entry) (bool, error) {
	c := &s.compared
	if c.right.Load() == nil && !c.any.Load() || s.Checking.None || !digest.Known(e.Digest.Algo) {
		return false, nil
	}
	key := s.key(ctx, &e)
	if c.wasRight(key) {
		return true, nil
	}
	if !c.any.Load() {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.wrong[key]
	return err != nil, err
}

// learn remembers that e's content was compared, and returns what is wrong with it: that of
// an archive that changed is not damaged.
func (s *Source) learn(ctx context.Context, e Entry, wrong error) error {
	if wrong != nil {
		if err := s.objects.changed(ctx); err != nil {
			return err
		}
		if s.comparesWhole(e) {
			return wrong // a second try may find it right
		}
	}
	c, key := &s.compared, s.key(ctx, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if wrong == nil {
		c.remember(key)
		return nil
	}
	if c.wrong == nil || len(c.wrong) >= fewRight {
		c.wrong = map[uint64]error{}
	}
	c.wrong[key] = wrong
	c.any.Store(true)
	return wrong
}

// readWhole fills p with content of e from off, all of which is compared if it was not
// before.
func (s *Source) readWhole(ctx context.Context, e Entry, p []byte, off int64) error {
	if known, _ := s.Known(ctx, e); known {
		return s.readStored(ctx, e, p, off)
	}
	b := p
	if int64(len(p)) < e.Size {
		spare := spareOf(e.Size)
		defer spares.Put(spare)
		b = *spare
	}
	err := s.readStored(ctx, e, b, 0)
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

// touch compares all of e's content, if that is done before any of it is handed on.
func (s *Source) touch(ctx context.Context, e Entry) error {
	if known, err := s.Known(ctx, e); known || !s.comparesWhole(e) {
		return err
	}
	b := spareOf(e.Size)
	defer spares.Put(b)
	return readError(e, s.readWhole(ctx, e, *b, 0))
}

// check compares b with the digest of e.
func (s *Source) check(e Entry, b []byte) error { return digest.Check(e, b, &s.search) }

// Settle finds out whether e's content is what its digest says, if that is not known.
func (s *Source) Settle(ctx context.Context, e Entry) error {
	known, err := s.Known(ctx, e)
	if known {
		return err
	}
	r := s.ReadFrom(ctx, e, 0)
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// ReadFrom returns e's content from off on, for who compares nothing: what is long is
// compared on the way if it is read from its beginning, and its last Read returns what is
// wrong.
func (s *Source) ReadFrom(ctx context.Context, e Entry, off int64) io.ReadCloser {
	_, compares := s.Compares(e)
	known, wrong := s.Known(ctx, e)
	switch {
	case !compares || s.proves(e) || known && wrong == nil:
		return s.Open(ctx, e, off)
	case known:
		return &wholeReader{err: wrong}
	case s.comparesWhole(e):
		return &wholeReader{size: e.Size, off: off, load: func(b []byte) error { return readError(e, s.readWhole(ctx, e, b, 0)) }}
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

// A wholeReader reads content that is compared before any of it is handed on.
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
