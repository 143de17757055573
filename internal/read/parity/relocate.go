package parity

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
)

// If bytes were inserted into an archive, removed from it or exchanged, its blocks are still there,
// but elsewhere. A search finds them: it computes the rolling hash at every byte of what is there,
// and compares the digest where the hash is that of a block.
//
// The first search of a guard expects the next block behind each that it finds, so that it only
// rolls where bytes are missing or new. It can miss a block that begins within another one, as in
// a long run of zeros. The second search tries every byte, but only for blocks that were not found.

// mostWanted is how many blocks are looked for at every byte. If an archive has more, the search
// tries that many, evenly spread, and then the neighbours of each block that it finds.
const mostWanted = 1 << 19

// chunkLen is how many bytes are searched at a time.
const chunkLen = 4 << 20

// A stream is all that there is of an archive: its objects as they are now. It is followed by zeros.
type stream struct {
	objs []store.Object
	ends []int64
	size int64
}

func (s *stream) add(o store.Object, size int64) {
	if o != nil && size > 0 {
		s.size += size
		s.objs, s.ends = append(s.objs, o), append(s.ends, s.size)
	}
}

// read fills b with the bytes from offset off. Bytes that cannot be read are zeros.
func (s *stream) read(ctx context.Context, b []byte, off int64) error {
	for i, _ := slices.BinarySearch(s.ends, off+1); len(b) > 0; i++ {
		if i == len(s.objs) {
			clear(b)
			return nil
		}
		from := int64(0)
		if i > 0 {
			from = s.ends[i-1]
		}
		n := min(int64(len(b)), s.ends[i]-off)
		if err := readWhatCan(ctx, s.objs[i], b[:n], off-from); err != nil {
			return err
		}
		b, off = b[n:], off+n
	}
	return nil
}

// readWhatCan fills b from an object. What the disk cannot read is zeros.
func readWhatCan(ctx context.Context, o store.Object, b []byte, off int64) error {
	err := o.ReadAt(ctx, b, off)
	if err == nil || passing(ctx, err) {
		return err
	}
	if len(b) <= minBlock {
		clear(b)
		return nil
	}
	half := len(b) / 2 / minBlock * minBlock
	if half == 0 {
		half = minBlock
	}
	return cmp.Or(readWhatCan(ctx, o, b[:half], off), readWhatCan(ctx, o, b[half:], off+int64(half)))
}

// places says where in a stream blocks are. It does not change once a guard uses it.
type places struct {
	stream *stream
	found  int64
	at     room // of each block: its offset plus one
}

func (p *places) get(block int64) (off int64, ok bool, err error) {
	var b [8]byte
	err = p.at.read(b[:], block*int64(len(b)))
	off = int64(binary.LittleEndian.Uint64(b[:])) - 1
	return off, off >= 0, err
}

func (p *places) put(block, off int64) error {
	_, ok, err := p.get(block)
	if err != nil || ok {
		return err
	}
	p.found++
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(off+1))
	return p.at.write(b[:], block*int64(len(b)))
}

// elsewhere fills b with a block that a search has found. It returns errLost if none has.
func (g *Guard) elsewhere(ctx context.Context, block int64, b []byte) error {
	p := g.moved.Load()
	if p == nil {
		return errLost
	}
	off, ok, err := p.get(block)
	if err == nil && !ok {
		err = errLost
	}
	if err == nil {
		n := g.f.lenOf(block)
		clear(b[n:])
		err = p.stream.read(ctx, b[:n], off)
	}
	if err == nil {
		err = g.right(ctx, block, b)
	}
	if err == nil {
		g.tell()
	}
	return err
}

// mostBack is how far in front of a damaged block a block is looked for that was found.
const mostBack = 64

// leftElsewhere fills b with what is where a damaged block should be, behind the nearest one that
// was found in front of it. It reports whether there is one.
func (g *Guard) leftElsewhere(ctx context.Context, block int64, b []byte) (bool, error) {
	p := g.moved.Load()
	for back := int64(1); p != nil && back <= min(block, mostBack); back++ {
		off, ok, err := p.get(block - back)
		if err != nil {
			return false, err
		}
		if ok {
			n := g.f.lenOf(block)
			clear(b[n:])
			return true, p.stream.read(ctx, b[:n], off+back*int64(len(b)))
		}
	}
	return false, nil
}

// found is the number of blocks that searches have found.
func (g *Guard) found() int64 {
	if p := g.moved.Load(); p != nil {
		return p.found
	}
	return 0
}

// lenOf is the length of a block without padding.
func (f *File) lenOf(block int64) int64 {
	size := int64(f.h.block)
	return min(size, f.Total-block*size)
}

// fewBytes is less than what a program appends to an archive.
const fewBytes = 512

