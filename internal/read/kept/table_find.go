package kept

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// A table is the table of an index on a disk. It is mapped, or if that fails, read block by block.
// If it is damaged, the index works without it.
type table struct {
	tableHead
	p      *pages
	checks []byte

	mu      sync.RWMutex // held by readers of the mapping
	mapped  []byte
	checked marks // mapped blocks that were verified
	proven  marks // runs of digests that were verified
	lost    atomic.Bool
}

// marks are bits that several goroutines may set.
type marks []atomic.Uint32

func newMarks(n int64) marks { return make(marks, n/32+1) }

func (m marks) has(i int64) bool { return m[i/32].Load()>>(i%32)&1 != 0 }
func (m marks) set(i int64)      { m[i/32].Or(1 << (i % 32)) }

var errTable = errors.New("invalid table")

// openTable opens the table of the index in p, if it has one.
func openTable(ctx context.Context, p *pages, of *Head, rows int64) (*table, error) {
	at := p.size - footerLen - int64(tableEndLen)
	end, err := p.stored(ctx, max(at, 0), tableEndLen)
	if err != nil || string(end[8:]) != tableMagic {
		return nil, err
	}
	n, sum := int64(binary.LittleEndian.Uint32(end)), binary.LittleEndian.Uint32(end[4:])
	if n > maxPage || n > at {
		return nil, p.fail(at, fmt.Errorf("table head of %d bytes", n))
	}
	text, err := p.stored(ctx, at-n, int(n))
	if err != nil {
		return nil, err
	}
	if got := crc32.ChecksumIEEE(text); got != sum {
		return nil, p.fail(at-n, fmt.Errorf("the head of the table is damaged: expected CRC-32 %08x, found %08x", sum, got))
	}
	t := &table{p: p}
	if err := json.Unmarshal(text, &t.tableHead); err != nil {
		return nil, p.fail(at-n, fmt.Errorf("the head of the table: %w", err))
	}
	if !t.sane(of, rows, at-n) {
		return nil, p.fail(at-n, errTable)
	}
	return t, t.open(ctx)
}

// open maps the table if possible, and reads its checksums.
func (t *table) open(ctx context.Context) error {
	c := t.Sections.Checks
	if file := t.p.obj.Can().File; file != nil {
		if f, err := file(ctx); err == nil {
			if b, err := sysfile.Map(f, t.p.size); err == nil {
				t.mapped, t.checked = b, newMarks((c.Off-t.Start)/tableBlock)
			}
		}
	}
	t.proven = newMarks(t.Sections.Runs.Len / runLen)
	var err error
	if t.checks, err = t.p.stored(ctx, c.Off, int(c.Len)); err == nil && crc32.ChecksumIEEE(t.checks) != t.Sum {
		err = t.p.fail(c.Off, errTable)
	}
	if err != nil {
		t.close()
	}
	return err
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mapped != nil {
		_ = sysfile.Unmap(t.mapped) // if it fails, the mapping stays until the process ends
		t.mapped, t.checked = nil, nil
	}
	t.lost.Store(true)
}

