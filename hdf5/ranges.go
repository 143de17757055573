package hdf5

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
)

const (
	atOnce    = 64       // concurrent requests
	nearby    = 2 << 10  // a gap that is always read, because a request costs as much
	farther   = 16 << 10 // a gap that may be read
	spare     = 64 << 10 // bytes of longer gaps that may be read for the structures of a file
	twice     = 32 << 10 // bytes of a gap that may be read a second time
	short     = 2 << 10  // minimum size of a request
	shortNear = 16 << 10 // the same if a request takes no time
	shortFew  = 8 << 10  // the same if there are few requests; doubles each time
	mostAhead = 256 << 10
	small     = 512 << 10 // a file of this size is read as a whole
	few       = 8
	longest   = 1 << 20 // largest size of a joined request, which caches below keep
	cacheSize = 16 << 20

	// What may be read beside structures that lead to others. The sums are for a whole file, however
	// large it is. What such structures take is added to them again, so that more is read of a file
	// that has structures everywhere.
	island     = 96 << 10   // a gap for each structure that is expected: a request costs about as much
	mostCredit = 1152 << 10 // all such gaps
	aheadFor   = 8 << 10    // bytes from one that leads to another
	aheadOn    = 128 << 10  // the same if it continues what has been read
	mostMargin = 640 << 10  // all such bytes
	refund     = 4          // bytes that are added to both sums for a byte of a structure
)

// span is a run of bytes to read.
type span struct{ off, n int64 }

func (s span) end() int64 { return s.off + s.n }

// wish is a span to read. lead is the number of structures that it probably leads to, none of
// which has been read; they are often near it, and near each other. It is -1 if what it leads to is
// read in any case.
type wish struct {
	span
	lead int
	last int64 // where the last part with a lead begins
}

// wishes returns wishes for spans, which have the same lead.
func wishes(all []span, lead int) []wish {
	out := make([]wish, len(all))
	for i, s := range all {
		out[i] = wish{s, lead, s.off}
	}
	return out
}

// piece is a run of bytes that is in memory.
type piece struct {
	off int64
	b   []byte
	age int64
}

func (p piece) end() int64 { return p.off + int64(len(p.b)) }

// cache keeps the structures of a file that were read last, because other structures are near
// them.
type cache struct {
	near   bool // reads take no time
	mu     sync.Mutex
	pieces []piece // sorted by offset
	held   int64
	age    int64
}

func (c *cache) find(s span) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].off > s.off })
	for _, p := range slices.Backward(c.pieces[max(0, i-4):i]) {
		if s.end() <= p.end() {
			return p.b[s.off-p.off : s.end()-p.off : s.end()-p.off]
		}
	}
	return nil
}

// findAll returns the bytes of several spans, or nil if not all of them are there.
func (c *cache) findAll(want []span) [][]byte {
	got := make([][]byte, len(want))
	for i, s := range want {
		if got[i] = c.find(s); got[i] == nil && s.n > 0 {
			return nil
		}
	}
	return got
}

// around extends s to the range from from to to, except for what is cached at either end.
func (c *cache) around(s span, from, to int64) span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pieces {
		if p.off >= to {
			break
		}
		if p.end() <= s.off {
			from = max(from, p.end())
		} else if p.off >= s.end() {
			to = p.off
		}
	}
	return span{from, to - from}
}

// add adds a piece, joined with those that it touches.
func (c *cache) add(off int64, b []byte) {
	if len(b) > cacheSize/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	for i < len(c.pieces) && !c.near { // else copies cost more than reads
		p := c.pieces[i]
		from, to := min(off, p.off), max(off+int64(len(b)), p.end())
		if p.off > off+int64(len(b)) {
			break
		}
		if p.end() < off || to-from > cacheSize/4 {
			i++
			continue
		}
		all := make([]byte, to-from)
		copy(all[p.off-from:], p.b)
		copy(all[off-from:], b)
		off, b = from, all
		c.held -= int64(len(p.b))
		c.pieces = slices.Delete(c.pieces, i, i+1)
	}
	if c.held += int64(len(b)); c.held > cacheSize {
		c.forget()
	}
	i = sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].off > off })
	c.age++
	c.pieces = slices.Insert(c.pieces, i, piece{off, b, c.age})
}

