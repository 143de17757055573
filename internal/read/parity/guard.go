package parity

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"path"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Guard checks the blocks of an archive and heals them.
type Guard struct {
	f    *File
	st   store.Store
	objs []*part

	// Suits is an error that says why the archive is not the one that the parity file belongs to.
	// It is nil if the archive is that one, even if damaged. Look decides it: before, an archive
	// that is longer than it was counts as another.
	Suits error
	// Same reports whether the archive is unchanged as far as its size, time and version show. If
	// it is false, a difference may be damage or a change by a user.
	Same bool
	// Unsound, if it is not nil, reports whether the archive itself shows damage. It is asked if that
	// cannot be told from a change on purpose otherwise.
	Unsound func(context.Context) bool
	// OnHeal, if it is not nil, is called once, when the first block is healed.
	OnHeal  func(by string)
	healing sync.Once

	anyShort bool // an object is shorter than it was
	looked   sync.Once

	mu     sync.Mutex
	parts  map[string]*part
	healed map[int64]int64 // where healed blocks are in kept
	kept   room
	given  map[int64]error // groups that cannot be healed
	tried  map[int64]bool  // groups of which byBytes has restored what it can
	lost   room            // one bit per block, set if Check found it to be beyond healing

	maySearch  bool       // the archive may be restored, even if all of it has to be read
	searching  sync.Mutex // held during a search
	searches   int
	mostWanted int64                  // blocks that are searched at every byte
	moved      atomic.Pointer[places] // where blocks are that may not be in their places
	allPlaces  []*places              // to be closed
}

// A part is one of the protected objects.
type part struct {
	Object
	name string // in the store
	from int64  // offset in the archive

	brief bool         // it is opened for each read
	obj   store.Object // nil if it is lost
	there int64        // how many bytes it has
	same  bool         // it is unchanged, as far as its size, time and version show
	own   bool         // it belongs to the archive that the guard was bound to, not to another file of a set

	// turned is used if the object is too short. It is the number of blocks that match if the
	// object has lost its beginning, minus those that match if it has lost its end.
	turned atomic.Int64
	nearer atomic.Bool // some blocks only match as if it had lost its beginning
	moved  bool        // Check has found blocks of it elsewhere
}

// maxOpen is the number of objects that are kept open. A folder may have more objects than a
// process may have open files.
const maxOpen = 64

// shifted reports whether an object has lost its beginning.
func (p *part) shifted() bool { return p.turned.Load() > 0 }

// bind binds f to the archive called name in st, and to the rest of its set. The guard closes f; so
// does bind if it fails.
func bind(ctx context.Context, f *File, st store.Store, name string) (*Guard, error) {
	g := &Guard{f: f, st: st, parts: map[string]*part{}, healed: map[int64]int64{}, given: map[int64]error{}, tried: map[int64]bool{}, mostWanted: mostWanted}
	g.kept.limit, g.lost.limit = sumMemory, sumMemory
	from := int64(0)
	found := false
	for _, o := range f.Objects {
		p := &part{Object: o, from: from, brief: len(g.objs) >= maxOpen}
		from += o.Size
		p.name = o.NameBeside(name)
		if g.parts[p.name] != nil {
			_ = g.Close()
			return nil, f.corrupt(0, "it lists %s twice", p.name)
		}
		p.own = o.isOf(name)
		found = found || p.own
		g.objs = append(g.objs, p)
		g.parts[p.name] = p
	}
	if !found {
		_ = g.Close()
		return nil, fmt.Errorf("%s: parity of %s: %w", f.At, path.Base(g.objs[0].name), errOther)
	}
	err := pipe.Each(ctx, pipe.All(g.objs), g.workers(), func(ctx context.Context, p *part) error { return p.open(ctx, st) })
	if err != nil {
		_ = g.Close()
		return nil, err
	}
	g.compare()
	if g.Suits == nil && g.otherKind(ctx, name) {
		g.Suits = errOtherKind
	}
	return g, nil
}

var errOtherKind = errors.New("it belongs to another archive: one of them is a folder, the other a file")

// otherKind reports whether nothing of the archive is where it was, since a folder is in the place of
// a file, or the reverse.
func (g *Guard) otherKind(ctx context.Context, name string) bool {
	file := false
	for _, p := range g.objs {
		if p.own && p.obj != nil {
			return false
		}
		file = file || p.own && p.name == name
	}
	if !file {
		_, err := storekit.Briefly(g.st, name).Info(ctx)
		return err == nil
	}
	for _, err := range storekit.List(ctx, g.st, strings.TrimSuffix(name, "/")+"/") {
		return err == nil
	}
	return false
}