// sane reports whether a head is valid for its index. end is where the head begins.
func (h *tableHead) sane(of *Head, rows, end int64) bool {
	s := &h.Sections
	if h.Format != of.Format || h.View != of.View || h.Rows != rows || h.Chunk != of.Chunk || !slices.Equal(h.Volumes, of.Volumes) ||
		h.Bits < 0 || h.Bits > 32 || h.Start < 0 || h.Start%tableBlock != 0 || len(h.How) > maxHows ||
		s.Checks.Off < h.Start || s.Checks.Off > end || s.Checks.Len < 0 || s.Checks.Len > end-s.Checks.Off || s.Checks.Len > 1<<31-1 ||
		(s.Checks.Off-h.Start)%tableBlock != 0 || s.Checks.Len != (s.Checks.Off-h.Start)/tableBlock*4 {
		return false
	}
	for _, x := range []section{s.Slots, s.Hashes, s.Places, s.Stored, s.Skips, s.Times, s.Firsts, s.Groups, s.Names, s.Longs, s.Sums, s.Runs} {
		if x != (section{}) && (x.Off < h.Start || x.Len < 0 || x.Off > s.Checks.Off || x.Len > s.Checks.Off-x.Off || x.Off%tableBlock != 0) {
			return false
		}
	}
	column := func(x section, width int64) bool { return x.Len == 0 || x.Len == width*rows }
	groups := 8 * ((rows+namesGroup-1)/namesGroup + 1)
	if s.Slots.Len != 4*(1<<h.Bits+1) || s.Hashes.Len != hashLen*rows || s.Places.Len != placeLen*rows || s.Groups.Len != groups ||
		!column(s.Stored, 4) || !column(s.Skips, 4) || !column(s.Times, 4) && !column(s.Times, 8) || !column(s.Firsts, 4) ||
		s.Sums.Len != 0 && s.Sums.Len != groups || s.Runs.Len%runLen != 0 || (s.Runs.Len == 0) != (s.Sums.Len == 0) {
		return false
	}
	if h.Pages < s.Checks.Off+s.Checks.Len || h.Pages > end || len(h.Digests) > maxSums || slices.ContainsFunc(h.Digests, func(k digestKind) bool { return k.Len < 0 || k.Len > math.MaxUint8 }) {
		return false
	}
	return !slices.ContainsFunc(h.How, func(w how) bool {
		return w.placed && (w.volume < 0 || w.volume >= len(h.Volumes) || w.codec < -1 || w.codec >= len(h.Codecs)) || w.digest < -1 || w.digest >= len(h.Digests)
	})
}

// bytes returns bytes [off, off+n) of a section, after each block has been compared with its
// checksum. Mapped bytes may only be read while mu is held.
func (t *table) bytes(ctx context.Context, s *section, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > s.Len || n > s.Len-off {
		return nil, t.p.fail(s.Off, errTable)
	}
	if n == 0 {
		return nil, nil
	}
	first, last := (s.Off+off-t.Start)/tableBlock, (s.Off+off+n-1-t.Start)/tableBlock
	b, at := t.mapped, int64(0)
	if b == nil {
		if t.lost.Load() || n > maxPage {
			return nil, t.p.fail(s.Off, errTable)
		}
		var err error
		at = t.Start + first*tableBlock
		if b, err = t.p.stored(ctx, at, int(last-first+1)*tableBlock); err != nil {
			return nil, err
		}
	}
	for k := first; k <= last; k++ {
		if t.mapped != nil && t.checked.has(k) {
			continue
		}
		if block := t.Start + k*tableBlock; crc32.ChecksumIEEE(b[block-at:][:tableBlock]) != binary.LittleEndian.Uint32(t.checks[4*k:]) {
			return nil, t.p.fail(block, errors.New("a block of the table is damaged"))
		}
		if t.mapped != nil {
			t.checked.set(k)
		}
	}
	return b[s.Off+off-at:][:n], nil
}

// maxSame is how many names with one hash are compared. More can only exist on purpose, and the
// pages find those as fast as others.
const maxSame = 64

var errSame = errors.New("too many names with one hash")

