package explore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/format/kit/naming"
)

// A folder holds the entries directly in a directory, in columns, so that a
// page can start anywhere and have any order. One goroutine reads it; requests
// get what has been read so far. The results of a search are a folder, too.
type folder struct {
	key folderKey
	v   *view
	of  *finder // nil, or what is searched for

	mu       sync.Mutex
	changed  chan struct{} // closed when there is more
	complete bool
	err      error
	waiting  int
	idle     *time.Timer // ends the reading when no request waits
	patience time.Duration

	names names
	size  columns.Rows[int64]
	time  columns.Rows[int64] // in ms; noTime if unknown
	kind  columns.Rows[uint8]
	dirs  int
	shown int   // pictures that browsers show
	photo *face // the picture whose name comes first
	about *face // the file that describes the folder
	bytes int64
	odd   bool   // names were not read in sorted order
	text  int64  // bytes of the names of results, if they were not compressed
	left  int    // results that are not kept
	fault string // why a search ended early

	orders map[folderOrder][]uint32 // nil means the order in which they were read
	latest folderOrder
	used   int64
}

// A face is a file that is shown with its folder.
type face struct {
	name string
	row  int
}

type folderKey struct {
	v    *view
	dir  string
	find string // what is searched for below the directory
}

type folderOrder struct {
	by       string
	desc     bool
	pictures bool // folders, and pictures that browsers show
}

const (
	noTime     = -1 << 63
	faultBit   = 0x80 // in a kind: it cannot be read
	wholeBit   = 0x40 // the name is complete: it is not a path
	internBit  = 0x20
	kindMask   = 0x0f
	idleFolder = 10 * time.Second
	idleSearch = 3 * time.Second // someone who types asks for another one soon
	pageWait   = 250 * time.Millisecond
	rowCost    = 8 + 8 + 1 + 4
)

type folderCache struct {
	mu    sync.Mutex
	list  map[folderKey]*folder
	clock int64
}

// folder returns the folder of a directory, which has been read or is being
// read.
func (h *Handler) folder(v *view, dir string, of *finder) *folder {
	release, reading := v.Hold(), false
	defer func() {
		if !reading {
			release()
		}
	}()
	c := &h.folders
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	key := folderKey{v, dir, of.key()}
	f := c.list[key]
	if f == nil {
		f = &folder{key: key, v: v, of: of, changed: make(chan struct{}), orders: map[folderOrder][]uint32{}}
		c.list[key] = f
		ctx, cancel := context.WithCancel(h.ctx)
		if f.patience = idleFolder; of != nil {
			f.patience = idleSearch
		}
		f.idle = time.AfterFunc(f.patience, cancel)
		reading = true
		h.wg.Go(func() {
			defer release()
			defer cancel()
			if of == nil {
				f.read(ctx)
			} else {
				h.search(ctx, f)
			}
			if f.err != nil {
				h.changed(f.err, v)
				c.drop(f)
			}
		})
	}
	f.used = c.clock
	c.trim(f)
	return f
}

func (c *folderCache) drop(f *folder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list[f.key] == f {
		delete(c.list, f.key)
	}
}

func (c *folderCache) forget(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.list, func(key folderKey, _ *folder) bool { return key.v == v })
}

func (c *folderCache) trim(keep *folder) {
	for {
		var sum int64
		var oldest *folder
		for _, f := range c.list {
			cost, ready := f.cost()
			sum += cost
			if f != keep && ready && (oldest == nil || f.used < oldest.used) {
				oldest = f
			}
		}
		if oldest == nil || sum <= maxFolders && len(c.list) <= 256 {
			return
		}
		delete(c.list, oldest.key)
	}
}

// cost returns how many bytes f takes, and whether it has been read.
func (f *folder) cost() (n int64, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = 4096 + int64(len(f.key.dir)+len(f.key.find)) + f.names.bytes + int64(f.names.len())*rowCost
	for _, o := range f.orders {
		n += 4 * int64(len(o))
	}
	return n, f.complete && f.waiting == 0
}

