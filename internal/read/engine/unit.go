package engine

import (
	"bytes"
	lru "container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// A unit is a stored run that is decoded completely, such as a record or a section. Its content is
// kept, since the next read often lies in it too. Runs that are too long for that, or of unknown
// length, are read by a cursor.
//
// A damaged unit has the content before its damage, and an error for reads beyond it. One that ends
// with a checksum has no content then: what decodes may be wrong before the decoder notices.
type unit struct {
	key  unitKey
	want int64         // how many bytes to decode from its front
	done chan struct{} // closed when the rest is set
	b    []byte        // at least want bytes, or fewer if err is not nil
	err  error
	gone bool         // not decoded: each user has to decode it
	elem *lru.Element // of units.used
}

// unitKey says where a unit is stored and what it becomes.
type unitKey struct {
	object    string
	external  bool
	off, len  int64
	size      int64
	codecName string
}

const (
	maxUnit   = 16 << 20
	maxStored = maxUnit + 1<<20 // for a unit that does not compress
)

func keyOf(e format.Extent) unitKey {
	return unitKey{e.Object, e.External, e.Off, e.Len, e.Unit, e.Codec}
}

func (k unitKey) extent() format.Extent {
	return format.Extent{Size: k.size, Object: k.object, External: k.external, Off: k.off, Len: k.len, Codec: k.codecName, Unit: k.size}
}

// Coded reports whether e's content has to be decoded by a codec.
func Coded(e format.Extent) bool {
	return e.Codec != codec.Raw && e.Codec != codec.Zero && e.Codec != codec.Inline
}

// inUnit reports whether e, which is coded, lies in a unit that is decoded completely.
func inUnit(e format.Extent) bool {
	return 0 < e.Unit && e.Unit <= maxUnit && e.Len <= maxStored
}

// Summed reports whether content of e is compared with a checksum of its unit: before any of it is
// returned, or at least when the unit is read to its end.
func Summed(e format.Extent) (before, summed bool) {
	c, ok := codec.Lookup(e.Codec)
	return ok && c.Sums && inUnit(e), ok && (c.Sums || e.Summed)
}

func newUnit(k unitKey) *unit { return &unit{key: k, want: k.size, done: make(chan struct{})} }

// has reports whether a unit that has landed has its first n bytes, or never will.
func (u *unit) has(n int64) bool { return u.err != nil || int64(len(u.b)) >= n }

func (u *unit) landed() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// wait waits until the unit is decoded, or given up.
func (u *unit) wait(ctx context.Context) error {
	select {
	case <-u.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slice returns e's content, or the part of it that exists and an error.
func (u *unit) slice(e format.Extent) ([]byte, error) {
	have := int64(len(u.b))
	from, to := min(e.Skip, have), min(e.Skip+e.Size, have)
	b := u.b[from:to:to]
	if int64(len(b)) < e.Size {
		return b, u.err
	}
	return b, nil
}

// units remembers decoded units, the most recently used, and tracks those that are being decoded,
// so that none is decoded twice at once.
type units struct {
	limit int64
	mu    sync.Mutex
	held  int64
	used  lru.List // of *unit, the most recently used in front
	m     map[unitKey]*unit
}

// unitCost is what a unit costs beside its content.
const unitCost = 512

func newUnits(limit int64) *units { return &units{limit: limit, m: map[unitKey]*unit{}} }

// keeps reports whether a read of n bytes may leave its units here. A long read would evict
// everything else and is seldom repeated.
func (c *units) keeps(n int64) bool { return n <= c.limit/4 }

// claim returns the unit of a key. If mine is true, no other goroutine decodes it, and the caller
// must land it or give it up. It is shared if keep is set.
//
// A unit of a different caller may turn out to have less than want. A unit that was decoded up to
// some position and is now needed beyond it is decoded completely.
func (c *units) claim(k unitKey, keep bool, want int64) (u *unit, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.m[k]; u != nil {
		switch {
		case u.elem == nil:
			return u, false
		case u.has(want):
			c.used.MoveToFront(u.elem)
			return u, false
		}
		c.drop(u)
		want = k.size
	}
	u = newUnit(k)
	u.want = want
	if keep {
		c.m[k] = u
	}
	return u, true
}

// land sets the result of decoding a unit. It keeps the unit if the result is lasting, which means
// the same the next time.
func (c *units) land(u *unit, b []byte, err error, lasting bool) {
	u.b, u.err = b, err
	c.mu.Lock()
	defer c.mu.Unlock()
	close(u.done)
	if c.m[u.key] != u {
		return
	}
	cost := int64(len(b)) + unitCost
	if !lasting || cost > c.limit {
		delete(c.m, u.key)
		return
	}
	u.elem = c.used.PushFront(u)
	for c.held += cost; c.held > c.limit; {
		c.drop(c.used.Back().Value.(*unit))
	}
}

func (c *units) drop(u *unit) {
	c.used.Remove(u.elem)
	delete(c.m, u.key)
	c.held -= int64(len(u.b)) + unitCost
}

// giveUp releases a claimed unit that the caller did not decode.
func (c *units) giveUp(u *unit) {
	u.gone = true
	c.land(u, nil, nil, false)
}

// decode fetches one unit by itself and lands it, or gives it up if ctx is done.
func (g *Engine) decode(ctx context.Context, u *unit) {
	o, err := g.open(ctx, u.key.object, u.key.external)
	if err != nil {
		g.landFailed(ctx, u, err)
		return
	}
	stored := make([]byte, u.key.len)
	if err := o.ReadAt(ctx, stored, u.key.off); err != nil {
		if !isCut(err) {
			g.landFailed(ctx, u, err)
			return
		}
		stored = nil // decode what is there
	}
	g.landStored(ctx, o, u, stored)
}

// readPlain decodes a whole unit into p, if its codec is plain and the unit is undamaged.
func (g *Engine) readPlain(ctx context.Context, e format.Extent, p []byte) (done bool, err error) {
	c, _ := codec.Lookup(e.Codec)
	if !c.Plain {
		return false, nil
	}
	o, err := g.open(ctx, e.Object, e.External)
	if err != nil {
		return false, err
	}
	spare := storedBufs.Get().(*[]byte)
	defer storedBufs.Put(spare)
	*spare = slices.Grow((*spare)[:0], int(e.Len))
	if err := o.ReadAt(ctx, (*spare)[:e.Len], e.Off); err != nil {
		if isCut(err) {
			err = nil
		}
		return false, err
	}
	got, err := c.Append(p[:0:len(p)], (*spare)[:e.Len], len(p))
	return err == nil && len(got) == len(p) && (len(p) == 0 || &got[0] == &p[0]), nil
}

// isCut reports whether a read failed because the object ends before the range does.
func isCut(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

func (g *Engine) landFailed(ctx context.Context, u *unit, err error) {
	if ctx.Err() != nil {
		g.units.giveUp(u)
		return
	}
	g.units.land(u, nil, err, false)
}

// landStored decodes the stored bytes of a unit and lands it. If they are damaged or nil, it reads
// them again, front to back, up to the damage.
func (g *Engine) landStored(ctx context.Context, o store.Object, u *unit, stored []byte) {
	k := u.key
	c, ok := codec.Lookup(k.codecName)
	if !ok {
		g.units.land(u, nil, fmt.Errorf("%s at %d: no codec %q", k.object, k.off, k.codecName), false)
		return
	}
	var b []byte
	err := io.ErrUnexpectedEOF
	switch {
	case stored != nil && c.AppendFront != nil && u.want < k.size:
		b, err = c.AppendFront(nil, stored, int(k.size), int(u.want))
	case stored != nil && c.Append != nil:
		b, err = c.Append(nil, stored, int(k.size))
	case stored != nil:
		b, err = decodeFront(c, bytes.NewReader(stored), int(k.size))
	}
	if errors.Is(err, codec.ErrHealed) {
		if err = nil; g.OnHeal != nil {
			g.OnHeal()
		}
	}
	if err == nil {
		g.units.land(u, b, nil, true)
		return
	}
	in := newStored(ctx, o, k.off, k.len, Limits{Request: g.limits.Request})
	b, streamed := decodeFront(c, in, int(k.size))
	if streamed == nil {
		g.units.land(u, b, nil, true) // the first read returned wrong bytes
		return
	}
	if !g.doubts && (int64(len(b)) == k.size || c.Sums && in.failed == nil || errors.Is(streamed, codec.ErrChecksum)) {
		b = nil // it is wrong somewhere, at an unknown place
	}
	switch {
	case ctx.Err() != nil:
		g.units.giveUp(u)
	case in.failed != nil:
		g.units.land(u, b, in.failed, false)
	case c.Sums:
		g.units.land(u, b, unsummed{wrongUnit(k, err)}, true)
	default:
		g.units.land(u, b, wrongUnit(k, err), true)
	}
}

// An unsummed error is damage of a unit that ends with a checksum. It is codec.ErrChecksum, since
// what decodes before it was not compared.
type unsummed struct{ error }

func (u unsummed) Unwrap() error        { return u.error }
func (u unsummed) Is(target error) bool { return target == codec.ErrChecksum }

// wrongUnit adds the position of the unit to an error of the decoder.
func wrongUnit(k unitKey, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // content should be where the unit ends
	}
	if c, ok := errors.AsType[*format.CorruptError](err); ok { // of a format's own codec, at a position in the unit
		at := *c
		at.Volume, at.Off = k.object, k.off+c.Off
		return &at
	}
	return fmt.Errorf("%s at %d: decode %s: %w", k.object, k.off, k.codecName, err)
}

// decodeFront decodes a unit of size bytes, or as much of it as possible.
func decodeFront(c codec.Codec, stored io.Reader, size int) ([]byte, error) {
	d, err := c.Decode(stored)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b := make([]byte, size)
	n, err := io.ReadFull(d, b)
	if err != nil {
		return b[:n], err
	}
	return b, atEnd(d, int64(size))
}

// atEnd makes sure that d has no more data after the size bytes that were read. This may be when it
// detects a wrong checksum.
func atEnd(d io.Reader, size int64) error {
	switch n, err := io.ReadFull(d, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("unit size: expected %d, found more", size)
	case err != io.EOF:
		return err
	}
	return nil
}
