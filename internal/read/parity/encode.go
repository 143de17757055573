package parity

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdall/holdall/internal/base/blake3"
)

// An Object is one of the objects that are protected together.
type Object struct {
	// Name is empty for an archive that is one object. For an object of an archive that is a
	// folder it begins with a slash. Otherwise it is a name beside the parity file.
	Name     string    `json:"name,omitempty"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified,omitzero"`
	Version  string    `json:"version,omitempty"`
}

// about describes the archive. It is at the end of the directory.
type about struct {
	Loss    float64 `json:"loss"`
	Objects objects `json:"objects"`
}

type objects []Object

// UnmarshalJSON decodes one object at a time. It rejects duplicate names, because many empty
// objects would take far more memory than text.
func (all *objects) UnmarshalJSON(b []byte) error {
	names := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		var o Object
		if err := d.Decode(&o); err != nil {
			return err
		}
		if names[o.Name] || !plainName(o.Name) {
			return fmt.Errorf("an object cannot be called %q", o.Name)
		}
		names[o.Name] = true
		*all = append(*all, o)
	}
	return nil
}

// An Encoder computes the parity of an archive. The archive's bytes are written to it once, in
// order. It is for one goroutine only.
type Encoder struct {
	ctx     context.Context
	g       geometry
	loss    float64
	size    int64 // bytes that were written
	next    int64 // block that comes next
	objects int   // number of objects, known at the end

	together int    // number of blocks that are added at once
	open     []byte // blocks that are not complete yet
	fill     int
	head     room  // the first blocks, which can be changed until the end
	held     int64 // number of blocks in head
	code     *coder
	near     []byte // sum of the current neighbours
	nears    room
	sums     room                          // digests
	hashes   room                          // rolling hashes
	grows    bool                          // the parity must suffice for an archive that grows
	was      func(i int64) ([]byte, error) // parity to which this is added, if not nil
	err      error
}

// headLen is how many bytes of the beginning are held, because archive writers come back to change
// them. Zeros that follow them are held, too: they reserve space for what the writer knows only at
// the end.
const headLen = 1 << 20

// NewEncoder returns an encoder for about expect bytes. The parity survives the loss of any share
// loss of them. Finish returns ErrTooMuch if far more bytes were written.
func NewEncoder(ctx context.Context, expect int64, loss float64) (*Encoder, error) {
	g, err := plan(expect, loss)
	if err != nil {
		return nil, err
	}
	return newEncoder(ctx, g, loss), nil
}

func newEncoder(ctx context.Context, g geometry, loss float64) *Encoder {
	code := newCoder(g.block, g.groups, g.order)
	return &Encoder{
		ctx: ctx, g: g, loss: loss, code: code, together: code.together(), open: make([]byte, code.together()*g.block), near: make([]byte, g.block),
		head: room{limit: 8 << 20}, nears: room{limit: 4 << 20}, sums: room{limit: 8 << 20}, hashes: room{limit: 4 << 20},
	}
}

// Summary says how the archive is divided, after Finish.
func (e *Encoder) Summary() Summary { return e.g.summary(e.size, e.objects) }

// Close releases the resources of the encoder.
func (e *Encoder) Close() {
	e.code.close()
	e.head.close()
	e.nears.close()
	e.sums.close()
	e.hashes.close()
}

// ErrTooMuch means that an archive became longer than expected, so that its parity would be less
// than requested.
var ErrTooMuch = errors.New("the archive is longer than expected")

func (e *Encoder) Write(p []byte) (n int, err error) {
	for n < len(p) && e.err == nil {
		// Up to the end of the blocks that are added together.
		most := (e.together - int(e.next%int64(e.together))) * e.g.block
		if e.fill == 0 && len(p)-n >= most {
			e.err = e.take(p[n : n+most])
			n += most
			continue
		}
		k := copy(e.open[e.fill:most], p[n:])
		n += k
		if e.fill += k; e.fill == most {
			e.fill = 0
			e.err = e.take(e.open[:most])
		}
	}
	e.size += int64(n)
	return n, e.err
}