// find returns the row that is called name and is implied or not as wanted, with its how and its
// place. If there is none, row is -1.
func (t *table) find(ctx context.Context, name string, implied bool) (row int64, h *how, place []byte, err error) {
	hash := crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(name), len(name)))
	slots, err := t.bytes(ctx, &t.Sections.Slots, 4*int64(uint64(hash)>>(32-t.Bits)), 8)
	if err != nil {
		return 0, nil, nil, err
	}
	lo, hi := int64(binary.LittleEndian.Uint32(slots)), int64(binary.LittleEndian.Uint32(slots[4:]))
	if lo > hi || hi > t.Rows {
		return 0, nil, nil, t.p.fail(t.Sections.Slots.Off, errTable)
	}
	if hi-lo > maxSame { // collisions made on purpose
		lo += int64(sort.Search(int(hi-lo), func(i int) bool {
			b, herr := t.bytes(ctx, &t.Sections.Hashes, (lo+int64(i))*hashLen, hashLen)
			if err = errors.Join(err, herr); herr != nil {
				return true
			}
			return binary.LittleEndian.Uint32(b) >= hash
		}))
		if hi = min(hi, lo+maxSame+1); err != nil {
			return 0, nil, nil, err
		}
	}
	b, err := t.bytes(ctx, &t.Sections.Hashes, lo*hashLen, (hi-lo)*hashLen)
	if err != nil {
		return 0, nil, nil, err
	}
	same := 0
	for ; len(b) > 0; b = b[hashLen:] {
		if binary.LittleEndian.Uint32(b) != hash {
			continue
		}
		if same++; same > maxSame {
			return 0, nil, nil, errSame
		}
		row = int64(binary.LittleEndian.Uint32(b[4:]))
		if is, err := t.isCalled(ctx, row, name); err != nil {
			return 0, nil, nil, err
		} else if !is {
			continue
		}
		if place, err = t.bytes(ctx, &t.Sections.Places, row*placeLen, placeLen); err != nil {
			return 0, nil, nil, err
		}
		n := int(binary.LittleEndian.Uint64(place) >> offBits)
		if n >= len(t.How) {
			return 0, nil, nil, t.p.fail(t.Sections.Places.Off, errTable)
		}
		if h = &t.How[n]; h.implied == implied {
			return row, h, place, nil
		}
	}
	return -1, nil, nil, nil
}

// isCalled compares the name of a row.
func (t *table) isCalled(ctx context.Context, row int64, name string) (bool, error) {
	bounds, err := t.bytes(ctx, &t.Sections.Groups, row/namesGroup*8, 16)
	if err != nil {
		return false, err
	}
	from, to := binary.LittleEndian.Uint64(bounds), binary.LittleEndian.Uint64(bounds[8:])&^wideNames
	width := uint64(1)
	if from&wideNames != 0 {
		from, width = from&^wideNames, 4
	}
	if from > to || to > uint64(t.Sections.Names.Len) || to-from < 2*namesGroup*width {
		return false, t.p.fail(t.Sections.Groups.Off, errTable)
	}
	b, err := t.bytes(ctx, &t.Sections.Names, int64(from), int64(to-from))
	if err != nil {
		return false, err
	}
	number := func(i int64) uint64 {
		if width == 1 {
			return uint64(b[i])
		}
		return uint64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	at := 2 * namesGroup * width
	begin, i := at, row%namesGroup
	for k := range i {
		at += number(namesGroup + k)
	}
	same, n := number(i), number(namesGroup+i)
	if at+n > uint64(len(b)) || i > 0 && same > number(namesGroup) || i == 0 && same > 0 {
		return false, t.p.fail(t.Sections.Names.Off, errTable)
	}
	return same+n == uint64(len(name)) && string(b[at:at+n]) == name[same:] && string(b[begin:begin+same]) == name[:same], nil
}

// lookup is Index.Lookup with the table. For rows that are not plain it only returns the number
// of the row. For a name that does not exist, row is -1.
func (t *table) lookup(ctx context.Context, x *Index, name string) (e format.Entry, row int64, plain bool, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.mapped != nil {
		// Reads would notice that the file changed; the mapping does not.
		if _, err := t.p.obj.Can().File(ctx); err != nil {
			return e, 0, false, t.p.fail(-1, err)
		}
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(interface{ Addr() uintptr }); !ok {
					panic(r)
				}
				err = t.p.fail(-1, fmt.Errorf("its file was truncated: %w", store.ErrChanged))
			}
		}()
	}
	row, h, place, err := t.find(ctx, name, false)
	if err == nil && row < 0 && format.ValidPath(name) {
		row, h, place, err = t.find(ctx, name+"/", true)
	}
	if err != nil || row < 0 {
		return e, row, false, err
	}
	e, plain, err = t.entry(ctx, x, name, row, h, place)
	return e, row, plain, err
}