func (p *part) open(ctx context.Context, st store.Store) error {
	o, info, err := storekit.OpenInfo(ctx, st, p.name)
	if err == nil {
		if p.obj, p.there = o, info.Size; p.brief {
			o.Close()
			p.obj = storekit.Briefly(st, p.name)
		}
		p.same = info.Size == p.Size && (p.Version != "" && p.Version == info.Version || !p.Modified.IsZero() && sameTime(p, info))
		return nil
	}
	if passing(ctx, err) {
		return err
	}
	return nil
}

// sameTime compares modification times. Some stores only know seconds.
func sameTime(p *part, info store.Info) bool {
	return p.Modified.Equal(info.ModTime) || info.ModTime.Nanosecond() == 0 && p.Modified.Unix() == info.ModTime.Unix()
}

func (g *Guard) File() *File { return g.f }

func (g *Guard) Close() error {
	errs := []error{g.f.Close()}
	for _, p := range g.objs {
		if p.obj != nil {
			errs = append(errs, p.obj.Close())
		}
	}
	g.kept.close()
	g.lost.close()
	for _, p := range g.allPlaces {
		p.at.close()
	}
	return errors.Join(errs...)
}

// samples is how many blocks are read to find out whether an archive with a newer time is still
// unchanged.
const samples = 64

// compare compares the archive with the one that the parity belongs to, as far as that is
// possible without reading it.
func (g *Guard) compare() {
	g.Same = true
	for _, p := range g.objs {
		g.Same = g.Same && p.same
		g.anyShort = g.anyShort || p.there < p.Size
		if p.there > p.Size && g.Suits == nil {
			g.Suits = fmt.Errorf("it belongs to %s with %d bytes, which has %d now", path.Base(p.name), p.Size, p.there)
		}
	}
}

// IsShort reports whether something of the archive is missing. What is there may then lie elsewhere than it did.
func (g *Guard) IsShort() bool { return g.anyShort }

// Look checks some blocks of the archive on the first call and returns Suits. After Locate it must
// be called before computed blocks are used.
func (g *Guard) Look(ctx context.Context) error { return cmp.Or(g.look(ctx), g.Suits) }

func (g *Guard) look(ctx context.Context) (err error) {
	g.looked.Do(func() {
		err = g.compareSome(ctx)
		g.maySearch = g.Suits == nil
	})
	return err
}

// compareSome compares some blocks of an archive with their digests. A damaged or copied archive
// suits the parity if most of its blocks do. One of the same length and time may still differ. If
// the blocks are not in their places, the archive suits if it is damaged and most of its blocks are
// anywhere in it.
func (g *Guard) compareSome(ctx context.Context) error {
	if g.Same && !g.st.Can().Near || g.Suits == errOtherKind || g.Suits != nil && g.Unsound == nil { // a server's version is reliable
		return nil
	}
	there := int64(0)
	for _, p := range g.objs {
		there += min(p.there, p.Size)
	}
	var places []int64
	for i := range int64(samples) {
		// Evenly over the bytes that are present.
		at := there * (2*i + 1) / (2 * samples)
		for _, p := range g.objs {
			if n := min(p.there, p.Size); at >= n {
				at -= n
			} else {
				places = append(places, (p.from+at)/int64(g.f.h.block))
				break
			}
		}
	}
	var good atomic.Int64
	err := pipe.Each(ctx, pipe.All(places), 2*g.workers(), func(ctx context.Context, block int64) error {
		err := g.raw(ctx, block, make([]byte, g.f.h.block))
		switch {
		case err == nil:
			good.Add(1)
		case err == errLost:
			err = nil
		}
		return err
	})
	n := good.Load()
	most := 2*n >= int64(len(places)) && (len(places) > 0 || there == 0)
	if err != nil || most && g.Suits == nil {
		return err
	}
	unsound := g.Unsound != nil && g.Unsound(ctx)
	if g.Suits == nil {
		g.Suits = fmt.Errorf("it belongs to another version of the archive: of %d blocks checked, %d match", len(places), n)
	}
	suits := false
	if unsound {
		suits, err = g.isElsewhere(ctx)
	}
	if err == nil && !suits && (g.Same || unsound) {
		suits, err = g.similar(ctx)
	}
	if suits {
		g.Suits = nil
	}
	return err
}