// Patch changes bytes that were written. It returns false if it cannot: they are neither in the
// first blocks nor in the last ones.
func (e *Encoder) Patch(p []byte, off int64) bool {
	if off < 0 || off+int64(len(p)) > e.size || e.err != nil {
		return false
	}
	for open, held := e.size-int64(e.fill), e.held*int64(e.g.block); len(p) > 0; {
		var n int
		switch {
		case off < held:
			n = int(min(held-off, int64(len(p))))
			if e.err = e.head.write(p[:n], off); e.err != nil {
				return false
			}
		case off >= open:
			n = copy(e.open[off-open:e.fill], p)
		default:
			return false
		}
		p, off = p[n:], off+int64(n)
	}
	return true
}

// Rewind discards the bytes from offset to. It returns false if it cannot.
func (e *Encoder) Rewind(to int64) bool {
	open := e.size - int64(e.fill)
	if to < 0 || to < open && e.next > e.held || to > e.size || e.err != nil {
		return false
	}
	if block := int64(e.g.block); to < open {
		e.next = to / block
		e.held = e.next
		open = e.next * block
		e.err = e.head.read(e.open[:block], open)
	}
	e.fill, e.size = int(to-open), to
	return e.err == nil
}

func (e *Encoder) take(b []byte) error {
	if size := e.g.block; e.together == 1 || len(b) < e.together*size || e.next == e.held {
		for ; len(b) > 0; b = b[size:] {
			if err := e.add(b[:size]); err != nil {
				return err
			}
		}
		return nil
	}
	first := e.next
	for at := 0; at < len(b); at += e.g.block {
		if err := e.keepHashes(e.next, b[at:at+e.g.block]); err != nil {
			return err
		}
		e.next++
	}
	e.beginNear(first)
	if err := e.code.addTogether(e.ctx, first, b, e.near); err != nil {
		return err
	}
	return e.endNear(e.next)
}

func (e *Encoder) add(b []byte) error {
	i := e.next
	e.next++
	if at := i * int64(e.g.block); i == e.held && (at < headLen || allZeros(b)) {
		e.held++
		if at >= e.head.size && allZeros(b) {
			return nil // unwritten bytes read as zeros
		}
		return e.head.write(b, at)
	}
	if err := e.keepHashes(i, b); err != nil {
		return err
	}
	e.beginNear(i)
	subtle.XORBytes(e.near, e.near, b)
	if err := e.endNear(i + 1); err != nil {
		return err
	}
	return e.code.add(e.ctx, i, b)
}

// beginNear begins a sum of neighbours if the next block is the first of it.
func (e *Encoder) beginNear(next int64) {
	if next%nearLen == 0 {
		clear(e.near)
	}
}

// endNear stores a sum of neighbours if the next block is the first of the next neighbourhood.
func (e *Encoder) endNear(next int64) error {
	if next%nearLen > 0 {
		return nil
	}
	return e.nears.write(e.near, (next/nearLen-1)*int64(e.g.block))
}

