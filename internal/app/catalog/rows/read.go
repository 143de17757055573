package rows

import (
	"bytes"
	"container/list"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An Error is damage of a run, or a failure to read it.
type Error struct {
	Run string
	Off int64 // -1: not at one place
	Err error
}

func (e *Error) Error() string {
	if e.Off < 0 {
		return fmt.Sprintf("%s: run of rows: %v", format.Escape(e.Run), e.Err)
	}
	return fmt.Sprintf("%s at %d: run of rows: %v", format.Escape(e.Run), e.Off, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// A Cache keeps pages of several runs.
type Cache struct {
	most int64

	mu   sync.Mutex
	held int64
	used list.List // of *cached, the most recently used first
	at   map[cacheKey]*list.Element
}

type cacheKey struct {
	run *Run
	off int64
}

type cached struct {
	key  cacheKey
	n    int64
	page any
}

func NewCache(most int64) *Cache { return &Cache{most: most, at: map[cacheKey]*list.Element{}} }

func (c *Cache) get(run *Run, off int64) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[cacheKey{run, off}]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).page
}

func (c *Cache) put(run *Run, off int64, n int, page any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{run, off}
	if c.at[key] != nil {
		return
	}
	c.at[key] = c.used.PushFront(&cached{key, int64(n), page})
	c.held += int64(n)
	for c.held > c.most && c.used.Len() > 1 {
		x := c.used.Remove(c.used.Back()).(*cached)
		delete(c.at, x.key)
		c.held -= x.n
	}
}

// A Run is an open run.
type Run struct {
	Name   string
	Base   int64 // of the work that made it, for the caller
	commit int64
	obj    store.Object
	size   int64
	cache  *Cache
	signed bool // what is read is compared with a signed digest

	root  root
	start int64  // of the index
	near  []byte // the filter, if it came with the index
	refs  []ref
	last  string
}

// MostTail is how long the end of a run can be.
const MostTail = 64 << 20

// Open opens a run that a commit has added. tail is its end, of s.Tail bytes; if it is nil, it is read. If the
// summary is signed, so is all that the run returns.
func Open(ctx context.Context, obj store.Object, name string, commit int64, s Summary, tail []byte, signed bool, cache *Cache) (*Run, error) {
	r := &Run{Name: name, commit: commit, obj: obj, size: s.Size, cache: cache, signed: signed}
	if s.Tail < footerLen || s.Tail > MostTail || s.Tail > s.Size-int64(len(magic)) {
		return nil, r.fail(-1, fmt.Errorf("an end of %d bytes of %d", s.Tail, s.Size))
	}
	if tail == nil {
		tail = make([]byte, s.Tail)
		if err := obj.ReadAt(ctx, tail, s.Size-s.Tail); err != nil {
			return nil, r.fail(s.Size-s.Tail, err)
		}
	}
	if err := r.parseTail(tail, s); err != nil {
		return nil, r.fail(s.Size-s.Tail, err)
	}
	return r, nil
}

func (r *Run) fail(off int64, err error) error { return &Error{r.Name, off, err} }

var errTail = errors.New("its end is not that of a run")

func (r *Run) parseTail(tail []byte, s Summary) error {
	n := len(tail) - footerLen
	if r.signed && hex.EncodeToString(sumOf(tail)) != s.Sum {
		return errUnsigned
	}
	if int64(len(tail)) != s.Tail || n < 0 || string(tail[n+16:]) != endMagic {
		return errTail
	}
	textLen := int(binary.LittleEndian.Uint32(tail[n+8:]))
	start, before := binary.LittleEndian.Uint64(tail[n:]), s.Size-s.Tail
	if start < uint64(before) || start-uint64(before) > uint64(n) {
		return errTail
	}
	r.start, r.near = int64(start), tail[:start-uint64(before)]
	if tail, n = tail[len(r.near):], n-len(r.near); textLen > n {
		return errTail
	}
	if binary.LittleEndian.Uint32(tail[n+12:]) != crc32.ChecksumIEEE(tail[:n]) {
		return errChecksum
	}
	if err := json.Unmarshal(tail[n-textLen:n], &r.root); err != nil {
		return err
	}
	x, first := &r.root, int64(len(magic))
	blocks := x.Filter[1]
	if len(r.near) > 0 && (x.Levels != 1 || int64(len(r.near)) != blocks*filterBlock || x.Filter[0] != before) {
		return errTail
	}
	if s.Rows != anyRows && x.Rows != s.Rows || x.Rows < 0 || x.Names < 0 || x.Names > x.Rows || x.Levels < 1 || x.Levels > 2 || x.Filter[0] < first || blocks < 0 || blocks > (r.start-first)/filterBlock || x.Filter[0] > r.start-blocks*filterBlock {
		return errTail
	}
	c := &scan.Scanner{B: tail[:n-textLen]}
	packed := c.Text()
	if c.Bad || c.At != len(c.B) {
		return errTail
	}
	index, err := Unpack(packed, MostTail)
	if err != nil {
		return err
	}
	to := x.Filter[0]
	if x.Levels == 2 {
		first, to = x.Filter[0]+blocks*filterBlock, r.start
	}
	c = &scan.Scanner{B: index}
	if r.refs, err = parseRefs(c, 0, first, to); err != nil {
		return err
	}
	r.last = string(c.Text())
	if c.Bad || c.At != len(index) || len(r.last) > MostName || x.Levels == 1 && int64(len(r.refs)) != x.Pages || r.signed && (x.Sums == nil || x.Sums.Per < 1 || x.Sums.Per > MostTail/sumLen) {
		return errPage
	}
	return nil
}

// same compares bytes with their digest, the one of some with a number.
func same(b []byte, sums [][]byte, k int) error {
	if k >= len(sums) || !bytes.Equal(sumOf(b), sums[k]) {
		return errUnsigned
	}
	return nil
}

// samePage compares a page with its digest, if the run is signed.
func (r *Run) samePage(ctx context.Context, b []byte, k int) error {
	if !r.signed {
		return nil
	}
	x := r.root.Sums
	i := k / x.Per
	off := x.At + int64(i)*int64(x.Per)*sumLen
	block, ok := r.cache.get(r, off).([]byte)
	if !ok {
		block = make([]byte, max(min(int64(x.Per)*sumLen, r.root.Filter[0]-off), 0))
		err := r.obj.ReadAt(ctx, block, off)
		if err == nil {
			err = same(block, x.Blocks, i)
		}
		if err != nil {
			return err
		}
		r.cache.put(r, off, len(block), block)
	}
	if block = block[min(k%x.Per*sumLen, len(block)):]; len(block) < sumLen {
		return errUnsigned
	}
	return same(b, [][]byte{block[:sumLen]}, 0)
}

// errUnsigned means that something is not what the digests say that were signed.
var errUnsigned = errors.New("it is not what was signed")

func (r *Run) Close() error { return r.obj.Close() }

// MayHave reports whether a row of that name is possible. It reads at most a block of the filter; with
// nearOnly nothing, and then it looks only at what came with the index.
func (r *Run) MayHave(ctx context.Context, name string, nearOnly bool) (bool, error) {
	if len(r.refs) == 0 || name < r.refs[0].first || name > r.last {
		return false, nil
	}
	n := int(r.root.Filter[1])
	if n == 0 || (nearOnly || r.signed) && len(r.near) == 0 { // the other ones have no digest
		return true, nil
	}
	h := hash(name)
	off := r.root.Filter[0] + int64(blockOf(h, n))*filterBlock
	if len(r.near) > 0 {
		bits, err := unsealed(r.near[off-r.root.Filter[0]:][:filterBlock])
		if err != nil {
			return false, r.fail(off, err)
		}
		return hasBits(bits, h), nil
	}
	bits, ok := r.cache.get(r, off).([]byte)
	if !ok {
		b := make([]byte, filterBlock)
		if err := r.obj.ReadAt(ctx, b, off); err != nil {
			return false, r.fail(off, err)
		}
		var err error
		if bits, err = unsealed(b); err != nil {
			return false, r.fail(off, err)
		}
		r.cache.put(r, off, filterBlock, bits)
	}
	return hasBits(bits, h), nil
}

// find returns the last ref whose first name may be before or at name, and not in the middle of its rows.
func find(refs []ref, name string) int {
	i, _ := slices.BinarySearchFunc(refs, name, func(x ref, name string) int {
		if x.first > name {
			return 1
		}
		return -1
	})
	for i = max(i-1, 0); i > 0 && refs[i].again && refs[i].first == name; i-- {
	}
	return i
}

func (r *Run) node(ctx context.Context, x ref) ([]ref, error) {
	if refs, ok := r.cache.get(r, x.off).([]ref); ok {
		return refs, nil
	}
	b := make([]byte, x.n)
	err := r.obj.ReadAt(ctx, b, x.off)
	each := 0
	if err == nil && r.signed {
		each, err = r.root.Sums.Each, same(b, r.root.Sums.Nodes, x.k)
	}
	if err == nil {
		b, err = unsealed(b)
	}
	var refs []ref
	if err == nil {
		b, err = Unpack(b, MostTail)
	}
	c := &scan.Scanner{B: b}
	if err == nil {
		refs, err = parseRefs(c, x.k*each, int64(len(magic)), r.root.Filter[0])
	}
	if err == nil && (len(refs) == 0 || c.At != len(b)) {
		err = errPage
	}
	if err != nil {
		return nil, r.fail(x.off, err)
	}
	r.cache.put(r, x.off, 64*len(refs), refs)
	return refs, nil
}

// load reads the first pages of refs, at most so many, in one request if the first is not in the cache.
func (r *Run) load(ctx context.Context, refs []ref, most int) ([]*page, error) {
	if p, ok := r.cache.get(r, refs[0].off).(*page); ok {
		return []*page{p}, nil
	}
	n := refs[0].n
	k := 1
	for ; k < min(most, len(refs)) && n+refs[k].n <= mostAhead; k++ {
		n += refs[k].n
	}
	b := make([]byte, n)
	if err := r.obj.ReadAt(ctx, b, refs[0].off); err != nil {
		return nil, r.fail(refs[0].off, err)
	}
	var all []*page
	for _, x := range refs[:k] {
		one := b[:x.n:x.n]
		if k > 1 { // otherwise one page would keep all of them in memory
			one = slices.Clone(one)
		}
		var p *page
		err := r.samePage(ctx, one, x.k)
		if err == nil {
			p, err = parsePage(one)
		}
		if err != nil {
			return nil, r.fail(x.off, err)
		}
		b = b[x.n:]
		r.cache.put(r, x.off, x.n, p)
		all = append(all, p)
	}
	return all, nil
}

// mostAhead is how much is read at once.
const mostAhead = 1 << 20

// Fetch reads the first page that From needs, so that it finds it in the cache.
func (r *Run) Fetch(ctx context.Context, name string) error {
	w := r.walk(ctx, name)
	more, err := w.more()
	if more {
		_, err = r.load(ctx, w.refs, 1)
	}
	return err
}

// Within reports whether the run may have names in [from, before). If before is empty, there is no upper bound.
func (r *Run) Within(from, before string) bool {
	return len(r.refs) > 0 && from <= r.last && (before == "" || r.refs[0].first < before)
}

// An Item is a row of a catalogue. About is its archive, if the row's page describes it.
type Item struct {
	Row
	About *Archive
	Run   *Run
}

// A walk goes through the rows of a run from a name on.
type walk struct {
	Walk
	ctx  context.Context
	name string

	i     int     // of what comes next in the index
	refs  []ref   // of pages, from the current one on
	pages []*page // those of refs that are read
	ahead int     // how many are read at once
	block int     // that comes next in the current page
	found bool    // all rows that come have the name, or are after it
	c     cursor
}

func (r *Run) walk(ctx context.Context, name string) *walk {
	w := &walk{Walk: Walk{X: Item{Run: r}}, ctx: ctx, name: name, i: len(r.refs), ahead: 1}
	if name <= r.last {
		w.i = find(r.refs, name)
	}
	return w
}

// more finds the refs of the next pages, if there are some.
func (w *walk) more() (bool, error) {
	r := w.X.Run
	switch {
	case w.i == len(r.refs):
		return false, nil
	case r.root.Levels == 1:
		w.refs, w.i = r.refs[w.i:], len(r.refs)
		return true, nil
	}
	refs, err := r.node(w.ctx, r.refs[w.i])
	if err == nil {
		w.refs, w.i = refs[find(refs, w.name):], w.i+1
	}
	return err == nil, err
}

// turn reads the next pages, if there are some.
func (w *walk) turn() (more bool, err error) {
	if len(w.refs) == 0 {
		if more, err = w.more(); !more {
			return false, err
		}
	}
	w.pages, err = w.X.Run.load(w.ctx, w.refs, w.ahead)
	w.block, w.ahead = 0, min(2*w.ahead, 64)
	return err == nil, err
}

// next makes the next row the current one, if there is one.
func (w *walk) next() (more bool, err error) {
	if w.pages == nil {
		if more, err = w.turn(); !more {
			return false, err
		}
		if err = w.seek(); err != nil {
			return false, w.X.Run.fail(w.refs[0].off, err)
		}
	}
	for {
		if more, err = w.row(); err != nil {
			return false, w.X.Run.fail(w.refs[0].off, err)
		} else if more {
			return true, nil
		}
		w.block, w.pages, w.refs = 0, w.pages[1:], w.refs[1:]
		if len(w.pages) == 0 {
			if more, err = w.turn(); !more {
				return false, err
			}
		}
	}
}

// seek finds the block of the current page in which the name may be.
func (w *walk) seek() (err error) {
	w.block, err = w.pages[0].find(&w.c, w.name)
	w.c.At = w.c.end
	return err
}

// row makes the next row of the current page the current one, if there is one.
func (w *walk) row() (bool, error) {
	p := w.pages[0]
	for {
		bits, ok, err := w.c.nextName()
		switch {
		case err != nil:
			return false, err
		case ok:
			w.found = w.found || string(w.c.name) >= w.name
			if err := w.c.rest(bits, w.found); err != nil {
				return false, err
			}
			if w.found {
				w.X.Row, w.X.About = w.c.row, w.c.shown
				w.X.in(w.X.Run.commit)
				return true, nil
			}
		case w.block == p.count():
			return false, nil
		default:
			if err := w.c.open(p, w.block); err != nil {
				return false, err
			}
			w.block++
		}
	}
}

// From yields the rows from a name on. What it yields is valid until the next.
func (r *Run) From(ctx context.Context, name string) iter.Seq2[*Item, error] {
	return Merged(ctx, []*Run{r}, name)
}

// find returns the last block that begins before name, or the first.
func (p *page) find(c *cursor, name string) (int, error) {
	lo, hi := 0, p.count() // the first block that does not begin before name
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if err := c.open(p, mid); err != nil {
			return 0, err
		}
		if _, ok, err := c.nextName(); err != nil || !ok {
			return 0, errPage
		}
		if string(c.name) < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0), nil
}

