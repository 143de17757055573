package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// unsent is about how much a store gathers before it sends a part.
	unsent = 8 << 20

	// mostJoined and longestRun limit the ranges and the bytes in a run of consecutive ranges.
	mostJoined = 1 << 15
	longestRun = 1 << 30

	// mostRefused is how many copies in a row a store may refuse before no more are requested.
	// The rest is then read ahead.
	mostRefused = 8

	// memberRoom is about how much memory one range of a run takes.
	memberRoom = 512
)

func (it item) bytes() int64 {
	if it.ranged {
		return max(0, it.size)
	}
	return it.info.Size
}

// all returns the size of an item and of the items joined with it.
func (it item) all() (n int64) {
	for _, x := range it.members() {
		n += x.bytes()
	}
	return n
}

// members returns an item and those that are copied or read with it.
func (it item) members() []item {
	if it.more == nil {
		return []item{it}
	}
	return it.more
}

// misplaced returns an error if a range is not within its object.
func (it item) misplaced() error {
	if it.ranged && (it.off < 0 || it.size < 0 || it.off > it.info.Size || it.size > it.info.Size-it.off) {
		return &store.Error{Op: "read", Name: it.info.Name, Off: it.off, Len: it.size, Err: io.ErrUnexpectedEOF}
	}
	return nil
}

// sameObject reports whether two items belong to the same version of the same object.
func (it item) sameObject(x item) bool {
	return it.st == x.st && it.info.Name == x.info.Name && it.info.Version == x.info.Version && it.info.Size == x.info.Size
}

// follows reports whether a range begins where x ends.
func (it item) follows(x item) bool {
	return it.ranged && x.ranged && it.sameObject(x) && x.misplaced() == nil && it.misplaced() == nil && it.off == x.off+x.size
}

// mayCopy reports whether the target's store can copy from an item's object by itself.
func (p *packer) mayCopy(it item) bool {
	if !p.o.Copy || p.o.Protect > 0 || !p.f.CopiesUnread || p.f.NeedsDigests || it.info.Version == "" || it.misplaced() != nil || p.refused.Load() >= mostRefused {
		return false
	}
	from := p.to.Can().CopiesFrom
	if from == nil {
		return false
	}
	address := storekit.AddressOf(it.st, it.info.Name)
	return address != "" && from(address)
}

// runs decides which items are to be copied, and joins consecutive ranges: they are copied as
// one, or read by one request. If may is false, nothing is copied.
func (p *packer) runs(items iter.Seq2[item, error], may bool) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		var run []item
		size, passed := int64(0), int64(0) // of run; of what has been read since something was copied
		// The data before may be too short for a part. The part then also takes the beginning of
		// the copied data.
		worth := func(it item, n int64) bool {
			fill := int64(0)
			if k := passed % unsent; k > 0 {
				fill = max(0, LeastCopy-k)
			}
			return may && !it.dir && n >= fill+LeastCopy && p.mayCopy(it)
		}
		flush := func() bool {
			defer func() { run, size = nil, 0 }()
			if worth(run[0], size) {
				it := together(run)
				it.copy, passed = true, 0
				return yield(it, nil)
			}
			for len(run) > 0 {
				n, k := run[0].bytes(), 1
				for k < len(run) && n+run[k].bytes() <= pieceSize {
					n += run[k].bytes()
					k++
				}
				if passed += n; !yield(together(run[:k]), nil) {
					return false
				}
				run = run[k:]
			}
			return true
		}
		for it, err := range items {
			if err != nil {
				yield(it, err)
				return
			}
			if n := len(run); n > 0 && (n == mostJoined || size >= longestRun || !it.follows(run[n-1])) && !flush() {
				return
			}
			run, size = append(run, it), size+it.bytes()
		}
		if len(run) > 0 {
			flush()
		}
	}
}

func together(run []item) item {
	it := run[0]
	if len(run) > 1 {
		it.more = run
	}
	return it
}

// A copySource is an object from which the store copies ranges. The range requested last may not
// be copied yet.
type copySource struct {
	item
	o store.Object
}

// copySource opens the object of an item, and closes the one before the last.
func (p *packer) copySource(ctx context.Context, it item) (store.Object, error) {
	if p.sources[0].o != nil && p.sources[0].sameObject(it) {
		return p.sources[0].o, nil
	}
	o, err := storekit.OpenAs(ctx, it.st, it.info)
	if err != nil {
		return nil, err
	}
	it.more = nil
	if p.sources[1].o != nil {
		_ = p.sources[1].o.Close() // it was only read
	}
	p.sources[0], p.sources[1] = copySource{it, o}, p.sources[0]
	return o, nil
}

func (p *packer) closeSources() {
	for _, s := range p.sources {
		if s.o != nil {
			_ = s.o.Close()
		}
	}
}

