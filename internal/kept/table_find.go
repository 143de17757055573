package kept

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/sysfile"
	"github.com/holdall/holdall/store"
)

// A table is the table of an index that lies on a disk. It is mapped, or read block by
// block where that cannot be. Whatever is wrong with it, the index goes on without.
type table struct {
	tableHead
	p      *pages
	checks []byte

	mu      sync.RWMutex // whoever reads what is mapped
	mapped  []byte
	checked []atomic.Uint32 // a bit for each block of what is mapped that was compared
	lost    atomic.Bool
}

var errTable = errors.New("a table that is none")

// openTable opens the table of the index in p, if it has one.
func openTable(ctx context.Context, p *pages, of *Head, rows int64) (*table, error) {
	at := p.size - footerLen - int64(tableEndLen)
	end, err := p.stored(ctx, max(at, 0), tableEndLen)
	if err != nil || string(end[8:]) != tableMagic {
		return nil, err
	}
	n, sum := int64(binary.LittleEndian.Uint32(end)), binary.LittleEndian.Uint32(end[4:])
	if n > maxPage || n > at {
		return nil, p.fail(at, fmt.Errorf("a head of %d bytes of its table", n))
	}
	text, err := p.stored(ctx, at-n, int(n))
	if err != nil {
		return nil, err
	}
	if got := crc32.ChecksumIEEE(text); got != sum {
		return nil, p.fail(at-n, fmt.Errorf("the head of its table is damaged: expected CRC-32 %08x, found %08x", sum, got))
	}
	t := &table{p: p}
	if err := json.Unmarshal(text, &t.tableHead); err != nil {
		return nil, p.fail(at-n, fmt.Errorf("the head of its table: %w", err))
	}
	if !t.sane(of, rows, at-n) {
		return nil, p.fail(at-n, errTable)
	}
	return t, t.open(ctx)
}

// open maps it, if that can be, and has its checksums.
func (t *table) open(ctx context.Context) error {
	c := t.Sections.Checks
	if file := t.p.obj.Can().File; file != nil {
		if f, err := file(ctx); err == nil {
			if b, err := sysfile.Map(f, c.Off+c.Len); err == nil {
				t.mapped, t.checked = b, make([]atomic.Uint32, (c.Off-t.Start)/tableBlock/32+1)
			}
		}
	}
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
		_ = sysfile.Unmap(t.mapped) // the process has it until it ends
		t.mapped, t.checked = nil, nil
	}
	t.lost.Store(true)
}

// sane reports whether a head is one of the index that it is in, which ends where the
// head begins.
func (h *tableHead) sane(of *Head, rows, end int64) bool {
	s := &h.Sections
	if h.Format != of.Format || h.View != of.View || h.Rows != rows || h.Chunk != of.Chunk || !slices.Equal(h.Volumes, of.Volumes) ||
		h.Bits < 0 || h.Bits > 32 || h.Start < 0 || h.Start%tableBlock != 0 || len(h.How) > maxHows ||
		s.Checks.Off < h.Start || s.Checks.Off > end || s.Checks.Len < 0 || s.Checks.Len > end-s.Checks.Off || s.Checks.Len > 1<<31-1 ||
		(s.Checks.Off-h.Start)%tableBlock != 0 || s.Checks.Len != (s.Checks.Off-h.Start)/tableBlock*4 {
		return false
	}
	for _, x := range []section{s.Slots, s.Hashes, s.Places, s.Skips, s.Groups, s.Names, s.Longs} {
		if x != (section{}) && (x.Off < h.Start || x.Len < 0 || x.Off > s.Checks.Off || x.Len > s.Checks.Off-x.Off || x.Off%tableBlock != 0) {
			return false
		}
	}
	if s.Slots.Len != 4*(1<<h.Bits+1) || s.Hashes.Len != hashLen*rows || s.Places.Len != placeLen*rows || s.Skips.Len != 0 && s.Skips.Len != 4*rows ||
		s.Groups.Len != 8*((rows+namesGroup-1)/namesGroup+1) {
		return false
	}
	return !slices.ContainsFunc(h.How, func(w how) bool {
		return w.placed && (w.volume < 0 || w.volume >= len(h.Volumes) || w.codec < -1 || w.codec >= len(h.Codecs))
	})
}