// Inserted reports whether bytes seem to have been inserted into an object: near its end there are
// blocks that are as far from the end as they were, or it has few bytes more and one of its
// last two blocks differs.
func (g *Guard) Inserted(ctx context.Context) bool {
	b := make([]byte, g.f.h.block)
	size := int64(len(b))
	for _, p := range g.objs {
		if p.there <= p.Size {
			continue
		}
		last := (p.from + p.Size - 1) / size
		for _, back := range []int64{0, 1, 2, 8} {
			block := last - back
			at := block*size - p.from
			if at < 0 || g.raw(ctx, block, b) != errLost {
				continue
			}
			own := b[:min(size, p.Size-at)] // behind it lies the next object, or nothing
			if back <= 1 && p.there-p.Size < fewBytes || p.obj.ReadAt(ctx, own, at+p.there-p.Size) == nil &&
				g.read(ctx, b[len(own):], p.from+p.Size, false) == nil && g.right(ctx, block, b) == nil {
				return true
			}
		}
	}
	return false
}

// search searches for blocks that are not in their places, and reports whether it has found any.
// It does so twice at most, and not before Look has found that the archive may be restored.
func (g *Guard) search(ctx context.Context) (more bool, err error) {
	g.searching.Lock()
	defer g.searching.Unlock()
	if !g.maySearch || !g.f.h.rolls() || g.searches == 2 {
		return false, nil
	}
	s := search{g: g, block: g.f.h.block, blocks: g.f.h.blocks, jumps: g.searches == 0, places: &places{stream: &stream{}}}
	s.places.at.limit = 8 << 20
	for _, p := range g.objs {
		s.places.stream.add(p.obj, p.there)
	}
	if err := s.run(ctx, g.moved.Load()); err != nil {
		s.places.at.close()
		return false, err
	}
	more = s.places.found > g.found()
	g.searches++
	g.allPlaces = append(g.allPlaces, s.places)
	g.moved.Store(s.places)
	return more, nil
}

type search struct {
	g      *Guard
	block  int
	blocks int64
	places *places
	jumps  bool // a block that is found leads to the next one

	wanted   wanted
	next     int64 // the block that is expected next
	buf, one []byte
	at       int64 // of buf
}

func (s *search) run(ctx context.Context, before *places) error {
	known := int64(0)
	if before != nil && before.found > 0 {
		for i := range s.blocks {
			off, ok, err := before.get(i)
			if err == nil && ok {
				err = s.places.put(i, off)
			}
			if err != nil {
				return err
			}
		}
		known = before.found
	}
	most := s.g.mostWanted
	step := max(1, (s.blocks-known+most-1)/most)
	s.jumps = s.jumps || step > 1
	s.wanted.all = make([]want, 0, (s.blocks-known)/step)
	perRecord := int64(s.block / digestLen)
	for i, k := int64(0), int64(0); i < s.blocks; i++ {
		if i%perRecord == 0 { // a damaged parity file may have few of them
			if _, err := s.g.f.digest(ctx, i); err == errLost {
				i += perRecord - 1
				continue
			} else if err != nil {
				return err
			}
		}
		_, ok, err := s.places.get(i)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		if k++; k%step == 0 {
			if err := s.wanted.add(ctx, s.g.f, i); err != nil {
				return err
			}
		}
	}
	if len(s.wanted.all) == 0 {
		return nil
	}
	s.wanted.sort()
	s.wanted.patience = 64 + uint16(min(s.places.stream.size>>26, 1<<15))
	s.one = make([]byte, s.block)
	at := int64(0)
	if s.jumps {
		var err error
		if at, err = s.follow(ctx, 0, 0); err != nil {
			return err
		}
	}
	for at < s.places.stream.size {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.ahead(ctx, at, 2*s.block+2*wordLen)
		if err != nil {
			return err
		}
		if at, err = s.roll(ctx, at); err != nil {
			return err
		}
	}
	if err := s.share(); err != nil || s.jumps {
		return err
	}
	return s.lastBlock(ctx)
}

// lastBlock searches for the last block, which the archive had without its padding.
func (s *search) lastBlock(ctx context.Context) error {
	block, n := s.blocks-1, int(s.g.f.lenOf(s.blocks-1))
	if _, ok, err := s.places.get(block); ok || err != nil || n == s.block {
		return err
	}
	want, err := s.g.f.rolling(ctx, block)
	if err != nil {
		if err == errLost {
			err = nil
		}
		return err
	}
	// The block is so many whole words, a part of one, and zeros.
	words := n / wordLen
	mask := uint64(1)<<(n%wordLen*8) - 1
	pow, ofPart := rollPower(words), rollPower(s.block/wordLen-words-1)
	tries := s.wanted.patience
	for at := int64(0); at < s.places.stream.size; {
		if err := s.ahead(ctx, at, s.block+2*wordLen); err != nil {
			return err
		}
		b := s.buf[at-s.at:]
		var sums [wordLen]uint64
		for i := range sums {
			sums[i] = rollSum(b[i : i+words*wordLen])
		}
		for i := 0; i+s.block+wordLen <= len(b); i++ {
			h := &sums[i%wordLen]
			next := binary.LittleEndian.Uint64(b[i+words*wordLen:])
			if uint32((*h*rollFactor+mix(next&mask))*ofPart>>32) == want && tries > 0 {
				tries--
				if ok, err := s.is(ctx, block, at); err != nil {
					return err
				} else if ok {
					return s.places.put(block, at)
				}
			}
			*h = *h*rollFactor + mix(next) - mixAt(b, i)*pow
			at++
		}
	}
	return nil
}