// copyItem has the store copy an item, and reports whether it did. If not, the item must be read.
func (p *packer) copyItem(ctx context.Context, it item) (done bool, err error) {
	if !p.mayCopy(it) { // any more
		return false, nil
	}
	o, err := p.copySource(ctx, it)
	if err != nil {
		return false, nil // reading it returns the error again
	}
	if it.more == nil {
		s := kit.NewSection(ctx, o, it.off, it.bytes())
		s.Far, s.Unread, s.AtOnce = true, true, true
		if err = p.addItem(ctx, it, s, "copied"); errors.Is(err, errors.ErrUnsupported) {
			p.refused.Add(1)
			return false, nil
		}
		p.refused.Store(0)
		return true, err
	}
	for _, m := range it.more {
		s := kit.NewSection(ctx, o, m.off, m.size)
		s.Far, s.Unread = true, true
		if err := p.addItem(ctx, m, s, "copied"); err != nil {
			return true, err
		}
	}
	return true, nil
}

// addItem adds an item as content, with its digest, and counts it under the kind of its proof.
func (p *packer) addItem(ctx context.Context, it item, content io.Reader, by string) error {
	e := it.entry()
	e.Digest = it.digest
	if s, ok := content.(*kit.Section); ok && s.N == 0 {
		content, by = &byteReader{}, "size"
		e.Digest = format.Digest{}
	}
	added := p.added
	if err := p.add(ctx, e, content); err != nil {
		return err
	}
	if p.added > added {
		p.unread = 0
		p.proven(by)
	}
	return nil
}

// stillThere checks that the object of a run is still the listed version. Without this check, a
// change would be noticed only after part of the run was copied.
func (o *opened) stillThere(ctx context.Context) error {
	now, err := storekit.Briefly(o.st, o.info.Name).Info(ctx)
	if err == nil {
		err = storekit.Unchanged(o.info, now)
	}
	return err
}

// addRun adds ranges that one request read.
func (p *packer) addRun(ctx context.Context, q *pieces, c *piece) error {
	if q.failed() != nil {
		return q.failed()
	}
	at := int64(0)
	for i, m := range c.of.more {
		content := c.buf[at:][:m.size]
		at += m.size
		by := "nothing"
		switch {
		case c.wrong[i] != nil:
			if err := p.fail(p.o.Prefix+m.name, c.wrong[i]); err != nil {
				return err
			}
			continue
		case m.size == 0:
			by = "size"
		case c.of.comparable(m, q):
			by = m.digest.Algo
		}
		if m.digest.Algo != q.algo {
			m.digest = c.digests[i]
		}
		if err := p.addItem(ctx, m, &byteReader{content}, by); err != nil {
			return err
		}
	}
	return nil
}

// comparable reports whether a range has a digest to compare it with.
func (o *opened) comparable(it item, q *pieces) bool {
	return it.ranged && !q.trusting && digest.Known(it.digest.Algo)
}

// compareRanges compares the ranges of a piece with their digests. A range that differs is read
// again.
func (q *pieces) compareRanges(c *piece, o store.Object) error {
	members := c.of.members()
	if c.of.more != nil {
		c.digests, c.wrong = make([]format.Digest, len(members)), make([]error, len(members))
	}
	at := int64(0)
	for i, m := range members {
		b := c.buf[at:][:m.size]
		at += m.size
		var is format.Digest
		if c.of.comparable(m, q) {
			if is, _ = digest.Of(m.digest.Algo, b); is != m.digest {
				if err := o.ReadAt(q.ctx, b, m.off); err != nil {
					return err
				}
				is, _ = digest.Of(m.digest.Algo, b)
			}
			if is != m.digest {
				err := &SumError{m.name, store.Sum{Algo: m.digest.Algo, Value: m.digest.Sum}, is.Sum, true}
				if c.of.more == nil {
					return err
				}
				c.wrong[i] = err
			}
		}
		if is.Algo != q.algo && q.algo != "" {
			is, _ = digest.Of(q.algo, b)
		}
		if c.digest = is; c.of.more != nil {
			c.digests[i] = is
		}
	}
	return nil
}

// readInstead reads and adds an item that the store did not copy.
func (p *packer) readInstead(ctx context.Context, q *pieces, it item) error {
	r := newPieces(ctx, q.jobs, q.algo)
	r.lenient, r.stale, r.trusting, r.headers, r.room.most = q.lenient, q.stale, q.trusting, q.headers, 2*pieceSize
	defer r.stop()
	r.start(p.runs(func(yield func(item, error) bool) {
		for _, m := range it.members() {
			m.copy = false
			if !yield(m, nil) {
				return
			}
		}
	}, false))
	for c := range r.ready {
		<-c.done
		if err := p.addObject(ctx, r, c); err != nil {
			return errors.Join(r.failed(), err)
		}
	}
	return r.failed()
}

// unreadable reports an item that could not be read. If it is a run, each of its entries fails.
func (p *packer) unreadable(it item, err error) error {
	if p.doubtful(err) {
		p.unread++
	}
	if p.unread > maxUnread {
		return fmt.Errorf("more than %d objects in a row could not be read: %w", maxUnread, err)
	}
	for _, m := range it.members() {
		if err := p.fail(p.o.Prefix+m.name, err); err != nil {
			return err
		}
	}
	return nil
}