// entry returns the entry of a row. plain is false if the table does not have all of it.
func (t *table) entry(ctx context.Context, x *Index, name string, row int64, h *how, place []byte) (e format.Entry, plain bool, err error) {
	e = format.Entry{Name: name, Kind: h.kind}
	if h.implied {
		return e, h.kind == format.Dir, nil
	}
	off := int64(binary.LittleEndian.Uint64(place) & (1<<offBits - 1))
	e.Size = int64(binary.LittleEndian.Uint32(place[8:]))
	if !h.plain || h.long || h.ask || h.fault || !h.placed && e.Size != 0 || h.digest >= 0 && t.Sections.Sums.Len == 0 {
		return e, false, nil
	}
	ref := &handle{}
	switch {
	case !h.placed:
	case h.codec < 0:
		ref.one, ref.off, ref.volume = true, off, int32(h.volume)
	case h.whole:
		stored, err := t.column(ctx, &t.Sections.Stored, row)
		if err != nil {
			return e, false, err
		}
		one := []format.Extent{{Off: off, Len: stored, Size: e.Size, Unit: e.Size, Codec: t.Codecs[h.codec]}}
		ref.extents = string(appendExtents(nil, one, []int{h.volume}))
	default:
		return e, false, nil
	}
	e.HasMode, e.Mode, e.Owner, e.Group = h.hasMode, fs.FileMode(h.mode), h.owner, h.group
	if h.time {
		if e.ModTime, err = t.time(ctx, row); err != nil {
			return e, false, err
		}
	}
	if h.digest >= 0 {
		if e.Digest, err = t.digest(ctx, row, h.digest); err != nil {
			return e, false, err
		}
	}
	if Pieces(&e, x.Chunk) > 0 {
		if ref.proof, err = t.column(ctx, &t.Sections.Firsts, row); err != nil {
			return e, false, err
		}
	}
	e.Ref = ref
	return e, true, nil
}

// column returns the value of a row in a section with 4 bytes per row, or 0 if there is no such
// section.
func (t *table) column(ctx context.Context, s *section, row int64) (int64, error) {
	if s.Len == 0 {
		return 0, nil
	}
	b, err := t.bytes(ctx, s, 4*row, 4)
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint32(b)), nil
}

// time returns the time of a row.
func (t *table) time(ctx context.Context, row int64) (time.Time, error) {
	s := &t.Sections.Times
	if s.Len == 4*t.Rows {
		sec, err := t.column(ctx, s, row)
		return time.Unix(t.Since+sec, 0).UTC(), err
	}
	b, err := t.bytes(ctx, s, 8*row, 8)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(b))).UTC(), nil
}

// digest returns the digest of a row. kind is the number of its kind.
func (t *table) digest(ctx context.Context, row int64, kind int) (d format.Digest, err error) {
	b, err := t.bytes(ctx, &t.Sections.Sums, row/namesGroup*8, 8)
	if err != nil {
		return d, err
	}
	at := int64(binary.LittleEndian.Uint64(b))
	first := row / namesGroup * namesGroup
	places, err := t.bytes(ctx, &t.Sections.Places, first*placeLen, (row-first)*placeLen)
	if err != nil {
		return d, err
	}
	for ; len(places) > 0; places = places[placeLen:] {
		n := int(binary.LittleEndian.Uint64(places) >> offBits)
		if n >= len(t.How) {
			return d, t.p.fail(t.Sections.Places.Off, errTable)
		}
		if k := t.How[n].digest; k >= 0 {
			at += int64(t.Digests[k].Len)
		}
	}
	sum, err := t.sum(ctx, at, int64(t.Digests[kind].Len))
	return format.Digest{Algo: t.Digests[kind].Algo, Sum: string(sum)}, err
}

// runAt returns a run from the section of runs.
func (t *table) runAt(ctx context.Context, i int64) (sumRun, error) {
	b, err := t.bytes(ctx, &t.Sections.Runs, i*runLen, runLen)
	if err != nil {
		return sumRun{}, err
	}
	return sumRun{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint32(b[16:])}, nil
}

