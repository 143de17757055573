package hdf5

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/holdall/holdall/internal/pipe"
)

const (
	atOnce    = 32       // requests under way
	nearby    = 2 << 10  // a gap that is always read: a request costs as much
	farther   = 16 << 10 // a gap that may be read
	short     = 2 << 10  // bytes of a request at least
	shortFew  = 8 << 10  // the same where there are few
	few       = 4
	longest   = 4 << 20 // bytes of a request that was joined
	cacheSize = 16 << 20
)

// A span is a run of bytes that is wanted.
type span struct{ off, n int64 }

func (s span) end() int64 { return s.off + s.n }

// A piece is a run of bytes that is known.
type piece struct {
	off int64
	b   []byte
	age int64
}

// A cache keeps what was read last of a file's structures: whatever is near one
// of them is another one.
type cache struct {
	mu     sync.Mutex
	pieces []piece // by offset
	held   int64
	age    int64
}

func (c *cache) find(s span) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].off > s.off })
	for _, p := range slices.Backward(c.pieces[max(0, i-4):i]) {
		if s.end() <= p.off+int64(len(p.b)) {
			return p.b[s.off-p.off : s.end()-p.off : s.end()-p.off]
		}
	}
	return nil
}

func (c *cache) add(off int64, b []byte) {
	if len(b) > cacheSize/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held += int64(len(b)); c.held > cacheSize {
		c.forget()
	}
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].off > off })
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

