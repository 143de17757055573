package kept

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An Index answers queries as a format's reader does. Its methods may be called in parallel.
type Index struct {
	Head
	pages
	archive string // its name, to which the name of a volume is appended
	workers int

	rows, order, listing, proofs, points, storedTree shelf

	sheets sheets

	near    bool // it lies on a disk
	mapping mapping

	// Copied means that the archive is known by its length and its ends only; see [Bound.Is]. What is read is
	// then compared with digests, or read by the archive's own list.
	Copied bool

	damage atomic.Pointer[Error] // what was found later
}

// Spoilt reports whether err means that the index is damaged. It remembers that.
func (x *Index) Spoilt(ctx context.Context, err error) bool {
	bad, ok := errors.AsType[*Error](err)
	if ok = ok && ctx.Err() == nil; ok {
		x.damage.CompareAndSwap(nil, bad)
	}
	return ok
}

// Damage returns why the index is no longer used, or nil.
func (x *Index) Damage() error {
	if bad := x.damage.Load(); bad != nil {
		return bad
	}
	return nil
}

// How much of an index's end is read to open it.
const (
	tailGuess = 18 << 10 // enough for the nodes of a million rows without digests
	treeGuess = 2 << 20  // of a far recording: all of most, because reading some of an array takes several rows
)

// Open opens an index, of whose end it reads guess bytes. Its Head says which archive it belongs to;
// archive is the current name of that archive. Near means that reads of obj take no round trip. Open
// closes obj if it fails; otherwise closing the index closes it.
func Open(ctx context.Context, obj store.Object, name, archive string, workers, guess int, near bool) (_ *Index, err error) {
	x := &Index{pages: pages{obj: obj, name: name}, archive: archive, workers: max(workers, 1), near: near}
	defer func() {
		if err != nil {
			obj.Close()
		}
	}()
	tail := make([]byte, guess)
	n, err := storekit.ReadTail(ctx, obj, tail)
	if err != nil {
		return nil, err
	}
	info, err := obj.Info(ctx)
	if err != nil {
		return nil, err
	}
	x.size, x.tail, x.tailAt = info.Size, tail[:n], info.Size-int64(n)
	if n >= footerLen {
		x.old = string(tail[n-len(endMagic2):n]) == endMagic2
	}
	if n < footerLen+len(magic) || string(tail[n-len(endMagic):n]) != endMagic && !x.old {
		return nil, x.fail(max(x.size-footerLen, 0), errors.New("no index trailer at its end"))
	}
	f := tail[n-footerLen : n]
	at := x.size - footerLen
	if got, want := x.checksum(f[:20]), binary.LittleEndian.Uint32(f[20:]); got != want {
		return nil, x.fail(at, fmt.Errorf("the trailer is damaged: expected CRC-32 %08x, found %08x", want, got))
	}
	r := ref{off: int64(binary.LittleEndian.Uint64(f)), stored: int(binary.LittleEndian.Uint32(f[8:])), long: int(binary.LittleEndian.Uint32(f[12:])),
		sum: binary.LittleEndian.Uint32(f[16:])}
	if r.off < int64(len(magic)) || r.stored > maxPage || r.long > maxPage || r.off > at-int64(r.stored) {
		return nil, x.fail(at, fmt.Errorf("a root of %d bytes at %d", r.stored, r.off))
	}
	text, err := x.page(ctx, &r, nil)
	if err != nil {
		return nil, err
	}
	var root rootPage
	same, apart, two := bytes.Cut(text, []byte("\n"))
	err = json.Unmarshal(same, &root)
	if err == nil && two {
		b := bond{root.Bound, root.Archive}
		err = json.Unmarshal(apart, &b)
		root.Bound, root.Archive = b.Bound, b.Archive
	}
	if err != nil {
		return nil, x.fail(r.off, fmt.Errorf("the root: %w", err))
	}
	if x.Head, x.sealed = root.Head, root.Sealed; x.sealed {
		x.Root = hex.EncodeToString([]byte(hashOf(same)))
	}
	if err := x.sane(&root); err != nil {
		return nil, x.fail(r.off, fmt.Errorf("the root: %w", err))
	}
	x.rows, x.order, x.listing = shelf{p: &x.pages, t: root.Rows}, shelf{p: &x.pages, t: root.Order}, shelf{p: &x.pages, t: root.Listing}
	x.proofs, x.points = shelf{p: &x.pages, t: root.Proofs}, shelf{p: &x.pages, t: root.Points}
	x.storedTree = shelf{p: &x.pages, t: root.Stored}
	return x, nil
}

