package parity

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Store shows the archive as it was when the parity was made. It verifies all that is read against
// the digests of the blocks and heals damaged blocks. If a block cannot be healed, the read fails.
func (g *Guard) Store() store.Store { return &view{Store: g.st, g: g} }

// Checked is like Store, but does not heal: reading a damaged block fails with ErrComputed.
func (g *Guard) Checked() store.Store { return &view{Store: g.st, g: g, strict: true} }

// StoreIf is like Store if damaged reports that the archive itself is not sound. damaged is called
// once, with the first range of an object that differs. If it returns false, the parity belongs to
// a different version or is wrong, and the store shows the archive as it is stored.
func (g *Guard) StoreIf(damaged func(ctx context.Context, object string, off, n int64) bool) store.Store {
	return &view{Store: g.st, g: g, damaged: damaged}
}

// ErrComputed means that a block is damaged, and would have to be computed.
var ErrComputed = errors.New("damaged, and healed with parity")

// Rest is like Store, for use after a Check that found more damage than can be healed. It shows
// blocks that cannot be healed as they are stored, with zeros for missing bytes. An object ends
// after the last block that is not lost.
func (g *Guard) Rest() store.Store { return &view{Store: g.st, g: g, rest: true} }

type view struct {
	store.Store
	g            *Guard
	strict, rest bool
	last         atomic.Pointer[edge]

	damaged func(ctx context.Context, object string, off, n int64) bool // nil if it always is
	once    sync.Once
	asIs    bool
}

// heals reports whether differences are healed. off and n are a range of the archive that differs.
func (v *view) heals(ctx context.Context, off, n int64) bool {
	if v.damaged == nil {
		return true
	}
	v.once.Do(func() {
		p := v.g.objs[v.g.at(off)]
		at := max(off-p.from, 0)
		v.asIs = !v.damaged(ctx, p.name, at, min(n, p.Size-at))
	})
	return !v.asIs
}

// healsMissing is heals for bytes that are missing at the end of one, or of any object if one is
// nil.
func (v *view) healsMissing(ctx context.Context, one *part) bool {
	for _, p := range v.g.objs {
		if p.there < p.Size && (one == nil || p == one) {
			return v.heals(ctx, p.from+p.there, p.Size-p.there)
		}
	}
	return true
}

// Can returns only abilities to read, so that nothing bypasses the guard.
func (v *view) Can() store.Abilities {
	can := v.Store.Can()
	return store.Abilities{Near: can.Near, Address: can.Address, List: v.list}
}