// isElsewhere searches for the blocks of the archive, and reports whether half of those that what
// is left of it can have are there.
func (g *Guard) isElsewhere(ctx context.Context) (bool, error) {
	g.maySearch = true
	there := int64(0)
	for _, p := range g.objs {
		there += p.there
	}
	block := int64(g.f.h.block)
	for {
		if 2*g.found() >= min((there+block-1)/block, g.f.h.blocks) && g.found() > 0 {
			return true, nil
		}
		if more, err := g.search(ctx); err != nil || !more {
			return false, err
		}
	}
}

// fewBlocks is the length of an archive of which a few wrong bytes may be in most of the blocks.
const fewBlocks = 16

// similar reports whether an archive of few blocks is much like the one that the parity restores:
// seven of eight bits are the same.
func (g *Guard) similar(ctx context.Context) (bool, error) {
	if g.f.h.blocks > fewBlocks {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	on := g.OnHeal
	g.OnHeal = nil // it may be another archive
	defer func() { g.OnHeal = on }()
	block := int64(g.f.h.block)
	whole := make([]byte, g.f.h.blocks*block)
	for i := range g.f.h.blocks {
		b := whole[i*block : (i+1)*block]
		_, err := g.present(ctx, i, b)
		if err == errLost {
			err = g.heal(ctx, i, b)
		}
		if err == ErrBeyond || err == errLost {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	stored, equal := 0, 0
	for _, p := range g.objs {
		b := make([]byte, min(p.there, 2*p.Size))
		stored += len(b)
		if p.obj == nil || p.obj.ReadAt(ctx, b, 0) != nil {
			continue
		}
		equal += common(b, whole[p.from:p.from+p.Size])
	}
	if equal < 7*stored {
		return false, ctx.Err()
	}
	if g.OnHeal = on; len(g.healed) > 0 {
		g.tell()
	}
	return true, nil
}

// common returns how many bits of b are the same in a, if at one place bytes were inserted into a
// or removed from it.
func common(b, a []byte) (most int) {
	same := func(i, k int) int {
		if k < 0 || k >= len(a) {
			return 0
		}
		return bits.OnesCount8(^(a[k] ^ b[i]))
	}
	n, by := 0, len(a)-len(b)
	for i := range b {
		n += same(i, i+by)
	}
	most = n
	for i := range b {
		n += same(i, i) - same(i, i+by)
		most = max(most, n)
	}
	return most
}

// at returns the index of the object that contains a byte of the archive.
func (g *Guard) at(off int64) int {
	return sort.Search(len(g.objs), func(i int) bool { return g.objs[i].from+g.objs[i].Size > off })
}

// read fills b with the bytes of the archive from offset off. With shifted it assumes that objects
// that are too short have lost their beginning, not their end. Bytes after the end are zeros.
func (g *Guard) read(ctx context.Context, b []byte, off int64, shifted bool) error {
	for i := g.at(off); len(b) > 0; i++ {
		if i >= len(g.objs) {
			clear(b)
			return nil
		}
		p := g.objs[i]
		at := off - p.from
		n := min(int64(len(b)), p.Size-at)
		if n == 0 {
			continue
		}
		if shifted {
			at -= p.Size - p.there
		}
		if p.obj == nil || at < 0 || at+n > p.there {
			return errLost
		}
		if err := p.obj.ReadAt(ctx, b[:n], at); err != nil {
			if passing(ctx, err) || errors.Is(err, io.ErrShortBuffer) {
				return err
			}
			return errLost // the disk cannot read it
		}
		b, off = b[n:], off+n
	}
	return nil
}

// right returns nil if b matches the digest of the block. It returns errLost if it does not, or if
// the digest is lost.
func (g *Guard) right(ctx context.Context, block int64, b []byte) error {
	d, err := g.f.digest(ctx, block)
	if err == nil && d != digestOf(b) {
		err = errLost
	}
	return err
}

// raw fills b with a block as it is stored, or returns errLost if it does not match its digest.
func (g *Guard) raw(ctx context.Context, block int64, b []byte) error {
	off := block * int64(len(b))
	err := g.read(ctx, b, off, false)
	if err == nil {
		err = g.right(ctx, block, b)
	}
	if err == nil {
		g.turn(off, int64(len(b)), -1)
	}
	if err != errLost || !g.short(off, int64(len(b))) {
		return err
	}
	if err = g.read(ctx, b, off, true); err == nil {
		err = g.right(ctx, block, b)
	}
	if err == nil {
		g.turn(off, int64(len(b)), 1)
	}
	return err
}

// isMoved notes which objects a block belongs to that was found elsewhere.
func (g *Guard) isMoved(block int64) {
	size := int64(g.f.h.block)
	for i := g.at(block * size); i < len(g.objs) && g.objs[i].from < (block+1)*size; i++ {
		g.objs[i].moved = true
	}
}

// turn adds by to turned for each object in a range that is too short.
func (g *Guard) turn(off, n, by int64) {
	if !g.anyShort {
		return
	}
	for i := g.at(off); i < len(g.objs) && g.objs[i].from < off+n; i++ {
		if p := g.objs[i]; p.there < p.Size {
			p.turned.Add(by)
			if by > 0 {
				p.nearer.Store(true)
			}
		}
	}
}

// short reports whether a range overlaps an object that is too short.
func (g *Guard) short(off, n int64) bool {
	for i := g.at(off); i < len(g.objs) && g.objs[i].from < off+n; i++ {
		if p := g.objs[i]; p.obj != nil && p.there < p.Size {
			return true
		}
	}
	return false
}

// ErrBeyond means that more is lost than can be computed.
var ErrBeyond = errors.New("more damage than the parity can heal")

// An origin says where a block comes from.
type origin byte

const (
	stored    origin = iota // from its place
	elsewhere               // from another place
	computed
)

// present fills b with a block as it is stored, wherever that is, or returns errLost.
func (g *Guard) present(ctx context.Context, block int64, b []byte) (origin, error) {
	err := g.raw(ctx, block, b)
	if err != errLost {
		return stored, err
	}
	return elsewhere, g.elsewhere(ctx, block, b)
}

// get fills b with a block, healed if it is damaged; with strict, damage is an error.
func (g *Guard) get(ctx context.Context, block int64, b []byte, strict bool) error {
	from, err := g.present(ctx, block, b)
	if strict && (err == errLost || err == nil && from == elsewhere) {
		return ErrComputed
	}
	if err != errLost {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heal(ctx, block, b)
}

// heal fills b with the original content of a damaged block. mu is held.
func (g *Guard) heal(ctx context.Context, block int64, b []byte) error {
	if at, ok := g.healed[block]; ok {
		return g.kept.read(b, at)
	}
	err := g.byNeighbours(ctx, block, b)
	if err != errLost {
		return err
	}
	for {
		if err := g.byGroup(ctx, block%g.f.h.groups); err != nil && err != ErrBeyond {
			return err
		}
		if at, ok := g.healed[block]; ok {
			return g.kept.read(b, at)
		}
		more, err := g.searchAgain(ctx)
		if err == nil && !more {
			more, err = g.byBytes(ctx, block%g.f.h.groups)
		}
		if err != nil {
			return err
		}
		if !more {
			return ErrBeyond
		}
		if err := g.elsewhere(ctx, block, b); err != errLost {
			return err
		}
	}
}

// searchAgain is search if more is damaged than can be healed. mu is held.
func (g *Guard) searchAgain(ctx context.Context) (bool, error) {
	more, err := g.search(ctx)
	if more {
		clear(g.given)
	}
	return more, err
}

// keep remembers a healed block, if it matches its digest.
func (g *Guard) keep(ctx context.Context, block int64, b []byte) error {
	if err := g.right(ctx, block, b); err != nil {
		return err
	}
	at := int64(len(g.healed)) * int64(g.f.h.block)
	if err := g.kept.write(b, at); err != nil {
		return err
	}
	g.healed[block] = at
	g.tell()
	return nil
}

// tell calls OnHeal the first time.
func (g *Guard) tell() {
	if on := g.OnHeal; on != nil {
		g.healing.Do(func() { on(g.f.At) })
	}
}

// workers is how many reads are under way at once.
func (g *Guard) workers() int {
	if g.st.Can().Near {
		return 2
	}
	return 8
}

// sweepLen is how many bytes of consecutive blocks are read at once.
const sweepLen = 1 << 20

// sweep calls do with every step-th block from first to end. The block is as stored if it matches
// its digest, or as healed before; otherwise err is errLost. mu is held.
func (g *Guard) sweep(ctx context.Context, first, end, step int64, do func(block int64, b []byte, from origin, err error) error) error {
	type run struct {
		first, n int64
		b        *[]byte
		from     []origin
		errs     []error
	}
	size, most := int64(g.f.h.block), int64(1)
	if step == 1 {
		most = max(1, sweepLen/size)
	}
	spares := sync.Pool{New: func() any { return new(make([]byte, most*size)) }}
	runs := func(yield func(*run, error) bool) {
		for i := first; i < end; i += most * step {
			if !yield(&run{first: i, n: min(most, (end-i+step-1)/step)}, nil) {
				return
			}
		}
	}
	return pipe.Ordered(ctx, runs, g.workers(), func(ctx context.Context, r *run) {
		r.b, r.from, r.errs = spares.Get().(*[]byte), make([]origin, r.n), make([]error, r.n)
		err := g.read(ctx, (*r.b)[:r.n*size], r.first*size, false)
		for i := range r.n {
			b := (*r.b)[i*size : (i+1)*size]
			if r.errs[i] = err; err == nil {
				r.errs[i] = g.right(ctx, r.first+i, b)
			}
			if r.errs[i] == nil {
				g.turn((r.first+i)*size, size, -1)
			}
			if r.errs[i] == errLost {
				r.from[i], r.errs[i] = g.present(ctx, r.first+i, b)
			}
		}
	}, func(r *run) error {
		defer spares.Put(r.b)
		for i := range r.n {
			block, b, from, err := r.first+i*step, (*r.b)[i*size:(i+1)*size], r.from[i], r.errs[i]
			if at, ok := g.healed[block]; ok && err == errLost {
				from, err = computed, g.kept.read(b, at)
			}
			if err != nil && err != errLost {
				return err
			}
			if err := do(block, b, from, err); err != nil {
				return err
			}
		}
		return nil
	}, func(r *run) { spares.Put(r.b) })
}

// byNeighbours computes a block from its neighbours and their sum, if all of them are good.
func (g *Guard) byNeighbours(ctx context.Context, block int64, b []byte) error {
	record := make([]byte, g.f.h.stride())
	sum, err := g.f.record(ctx, kindNear, block/nearLen, record)
	if err != nil {
		return err
	}
	first := block / nearLen * nearLen
	err = g.sweep(ctx, first, min(first+nearLen, g.f.h.blocks), 1, func(i int64, other []byte, _ origin, err error) error {
		switch {
		case i == block:
			return nil
		case err == nil:
			subtle.XORBytes(sum, sum, other)
		}
		return err
	})
	if err != nil {
		return err
	}
	copy(b, sum)
	return g.keep(ctx, block, b)
}

// byGroup computes all lost blocks of a group.
func (g *Guard) byGroup(ctx context.Context, group int64) error {
	if err := g.given[group]; err != nil {
		return err
	}
	var c cure
	c.init(g.f.h.shape, group, g.f.h.block)
	defer c.close()
	data := func(do func(b []byte, err error) error) error {
		return g.sweep(ctx, group, g.f.h.blocks, g.f.h.groups, func(_ int64, b []byte, _ origin, err error) error { return do(b, err) })
	}
	err := c.gather(ctx, data, func(i int64, b []byte) error {
		p, err := g.f.record(ctx, kindParity, i, make([]byte, g.f.h.stride()))
		copy(b, p)
		return err
	}, g.workers())
	if err == errLost {
		err = ErrBeyond
		g.given[group] = err
	}
	if err != nil {
		return err
	}
	var done room
	done.limit = sumMemory
	defer done.close()
	rows := map[int64]int64{}
	err = c.solve(ctx, func(i int64, at int, b []byte) error {
		row, ok := rows[i]
		if !ok {
			row = int64(len(rows)) * int64(g.f.h.block)
			rows[i] = row
		}
		return done.write(b, row+int64(at))
	})
	if err != nil {
		return err
	}
	b := make([]byte, g.f.h.block)
	for i, row := range rows {
		if err := done.read(b, row); err != nil {
			return err
		}
		if err := g.keep(ctx, i, b); err != nil && err != errLost {
			return err
		}
	}
	return nil
}