// ahead makes buf have at least n bytes of the stream from offset at.
func (s *search) ahead(ctx context.Context, at int64, n int) error {
	if s.at <= at && at+int64(n) <= s.at+int64(len(s.buf)) {
		return nil
	}
	if s.buf == nil {
		s.buf = make([]byte, 0, chunkLen+3*s.block)
	}
	most := max(int64(n), min(int64(cap(s.buf)), s.places.stream.size-at+int64(s.block)+2*wordLen))
	kept := 0
	if s.at <= at && at < s.at+int64(len(s.buf)) {
		kept = copy(s.buf, s.buf[at-s.at:])
	}
	s.buf, s.at = s.buf[:most], at
	type part struct{ from, to int }
	var parts []part
	for from := kept; from < len(s.buf); from += sweepLen {
		parts = append(parts, part{from, min(from+sweepLen, len(s.buf))})
	}
	return pipe.Each(ctx, pipe.All(parts), s.g.workers(), func(ctx context.Context, p part) error {
		return s.places.stream.read(ctx, s.buf[p.from:p.to], at+int64(p.from))
	})
}

// roll tries the bytes of buf from offset at of the stream, and returns the offset to go on from.
func (s *search) roll(ctx context.Context, at int64) (int64, error) {
	b, n := s.buf[at-s.at:], s.block
	filter, shift := s.wanted.filter, s.wanted.shift&63
	has := func(h uint64) bool { return filter[h>>shift]>>(h>>32&63)&1 != 0 }
	sum := func(at int) uint64 { return rollSum(b[at : at+n]) }
	h0, h1, h2, h3, h4, h5, h6, h7 := sum(0), sum(1), sum(2), sum(3), sum(4), sum(5), sum(6), sum(7)
	pow := rollPower(n / wordLen)
	i := 0
	for ; i+n+2*wordLen <= len(b); i += wordLen {
		if has(h0) || has(h1) || has(h2) || has(h3) || has(h4) || has(h5) || has(h6) || has(h7) {
			for j, h := range [wordLen]uint64{h0, h1, h2, h3, h4, h5, h6, h7} {
				if !has(h) {
					continue
				}
				if next, err := s.try(ctx, uint32(h>>32), at+int64(i+j), b[i+j:i+j+n]); next > 0 || err != nil {
					return next, err
				}
			}
		}
		in, out := (*[2 * wordLen]byte)(b[i+n:])[:], (*[2 * wordLen]byte)(b[i:])[:]
		h0 = h0*rollFactor + mixAt(in, 0) - mixAt(out, 0)*pow
		h1 = h1*rollFactor + mixAt(in, 1) - mixAt(out, 1)*pow
		h2 = h2*rollFactor + mixAt(in, 2) - mixAt(out, 2)*pow
		h3 = h3*rollFactor + mixAt(in, 3) - mixAt(out, 3)*pow
		h4 = h4*rollFactor + mixAt(in, 4) - mixAt(out, 4)*pow
		h5 = h5*rollFactor + mixAt(in, 5) - mixAt(out, 5)*pow
		h6 = h6*rollFactor + mixAt(in, 6) - mixAt(out, 6)*pow
		h7 = h7*rollFactor + mixAt(in, 7) - mixAt(out, 7)*pow
	}
	return at + int64(i), nil
}

// try compares the bytes b at offset at of the stream with the blocks that have their rolling hash.
// It returns the offset to go on from, or 0 for the next byte.
func (s *search) try(ctx context.Context, hash uint32, at int64, b []byte) (next int64, err error) {
	same := s.wanted.of(hash)
	if len(same) == 0 || same[0].tries == s.wanted.patience {
		return 0, nil
	}
	d := digestOf(b)
	first, _ := slices.BinarySearchFunc(same, d, func(w want, d uint64) int { return cmp.Compare(w.digest, d) })
	if first == len(same) || same[first].digest != d || !s.jumps && same[first].found {
		same[0].tries++
		return 0, nil
	}
	if !s.jumps {
		same[first].found = true
		return 0, s.places.put(same[first].block, at)
	}
	// Of blocks with the same content, the one that is expected is most likely followed by others.
	same = same[first:]
	block := same[0].block
	k := sort.Search(len(same), func(i int) bool { return same[i].digest != d || same[i].block >= s.next })
	if k < len(same) && same[k].digest == d {
		block = same[k].block
	}
	if err := s.precede(ctx, block, at); err != nil {
		return 0, err
	}
	return s.follow(ctx, block, at)
}