func (f *folder) read(ctx context.Context) {
	prefix := ""
	if f.key.dir != "." {
		prefix = f.key.dir + "/"
	}
	const step = 2048
	batch := make([]holdall.Entry, 0, step)
	flush := func(end bool, err error) {
		f.add(end, err, func() {
			for _, e := range batch {
				f.row(prefix, e)
			}
			batch = batch[:0]
		})
	}
	for e, err := range f.v.in.ReadDir(ctx, f.key.dir) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			flush(true, err)
			return
		}
		if batch = append(batch, e); len(batch) == step {
			flush(false, nil)
		}
	}
	flush(true, context.Cause(ctx))
}

// add calls rows, which adds rows, and tells those who wait for them.
func (f *folder) add(end bool, err error, rows func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows()
	if end {
		f.complete, f.err = err == nil, err
		if err == nil {
			f.foldersFirst()
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *folder) row(prefix string, e holdall.Entry) {
	kind := kindBits(e)
	name, below := strings.CutPrefix(e.Name, prefix)
	if !below || prefix == "" && strings.Contains(name, "/") {
		name = e.Name
		kind |= wholeBit
	}
	f.put(name, kind, e.Size, millis(e.ModTime))
}

func (f *folder) put(name string, kind uint8, size, time int64) {
	f.odd = f.odd || f.names.len() > 0 && name < string(f.names.last)
	f.names.add(name)
	f.size.Add(size)
	f.time.Add(time)
	f.kind.Add(kind)
	k := format.Kind(kind & kindMask)
	if k == format.Dir {
		f.dirs++
	}
	if kind&(wholeBit|faultBit) == 0 && k.HasContent() {
		row := f.names.len() - 1
		if isShown(name) {
			if f.shown++; f.photo == nil || name < f.photo.name {
				f.photo = &face{strings.Clone(name), row}
			}
		}
		if n := readmeOf(name); n > 0 && (f.about == nil || n > readmeOf(f.about.name)) {
			f.about = &face{strings.Clone(name), row}
		}
	}
	f.bytes += size
}

// readmeOf returns how well a file describes its folder by its name, or 0 if
// it does not.
func readmeOf(name string) int {
	if len(name) > len("readme.markdown") || name == "" || name[0]|0x20 != 'r' {
		return 0 // most names end here
	}
	stem, ext, _ := strings.Cut(strings.ToLower(name), ".")
	if stem != "readme" {
		return 0
	}
	return 1 + slices.Index([]string{"rst", "txt", "", "markdown", "md"}, ext)
}

// kindBits returns the kind of an entry with what lists show of it.
func kindBits(e holdall.Entry) uint8 {
	kind := uint8(e.Kind)
	if e.Fault != nil {
		kind |= faultBit
	}
	if e.Internal {
		kind |= internBit
	}
	return kind
}

// millis returns a time in milliseconds since 1970.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMilli()
}

func (f *folder) isDir(i int) bool { return format.Kind(*f.kind.At(i)&kindMask) == format.Dir }

// foldersFirst computes the usual order, by name, unless the entries were read
// in that order.
func (f *folder) foldersFirst() {
	var order, files []uint32
	for i := range f.names.len() {
		if f.isDir(i) {
			order = append(order, uint32(i))
		} else {
			files = append(files, uint32(i))
		}
	}
	if f.odd {
		all := make([]string, 0, f.names.len())
		for c := f.names.from(0); len(all) < f.names.len(); {
			all = append(all, string(c.next()))
		}
		byName := func(a, b uint32) int { return strings.Compare(all[a], all[b]) }
		slices.SortStableFunc(order, byName)
		slices.SortStableFunc(files, byName)
	}
	if order = append(order, files...); slices.IsSorted(order) {
		order = nil
	}
	f.orders[folderOrder{by: "name"}] = order
}

// wait waits until f is complete, or until pageWait has passed and f has upTo
// rows, unless these are results. With all, it waits until f is complete.
func (f *folder) wait(ctx context.Context, upTo int64, all bool) error {
	f.mu.Lock()
	f.waiting++
	f.idle.Stop()
	defer func() {
		if f.waiting--; f.waiting == 0 && !f.complete {
			f.idle.Reset(f.patience)
		}
		f.mu.Unlock()
	}()
	soon := time.NewTimer(pageWait)
	defer soon.Stop()
	passed := false
	for !f.complete && f.err == nil && (all || !passed || f.of == nil && int64(f.names.len()) < upTo) {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-soon.C:
			passed = true
		case <-ctx.Done():
			f.mu.Lock()
			return context.Cause(ctx)
		}
		f.mu.Lock()
	}
	return f.err
}