// run returns the run that contains byte at of all digests, and its length. Runs have similar
// lengths, so the first steps of the search interpolate.
func (t *table) run(ctx context.Context, at int64) (i int64, r sumRun, long int64, err error) {
	lo, hi := int64(0), t.Sections.Runs.Len/runLen-1
	r, err = t.runAt(ctx, lo)
	end, lerr := t.runAt(ctx, hi)
	if err = cmp.Or(err, lerr); err != nil {
		return 0, r, 0, err
	}
	for step := 0; hi-lo > 1; step++ {
		mid := (lo + hi) / 2
		if width := end.before - r.before; step < 4 && width > 0 {
			mid = min(max(lo+int64(float64(at-r.before)/float64(width)*float64(hi-lo)), lo+1), hi-1)
		}
		m, err := t.runAt(ctx, mid)
		if err != nil {
			return 0, r, 0, err
		}
		if m.before > at {
			hi, end = mid, m
		} else {
			lo, r = mid, m
		}
	}
	if r.before < 0 || at < r.before || at >= end.before || end.before-r.before > maxPage || r.off < 0 || r.off > t.p.size-t.Pages-(end.before-r.before) {
		return 0, r, 0, t.p.fail(t.Sections.Runs.Off, errTable)
	}
	return lo, r, end.before - r.before, nil
}

// sum returns bytes [at, at+n) of all digests, which lie in one run.
func (t *table) sum(ctx context.Context, at, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	i, r, long, err := t.run(ctx, at)
	if err != nil || n > r.before+long-at {
		return nil, cmp.Or(err, t.p.fail(t.Sections.Runs.Off, errTable))
	}
	off, b := t.Pages+r.off, t.mapped
	if b != nil {
		b = b[off:][:long]
	} else if b, err = t.p.stored(ctx, off, int(long)); err != nil {
		return nil, err
	}
	if t.mapped == nil || !t.proven.has(i) {
		if got := crc32.ChecksumIEEE(b); got != r.sum {
			return nil, t.p.fail(off, fmt.Errorf("digests of a page are damaged: expected CRC-32 %08x, found %08x", r.sum, got))
		}
		t.proven.set(i)
	}
	return b[at-r.before:][:n], nil
}

// byTable is Lookup with the table. ok is false if the pages must be searched, because the table is
// damaged or there is none.
func (x *Index) byTable(ctx context.Context, name string) (e format.Entry, ok bool, err error) {
	x.tableOnce.Do(func() {
		if x.near {
			x.table, _ = openTable(context.WithoutCancel(ctx), &x.pages, &x.Head, x.count())
		}
	})
	if x.table == nil || x.table.lost.Load() {
		return e, false, nil
	}
	e, row, plain, err := x.table.lookup(ctx, x, name)
	switch {
	case err == nil && plain:
		return e, true, nil
	case err == nil && row < 0:
		return e, true, notFound("lookup", name)
	case err == nil:
		if f, err := x.row(ctx, row); err != nil || f.entry.Name == name && !f.mark.implied {
			return f.entry, true, err
		}
		// The table and the pages disagree about the row.
	case errors.Is(err, errSame):
		return e, false, nil
	case errors.Is(err, store.ErrChanged) || ctx.Err() != nil:
		return e, true, err
	}
	x.table.lost.Store(true)
	return e, false, nil
}

// row returns a row by its number.
func (x *Index) row(ctx context.Context, n int64) (f foundRow, err error) {
	steps, err := x.rows.findItem(ctx, n)
	if err != nil || steps == nil {
		return f, err
	}
	r := leaf(steps)
	h, err := x.sheet(ctx, r)
	if err != nil {
		return f, err
	}
	if n < r.from || n >= r.from+r.items {
		return f, x.fail(r.off, errNode)
	}
	f, _, err = x.rowAt(h, int(n-r.from))
	return f, err
}