// list also lists objects that are lost.
func (v *view) list(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	if v.g.anyShort && !v.healsMissing(ctx, nil) {
		return storekit.List(ctx, v.Store, prefix)
	}
	var lost []*part
	for _, p := range v.g.objs {
		if p.obj == nil && strings.HasPrefix(p.name, prefix) && v.has(p) {
			lost = append(lost, p)
		}
	}
	slices.SortFunc(lost, func(a, b *part) int { return strings.Compare(a.name, b.name) })
	return func(yield func(store.Info, error) bool) {
		for info, err := range storekit.List(ctx, v.Store, prefix) {
			for err == nil && len(lost) > 0 && lost[0].name < info.Name {
				if !yield(v.info(lost[0])) {
					return
				}
				lost = lost[1:]
			}
			if p := v.g.parts[info.Name]; p != nil && err == nil {
				info.Size, err = v.size(p)
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
		for _, p := range lost {
			if !yield(v.info(p)) {
				return
			}
		}
	}
}

// info describes an object that is lost.
func (v *view) info(p *part) (store.Info, error) {
	size, err := v.size(p)
	return store.Info{Name: p.name, Size: size, ModTime: p.Modified, Version: p.Version}, err
}

// has reports whether there is anything to show of an object.
func (v *view) has(p *part) bool {
	size, err := v.size(p)
	return err != nil || size > 0 || p.Size == 0 || p.obj != nil
}

func (v *view) size(p *part) (int64, error) {
	if !v.rest || p.nearer.Load() || p.moved {
		return p.Size, nil
	}
	v.g.mu.Lock()
	defer v.g.mu.Unlock()
	end, size := p.Size, int64(v.g.f.h.block)
	for end > p.there {
		block := (p.from + end - 1) / size
		if lost, err := v.g.isLost(block); err != nil || !lost {
			return end, err
		}
		end = max(block*size-p.from, p.there)
	}
	return end, nil
}

// Open opens an object as it was when the parity was made.
func (v *view) Open(ctx context.Context, name string) (store.Object, error) {
	p := v.g.parts[name]
	if p == nil || !v.healsMissing(ctx, p) {
		return v.Store.Open(ctx, name)
	}
	if !v.has(p) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	size, err := v.size(p)
	return &whole{v, p, size}, err
}

// whole is an object as it was when the parity was made.
type whole struct {
	v    *view
	p    *part
	size int64
}

func (w *whole) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

func (w *whole) Close() error { return nil }

func (w *whole) Info(ctx context.Context) (store.Info, error) {
	if w.p.obj == nil {
		return w.v.info(w.p)
	}
	info, err := w.p.obj.Info(ctx)
	info.Size = w.size
	return info, err
}

func (w *whole) ReadAt(ctx context.Context, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	if off < 0 || int64(len(b)) > w.size-off {
		return io.ErrUnexpectedEOF
	}
	err := w.v.readAt(ctx, b, w.p.from+off)
	if err == ErrBeyond || err == errLost {
		err = &format.CorruptError{Format: "parity", Problem: format.Problem{
			Code: format.BadData, Severity: format.Error, Volume: w.p.name, Off: off, Message: "more damage than " + w.v.g.f.At + " can heal",
		}}
	}
	return err
}

// readAt fills b with the bytes of the archive from offset off. It reads complete blocks directly
// into b.
func (v *view) readAt(ctx context.Context, b []byte, off int64) error {
	size := int64(v.g.f.h.block)
	for len(b) > 0 {
		block, skip := off/size, off%size
		if skip == 0 && int64(len(b)) >= size {
			run := b[:int64(len(b))/size*size]
			if err := v.readBlocks(ctx, run, block); err != nil {
				return err
			}
			b, off = b[len(run):], off+int64(len(run))
			continue
		}
		e, err := v.edge(ctx, block)
		if err != nil {
			return err
		}
		n := copy(b, e[skip:])
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// edge returns a block that is needed only in part. The last one is kept, because a sequential
// reader needs the rest of it.
func (v *view) edge(ctx context.Context, block int64) ([]byte, error) {
	if e := v.last.Load(); e != nil && e.block == block {
		return e.b, nil
	}
	e := &edge{block, make([]byte, v.g.f.h.block)}
	if err := v.get(ctx, block, e.b); err != nil {
		return nil, err
	}
	v.last.Store(e)
	return e.b, nil
}

type edge struct {
	block int64
	b     []byte
}

// readBlocks fills b with complete blocks.
func (v *view) readBlocks(ctx context.Context, b []byte, first int64) error {
	g := v.g
	size := g.f.h.block
	err := g.read(ctx, b, first*int64(size), false)
	if err != nil && err != errLost {
		return err
	}
	for i := int64(0); len(b) > 0; i++ {
		one := b[:size]
		b = b[size:]
		wrong := err
		if wrong == nil {
			wrong = g.right(ctx, first+i, one)
		}
		if wrong == errLost {
			wrong = v.get(ctx, first+i, one)
		}
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// get fills b with a block, healed if necessary. It calls left for a block that must not be healed,
// or with rest cannot be healed.
func (v *view) get(ctx context.Context, block int64, b []byte) error {
	if v.rest {
		v.g.mu.Lock()
		lost, err := v.g.isLost(block)
		v.g.mu.Unlock()
		if lost || err != nil {
			return cmp.Or(err, v.g.left(ctx, block, b))
		}
	}
	if v.damaged != nil {
		if err := v.g.raw(ctx, block, b); err != errLost {
			return err
		}
		if size := int64(len(b)); !v.heals(ctx, block*size, size) {
			return v.g.left(ctx, block, b)
		}
	}
	return v.g.get(ctx, block, b, v.strict)
}

// left fills b with a block as it is stored, with zeros for missing bytes.
func (g *Guard) left(ctx context.Context, block int64, b []byte) error {
	if is, err := g.leftElsewhere(ctx, block, b); is || err != nil {
		return err
	}
	clear(b)
	for off, i := block*int64(len(b)), g.at(block*int64(len(b))); i < len(g.objs) && len(b) > 0; i++ {
		p := g.objs[i]
		at := off - p.from
		n := min(int64(len(b)), p.Size-at)
		from := at
		if p.shifted() {
			from -= p.Size - p.there
		}
		skip := max(0, min(n, -from))
		if left := min(n, p.there-from); p.obj != nil && left > skip {
			if err := p.obj.ReadAt(ctx, b[skip:left], from+skip); err != nil && passing(ctx, err) {
				return err
			} else if err != nil {
				clear(b[skip:left])
			}
		}
		b, off = b[n:], off+n
	}
	return nil
}

// Healed returns the number of healed blocks and the name of the parity file.
func (g *Guard) Healed() (int64, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(len(g.healed)), g.f.At
}

// Fetch reads all that healing a range of an object may need, in parallel, so that the store below
// the guard has it.
func (g *Guard) Fetch(ctx context.Context, object string, off, n int64) {
	p := g.parts[object]
	if p == nil || n <= 0 || off < 0 || off+n > p.Size {
		return
	}
	size := int64(g.f.h.block)
	first, last := (p.from+off)/size, (p.from+off+n-1)/size
	var wg sync.WaitGroup
	ask := func(do func()) { wg.Go(do) }
	for i := first * digestLen / size; i <= last*digestLen/size; i++ {
		ask(func() { _, _ = g.f.piece(ctx, i) })
	}
	for run := first / nearLen; run <= last/nearLen; run++ {
		ask(func() { _, _ = g.f.record(ctx, kindNear, run, make([]byte, g.f.h.stride())) })
		step := max(1, sweepLen/size)
		for at := run * nearLen; at < min((run+1)*nearLen, g.f.h.blocks); at += step {
			ask(func() {
				_ = g.read(ctx, make([]byte, min(step, (run+1)*nearLen-at, g.f.h.blocks-at)*size), at*size, false)
			})
		}
	}
	wg.Wait()
}