// order returns the rows in an order. f must be complete, and its lock held.
func (f *folder) order(o folderOrder) []uint32 {
	if order, ok := f.orders[o]; ok {
		return order
	}
	if o.pictures {
		return f.keep(o, f.picturesOf(f.order(folderOrder{by: o.by, desc: o.desc})))
	}
	byName := f.orders[folderOrder{by: "name"}]
	order := make([]uint32, f.names.len())
	for i := range order {
		order[i] = uint32(i)
		if byName != nil {
			order[i] = byName[i]
		}
	}
	less := func(a, b uint32) int { return 0 }
	switch o.by {
	case "size":
		sums := f.v.survey.sums(f.key.dir)
		at := func(i uint32) int64 {
			if sums != nil && f.isDir(int(i)) {
				n, _ := sums(f.names.at(int(i)))
				return n
			}
			return *f.size.At(int(i))
		}
		less = func(a, b uint32) int { return cmp.Compare(at(a), at(b)) }
	case "time":
		less = func(a, b uint32) int { return cmp.Compare(*f.time.At(int(a)), *f.time.At(int(b))) }
	}
	for _, part := range [][]uint32{order[:f.dirs], order[f.dirs:]} {
		if o.by == "name" {
			if o.desc {
				slices.Reverse(part)
			}
			continue
		}
		slices.SortStableFunc(part, func(a, b uint32) int {
			if o.desc {
				a, b = b, a
			}
			return less(a, b)
		})
	}
	return f.keep(o, order)
}

// keep caches an order until another one is requested.
func (f *folder) keep(o folderOrder, order []uint32) []uint32 {
	if f.latest != (folderOrder{}) {
		delete(f.orders, f.latest)
	}
	f.orders[o], f.latest = order, o
	return order
}

// picturesOf filters an order to folders and pictures. nil is the order in
// which they were read.
func (f *folder) picturesOf(order []uint32) []uint32 {
	some := make([]uint32, 0, f.dirs+f.shown)
	for i := range f.names.len() {
		row := i
		if order != nil {
			row = int(order[i])
		}
		if kind := *f.kind.At(row); f.isDir(row) || kind&(wholeBit|faultBit) == 0 && format.Kind(kind&kindMask).HasContent() && isShown(f.names.at(row)) {
			some = append(some, uint32(row))
		}
	}
	return some
}

const maxWith = 12 // files that are listed with a picture

// with returns the files beside a picture that have the same name up to the
// first dot: together they are a sample.
func (f *folder) with(row int) (all []string) {
	name := f.names.at(row)
	stem, _, _ := strings.Cut(name, ".")
	stem += "."
	byName := f.orders[folderOrder{by: "name"}]
	at := func(i int) int {
		if byName != nil {
			return int(byName[i])
		}
		return i
	}
	n := f.names.len()
	first := f.dirs + sort.Search(n-f.dirs, func(i int) bool { return f.names.at(at(f.dirs+i)) >= stem })
	for i := first; i < n && len(all) < maxWith; i++ {
		other := f.names.at(at(i))
		if !strings.HasPrefix(other, stem) {
			break
		}
		if other != name && *f.kind.At(at(i))&wholeBit == 0 {
			all = append(all, format.Escape(other))
		}
	}
	return all
}

type rowJSON struct {
	Name     string `json:"n"`
	Kind     string `json:"k,omitempty"` // empty for a file
	Size     *int64 `json:"s,omitempty"`
	Time     *int64 `json:"t,omitempty"`
	Files    int64  `json:"c,omitempty"` // below a folder
	Fault    bool   `json:"bad,omitempty"`
	Whole    bool   `json:"whole,omitempty"`
	Internal bool   `json:"own,omitempty"`
	Holds    kind   `json:"h,omitempty"` // the kind of a file's content
	// With are the files beside a picture that share its name.
	With []string `json:"with,omitempty"`
	healthJSON
}

