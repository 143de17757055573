package kept

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
)

// A sheet is a decompressed page of rows, which is kept for lookups of single names: rows are
// decoded from the bookmark before them.
type sheet struct {
	ref
	rows    scanner // at the first one
	marks   []bookmark
	names   []byte // of the rows before bookmarks
	manners []manner
}

// A bookmark is where a row begins, and the state that the row is encoded relative to.
type bookmark struct {
	at, sumAt    uint32 // of the scanner
	dir, base    uint32 // in names, and after that
	ends         uint32
	manners      uint32 // how many there are
	whole        bool   // of the row before
	last, volume int
	end, sec     int64
	rank, proof  int64
}

const (
	sheetRows = 16       // between bookmarks
	maxSheets = 64 << 20 // bytes of sheets that are kept
)

// newSheet scans the page at r once.
func (x *Index) newSheet(raw []byte, r *ref) (*sheet, error) {
	if r.items > pageRows {
		return nil, x.fail(r.off, fmt.Errorf("a page of %d rows, expected at most %d", r.items, pageRows))
	}
	h := &sheet{ref: *r, rows: scanRows(raw), marks: make([]bookmark, 0, (r.items+sheetRows-1)/sheetRows)}
	var s state
	var w skimmed
	s.reset()
	h.rows.skim = true
	c := h.rows
	for i := range r.items {
		if i%sheetRows == 0 {
			m := bookmark{at: uint32(c.at), sumAt: uint32(c.sumAt), dir: uint32(len(h.names)), manners: uint32(len(s.manners)), whole: w.row.whole,
				last: s.last, volume: s.volume, end: s.end, sec: s.sec, rank: s.rank, proof: s.proof}
			h.names = append(h.names, s.dir...)
			m.base = uint32(len(h.names))
			h.names = append(h.names, s.base...)
			m.ends = uint32(len(h.names))
			if h.marks = append(h.marks, m); len(h.names) > pageNames+2*maxPage {
				return nil, x.fail(r.off, errRow)
			}
		}
		if err := w.next(&s, &c, x.Chunk); err != nil {
			return nil, x.fail(r.off, fmt.Errorf("row %d: %w", r.from+i, err))
		}
	}
	if !c.ended() {
		return nil, x.fail(r.off, errRow)
	}
	h.manners = s.manners
	return h, nil
}

// A skimmed row is decoded only for its name.
type skimmed struct {
	row   row
	entry format.Entry
}

// next skips a row.
func (w *skimmed) next(s *state, c *scanner, chunk int64) error {
	w.entry = format.Entry{}
	w.row.entry = &w.entry
	return s.decode(c, &w.row, chunk)
}

// size is how much memory a sheet takes.
func (h *sheet) size() int { return cap(h.rows.b) + cap(h.names) + 88*cap(h.marks) + 1<<10 }

// goTo sets s and c to a bookmark.
func (h *sheet) goTo(k int, s *state, c *scanner) {
	m := &h.marks[k]
	*s = state{dir: append(s.dir[:0], h.names[m.dir:m.base]...), base: append(s.base[:0], h.names[m.base:m.ends]...), manners: h.manners[:m.manners:m.manners],
		last: m.last, volume: m.volume, end: m.end, sec: m.sec, rank: m.rank, proof: m.proof}
	*c = h.rows
	c.at, c.sumAt = int(m.at), int(m.sumAt)
}

// search returns the first row for which before is false, or h.items if there is none. before
// reports whether the name that is looked for comes after the row.
func (x *Index) search(h *sheet, before func(dir, base []byte, whole bool) bool) (int, error) {
	k := sort.Search(len(h.marks)-1, func(i int) bool {
		m := &h.marks[i+1]
		return !before(h.names[m.dir:m.base], h.names[m.base:m.ends], m.whole)
	})
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	h.goTo(k, &d.s, &d.c)
	i := k * sheetRows
	for ; i < int(h.items) && i < (k+1)*sheetRows; i++ {
		if err := d.w.next(&d.s, &d.c, x.Chunk); err != nil {
			return 0, x.fail(h.off, err)
		}
		if !before(d.s.dir, d.s.base, d.w.row.whole) {
			break
		}
	}
	return i, nil
}

// rowsOf decodes n rows of a sheet, beginning with row from.
func (x *Index) rowsOf(h *sheet, from, n int) (*page, error) {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	h.goTo(from/sheetRows, &d.s, &d.c)
	for range from % sheetRows {
		if err := d.w.next(&d.s, &d.c, x.Chunk); err != nil {
			return nil, x.fail(h.off, err)
		}
	}
	d.c.skim = false
	return x.decodeRows(&d.c, &d.s, &ref{from: h.from + int64(from), items: int64(n), off: h.off})
}

// A decoder is what is needed to decode rows.
type decoder struct {
	s state
	c scanner
	w skimmed
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// sheets are the most recently used sheets, up to maxSheets bytes.
type sheets struct {
	mu    sync.Mutex
	byRow map[int64]*list.Element
	order list.List // the most recently used in front
	held  int

	used bool        // since the timer was started
	idle *time.Timer // drops all sheets if none was used
	rest time.Duration
}

// sheetsRest is how long unused sheets stay in memory, at least; at most it is twice as long.
const sheetsRest = 15 * time.Second

// use starts the timer unless it runs; mu must be held.
func (t *sheets) use() {
	t.used = true
	if t.idle == nil {
		t.idle = time.AfterFunc(cmp.Or(t.rest, sheetsRest), t.look)
		t.used = false
	}
}

// look drops all sheets if none was used since the last look.
func (t *sheets) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used {
		t.used = false
		t.idle.Reset(cmp.Or(t.rest, sheetsRest))
		return
	}
	t.drop()
}

// drop drops all sheets; mu must be held.
func (t *sheets) drop() {
	if t.idle != nil {
		t.idle.Stop()
	}
	t.byRow, t.idle, t.held = nil, nil, 0
	t.order.Init()
}

// sheet returns the sheet of a page.
func (x *Index) sheet(ctx context.Context, r *ref) (*sheet, error) {
	t := &x.sheets
	t.mu.Lock()
	if e := t.byRow[r.from]; e != nil {
		t.order.MoveToFront(e)
		t.use()
		t.mu.Unlock()
		return e.Value.(*sheet), nil
	}
	t.mu.Unlock()
	b, err := x.page(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	h, err := x.newSheet(b, r)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.use()
	if t.byRow == nil {
		t.byRow = map[int64]*list.Element{}
	}
	if t.byRow[r.from] == nil { // else a different goroutine was faster
		t.byRow[r.from] = t.order.PushFront(h)
		t.held += h.size()
	}
	for t.held > maxSheets && t.order.Len() > 1 {
		last := t.order.Remove(t.order.Back()).(*sheet)
		delete(t.byRow, last.from)
		t.held -= last.size()
	}
	return h, nil
}