func allZeros(b []byte) bool { return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

func (e *Encoder) keepHashes(i int64, b []byte) error {
	var d [digestLen]byte
	binary.LittleEndian.PutUint64(d[:], digestOf(b))
	if err := e.sums.write(d[:], i*digestLen); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(d[:], rollOf(b))
	return e.hashes.write(d[:rollLen], i*rollLen)
}

// finish adds the remaining bytes and computes the parity.
func (e *Encoder) finish() error {
	if e.err != nil {
		return e.err
	}
	if e.size == 0 {
		return errors.New("empty: nothing to protect")
	}
	g := &e.g
	if e.fill > 0 {
		whole := (e.fill + g.block - 1) / g.block * g.block
		clear(e.open[e.fill:whole])
		for b := e.open[:whole]; len(b) > 0; b = b[g.block:] {
			if err := e.add(b[:g.block]); err != nil {
				return err
			}
		}
	}
	g.blocks = e.next
	g.parity = share(g.inGroup(0), g.groups, e.loss)
	if e.grows {
		g.parity = max(g.parity, min(share(int(float64(g.inGroup(0))*growth)+64, g.groups, e.loss), g.order))
	}
	if g.groups > g.blocks || g.parity > g.order || g.check() != nil {
		return ErrTooMuch
	}
	if last := g.blocks - 1; last%nearLen != nearLen-1 {
		if err := e.nears.write(e.near, last/nearLen*int64(g.block)); err != nil {
			return err
		}
	}
	// Add the held blocks of the beginning.
	if err := e.code.flush(e.ctx); err != nil {
		return err
	}
	for i := range e.held {
		b, at := e.open[:g.block], i/nearLen*int64(g.block)
		err := e.head.read(b, i*int64(g.block))
		if err == nil {
			err = e.nears.read(e.near, at)
		}
		if err == nil {
			subtle.XORBytes(e.near, e.near, b)
			err = e.nears.write(e.near, at)
		}
		if err == nil {
			err = e.keepHashes(i, b)
		}
		if err == nil {
			err = e.code.add(e.ctx, i, b)
		}
		if err != nil {
			return err
		}
	}
	return e.code.finish(e.ctx, g.parity)
}

// Finish writes the parity file of the objects whose bytes were written.
func (e *Encoder) Finish(to io.Writer, objects []Object) (err error) {
	size := int64(0)
	for _, o := range objects {
		size += o.Size
	}
	if size != e.size {
		return fmt.Errorf("expected objects of %d bytes, found %d", size, e.size)
	}
	if err := e.finish(); err != nil {
		return err
	}
	e.objects = len(objects)
	return e.write(to, objects)
}

// write writes the parity file. It must follow finish.
func (e *Encoder) write(to io.Writer, objects []Object) error {
	text, err := json.Marshal(about{e.loss, objects})
	if err == nil && len(text) > maxNames {
		err = fmt.Errorf("%d objects exceed the limit of a parity file", len(objects))
	}
	if err != nil {
		return err
	}
	// The directory consists of the digests, the rolling hashes, the description and zeros.
	g := &e.g
	length := g.text() + int64(len(text))
	g.directory = (length + int64(g.block) - 1) / int64(g.block)
	if err := g.check(); err != nil {
		return err
	}
	if g.rolls() {
		if err := e.sums.append(&e.hashes, g.blocks*digestLen, g.blocks*rollLen); err != nil {
			return err
		}
	}
	if err := e.sums.write(text, g.text()); err != nil {
		return err
	}
	if err := e.sums.reserve(g.directory * int64(g.block)); err != nil {
		return err
	}
	in := g.inDirectory()
	recovery := newCoder(g.block, in.groups, in.order)
	defer recovery.close()
	id := blake3.New()
	b := make([]byte, g.stride())
	payload := b[headerLen:]
	for i := range g.directory {
		if err := e.sums.read(payload, i*int64(g.block)); err != nil {
			return err
		}
		id.Write(payload)
		if err := recovery.add(e.ctx, i, payload); err != nil {
			return err
		}
	}
	if err := recovery.finish(e.ctx, in.parity); err != nil {
		return err
	}
	h := header{geometry: *g}
	copy(h.id[:], id.Sum(nil))

	w := bufio.NewWriterSize(to, 1<<20)
	put := func(k kind, read func(i int64) error) error {
		h.kind = k
		for h.number = 0; h.number < h.count(k); h.number++ {
			if err := read(h.number); err != nil {
				return err
			}
			if e.ctx.Err() != nil {
				return context.Cause(e.ctx)
			}
			record := b[:headerLen+h.payload()]
			h.put(record)
			if _, err := w.Write(record); err != nil {
				return err
			}
		}
		return nil
	}
	end := func() error { return put(kindEnd, func(int64) error { return nil }) }
	if err = end(); err != nil {
		return err
	}
	if err = put(kindRecovery, func(i int64) error { return recovery.parity(i%in.groups, int(i/in.groups), payload) }); err != nil {
		return err
	}
	if err = put(kindNear, func(i int64) error { return e.nears.read(payload, i*int64(g.block)) }); err != nil {
		return err
	}
	parity := func(i int64) error {
		err := e.code.parity(i%g.groups, int(i/g.groups), payload)
		if err != nil || e.was == nil {
			return err
		}
		was, err := e.was(i)
		subtle.XORBytes(payload, payload, was)
		return err
	}
	if err = put(kindParity, parity); err != nil {
		return err
	}
	if err = put(kindDirectory, func(i int64) error { return e.sums.read(payload, i*int64(g.block)) }); err != nil {
		return err
	}
	if err = end(); err != nil {
		return err
	}
	return w.Flush()
}