// precede finds the blocks that are in front of a block at an offset, back to one that is known.
func (s *search) precede(ctx context.Context, block, at int64) error {
	for block, at = block-1, at-int64(s.block); block >= 0 && at >= 0; block, at = block-1, at-int64(s.block) {
		_, known, err := s.places.get(block)
		if known || err != nil {
			return err
		}
		if ok, err := s.is(ctx, block, at); !ok || err != nil {
			return err
		}
		if err := s.places.put(block, at); err != nil {
			return err
		}
	}
	return nil
}

// follow finds the blocks from number block on that follow one another from offset at on, and
// returns the offset behind them.
func (s *search) follow(ctx context.Context, block, at int64) (int64, error) {
	for ; block < s.blocks && at < s.places.stream.size; block++ {
		if err := s.ahead(ctx, at, s.block); err != nil {
			return at, err
		}
		ok, err := s.is(ctx, block, at)
		if err != nil {
			return at, err
		}
		if !ok {
			break
		}
		if err := s.places.put(block, at); err != nil {
			return at, err
		}
		at += s.g.f.lenOf(block)
	}
	s.next = block + 1
	return at, nil
}

// is reports whether a block is at an offset of the stream.
func (s *search) is(ctx context.Context, block, at int64) (bool, error) {
	n := s.g.f.lenOf(block)
	b := s.one
	if from := at - s.at; n == int64(len(b)) && from >= 0 && from+n <= int64(len(s.buf)) {
		b = s.buf[from : from+n]
	} else {
		clear(b[n:])
		if err := s.places.stream.read(ctx, b[:n], at); err != nil {
			return false, err
		}
	}
	err := s.g.right(ctx, block, b)
	if err == errLost {
		return false, nil
	}
	return err == nil, err
}

// share gives blocks of the same content the place of the one that was found.
func (s *search) share() error {
	all := s.wanted.all
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].hash == all[0].hash && all[n].digest == all[0].digest {
			n++
		}
		for _, w := range all[:n] {
			at, ok, err := s.places.get(w.block)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			for _, w := range all[:n] {
				if err := s.places.put(w.block, at); err != nil {
					return err
				}
			}
			break
		}
		all = all[n:]
	}
	return nil
}

// A want is a block that is searched.
type want struct {
	block  int64
	digest uint64
	hash   uint32
	tries  uint16 // of the first with its hash: how often other bytes had the same hash
	found  bool
}

// wanted is the blocks that are searched, ordered by hash, digest and number.
type wanted struct {
	all      []want
	filter   []uint64 // has a bit for each hash
	shift    uint     // of a sum, to get the index in filter
	first    []uint32 // by the upper bits of a hash: index of the first
	bits     uint     // how many these are
	patience uint16   // how many tries there are with a hash, so that no one can make a search slow
}

func (w *wanted) add(ctx context.Context, f *File, block int64) error {
	d, err := f.digest(ctx, block)
	var hash uint32
	if err == nil {
		hash, err = f.rolling(ctx, block)
	}
	if err == errLost {
		return nil
	}
	w.all = append(w.all, want{block: block, digest: d, hash: hash})
	return err
}

func (w *wanted) sort() {
	slices.SortFunc(w.all, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.digest, b.digest), cmp.Compare(a.block, b.block))
	})
	w.bits = uint(bits.Len(uint(len(w.all))))
	w.first = make([]uint32, 1<<w.bits+1)
	w.shift = 64 - max(w.bits, 3)
	w.filter = make([]uint64, 1<<(64-w.shift))
	for _, x := range w.all {
		w.filter[uint64(x.hash)<<32>>w.shift] |= 1 << (x.hash & 63)
		w.first[x.hash>>(32-w.bits)+1]++
	}
	for i := range w.first[1:] {
		w.first[i+1] += w.first[i]
	}
}

// of returns the blocks that have a hash.
func (w *wanted) of(hash uint32) []want {
	top := hash >> (32 - w.bits)
	in := w.all[w.first[top]:w.first[top+1]]
	from, ok := slices.BinarySearchFunc(in, hash, func(w want, hash uint32) int { return cmp.Compare(w.hash, hash) })
	if !ok {
		return nil
	}
	n := sort.Search(len(in)-from, func(i int) bool { return in[from+i].hash != hash })
	return in[from : from+n]
}
