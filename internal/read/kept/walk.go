package kept

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
)

// Listings read several pages with one request. The first requests are short, so that results come
// soon.
const (
	firstRun = 8 << 10
	longRun  = 1 << 20
	// runRows is how many rows are decoded at once.
	runRows = 8 * pageRows
	// maxWindow is how many entries are looked up at once if the order of rows is not that of the
	// archive.
	firstWindow = 512
	maxWindow   = 1 << windowBits
)

// A stretch is a run of consecutive pages.
type stretch struct {
	refs  []ref
	pages []*page
	err   error
}

// stretches yields the pages that have rows [from, to) in stretches.
func (x *Index) stretches(ctx context.Context, from, to int64) iter.Seq2[*stretch, error] {
	return pipe.Told(func(tell func(*stretch) error) error {
		if from >= to {
			return nil
		}
		steps, err := x.rows.findItem(ctx, from)
		run, more := firstRun, steps != nil
		most := int64(runRows)
		if x.near {
			most = pageRows // a request costs nothing, and rows of a walk that waits take memory
		}
		for err == nil && more {
			s := &stretch{}
			for long, rows := 0, int64(0); err == nil && more && long < run && rows < most; more, err = x.rows.next(ctx, steps) {
				r := leaf(steps)
				if r.from >= to || len(s.refs) > 0 && r.off != s.refs[len(s.refs)-1].off+int64(s.refs[len(s.refs)-1].stored) {
					break
				}
				s.refs = append(s.refs, *r)
				long, rows = long+r.stored, rows+r.items
			}
			if err != nil || len(s.refs) == 0 {
				break
			}
			err = tell(s)
			run = min(2*run, longRun)
		}
		return err
	})
}

// load reads and decodes the pages of a stretch.
func (x *Index) load(ctx context.Context, s *stretch) {
	if !x.near {
		s.err = x.ahead(ctx, s.refs, longRun)
	}
	for i := 0; s.err == nil && i < len(s.refs); i++ {
		var h *sheet
		if h, s.err = x.sheet(ctx, &s.refs[i]); s.err != nil {
			return
		}
		s.err = x.guarded(ctx, func() error {
			p, err := x.decodeRows(h, 0, int(h.items))
			if err == nil {
				s.pages = append(s.pages, p)
			}
			return err
		})
	}
}

// walk calls each with the pages that have rows [from, to), in order. A page is reused after each
// has returned.
func (x *Index) walk(ctx context.Context, from, to int64, each func(*page) error) error {
	return pipe.Ordered(ctx, x.stretches(ctx, from, to), x.workers, x.load, func(s *stretch) error {
		for i, p := range s.pages {
			if err := each(p); err != nil {
				return err
			}
			s.pages[i] = nil
			p.free()
		}
		return s.err
	}, func(*stretch) {})
}

func (x *Index) count() int64 { return x.rows.t.Top.Items }

// Entries yields every entry in the archive's order.
func (x *Index) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		switch {
		case x.listing.t.Depth > 0:
			return x.tellRanked(ctx, []int64{0, x.count()}, 0, tell)
		case x.order.t.Depth == 0:
			return x.tellRows(ctx, 0, x.count(), tell)
		}
		return x.tellPicked(ctx, x.ordered(ctx, 0), tell)
	})
}