// All yields all rows.
func (r *Run) All(ctx context.Context) iter.Seq2[*Item, error] { return r.From(ctx, "") }

// A Source has rows, in their order.
type Source interface {
	// Walk goes through those from a name on. It returns nil if there are none.
	Walk(ctx context.Context, name string) *Walk
}

// A Walk goes through rows.
type Walk struct {
	// X is the current row. Before the first one, it has a name that is not after that of the first.
	X Item
	// Next makes the next row the current one, if there is one.
	Next func() (more bool, err error)

	begun bool
}

// Walk implements [Source].
func (r *Run) Walk(ctx context.Context, name string) *Walk {
	w := r.walk(ctx, name)
	if w.i == len(r.refs) {
		return nil
	}
	w.X.Name, w.Next = max(name, r.refs[0].first), w.next
	return &w.Walk
}

// Merged yields the rows of several sources from a name on, in the order of rows. What it yields is valid until
// the next.
func Merged[S Source](ctx context.Context, sources []S, name string) iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		var all []*Walk
		for _, s := range sources {
			if w := s.Walk(ctx, name); w != nil {
				all = append(all, w)
			}
		}
		for len(all) > 0 {
			least := 0
			for i := 1; i < len(all); i++ {
				if all[i].X.Compare(&all[least].X.Row) < 0 {
					least = i
				}
			}
			w := all[least]
			if w.begun && !yield(&w.X, nil) {
				return
			}
			w.begun = true
			more, err := w.Next()
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				all = slices.Delete(all, least, least+1)
			}
		}
	}
}