// trust makes x refuse all pages that its root does not depend on.
func (x *Index) trust() { x.trusted, x.Copied = true, false }

// sane returns an error if a root is invalid.
func (x *Index) sane(root *rootPage) error {
	for _, t := range []tree{root.Rows, root.Order, root.Listing, root.Proofs, root.Points, root.Stored} {
		if t.Depth < 0 || t.Depth > maxDepth || t.Top.Off < 0 || t.Top.Stored < 0 || t.Top.Stored > maxPage || t.Top.Long < 0 || t.Top.Long > maxPage ||
			t.Top.Items < 0 || t.Top.Items > maxItems || t.Depth == 0 && t.Top.Items != 0 {
			return errors.New("invalid tree")
		}
	}
	if root.Rows.Top.Items > maxRows || root.Order.Top.Items > maxRows || root.Listing.Top.Items > root.Rows.Top.Items || root.Head.Entries < 0 || root.Head.Entries > root.Rows.Top.Items || root.Files < 0 || root.Dirs < 0 ||
		root.Bytes < 0 || root.Chunk < 0 || root.Chunk > 0 && !IsChunk(root.Chunk) {
		return errors.New("invalid numbers")
	}
	for _, v := range root.Volumes {
		if err := v.sane(); err != nil {
			return err
		}
	}
	for _, name := range root.Objects {
		if err := (Volume{Name: name}).sane(); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of Head.Chunk, which is a power of two. A piece is held in memory to be verified.
const (
	MinChunk = 64 << 10
	MaxChunk = 1 << 20
)

func IsChunk(n int64) bool { return MinChunk <= n && n <= MaxChunk && n&(n-1) == 0 }

// sane keeps an index from referring to anything outside its archive. External volumes are checked
// where they are used.
func (v Volume) sane() error {
	if v.External || v.Name == "" {
		return nil
	}
	if rest, ok := strings.CutPrefix(v.Name, "/"); !ok || !fs.ValidPath(rest) {
		return fmt.Errorf("%q, which is not in the archive", v.Name)
	}
	return nil
}

func (x *Index) Name() string { return x.name }

func (x *Index) Size() int64 { return x.size }

func (x *Index) Close() error {
	x.sheets.mu.Lock()
	x.sheets.drop()
	x.sheets.mu.Unlock()
	x.mapping.close()
	return x.obj.Close()
}

// object returns the name of a volume as extents have it, and whether it is external.
func (x *Index) object(volume int) (string, bool) {
	v := &x.Volumes[volume]
	if v.External {
		return v.Name, true
	}
	if v.Name == "" {
		return x.archive, false
	}
	return x.archive + v.Name, false
}

type page struct {
	from    int64
	entries []format.Entry // with their names; Ref is a *handle
	marks   []mark
	ranks   []uint32
	names   []byte // all of them
	extents []byte // all of them
	ends    []int  // where each ends
}

// A mark is what a row has in addition to its entry.
type mark struct {
	dirLen         int32 // length of the directory in the name
	implied, whole bool
}

// A handle is where an entry's content lies.
type handle struct {
	off       int64
	proof     int64  // negative: the digest of its only piece is that of the entry
	extents   string // if it is not one run
	volume    int32
	one       bool
	elsewhere bool
}

// spares are pages that are used again.
var spares = sync.Pool{New: func() any { return new(page) }}

func (x *Index) decodeRows(h *sheet, from, n int) (*page, error) {
	p := spares.Get().(*page)
	p.from = h.from + int64(from)
	if cap(p.entries) < n {
		p.entries, p.marks, p.ranks = make([]format.Entry, n), make([]mark, n), make([]uint32, n)
	}
	p.entries, p.marks, p.ranks = p.entries[:n], p.marks[:n], p.ranks[:n]
	p.names, p.ends, p.extents = p.names[:0], p.ends[:0], p.extents[:0]
	handles := make([]handle, n)
	b := blocks.Get().(*block)
	defer blocks.Put(b)
	for row := from / blockRows * blockRows; row < from+n; row++ {
		var err error
		var v numbers
		if row%blockRows == 0 {
			err = h.block(row/blockRows, b)
		}
		if err == nil && !b.step(b.i) {
			err = errRow
		}
		if err == nil {
			v, err = h.next(b, x.Chunk)
		}
		if err == nil && v.is(howImplied) && len(b.name) == 0 {
			err = errRow
		}
		if i := row - from; err == nil && i >= 0 {
			p.extents, err = b.entry(&v, &p.entries[i], &handles[i], p.extents)
			p.entries[i].Ref = &handles[i]
			dir, _ := split(b.name, v.is(howWhole))
			p.marks[i], p.ranks[i] = mark{int32(len(dir)), v.is(howImplied), v.is(howWhole)}, uint32(v.rank)
			if p.names = append(p.names, b.name...); v.is(howImplied) {
				p.names = p.names[:len(p.names)-1]
			}
			p.ends = append(p.ends, len(p.names))
		}
		if err != nil || len(p.names) > pageNames+maxPage {
			return nil, x.fail(h.off, fmt.Errorf("row %d: %w", h.from+int64(row), errRow))
		}
	}
	names, extents := string(p.names), string(p.extents)
	at := 0
	for i, end := range p.ends {
		p.entries[i].Name = names[at:end]
		at = end
		if h := &handles[i]; !h.one {
			h.extents, extents = extents[:h.volume], extents[h.volume:]
		}
	}
	return p, nil
}

func (p *page) free() {
	clear(p.entries)
	spares.Put(p)
}

func (p *page) place(i int) place {
	m, name := &p.marks[i], p.entries[i].Name
	at := place{base: name, whole: m.whole}
	if m.dirLen > 0 {
		at.dir, at.base = name[:m.dirLen], name[m.dirLen+1:]
	}
	if m.implied {
		at.base += "/"
	}
	return at
}

// A cursor is at a row.
type cursor struct {
	x     *Index
	steps []step
	h     *sheet
	p     *page // some rows of that sheet; nil at the end
	i     int
	ahead int // bytes that are read at once
}

// seekKey goes to the first row that is not less than a key.
func (x *Index) seekKey(ctx context.Context, key []byte) (*cursor, error) {
	c := &cursor{x: x, ahead: firstRun}
	i, err := c.open(ctx, key)
	if err != nil || c.h == nil {
		return c, err
	}
	return c, c.goTo(ctx, i)
}

// open finds the page of a key, and in it the first row whose key is not less. After the last one
// it returns how many there are. If there are no pages, c.h is nil.
func (c *cursor) open(ctx context.Context, key []byte) (i int, err error) {
	if c.steps, err = c.x.rows.findKey(ctx, key); err != nil || c.steps == nil {
		return 0, err
	}
	if c.h, err = c.x.sheet(ctx, leaf(c.steps)); err != nil {
		return 0, err
	}
	err = c.x.guarded(ctx, func() error {
		i, err = c.x.firstFrom(c.h, key)
		return err
	})
	return i, err
}

// firstFrom returns the first row of a sheet whose key is not less than key.
func (x *Index) firstFrom(h *sheet, key []byte) (int, error) {
	k := h.blockOf(key)
	if k < 0 {
		return 0, nil
	}
	n := min(blockRows, int(h.items)-k*blockRows)
	p, err := x.decodeRows(h, k*blockRows, n)
	if err != nil {
		return 0, err
	}
	defer p.free()
	var b []byte
	return k*blockRows + sort.Search(n, func(i int) bool {
		b = p.place(i).appendKey(b[:0])
		return string(b) >= string(key)
	}), nil
}

// goTo goes to a row of the sheet and decodes the rest of its block. After the last row it goes to
// the next page.
func (c *cursor) goTo(ctx context.Context, i int) (err error) {
	c.p, c.i = nil, 0
	if i == int(c.h.items) {
		more, err := c.x.rows.next(ctx, c.steps)
		if err != nil || !more {
			return err
		}
		if last := c.steps[len(c.steps)-1]; !c.x.near {
			c.ahead = min(2*c.ahead, longRun)
			if err := c.x.ahead(ctx, last.refs[last.at:], c.ahead); err != nil {
				return err
			}
		}
		if c.h, err = c.x.sheet(ctx, leaf(c.steps)); err != nil {
			return err
		}
		i = 0
	}
	return c.x.guarded(ctx, func() error {
		c.p, err = c.x.decodeRows(c.h, i, min(blockRows-i%blockRows, int(c.h.items)-i))
		return err
	})
}

func (c *cursor) next(ctx context.Context) error {
	if c.i++; c.i < len(c.p.entries) {
		return nil
	}
	return c.goTo(ctx, int(c.p.from-c.h.from)+c.i)
}

// A foundRow is an entry, or a directory that others imply.
type foundRow struct {
	entry   format.Entry
	implied bool
	row     int64
	rank    uint32
}

// rowCalled returns the row of a sheet with a key and a name; ok is false if there is none.
func (x *Index) rowCalled(h *sheet, key []byte, name string, whole bool) (f foundRow, ok bool, err error) {
	b := blocks.Get().(*block)
	defer blocks.Put(b)
	i, err := h.find(b, key, name, whole)
	if err == nil && i < 0 {
		return f, false, nil
	}
	var n numbers
	for err == nil && b.i <= i {
		n, err = h.next(b, x.Chunk)
	}
	c := &handle{}
	var extents []byte
	if err == nil {
		extents, err = b.entry(&n, &f.entry, c, nil)
	}
	if err != nil {
		return f, false, x.fail(h.off, err)
	}
	c.extents, f.entry.Name, f.entry.Ref = string(extents), name, c
	f.implied, f.row, f.rank = n.is(howImplied), h.from+int64(b.k*blockRows+i), uint32(n.rank)
	return f, true, nil
}

// find returns the row of a name: an entry, or a directory that other names imply.
func (x *Index) find(ctx context.Context, name string) (f foundRow, err error) {
	at, called := placeOf(name), name
	var room [128]byte
	for range 2 {
		key := at.appendKey(room[:0])
		steps, err := x.rows.findKey(ctx, key)
		if err != nil || steps == nil {
			return f, cmp.Or(err, notFound("lookup", called))
		}
		h, err := x.sheet(ctx, leaf(steps))
		if err != nil {
			return f, err
		}
		found := false
		err = x.guarded(ctx, func() error {
			f, found, err = x.rowCalled(h, key, name, at.whole)
			return err
		})
		if err != nil || found {
			return f, err
		}
		if at.whole {
			break
		}
		at.base, name = at.base+"/", name+"/"
	}
	return foundRow{}, notFound("lookup", called)
}

// Lookup returns the entry called name, or the directory of that name if other names imply it.
func (x *Index) Lookup(ctx context.Context, name string) (format.Entry, error) {
	f, err := x.find(ctx, name)
	if f.implied || err != nil && name == "." && errors.Is(err, fs.ErrNotExist) {
		return format.Entry{Name: name, Kind: format.Dir}, nil
	}
	return f.entry, err
}

// ReadDir yields what lies directly in dir, in the order of names.
func (x *Index) ReadDir(ctx context.Context, dir string) iter.Seq2[format.Entry, error] {
	return x.readDir(ctx, dir, "", false)
}

// ReadDirFrom is ReadDir from a place on: see [format.Abilities].
func (x *Index) ReadDirFrom(ctx context.Context, dir, from string) iter.Seq2[format.Entry, error] {
	return x.readDir(ctx, dir, from, true)
}

// readDir yields what lies in dir, beginning at a place. With both, a file that has entries below
// it is also yielded as a directory.
func (x *Index) readDir(ctx context.Context, dir, from string, both bool) iter.Seq2[format.Entry, error] {
	return pipe.Told(func(tell func(format.Entry) error) error {
		at := place{dir: dir}
		if dir == "." {
			at.dir = ""
		} else if !naming.ValidPath(dir) {
			return notFound("readdir", dir)
		}
		c, err := x.seekKey(ctx, appendText(nil, at.dir))
		if err != nil {
			return err
		}
		if dir != "." && !c.in(dir) {
			e, err := x.Lookup(ctx, dir)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return notFound("readdir", dir)
			case err == nil && e.Kind != format.Dir:
				return &fs.PathError{Op: "readdir", Path: dir, Err: syscall.ENOTDIR}
			}
			return err
		}
		if from != "" {
			at.base = from
			c, err = x.seekKey(ctx, at.appendKey(nil))
		}
		dirs := dirsAbove{x: x}
		for ; err == nil && c.in(at.dir); err = c.next(ctx) {
			e, m := c.p.entries[c.i], c.p.marks[c.i]
			if m.implied {
				e.Ref = nil
			}
			if e.Name != dir {
				err = tell(e)
			}
			if is := false; err == nil && both && e.Kind != format.Dir && !m.whole {
				if is, err = dirs.is(ctx, e.Name); is && err == nil {
					err = tell(format.Entry{Name: e.Name, Kind: format.Dir})
				}
			}
			if err != nil {
				return err
			}
		}
		return err
	})
}

// dirsAbove reports whether other entries lie below a name. Names must be given in ascending order.
type dirsAbove struct {
	x    *Index
	next string // the first directory that is not less than the last name
	none bool   // there is none
	seen bool
}

func (d *dirsAbove) is(ctx context.Context, name string) (bool, error) {
	if d.none || d.seen && name < d.next {
		return false, nil
	}
	c, err := d.x.seekKey(ctx, appendText(nil, name))
	if err != nil {
		return false, err
	}
	d.seen, d.none = true, c.p == nil
	if !d.none {
		d.next = c.p.place(c.i).dir
	}
	return !d.none && d.next == name, nil
}

// in reports whether the cursor is at a row directly in dir; "" is the root.
func (c *cursor) in(dir string) bool {
	if c.p == nil {
		return false
	}
	m := &c.p.marks[c.i]
	return int(m.dirLen) == len(dir) && c.p.entries[c.i].Name[:m.dirLen] == dir
}

// Extents yields where e's content bytes [off, off+n) lie.
func (x *Index) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		h, ok := e.Ref.(*handle)
		if !ok || n <= 0 || off >= e.Size {
			return
		}
		if h.elsewhere {
			yield(format.Extent{}, ErrElsewhere)
			return
		}
		if h.one {
			yield(x.run(e, h), nil)
			return
		}
		xs, err := x.extents(h)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		for _, v := range xs {
			if v.At+v.Size <= off {
				continue
			}
			if v.At >= off+n || !yield(v, nil) {
				return
			}
		}
	}
}

