package gateway

import (
	"context"
	"iter"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/gateway/journal"
)

// A layer is what a segment of the log has: of each name, the newest row. It lies over the commits until one of
// them has its rows.
type layer struct {
	seg    *journal.Segment
	rolled bool          // nothing is added any more
	count  *atomic.Int64 // of names, with those of others

	mu       sync.RWMutex
	rows     btree.Map[string, *brief] // none of them is ever changed
	archives []catalog.Archive         // by ordinal: the segment itself, and those that its rows name
	others   bool                      // the segment has what no object has, such as deletions
}

// A brief is a row in little memory: there are hundreds of thousands.
type brief struct {
	name, etag, headers  string
	seq, off, size, time int64 // in milliseconds
	sum                  [32]byte
	archive              int32 // ordinal; of a deletion, -1
}

// row returns the row that a brief is.
func (l *layer) row(r *brief) rows.Row {
	if r.archive < 0 {
		return rows.Row{Name: r.name, What: rows.Delete, Seq: r.seq}
	}
	return rows.Row{Name: r.name, What: rows.Put, Seq: r.seq, Archive: l.id(int(r.archive)), Kind: format.File, Raw: true, Off: r.off, Size: r.size,
		Digest: blake3Of(r.sum), Time: time.UnixMilli(r.time).UTC(), ETag: r.etag, Headers: r.headers}
}

// layers are those of a bucket.
type layers struct {
	live  []*layer // the newest first
	sunk  []sunk   // the oldest first
	every []*layer // all of them
	all   []book.Layer
}

// A sunk layer has lost its rows, because a commit has them. But what they said of places is good until some time, for
// readers that have just looked.
type sunk struct {
	*layer
	dead  []string // archives that no commit has
	until time.Time
}

func (s sunk) Walk(context.Context, string) *rows.Walk { return nil }

func newLayers(live []*layer, gone []sunk) *layers {
	x := &layers{live: live, sunk: gone}
	for _, l := range live {
		x.all, x.every = append(x.all, l), append(x.every, l)
	}
	for _, l := range gone {
		x.all, x.every = append(x.all, l), append(x.every, l.layer)
	}
	return x
}

// change replaces the layers.
func (b *bucket) change(do func(live []*layer, gone []sunk) ([]*layer, []sunk)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.over.Load()
	b.over.Store(newLayers(do(was.live, was.sunk)))
}

// segments begins the addresses of segments of the log.
const segments = "log:"

// sizeOfLog stands for the size of a segment, which grows.
const sizeOfLog = 1 << 50

// newLayer returns a layer that holds its segment until it is released. count counts its names.
func newLayer(seg *journal.Segment, count *atomic.Int64) *layer {
	seg.Hold()
	l := &layer{seg: seg, count: count}
	l.know(catalog.Archive{Address: segments + strconv.FormatInt(seg.Log().Number, 10), Format: "caf", Size: sizeOfLog})
	return l
}

func (l *layer) id(ordinal int) rows.ArchiveID { return book.LayerID(l.seg.Log().Number, ordinal) }

// put adds a row. It replaces an older one of the name.
func (l *layer) put(r *brief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others = l.others || r.archive != 0
	was, again := l.rows.Get(r.name)
	if !again {
		l.count.Add(1)
	}
	if l.others = l.others || again; !again || was.seq < r.seq {
		l.rows.Set(r.name, r)
	}
}

// pure reports whether everything that the segment has is the content of an object that is there.
func (l *layer) pure() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return !l.others
}

// know returns the ID of an archive that the layer knows from now on.
func (l *layer) know(a catalog.Archive) rows.ArchiveID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.id(len(l.archives))
	a.ID = book.NumberOf(id)
	l.archives = append(l.archives, a)
	return id
}

// names are what the archives are called that the rows have named, which lie beside the catalogue.
func (l *layer) names() (all []string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, a := range l.archives[1:] {
		all = append(all, path.Base(a.Address))
	}
	return all
}

func (l *layer) get(name string) *brief {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r, _ := l.rows.Get(name)
	return r
}

func (l *layer) len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.rows.Len()
}

// some appends up to n rows, from a name on.
func (l *layer) some(all []*brief, name string, n int) []*brief {
	l.mu.RLock()
	defer l.mu.RUnlock()
	l.rows.Ascend(name, func(_ string, r *brief) bool {
		all = append(all, r)
		return len(all) < n
	})
	return all
}

// Walk implements [rows.Source]. It locks nothing from one row to the next.
func (l *layer) Walk(_ context.Context, name string) *rows.Walk {
	all, i := l.some(nil, name, 2), -1 // a lookup needs one, and the next name
	if len(all) == 0 {
		return nil
	}
	w := &rows.Walk{}
	w.X.Name = all[0].name
	w.Next = func() (bool, error) {
		if i++; i == len(all) {
			all, i = l.some(all[:0], all[i-1].name+"\x00", min(8*i, 1024)), 0
		}
		if len(all) == 0 {
			return false, nil
		}
		w.X.Row = l.row(all[i])
		return true, nil
	}
	return w
}

// Archive returns an archive that only the log knows.
func (l *layer) Archive(id int64) (a catalog.Archive, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := id - l.archives[0].ID
	if i < 0 || i >= int64(len(l.archives)) {
		return a, false
	}
	return l.archives[i], true
}

// all yields the rows by name. Nothing may be added meanwhile.
func (l *layer) all() iter.Seq[*brief] {
	return func(yield func(*brief) bool) {
		l.rows.Scan(func(_ string, r *brief) bool { return yield(r) })
	}
}

// uses reports whether rows lie in the segment itself. Of names, it returns those of archives in which some lie, and of
// those in which none lies any more.
func (l *layer) uses() (own bool, others, dead []string) {
	used := map[int32]bool{}
	for r := range l.all() {
		used[r.archive] = true
	}
	for i, name := range l.names() {
		if used[int32(i+1)] {
			others = append(others, name)
		} else {
			dead = append(dead, name)
		}
	}
	return used[0], others, dead
}