// forget drops the older half.
func (c *cache) forget() {
	middle := c.age - int64(len(c.pieces))/2
	c.pieces = slices.DeleteFunc(c.pieces, func(p piece) bool {
		if p.age > middle {
			return false
		}
		c.held -= int64(len(p.b))
		return true
	})
}

// joined sorts wishes and returns the spans to read. Those that overlap or are close together
// become one. The smallest of the remaining gaps are read too: as long as that adds at most a
// quarter, then as long as bytes are left in spare, and beside what leads to other structures as
// long as bytes are left in credit.
func (f *File) joined(want []wish) []wish {
	slices.SortFunc(want, func(a, b wish) int { return cmp.Compare(a.off, b.off) })
	var all []wish
	var total int64
	for _, s := range want {
		if n := len(all); n > 0 && s.off <= all[n-1].end()+nearby && (s.end()-all[n-1].off <= longest || s.off < all[n-1].end()) {
			all[n-1].n = max(all[n-1].n, s.end()-all[n-1].off)
			all[n-1].lead = together(all[n-1].lead, s.lead)
			if s.lead > 0 {
				all[n-1].last = s.last
			}
			continue
		}
		all = append(all, s)
	}
	before := make([]int, 0, len(all)) // spans with a gap before them, smallest gap first
	for i, s := range all {
		total += s.n
		if i > 0 && (!f.far || s.off-f.cache.around(span{all[i-1].end(), 0}, all[i-1].end(), s.off).end() <= twice) {
			before = append(before, i)
		}
	}
	gap := func(i int) int64 { return all[i].off - all[i-1].end() }
	slices.SortStableFunc(before, func(i, j int) int { return cmp.Compare(gap(i), gap(j)) })
	join := make([]bool, len(all))
	room := total / 4
	for _, i := range before {
		n := gap(i)
		from := &room
		if n > min(room, farther) {
			from = &f.spare
		}
		if n > *from {
			from = &f.credit
			if min(all[i-1].lead, all[i].lead) < 0 || n > min(*from, int64(together(all[i-1].lead, all[i].lead))*island) {
				continue
			}
		}
		*from -= n
		join[i] = true
	}
	var out []wish
	for i, s := range all {
		if n := len(out); join[i] && s.end()-out[n-1].off <= longest {
			out[n-1].n = s.end() - out[n-1].off
			out[n-1].lead = together(out[n-1].lead, s.lead)
			if s.lead > 0 {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// together returns the lead of two wishes.
func together(a, b int) int {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return a + b
}

// unknown returns the part of a span that is not cached, without considering pieces in its
// middle.
func (c *cache) unknown(s span) span {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, to := s.off, s.end()
	first := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].off > s.off })
	for _, p := range c.pieces[max(0, first-4):] { // as find does
		if p.off <= from {
			from = max(from, p.end())
		}
		if p.off >= to {
			break
		}
		if p.off > from && p.end() >= to {
			to = p.off
		}
	}
	if from >= to {
		return s // several pieces overlap it, but none contains it
	}
	return span{from, to - from}
}

// fetch reads spans, all at the same time. They must be within the file.
func (f *File) fetch(ctx context.Context, want []wish, l *loader) ([][]byte, error) {
	got := make([][]byte, len(want))
	var missing []wish
	for i, s := range want {
		if got[i] = f.cache.find(s.span); got[i] == nil && s.n > 0 {
			missing = append(missing, wish{f.cache.unknown(s.span), s.lead, s.last})
		}
	}
	if len(missing) == 0 {
		return got, ctx.Err()
	}
	if l != nil && f.far {
		missing = append(missing, l.hints(ctx)...)
	}
	ranges := f.ranges(missing)
	read := make([]piece, len(ranges))
	err := f.each(ctx, len(ranges), func(ctx context.Context, i int) error {
		b := make([]byte, ranges[i].n)
		if err := f.obj.ReadAt(ctx, b, ranges[i].off); err != nil {
			return err
		}
		read[i] = piece{off: ranges[i].off, b: b}
		f.cache.add(ranges[i].off, b)
		if l != nil && f.far {
			l.scan(ranges[i].off, b)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, s := range want {
		if got[i] != nil || s.n == 0 {
			continue
		}
		if got[i] = (&cache{pieces: read}).find(s.span); got[i] == nil {
			got[i] = f.cache.find(s.span)
		}
		if got[i] == nil { // what was cached of it has been dropped
			got[i] = make([]byte, s.n)
			if err := f.obj.ReadAt(ctx, got[i], s.off); err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

// ranges returns the ranges to read for the given wishes. Short ones are extended in both
// directions, because what an object refers to is often beside it.
func (f *File) ranges(want []wish) []wish {
	f.planning.Lock()
	defer f.planning.Unlock()
	if f.size <= f.small {
		return []wish{{span{0, f.size}, 0, 0}}
	}
	if f.far {
		for _, s := range want {
			n := min(int64(max(s.lead, 0))*island, f.earn)
			f.earn -= n
			f.credit += n
		}
	}
	for i, s := range want {
		if f.page > 0 && s.n <= f.page {
			from, to := s.off/f.page*f.page, (s.end()+f.page-1)/f.page*f.page
			want[i].span = f.cache.around(s.span, from, min(to, f.size))
		}
	}
	all := f.joined(want)
	least := int64(short)
	if !f.far {
		least = shortNear
	} else if len(all) <= few { // it is not known yet what is needed next, but that will be several ranges
		least = max(shortFew, f.ahead/int64(len(all)))
		f.ahead = min(2*f.ahead, mostAhead)
	}
	if f.page > shortFew {
		return f.joined(all) // what is beside them is in other pages
	}
	for i, s := range all {
		if f.far && s.lead > 0 {
			all[i].span = f.around(s)
			continue
		}
		least := least
		if s.lead < 0 {
			least = short
		}
		if s.n < least {
			from := max(0, s.off-least/4)
			all[i].span = f.cache.around(s.span, from, min(max(s.end(), from+least), f.size))
		}
	}
	return f.joined(all)
}

// around extends a wish by what is probably needed next: more than usual if it continues what has
// been read, or has many structures already.
func (f *File) around(s wish) span {
	ahead := int64(aheadFor)
	before := f.cache.before(s.off)
	from, gap := max(0, s.off-shortFew), s.off-before
	if gap <= nearby || s.n >= 4<<10 && s.n <= int64(s.lead)<<11 {
		ahead = min(max(aheadOn, s.n), longest)
	}
	if gap <= min(f.credit, int64(s.lead)*island) { // it continues too, after the gap
		f.credit -= gap
		from, ahead = before, max(ahead, 3*(s.n-gap))
	}
	ahead = min(ahead, max(f.margin, short))
	to := min(max(s.end(), min(s.last+ahead, from+longest)), f.size)
	f.margin -= to - s.end()
	return f.cache.around(s.span, from, to)
}

// before returns the end of the piece before an offset, or 0.
func (c *cache) before(off int64) (end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pieces {
		if p.end() <= off {
			end = p.end()
		}
	}
	return end
}

// each calls do for the numbers below n, several at a time.
func (f *File) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	if n == 1 {
		return do(ctx, 0)
	}
	seq := func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
	}
	return pipe.Each(ctx, seq, min(n, atOnce), do)
}

// wave joins the reads of its tasks. A task is a goroutine that reads structures one after
// another, as if it were alone. When all tasks wait for bytes, the wave reads for all of them at
// once. So thousands of objects take only as many rounds of requests as the deepest of them.
type wave struct {
	f      *File
	ctx    context.Context
	seen   func(Region) // may be nil
	loader *loader      // what the wave is for, if all of the file will be read
	misses *[]wish      // if it is not nil, nothing is read: what is not cached is added here

	mu      sync.Mutex
	live    int // tasks that have not ended and do not wait for other tasks
	waiting []*request
	failed  error // an error of the store
	room    room
}

// room is what a wave may still find. Structures share almost no bytes, so a file cannot have
// more of them than fit into it. Without this limit, a small file whose objects all refer to the
// same tree could be endless.
type room struct {
	records int64 // links, attributes and what refers to them, of at least 8 bytes each
	headers int64 // bytes of object headers; those of committed datatypes are read several times
	values  int64 // bytes of attributes, and of values in memory
}

func (f *File) room() room {
	return room{records: f.size / 8, headers: 4*f.size + 4<<20, values: f.Limit}
}

// spend subtracts n from one of the rooms.
func (w *wave) spend(room *int64, n int64, what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *room -= n; *room < 0 {
		return corrupt("more %s than fit into a file of %d bytes", what, w.f.size)
	}
	return nil
}

type request struct {
	want []wish
	got  [][]byte
	done chan error
}

// wave returns a wave with one task, the caller.
func (f *File) wave(ctx context.Context) *wave { return &wave{f: f, ctx: ctx, live: 1, room: f.room()} }

// read returns the bytes of one span.
func (w *wave) read(off, n int64) ([]byte, error) {
	return w.readLeading(span{off, n}, 0)
}

// readLeading returns the bytes of a span with that lead.
func (w *wave) readLeading(s span, lead int) ([]byte, error) {
	all, err := w.readAll([]span{s}, lead)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readAll returns the bytes of several spans, each with that lead.
func (w *wave) readAll(want []span, lead int) ([][]byte, error) {
	for _, s := range want {
		if err := w.f.holds(s); err != nil {
			return nil, err
		}
	}
	if w.misses == nil && w.f.far && lead > 0 {
		w.f.planning.Lock()
		for _, s := range want {
			w.f.margin = min(w.f.margin+refund*s.n, mostMargin)
			w.f.earn = min(w.f.earn+refund*s.n, mostCredit)
		}
		w.f.planning.Unlock()
	}
	if got := w.f.cache.findAll(want); got != nil {
		return got, w.ctx.Err()
	}
	if w.misses != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		*w.misses = append(*w.misses, wishes(want, lead)...)
		return nil, errMissing
	}
	if !w.f.far {
		got, err := w.f.fetch(w.ctx, wishes(want, lead), nil)
		if err != nil {
			w.mu.Lock()
			w.failed = cmp.Or(w.failed, err)
			w.mu.Unlock()
		}
		return got, err
	}
	r := &request{want: wishes(want, lead), done: make(chan error, 1)}
	w.mu.Lock()
	w.waiting = append(w.waiting, r)
	w.step()
	err := <-r.done
	return r.got, err
}

var errMissing = &marked{text: "not read yet"}

// nodesAtOnce is the number of structures that are passed to structures at a time.
const nodesAtOnce = 512

// structures reads structures of a kind, and calls do with the bytes of each. It calls broken for
// damaged ones, which decides whether to continue.
func (w *wave) structures(what string, all []span, lead int, broken func(error) error, do func(i int, b []byte) error) error {
	var want []span
	var index []int
	for i, s := range all {
		if err := w.f.holds(s); err == nil {
			want, index = append(want, s), append(index, i)
		} else if err := broken(w.f.place(what, s.off, err)); err != nil {
			return err
		}
	}
	read, err := w.readAll(want, lead)
	if err != nil {
		return err
	}
	for k, b := range read {
		err := do(index[k], b)
		if err != nil && ofFile(err) {
			err = broken(w.f.place(what, want[k].off, err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holds returns an error if a span is not in the file.
func (f *File) holds(s span) error {
	switch {
	case s.off < 0:
		return corrupt("its address is undefined")
	case s.n < 0 || s.off > f.size || s.n > f.size-s.off:
		return corrupt("%d bytes at %d exceed the file of %d bytes", s.n, s.off, f.size)
	case s.n > f.Limit:
		return overLimit("it", s.n, f.Limit)
	}
	return nil
}

// step reads if all tasks wait. It unlocks w.mu.
func (w *wave) step() {
	if len(w.waiting) < w.live || len(w.waiting) == 0 {
		w.mu.Unlock()
		return
	}
	all := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	want := all[0].want
	if len(all) > 1 {
		want = nil
		for _, r := range all {
			want = append(want, r.want...)
		}
	}
	got, err := w.f.fetch(w.ctx, want, w.loader)
	if err != nil {
		w.mu.Lock()
		w.failed = cmp.Or(w.failed, err)
		w.mu.Unlock()
	}
	for _, r := range all {
		if err == nil {
			r.got, got = got[:len(r.want)], got[len(r.want):]
		}
		r.done <- err
	}
}

// together runs tasks concurrently and waits for them. The first task takes the caller's place in
// the count of tasks, and the caller takes that of the last task to end.
func (w *wave) together(tasks ...func()) {
	left := len(tasks)
	if left == 1 || !w.f.far || w.misses != nil { // nothing is gained by reading for several at a time
		for _, task := range tasks {
			task()
		}
		return
	}
	if left == 0 {
		return
	}
	w.mu.Lock()
	w.live += left - 1
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, task := range tasks {
		wg.Go(func() {
			task()
			w.mu.Lock()
			if left--; left > 0 {
				w.live--
				w.step()
			} else {
				w.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// saw reports a structure.
func (w *wave) saw(what string, off, n int64) {
	if w.seen != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen(Region{what, off, n})
	}
}
