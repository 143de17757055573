package pack

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// farJobs is how many requests run at once if each takes a round trip.
	farJobs = 16

	// pieceSize is how many bytes are requested at most at once; inPieces limits the memory of
	// pieces.
	pieceSize = 16 << 20
	inPieces  = 64 << 20

	// listedAhead is how many objects are listed before they are read: two pages of a bucket's
	// listing.
	listedAhead = 2000

	// maxUnread is how many objects in a row may fail, except for reasons of their own. If more
	// fail, the objects are probably not the cause.
	maxUnread = 100
)

// An Object is an object, or a range of one, that Objects packs.
type Object struct {
	From store.Store
	Info store.Info // from the listing
	Name string     // of the entry

	// Range says that only Size bytes from Off on are packed. Consecutive ranges of one object are
	// read, or copied, together.
	Range     bool
	Off, Size int64

	// Digest, if there is one, is that of the range. Content that is read is compared with it, and
	// copied content keeps it. ModTime, if it is not zero, and Attr are those of the entry.
	Digest  format.Digest
	ModTime time.Time
	Attr    map[string]string
}

// Objects packs the listed objects. Each is read if it is still that version, by one request if
// it is at most 16 MiB long. An object that has changed or no longer exists is reported and left
// out. The objects are enumerated twice if the meter asks for the total.
//
// Objects are packed in the order in which they come, unless the format needs a different order.
// A server that cannot be reached ends the pack.
func Objects(ctx context.Context, st store.Store, name string, objects iter.Seq2[Object, error], o Options) (Summary, error) {
	return packItems(ctx, st, name, o, func(yield func(item, error) bool) {
		for x, err := range objects {
			it := item{st: x.From, info: x.Info, name: x.Name, ranged: x.Range, off: x.Off, size: x.Size, digest: x.Digest, mod: x.ModTime, attr: x.Attr}
			if !x.Range {
				it.off, it.digest = 0, format.Digest{} // the checksum of its service is used instead
			}
			if !yield(it, err) {
				return
			}
		}
	})
}

func packItems(ctx context.Context, st store.Store, name string, o Options, items iter.Seq2[item, error]) (Summary, error) {
	p, err := newPacker(st, name, o, false)
	if err != nil {
		return Summary{}, err
	}
	return p.run(ctx, func(ctx context.Context) error { return p.objects(ctx, items) })
}

// isFar reports whether a path is the address of something on another machine.
func isFar(p string) bool {
	s := store.Scheme(p)
	return s != "" && s != "file"
}

// An item is an object that is to become an entry.
type item struct {
	st   store.Store
	info store.Info
	name string
	dir  bool // an empty object that stands for a folder

	ranged    bool // only size bytes of the object, from off on
	off, size int64
	digest    format.Digest // of the range
	mod       time.Time     // of its entry, if not zero
	attr      map[string]string
	copy      bool   // have the store copy it, if it can
	more      []item // a run: this item and those right after it
}

// itemsAt enumerates the objects at addresses: those below each, or the object itself if nothing
// is below. A single address yields names relative to it; with several, names begin with the last
// element of the address.
func itemsAt(ctx context.Context, addresses []string) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for _, address := range addresses {
			st, err := storekit.OpenFolder(ctx, address)
			if err != nil {
				yield(item{}, err)
				return
			}
			prefix := ""
			if len(addresses) > 1 {
				prefix = path.Base(strings.TrimRight(address, "/")) + "/"
			}
			some := false
			for info, err := range storekit.List(ctx, st, "") {
				if !some && errors.Is(err, errors.ErrUnsupported) {
					break
				}
				some = true
				if !yield(item{st: st, info: info, name: prefix + info.Name}, err) || err != nil {
					return
				}
			}
			if some {
				continue
			}
			it, err := itemAt(ctx, address)
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}

func itemAt(ctx context.Context, address string) (item, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return item{}, err
	}
	info, err := storekit.Briefly(st, name).Info(ctx)
	return item{st: st, info: info, name: path.Base(name)}, err
}