// tellRows calls tell with the entries of rows [from, to).
func (x *Index) tellRows(ctx context.Context, from, to int64, tell func(format.Entry) error) error {
	return x.walk(ctx, from, to, func(p *page) error {
		for i := range p.entries {
			if n := p.from + int64(i); n < from || n >= to || p.marks[i].implied {
				continue
			}
			if err := tell(p.entries[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// EntriesFrom yields entries in the archive's order, from the named one on.
func (x *Index) EntriesFrom(ctx context.Context, name string) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		f, err := x.find(ctx, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && f.implied:
			return notFound("entries", name)
		case err != nil:
			return err
		case x.listing.t.Depth > 0:
			return x.tellRanked(ctx, []int64{0, x.count()}, int64(f.rank), tell)
		case x.order.t.Depth == 0:
			return x.tellRows(ctx, f.row, x.count(), tell)
		}
		return x.tellPicked(ctx, x.ordered(ctx, int64(f.rank)), tell)
	})
}

// ordered yields the numbers of rows in the order of the archive, from a rank on.
func (x *Index) ordered(ctx context.Context, from int64) iter.Seq2[int64, error] {
	return pipe.Told(func(tell func(int64) error) error {
		steps, err := x.order.findItem(ctx, from)
		for more := steps != nil; more && err == nil; more, err = x.order.next(ctx, steps) {
			r := leaf(steps)
			b, err := x.page(ctx, r, nil)
			if err != nil {
				return err
			}
			n := int64(0)
			for i := range r.items {
				d, k := binary.Varint(b)
				if n += d; k <= 0 || n < 0 || n > x.count() {
					return x.fail(r.off, fmt.Errorf("rank %d: no row", r.from+i))
				}
				b = b[k:]
				if n > 0 && r.from+i >= from {
					if err := tell(n - 1); err != nil {
						return err
					}
				}
			}
		}
		return err
	})
}

// A window is a set of rows that are looked up at once.
type window struct {
	want  []pick
	found []format.Entry
	err   error
}

// windows yields windows of rows.
func windows(rows iter.Seq2[int64, error]) iter.Seq2[*window, error] {
	return func(yield func(*window, error) bool) {
		w, size := new(window), firstWindow
		for n, err := range rows {
			if err != nil {
				if len(w.want) == 0 || yield(w, nil) {
					yield(nil, err)
				}
				return
			}
			if w.want = append(w.want, pick(n)<<windowBits|pick(len(w.want))); len(w.want) == size {
				if !yield(w, nil) {
					return
				}
				size = min(2*size, maxWindow)
				w = &window{want: make([]pick, 0, size)}
			}
		}
		if len(w.want) > 0 {
			yield(w, nil)
		}
	}
}

// tellPicked calls tell with the entries of rows in any order. It looks up a window while it
// reports the window before.
func (x *Index) tellPicked(ctx context.Context, rows iter.Seq2[int64, error], tell func(format.Entry) error) error {
	return pipe.Ordered(ctx, windows(rows), 1, func(ctx context.Context, w *window) {
		w.found = make([]format.Entry, len(w.want))
		w.err = x.pick(ctx, w.want, w.found)
	}, func(w *window) error {
		for i := 0; w.err == nil && i < len(w.found); i++ {
			w.err = tell(w.found[i])
		}
		return w.err
	}, func(*window) {})
}

// A pick is the number of a wanted row. Its lowest bits are the position in the window.
type pick uint64

const windowBits = 14

func (p pick) row() int64 { return int64(p >> windowBits) }
func (p pick) at() int    { return int(p & (1<<windowBits - 1)) }

// pick finds the entries of rows.
func (x *Index) pick(ctx context.Context, want []pick, found []format.Entry) error {
	slices.Sort(want)
	return pipe.Each(ctx, x.picks(ctx, want), x.workers, func(ctx context.Context, g group) error {
		if !x.near {
			if err := x.ahead(ctx, g.refs, longRun); err != nil {
				return err
			}
		}
		for i, k := 0, 0; k < len(g.want); {
			r := &g.refs[i]
			if g.want[k].row() >= r.from+r.items {
				i++
				continue
			}
			h, err := x.sheet(ctx, r)
			if err != nil {
				return err
			}
			// Rows of one block are decoded together.
			first, n := int(g.want[k].row()-r.from), 1
			for k+n < len(g.want) && int(g.want[k+n].row()-r.from) < min(first/blockRows*blockRows+blockRows, int(r.items)) {
				n++
			}
			err = x.guarded(ctx, func() error { return x.pickRows(h, g.want[k:][:n], found) })
			if err != nil {
				return err
			}
			k += n
		}
		return nil
	})
}

// pickRows finds the entries of rows of one block.
func (x *Index) pickRows(h *sheet, want []pick, found []format.Entry) error {
	first := want[0].row()
	p, err := x.decodeRows(h, int(first-h.from), int(want[len(want)-1].row()-first)+1)
	if err != nil {
		return err
	}
	defer p.free()
	few := len(want)*2 < len(p.entries)
	for _, w := range want {
		i := int(w.row() - first)
		if p.marks[i].implied {
			return x.fail(h.off, errRow)
		}
		e := p.entries[i]
		if few { // otherwise one name keeps all names of its block in memory
			e.Name = strings.Clone(e.Name)
			h := *e.Ref.(*handle)
			e.Ref = &h
		}
		found[w.at()] = e
	}
	return nil
}

// A group is the wanted rows of a page, or of adjacent pages.
type group struct {
	refs []ref
	want []pick
}

func (x *Index) picks(ctx context.Context, want []pick) iter.Seq2[group, error] {
	return pipe.Told(func(tell func(group) error) error {
		var g group
		long, rows := 0, int64(0)
		for i := 0; i < len(want); {
			steps, err := x.rows.findItem(ctx, want[i].row())
			if err == nil && steps == nil {
				err = x.fail(-1, errNode)
			}
			if err != nil {
				return err
			}
			r := *leaf(steps)
			n := sort.Search(len(want)-i, func(k int) bool { return want[i+k].row() >= r.from+r.items })
			if n == 0 {
				return x.fail(r.off, errNode)
			}
			if last := len(g.refs) - 1; last >= 0 && (r.off != g.refs[last].off+int64(g.refs[last].stored) || long > longRun/4 || rows > runRows) {
				if err := tell(g); err != nil {
					return err
				}
				g, long, rows = group{}, 0, 0
			}
			g.refs, g.want = append(g.refs, r), want[i-len(g.want):i+n]
			long, rows = long+r.stored, rows+r.items
			i += n
		}
		if len(g.refs) == 0 {
			return nil
		}
		return tell(g)
	})
}

// EntriesBelow yields the entries below a directory, in the archive's order.
func (x *Index) EntriesBelow(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		// The entries directly in it are adjacent, and so are those further below, and names that
		// are not paths.
		here, deeper, none := appendText(nil, dir), appendDeeper(nil, dir), appendDeeper(appendText(nil, ""), dir)
		var bounds [6]int64
		for i, key := range [][]byte{none, behind(none), here, behind(here), deeper, behind(deeper)} {
			n, err := x.rowOf(ctx, key)
			if err != nil {
				return err
			}
			bounds[i] = n
		}
		rows := int64(0)
		for i := 0; i < len(bounds); i += 2 {
			rows += max(0, bounds[i+1]-bounds[i])
		}
		switch {
		case rows == 0:
			return nil
		case x.listing.t.Depth == 0 && x.order.t.Depth == 0:
			var err error
			for i := 0; i < len(bounds) && err == nil; i += 2 {
				err = x.tellRows(ctx, bounds[i], bounds[i+1], tell)
			}
			return err
		}
		return x.tellRanked(ctx, bounds[:], 0, tell)
	})
}

// tellRanked calls tell with the entries of rows between pairs of bounds, in the archive's order,
// from a rank on.
func (x *Index) tellRanked(ctx context.Context, bounds []int64, first int64, tell func(format.Entry) error) error {
	type ranked struct{ rank, row uint32 }
	var all []ranked
	for ; len(bounds) > 0; bounds = bounds[2:] {
		from, to := bounds[0], bounds[1]
		err := x.walk(ctx, from, to, func(p *page) error {
			for k := range p.entries {
				if n := p.from + int64(k); n >= from && n < to && !p.marks[k].implied && int64(p.ranks[k]) >= first {
					all = append(all, ranked{p.ranks[k], uint32(n)})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	return x.tellPicked(ctx, func(yield func(int64, error) bool) {
		for _, r := range all {
			if !yield(int64(r.row), nil) {
				return
			}
		}
	}, tell)
}

// behind returns the first key after all keys that begin with prefix. The last byte of prefix must
// not be 0xff.
func behind(prefix []byte) []byte {
	b := slices.Clone(prefix)
	b[len(b)-1]++
	return b
}

// rowOf is the number of the first row whose key is not less than key.
func (x *Index) rowOf(ctx context.Context, key []byte) (int64, error) {
	c := cursor{x: x}
	n, err := c.open(ctx, key)
	if err != nil || c.h == nil {
		return 0, err
	}
	return c.h.from + int64(n), nil
}

func notFound(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}