// joined makes of wanted spans, which it sorts, those that are read: what overlaps or
// is nearby is one, and the smallest of the gaps that are left are read too as long as
// that is a quarter more.
func joined(want []span) []span {
	slices.SortFunc(want, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	var all []span
	var total int64
	for _, s := range want {
		if n := len(all); n > 0 && s.off <= all[n-1].end()+nearby && (s.end()-all[n-1].off <= longest || s.off < all[n-1].end()) {
			all[n-1].n = max(all[n-1].n, s.end()-all[n-1].off)
			continue
		}
		all = append(all, s)
	}
	before := make([]int, 0, len(all)) // those with a gap before them, the smallest first
	for i, s := range all {
		total += s.n
		if i > 0 {
			before = append(before, i)
		}
	}
	gap := func(i int) int64 { return all[i].off - all[i-1].end() }
	slices.SortStableFunc(before, func(i, j int) int { return cmp.Compare(gap(i), gap(j)) })
	join := make([]bool, len(all))
	for room, i := total/4, 0; i < len(before); i++ {
		if room -= gap(before[i]); room < 0 || gap(before[i]) > farther {
			break
		}
		join[before[i]] = true
	}
	var out []span
	for i, s := range all {
		if n := len(out); join[i] && s.end()-out[n-1].off <= longest {
			out[n-1].n = s.end() - out[n-1].off
			continue
		}
		out = append(out, s)
	}
	return out
}

// fetch reads spans, all of them at once. They lie within the file.
func (f *File) fetch(ctx context.Context, want []span) ([][]byte, error) {
	got := make([][]byte, len(want))
	var missing []span
	for i, s := range want {
		if got[i] = f.cache.find(s); got[i] == nil && s.n > 0 {
			missing = append(missing, s)
		}
	}
	if len(missing) == 0 {
		return got, ctx.Err()
	}
	ranges := f.widened(joined(missing))
	read := make([][]byte, len(ranges))
	err := f.each(ctx, len(ranges), func(ctx context.Context, i int) error {
		b := make([]byte, ranges[i].n)
		if err := f.obj.ReadAt(ctx, b, ranges[i].off); err != nil {
			return err
		}
		read[i] = b
		f.cache.add(ranges[i].off, b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, s := range want {
		if got[i] == nil && s.n > 0 {
			k := sort.Search(len(ranges), func(k int) bool { return ranges[k].off > s.off }) - 1
			at := s.off - ranges[k].off
			got[i] = read[k][at : at+s.n : at+s.n]
		}
	}
	return got, nil
}

// widened makes short ranges longer: what an object leads to is often beside it, on either
// side.
func (f *File) widened(all []span) []span {
	least := int64(short)
	if len(all) <= few {
		least = shortFew
	}
	for i, s := range all {
		if s.n < least {
			from := max(0, s.off-least/4)
			all[i] = span{from, min(max(s.end(), from+least), f.size) - from}
		}
	}
	return joined(all)
}

// each calls do for numbers below n, many at once.
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

// A wave joins what its tasks read. A task is a goroutine that reads one structure
// after another, as if it were alone; only when all of them wait for bytes is anything
// read, for all of them at once. So thousands of objects cost as many rounds as the
// deepest of them.
type wave struct {
	f    *File
	ctx  context.Context
	seen func(Region) // may be nil

	mu      sync.Mutex
	live    int // tasks that have not ended and do not wait for others
	waiting []*request
	failed  error // of the store
	room    room
}

// A room is what a wave may still find. Structures do not share bytes, but for a few, so
// a file has no more of them than fit into it: of one whose objects all lead to the same
// tree there would be much in little.
type room struct {
	records int64 // links, attributes, and what leads to them, of 8 bytes at least
	headers int64 // bytes of object headers; those of committed datatypes are read often
	values  int64 // bytes of attributes, and of values in memory
}

func (f *File) room() room {
	return room{records: f.size / 8, headers: 4*f.size + 4<<20, values: f.Limit}
}

// spend takes from one of the rooms.
func (w *wave) spend(room *int64, n int64, what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *room -= n; *room < 0 {
		return corrupt("there are more %s than a file of %d bytes has room for", what, w.f.size)
	}
	return nil
}

type request struct {
	want []span
	got  [][]byte
	done chan error
}

// wave returns a wave of one task, which is the caller.
func (f *File) wave(ctx context.Context) *wave { return &wave{f: f, ctx: ctx, live: 1, room: f.room()} }

// read returns the bytes of one span.
func (w *wave) read(off, n int64) ([]byte, error) {
	all, err := w.readAll([]span{{off, n}})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readAll returns the bytes of spans.
func (w *wave) readAll(want []span) ([][]byte, error) {
	for _, s := range want {
		if err := w.f.holds(s); err != nil {
			return nil, err
		}
	}
	r := &request{want: want, done: make(chan error, 1)}
	w.mu.Lock()
	w.waiting = append(w.waiting, r)
	w.step()
	err := <-r.done
	return r.got, err
}

// nodesAtOnce is how many structures of a kind whoever has a list of them gives to
// structures.
const nodesAtOnce = 512

// structures reads structures of a kind, and calls do with the bytes of each. What is
// damaged is told to broken, which decides whether to go on.
func (w *wave) structures(what string, all []span, broken func(error) error, do func(i int, b []byte) error) error {
	var want []span
	var index []int
	for i, s := range all {
		if err := w.f.holds(s); err == nil {
			want, index = append(want, s), append(index, i)
		} else if err := broken(w.f.place(what, s.off, err)); err != nil {
			return err
		}
	}
	read, err := w.readAll(want)
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

// holds says what is wrong with a span.
func (f *File) holds(s span) error {
	switch {
	case s.off < 0:
		return corrupt("its address is undefined")
	case s.n < 0 || s.off > f.size || s.n > f.size-s.off:
		return corrupt("%d bytes at %d are not all within the file, of %d bytes", s.n, s.off, f.size)
	case s.n > f.Limit:
		return overLimit("it", s.n, f.Limit)
	}
	return nil
}

// step reads if all tasks wait. It gives w.mu back.
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
	got, err := w.f.fetch(w.ctx, want)
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

// together runs tasks beside each other, and waits for them. The first of them counts in
// place of the caller, and the caller in place of the last one to end.
func (w *wave) together(tasks ...func()) {
	left := len(tasks)
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
