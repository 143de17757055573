package kept

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// sheets are pages of rows that lookups used, up to maxSheets bytes of memory. If there are more,
// all are dropped.
type sheets struct {
	mu    sync.Mutex
	byOff map[int64]*sheet
	held  int

	used bool        // since the timer was started
	idle *time.Timer // drops all sheets if none was used
	rest time.Duration
}

const (
	maxSheets = 32 << 20
	// sheetsRest is how long unused sheets stay in memory, at least; at most it is twice as long.
	sheetsRest = 15 * time.Second
)

func (t *sheets) get(r *ref) *sheet {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byOff[r.off]
	if h == nil || h.from != r.from || h.items != r.items || len(h.first) != len(r.first) {
		return nil
	}
	t.used = true
	return h
}

func (t *sheets) put(h *sheet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byOff[h.off] != nil {
		return // a different goroutine was faster
	}
	if t.held += h.held; t.byOff == nil || t.held > maxSheets {
		t.byOff, t.held = map[int64]*sheet{}, h.held
	}
	t.byOff[h.off] = h
	if t.used = true; t.idle == nil {
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

func (t *sheets) drop() {
	if t.idle != nil {
		t.idle.Stop()
	}
	t.byOff, t.idle, t.held = nil, nil, 0
}

// A mapping is the file of an index, mapped into memory.
type mapping struct {
	once   sync.Once
	mu     sync.RWMutex // held by readers of bytes
	bytes  []byte       // nil if nothing is mapped
	closed bool
}

// guarded calls do, which may read sheets.
func (x *Index) guarded(ctx context.Context, do func() error) (err error) {
	m := &x.mapping
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return x.fail(-1, fs.ErrClosed)
	}
	if m.bytes == nil {
		return do()
	}
	// Reads would notice that the file changed; the mapping does not.
	if _, err := x.obj.Can().File(ctx); err != nil {
		return x.fail(-1, err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			err = x.fail(-1, fmt.Errorf("its file was truncated: %w", store.ErrChanged))
		}
	}()
	return do()
}

// mapFile maps the file of an index on a disk, if that is possible.
func (x *Index) mapFile(ctx context.Context) {
	file := x.obj.Can().File
	if !x.near || x.old || x.trusted || file == nil { // a mapping shows what others write later
		return
	}
	f, err := file(ctx)
	if err != nil {
		return
	}
	x.mapping.mu.Lock()
	defer x.mapping.mu.Unlock()
	if x.mapping.closed {
		return
	}
	if b, err := sysfile.Map(f, x.size); err == nil {
		x.mapping.bytes = b
	}
}

func (m *mapping) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes != nil {
		_ = sysfile.Unmap(m.bytes) // if it fails, the mapping stays until the process ends
	}
	m.bytes, m.closed = nil, true
}

func (x *Index) sheet(ctx context.Context, r *ref) (*sheet, error) {
	if h := x.sheets.get(r); h != nil {
		return h, nil
	}
	x.mapping.once.Do(func() { x.mapFile(ctx) })
	var h *sheet
	err := x.guarded(ctx, func() (err error) {
		if b := x.mapping.bytes; b != nil && r.off <= int64(len(b))-int64(r.stored) {
			h, err = x.sheetOf(b[r.off:][:r.stored], r)
		}
		return err
	})
	if err == nil && h == nil {
		var b []byte
		if b, err = x.stored(ctx, r.off, r.stored); err == nil {
			if h, err = x.sheetOf(b, r); err == nil {
				h.held += len(b)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	x.sheets.put(h)
	return h, nil
}

// sheetOf compares a page with its checksum, and parses what it begins with. Only pages of rows have
// keys; a page of digests has nothing but these.
func (x *Index) sheetOf(stored []byte, r *ref) (*sheet, error) {
	b, err := x.unpack(r, stored, nil)
	if err == nil && len(r.first) == 0 {
		if len(b) != r.long {
			return nil, x.fail(r.off, fmt.Errorf("a page of %d bytes, expected %d", len(b), r.long))
		}
		return &sheet{ref: *r, sums: b, held: 256}, nil
	}
	if err == nil && x.old {
		b, err = x.renewed(b, r)
	}
	if err != nil {
		return nil, err
	}
	return x.newSheet(b, r)
}

// ahead reads adjacent pages with one request, up to a number of bytes or a page that is in memory.
func (x *Index) ahead(ctx context.Context, refs []ref, most int) error {
	for len(refs) > 0 && x.sheets.get(&refs[0]) != nil {
		refs = refs[1:]
	}
	n, long := 0, 0
	for n < len(refs) && (n == 0 || long+refs[n].stored <= most) && x.sheets.get(&refs[n]) == nil {
		long += refs[n].stored
		n++
	}
	if n < 2 {
		return nil
	}
	b, err := x.stored(ctx, refs[0].off, long)
	if err != nil {
		return err
	}
	for i := range refs[:n] {
		h, err := x.sheetOf(b[refs[i].off-refs[0].off:][:refs[i].stored], &refs[i])
		if err != nil {
			return err
		}
		h.held += refs[i].stored
		x.sheets.put(h)
	}
	return nil
}

// blocks are used again.
var blocks = sync.Pool{New: func() any { return new(block) }}