// objects packs items: many are read at once, and written in order.
func (p *packer) objects(ctx context.Context, items iter.Seq2[item, error]) error {
	listed := p.wanted(items)
	if p.f.WantsManifest {
		all, err := p.listObjects(ctx, listed)
		if err != nil {
			return err
		}
		listed = pipe.All(all)
	} else if p.o.Protect > 0 {
		p.countObjects(ctx, p.wanted(items))
	} else if p.o.Meter.WantsTotal() {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { p.countObjects(ctx, p.wanted(items)) })
	}
	jobs := p.o.Jobs
	if jobs <= 0 {
		jobs = farJobs
	}
	q := newPieces(ctx, jobs, p.digests())
	q.lenient, q.stale, q.trusting = p.o.Lenient, p.o.Stale, p.o.NoVerify
	q.headers = p.keepsHeaders()
	defer q.stop()
	q.start(p.runs(listed, true))
	for c := range q.ready {
		<-c.done
		if err := p.addObject(ctx, q, c); err != nil {
			return cmp.Or(q.failed(), err)
		}
	}
	return q.failed()
}

// wanted filters the items to be packed, and finds the empty objects that stand for an empty
// folder.
func (p *packer) wanted(items iter.Seq2[item, error]) iter.Seq2[item, error] {
	own := p.ownObjects()
	return func(yield func(item, error) bool) {
		var folder item // waits for the next item
		for it, err := range items {
			if err != nil {
				yield(item{}, err)
				return
			}
			if folder.dir && !strings.HasPrefix(it.name, folder.name+"/") && !yield(folder, nil) {
				return
			}
			folder = item{}
			if !p.names.Wants(it.name) || p.o.Only != nil && !p.o.Only[it.name] || own(it) {
				continue
			}
			if name, ok := strings.CutSuffix(it.name, "/"); ok && it.info.Size == 0 && !it.ranged {
				it.name, it.dir = name, true
				folder = it
				continue
			}
			if !yield(it, nil) {
				return
			}
		}
		if folder.dir {
			yield(folder, nil)
		}
	}
}

// ownObjects returns a function that reports whether an item belongs to the archive being written,
// or to the one it replaces. Such items are not packed.
func (p *packer) ownObjects() func(item) bool {
	ext := p.f.Extensions[0]
	first := p.name
	if p.o.ChunkSize > 0 {
		first = ChunkName(p.name, 1, ext)
	}
	own := storekit.AddressOf(p.st.Store, first)
	if own == "" {
		return func(item) bool { return false }
	}
	var parities []string
	for _, name := range p.parityNames() {
		parities = append(parities, storekit.AddressOf(p.st.Store, name))
	}
	stored := func(it item) string { return storekit.AddressOf(storekit.Under(it.st), it.info.Name) }
	ours := func(it item) bool {
		return strings.HasSuffix(it.info.Name, parity.Suffix) && slices.Contains(parities, stored(it))
	}
	if p.o.ChunkSize == 0 {
		return func(it item) bool { return stored(it) == own || ours(it) }
	}
	stem, end := own[:strings.LastIndex(own, "00001")], own[strings.LastIndex(own, "00001")+len("00001"):]
	return func(it item) bool {
		rest, ok := strings.CutPrefix(stored(it), stem)
		if ok {
			rest, ok = strings.CutSuffix(rest, end)
		}
		return ok && len(rest) >= len("00001") && strings.Trim(rest, "0123456789") == "" || ours(it)
	}
}

// countObjects counts what there is to pack, for the meter and for parity. For parity it runs
// before packing; otherwise at the same time.
func (p *packer) countObjects(ctx context.Context, items iter.Seq2[item, error]) {
	var n, names, bytes int64
	for it, err := range items {
		if err != nil || ctx.Err() != nil {
			return // reading them returns the error again
		}
		n, names, bytes = n+1, names+int64(len(it.name)), bytes+it.bytes()
	}
	p.o.Meter.Expect(n, bytes)
	p.expect(ctx, n, names, bytes)
}