// bytes returns bytes [off, off+n) of a section, each block of which was compared with
// its checksum. What is mapped may only be read while mu is held.
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
		if t.mapped != nil && t.checked[k/32].Load()>>(k%32)&1 != 0 {
			continue
		}
		if block := t.Start + k*tableBlock; crc32.ChecksumIEEE(b[block-at:][:tableBlock]) != binary.LittleEndian.Uint32(t.checks[4*k:]) {
			return nil, t.p.fail(block, errors.New("a block of its table is damaged"))
		}
		if t.mapped != nil {
			t.checked[k/32].Or(1 << (k % 32))
		}
	}
	return b[s.Off+off-at:][:n], nil
}

// maxSame is how many names of one hash are compared: there are more only where somebody
// meant it, and the pages find those as fast as others.
const maxSame = 64

var errSame = errors.New("many names of one hash")

// find returns the number of the row that is called name, and how it is, if accept takes
// that. Where there is none row is -1.
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
	if hi-lo > maxSame { // names that were made so
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
	from, to := binary.LittleEndian.Uint64(bounds), binary.LittleEndian.Uint64(bounds[8:])
	if from > to || to > uint64(t.Sections.Names.Len) {
		return false, t.p.fail(t.Sections.Groups.Off, errTable)
	}
	b, err := t.bytes(ctx, &t.Sections.Names, int64(from), int64(to-from))
	if err != nil {
		return false, err
	}
	c := scanner{b: b}
	// same is how many bytes a name has in common with the one that is looked for.
	long, same := uint64(0), uint64(0)
	for range row%namesGroup + 1 {
		k := c.uvarint()
		rest := c.text()
		if c.bad || k > long {
			return false, t.p.fail(t.Sections.Names.Off, errTable)
		}
		if k <= same {
			same = k
			for i := 0; i < len(rest) && same < uint64(len(name)) && rest[i] == name[same]; i++ {
				same++
			}
		}
		long = k + uint64(len(rest))
	}
	return long == same && same == uint64(len(name)), nil
}

// lookup is Index.Lookup by the table: of what is not plain it only knows the number of
// its row. Of a name that is not there it is -1.
func (t *table) lookup(ctx context.Context, x *Index, name string) (e format.Entry, row int64, plain bool, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.mapped != nil {
		// Reads would notice that the file changed; what is mapped does not.
		if _, err := t.p.obj.Can().File(ctx); err != nil {
			return e, 0, false, t.p.fail(-1, err)
		}
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(interface{ Addr() uintptr }); !ok {
					panic(r)
				}
				err = t.p.fail(-1, fmt.Errorf("its file was cut: %w", store.ErrChanged))
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

// entry makes an entry of what the table says of a row, if that is all there is.
func (t *table) entry(ctx context.Context, x *Index, name string, row int64, h *how, place []byte) (e format.Entry, plain bool, err error) {
	e = format.Entry{Name: name, Kind: h.kind}
	if h.implied {
		return e, h.kind == format.Dir, nil
	}
	off := int64(binary.LittleEndian.Uint64(place) & (1<<offBits - 1))
	stored := int64(binary.LittleEndian.Uint32(place[8:]))
	e.Size = int64(binary.LittleEndian.Uint32(place[12:]))
	if !h.plain || h.long || h.ask || h.fault || !h.placed && e.Size != 0 || Pieces(&e, x.Chunk) > 0 {
		return e, false, nil
	}
	ref := &handle{}
	switch {
	case !h.placed:
	case h.codec < 0 && stored == e.Size:
		ref.one, ref.off, ref.volume = true, off, int32(h.volume)
	case h.codec >= 0 && h.whole:
		one := []format.Extent{{Off: off, Len: stored, Size: e.Size, Unit: e.Size, Codec: t.Codecs[h.codec]}}
		ref.extents = string(appendExtents(nil, one, []int{h.volume}))
	default:
		return e, false, nil
	}
	e.Ref = ref
	return e, true, nil
}

// byTable is Lookup by the table. ok is false if the pages have to be asked, because of
// what is wrong with the table or because there is none.
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
		// One of the two is wrong about which row that is.
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