// extents returns the extents of an entry that is not one run.
func (x *Index) extents(h *handle) (xs []format.Extent, err error) {
	err = decodeExtents([]byte(h.extents), func(v format.Extent, volume int) {
		if volume < len(x.Volumes) {
			if v.Codec != codec.Zero { // zeros lie nowhere
				v.Object, v.External = x.object(volume)
			}
			xs = append(xs, v)
		} else {
			xs = append(xs, format.Extent{Off: -1})
		}
	})
	if err == nil && slices.ContainsFunc(xs, func(v format.Extent) bool { return v.Off < 0 }) {
		err = errRow
	}
	if err != nil {
		return nil, x.fail(-1, err)
	}
	return xs, nil
}

// Has reports whether e is an entry of an index that says where its content lies.
func (x *Index) Has(e format.Entry) bool {
	h, ok := e.Ref.(*handle)
	return ok && !h.elsewhere
}

// IsElsewhere reports whether e is an entry of an index that does not say where its content lies.
func IsElsewhere(e format.Entry) bool {
	h, ok := e.Ref.(*handle)
	return ok && h.elsewhere
}

// ErrElsewhere means that only the archive itself knows where a content lies.
var ErrElsewhere = errors.New("the index does not have the place of this content")

func (x *Index) Can() format.Abilities {
	return format.Abilities{Run: x.Run, EntriesBelow: x.EntriesBelow, EntriesFrom: x.EntriesFrom, ReadDirFrom: x.ReadDirFrom}
}