func (f *folder) path(i int) string {
	name := f.names.at(i)
	if f.key.dir == "." || *f.kind.At(i)&wholeBit != 0 {
		return name
	}
	return f.key.dir + "/" + name
}

func (f *folder) rowJSON(i int, sums func(string) (bytes, files int64), health func(string) healthJSON) rowJSON {
	kind := *f.kind.At(i)
	name := f.names.at(i)
	r := rowJSON{Name: format.Escape(name), Fault: kind&faultBit != 0, Whole: kind&wholeBit != 0, Internal: kind&internBit != 0,
		healthJSON: health(f.path(i))}
	k := format.Kind(kind & kindMask)
	if k != format.File {
		r.Kind = k.String()
	}
	switch {
	case k.HasContent():
		r.Holds = kindOf(name)
		r.Size = new(*f.size.At(i))
	case k == format.Dir && sums != nil:
		size, files := sums(name)
		r.Size, r.Files = &size, files
	}
	if t := *f.time.At(i); t != noTime {
		r.Time = new(t)
	}
	return r
}

// find returns the position of a path in an order, or -1 if it is not in it.
func (f *folder) find(path string, order []uint32) int {
	row := -1
	for i, c := 0, f.names.from(0); i < f.names.len() && row < 0; i++ {
		name := c.next()
		if len(name) <= len(path) && strings.HasSuffix(path, string(name)) && f.path(i) == path {
			row = i
		}
	}
	if row < 0 || order == nil {
		return row
	}
	return slices.Index(order, uint32(row))
}

const maxPage = 2000

func (q *question) ls() error { return q.list(nil) }

// list responds with rows of a folder, or of the results of a search.
func (q *question) list(of *finder) error {
	v := q.view()
	offset := q.number("offset", 0, 0, 1<<40)
	limit := q.number("limit", 200, 0, maxPage)
	by := q.word("sort", "name", "size", "time")
	dir := q.word("dir", "asc", "desc")
	only := q.word("only", "all", "dirs", "pictures")
	find := q.q.Get("find") // the path of a row: where it is in this order
	if q.err != nil {
		return q.err
	}
	f := q.h.folder(v, q.path(), of)
	o := folderOrder{by, dir == "desc", only == "pictures"}
	sorted := o != folderOrder{by: "name"}
	if err := f.wait(q.ctx(), offset+limit, of == nil && (sorted || only == "dirs") || find != ""); err != nil {
		return err
	}
	sums, health := v.survey.sums(q.path()), q.h.health(v)
	f.mu.Lock()
	defer f.mu.Unlock()
	total := int64(f.names.len())
	var order []uint32
	if f.complete {
		order = f.order(o)
	}
	switch {
	case only == "dirs":
		total = int64(f.dirs)
	case o.pictures:
		total = int64(len(order))
	}
	items := []rowJSON{}
	for i := offset; i < min(offset+limit, total); i++ {
		row := int(i)
		if order != nil {
			row = int(order[i])
		}
		r := f.rowJSON(row, sums, health)
		if o.pictures && !f.isDir(row) {
			r.With = f.with(row)
		}
		items = append(items, r)
	}
	answer := map[string]any{"total": total, "dirs": f.dirs, "files": f.names.len() - f.dirs, "pictures": f.shown, "bytes": f.bytes, "complete": f.complete, "items": items}
	if f.photo != nil && of == nil {
		answer["picture"] = f.rowJSON(f.photo.row, nil, health)
	}
	if f.about != nil && of == nil {
		answer["readme"] = f.rowJSON(f.about.row, nil, health)
	}
	if sums != nil {
		bytes, files := sums("")
		answer["all"] = map[string]int64{"s": bytes, "c": files}
	}
	if of != nil {
		answer["found"] = f.names.len() + f.left
	}
	if f.fault != "" {
		answer["error"] = f.fault
	}
	if find != "" {
		answer["at"] = f.find(naming.Unescape(find), order)
	}
	return q.json(answer)
}