// OpenAlone opens a run of which no catalogue says what it has. A short one takes one request.
func OpenAlone(ctx context.Context, obj store.Object, name string) (*Run, error) {
	r := &Run{Name: name, commit: 1, obj: obj, cache: NewCache(mostAhead)}
	end := make([]byte, mostAhead)
	n, err := storekit.ReadTail(ctx, obj, end)
	if err != nil {
		return nil, r.fail(-1, err)
	}
	if end, r.size = end[:n], int64(n); n == mostAhead {
		info, err := obj.Info(ctx)
		if err != nil {
			return nil, r.fail(-1, err)
		}
		r.size = info.Size
	} else {
		r.obj = whole{obj, end}
	}
	if n < len(magic)+footerLen {
		return nil, r.fail(-1, errTail)
	}
	start := binary.LittleEndian.Uint64(end[n-footerLen:])
	if start < uint64(len(magic)) || start > uint64(r.size-footerLen) || r.size-int64(start) > MostTail {
		return nil, r.fail(r.size-footerLen, errTail)
	}
	s := Summary{Size: r.size, Tail: r.size - int64(start), Rows: anyRows}
	tail := make([]byte, s.Tail)
	if err = r.obj.ReadAt(ctx, tail, int64(start)); err == nil {
		err = r.parseTail(tail, s)
	}
	if err != nil {
		return nil, r.fail(int64(start), err)
	}
	return r, nil
}

// whole is an object that was read as a whole.
type whole struct {
	store.Object
	b []byte
}

func (w whole) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(w.b)-len(p)) {
		return io.ErrUnexpectedEOF
	}
	copy(p, w.b[off:])
	return nil
}

func (w whole) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// anyRows is Summary.Rows if it is not known.
const anyRows = -1