// listObjects fills in the manifest, and returns the listed items.
func (p *packer) listObjects(ctx context.Context, items iter.Seq2[item, error]) (all []item, err error) {
	var names, bytes int64
	for it, err := range items {
		if err != nil {
			return nil, err
		}
		all, names, bytes = append(all, it), names+int64(len(it.name)), bytes+it.bytes()
	}
	if order := p.order(); order != nil {
		slices.SortStableFunc(all, func(a, b item) int { return order(a.entry(), b.entry()) })
	}
	for _, it := range all {
		e := it.entry()
		if kept, _ := p.keeps(e); kept {
			p.adjust(&e)
			p.manifest = append(p.manifest, e)
		}
	}
	if p.o.Meter.WantsTotal() {
		p.o.Meter.Expect(int64(len(all)), bytes)
	}
	p.expect(ctx, int64(len(all)), names, bytes)
	return all, nil
}

// entry returns the object's entry, with its listed properties and those found when it was read.
func (o *opened) entry() format.Entry {
	return o.known().entry()
}

// known returns the item with the headers of its object.
func (o *opened) known() item {
	it := o.item
	if o.kept != nil {
		it.attr = o.kept
	}
	if !o.written.IsZero() {
		it.mod = o.written
	}
	return it
}

func (it item) entry() format.Entry {
	e := format.Entry{Name: it.name, Size: it.bytes(), ModTime: it.info.ModTime, Attr: it.attr}
	if !it.mod.IsZero() {
		e.ModTime = it.mod
	}
	if it.dir {
		e.Kind = format.Dir
	}
	return e
}

// addObject writes the object whose first piece is c. If the object does not match its checksum, it
// is read again.
func (p *packer) addObject(ctx context.Context, q *pieces, c *piece) error {
	if c.of.copy && c.err == nil {
		q.done(c)
		if done, err := p.copyItem(ctx, c.of.known()); done || err != nil {
			return err
		}
		return p.readInstead(ctx, q, c.of.item)
	}
	err := p.tryObject(ctx, q, c)
	if wrong, ok := errors.AsType[*SumError](err); !ok || wrong.again {
		return err
	}
	again := newPieces(ctx, q.jobs, q.algo)
	again.lenient, again.stale, again.headers, again.again = q.lenient, q.stale, q.headers, true
	defer again.stop()
	again.start(func(yield func(item, error) bool) { yield(c.of.item, nil) })
	first, ok := <-again.ready
	if !ok {
		return again.failed()
	}
	<-first.done
	return p.tryObject(ctx, again, first)
}

func (p *packer) tryObject(ctx context.Context, q *pieces, c *piece) error {
	e := c.of.entry()
	r := &pieceReader{q: q, cur: c, algo: q.algo}
	defer r.drain()
	err := c.err
	switch {
	case q.failed() != nil: // the error of a piece does not matter any more
		return q.failed()
	case err == nil && c.of.more != nil:
		return p.addRun(ctx, q, c)
	case err == nil:
		if c.last {
			e.Digest = c.digest
		} else if c.of.has {
			r.sum = NewWitness(e.Name, c.of.sum, e.Size)
			r.sum.again = q.again
		}
		added := p.added
		r.meter = p.o.Meter
		if err := p.add(ctx, e, r); err != nil {
			return err
		}
		if p.added > added {
			p.unread = 0
			if by := c.of.provenBy(); by != "" {
				p.proven(by)
			}
		}
		return nil
	case storekit.Temporary(err) && !p.o.Lenient:
		return err
	}
	return p.unreadable(c.of.item, err)
}

// doubtful reports whether the failure to read an object may be the fault of its server. It is not
// if the server answers with a different version, or if no request was sent. For missing objects
// Confirm decides, if it is set.
func (p *packer) doubtful(err error) bool {
	return !errors.Is(err, store.ErrChanged) && !errors.Is(err, fs.ErrInvalid) &&
		!(p.o.Confirm != nil && errors.Is(err, fs.ErrNotExist))
}