// Run returns e's content if it is one raw run.
func (x *Index) Run(e format.Entry) (format.Extent, bool) {
	h, ok := e.Ref.(*handle)
	if !ok || e.Fault != nil || e.Size == 0 {
		return format.Extent{}, false
	}
	if !h.one {
		if xs, err := x.extents(h); err == nil && len(xs) == 1 && isPlain(&xs[0], e.Size) {
			return xs[0], true
		}
		return format.Extent{}, false
	}
	return x.run(e, h), true
}

func (x *Index) run(e format.Entry, h *handle) (v format.Extent) {
	v = format.Extent{Size: e.Size, Off: h.off, Len: e.Size}
	v.Object, v.External = x.object(int(h.volume))
	return v
}

// FirstDigest is the number of the first piece of e's content, which no other content has; ok is
// false if e is not an entry of the index.
func (x *Index) FirstDigest(e format.Entry) (n int64, ok bool) {
	h, ok := e.Ref.(*handle)
	if !ok {
		return 0, false
	}
	return h.proof, true
}

// Digests returns the digests of n pieces of e's content, beginning with number from.
func (x *Index) Digests(ctx context.Context, e format.Entry, from, n int64) ([][DigestLen]byte, error) {
	h, ok := e.Ref.(*handle)
	if all := Pieces(&e, x.Chunk); !ok || from < 0 || n < 0 || from > all || n > all-from {
		return nil, x.fail(-1, fmt.Errorf("%s: no digests %d+%d of %d", format.Escape(clip(e.Name)), from, n, all))
	}
	if h.proof < 0 && n > 0 {
		return [][DigestLen]byte{[DigestLen]byte([]byte(e.Digest.Sum))}, nil
	}
	var out [][DigestLen]byte // it grows by what is found, not by what a row says
	for at := h.proof + from; int64(len(out)) < n; at = h.proof + from + int64(len(out)) {
		steps, err := x.proofs.findItem(ctx, at)
		if err != nil {
			return nil, err
		}
		if at < 0 || at >= x.proofs.t.Top.Items || steps == nil {
			return nil, x.fail(-1, fmt.Errorf("digest %d, expected fewer than %d", at, x.proofs.t.Top.Items))
		}
		r := leaf(steps)
		if at < r.from || at >= r.from+r.items || r.items > proofItems || int64(r.long) != r.items*DigestLen {
			return nil, x.fail(r.off, errNode)
		}
		p, err := x.sheet(ctx, r)
		if err == nil && len(p.sums) != r.long {
			err = x.fail(r.off, errNode)
		}
		if err != nil {
			return nil, err
		}
		err = x.guarded(ctx, func() error {
			for ; at < r.from+r.items && int64(len(out)) < n; at++ {
				out = append(out, [DigestLen]byte(p.sums[(at-r.from)*DigestLen:]))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
