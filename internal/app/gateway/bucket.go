package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/fleet"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/base/blake3"
)

const (
	// large is the size from which on an object is an archive of its own.
	large = 8 << 20
	// Contents of more than small wait for mostPatience, until mostMemory has room for them.
	small        = 64 << 10
	mostMemory   = 48 << 20
	mostPages    = 32 << 20 // of catalogues
	mostPatience = 10 * time.Second
	// mostBatch is about how many bytes are written at once, and mostWaiting how many changes.
	mostBatch   = 4 << 20
	mostWaiting = 4096
)

// A bucket takes changes of the objects of one catalogue. A change is in the log before it is answered. The newest
// rows lie in layers over the commits of the catalogue, so every reader of the book sees them.
type bucket struct {
	g    *Gateway
	name string
	book *book.Book
	tree *holdall.Archive // what the bucket has now
	hall *shelf.Shelf
	log  *journal.Journal

	claim   string // ID of ours
	packing fleet.Packing
	adopts  *adopter // nil if nothing is adopted

	temporary string // folder of a log that nobody needs later

	queue  chan *change
	aside  chan func()   // runs between batches
	shut   chan struct{} // closed when no further change is taken
	halted chan struct{} // closed when what is in the queue is not taken any more
	full   chan struct{} // has one when a segment may be full
	work   sync.WaitGroup
	ctx    context.Context // of the work
	end    context.CancelFunc

	over atomic.Pointer[layers]
	gone atomic.Int64 // how many layers are in commits

	mu     sync.Mutex
	why    error           // why nothing is written any more
	making map[string]bool // archives of large objects of which no layer has a row, or nobody knows whether one has
}

// A change is one of a name that waits to be written.
type change struct {
	journal.Record
	if_  serve.Condition
	of   int64             // unless it is 0, the version that it replaces; -1 is that of the source
	base *catalog.Location // what was there, as far as commits and the source know
	seen int64             // bucket.gone, before that was asked
	done chan error

	unknown bool // nobody knows whether it was written, although there is an error
}

// errAgain means that a segment became a commit while a change was looked at.
var errAgain = errors.New("look again")

// has returns what the bucket has of a name, or nil.
func (b *bucket) has(ctx context.Context, name string) (*catalog.Location, error) {
	f, err := b.book.Newest(ctx, name)
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, catalog.ErrDeleted) {
		var e format.Entry
		if e, err = b.hall.Original(ctx, name); err == nil {
			f.Location = e.Ref.(*shelf.Original).Location()
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &f.Location, err
}

// write has changes written, and returns when they are durable.
func (b *bucket) write(ctx context.Context, all ...*change) []error {
	errs := make([]error, len(all))
	for i, c := range all {
		c.done = make(chan error, 1)
		errs[i] = b.ask(ctx, c)
	}
	for i, c := range all {
		for errs[i] == nil {
			if errs[i] = b.answer(c); errs[i] != errAgain {
				break
			}
			errs[i] = b.ask(ctx, c)
		}
	}
	return errs
}

// answer waits for what becomes of a change that was put into the queue.
func (b *bucket) answer(c *change) error {
	select {
	case err := <-c.done:
		return err
	case <-b.halted:
	}
	select {
	case err := <-c.done:
		return err
	default: // it is still in the queue
		return b.stopped()
	}
}

// ask puts a change into the queue.
func (b *bucket) ask(ctx context.Context, c *change) (err error) {
	if c.if_ != (serve.Condition{}) && (!b.g.o.InBucket || b.book.Source() != "") {
		c.seen = b.gone.Load()
		if c.base, err = b.has(ctx, c.Name); err != nil {
			return err
		}
	}
	if isClosed(b.shut) {
		return b.stopped()
	}
	if b.isBusy() {
		return serve.ErrBusy
	}
	select {
	case b.queue <- c:
		return nil
	case <-b.shut:
		return b.stopped()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isBusy reports whether archives cannot be stored as fast as clients write.
func (b *bucket) isBusy() bool {
	return len(b.over.Load().live) > mostUnsealed || b.g.rows.Load() > mostUnsealedRows
}

// stopped is why nothing is written any more.
func (b *bucket) stopped() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == nil || errors.Is(b.why, serve.ErrNoArchive) {
		return cmp.Or(b.why, serve.ErrBusy)
	}
	return fmt.Errorf("%w: %w", serve.ErrBusy, b.why)
}

// commit writes the changes of the queue, as many at once as there are. Clients whose changes were answered together
// come back one after the other: they are waited for, for a part of the time that the last batch took, so that they
// stay together. Otherwise the first of them would make all others wait for two syncs.
func (b *bucket) commit() {
	defer close(b.halted)
	var batch []*change
	var took time.Duration
	for {
		last := len(batch)
		select {
		case c := <-b.queue:
			batch = append(batch[:0], c)
		case do := <-b.aside:
			do()
			continue
		case <-b.shut:
			return
		}
		var late <-chan time.Time
		for n := len(batch[0].Content); n < mostBatch && len(batch) < mostWaiting; {
			select {
			case c := <-b.queue:
				batch = append(batch, c)
				n += len(c.Content)
				continue
			default:
			}
			if len(batch) >= last {
				break
			}
			if late == nil {
				late = time.After(min(took/4, 10*time.Millisecond))
			}
			select {
			case c := <-b.queue:
				batch = append(batch, c)
				n += len(c.Content)
				continue
			case <-late:
			case <-b.shut: // it is written nevertheless
			}
			break
		}
		start := time.Now()
		if b.g.o.InBucket {
			b.commitThere(batch)
		} else {
			for rest := batch; len(rest) > 0; {
				rest = b.commitAll(rest)
			}
		}
		took = time.Since(start)
	}
}

// between runs do in the goroutine that commits.
func (b *bucket) between(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	select {
	case b.aside <- func() { done <- do() }:
		return <-done
	case <-b.shut:
		return b.stopped()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commitAll writes a batch into the log. It returns those that an earlier one of the batch refuses: whether it does is
// known only when that one is durable.
func (b *bucket) commitAll(batch []*change) (late []*change) {
	now := map[string]*change{} // of names that the batch changes
	var records []*journal.Record
	var taken []*change
	for _, c := range batch {
		before := now[c.Name]
		if err := b.may(c, before); err != nil && before != nil {
			late = append(late, c)
			continue
		} else if err != nil {
			c.done <- err
			continue
		}
		now[c.Name] = c
		records, taken = append(records, &c.Record), append(taken, c)
	}
	if len(taken) == 0 {
		return nil
	}
	err := b.log.Append(records)
	for i := 0; i < len(records) && err == nil; i++ {
		err = b.apply(b.layerOf(records[i].Segment), &records[i].LogRow)
	}
	for _, c := range taken {
		c.unknown = err != nil && !errors.Is(err, journal.ErrFull)
		c.done <- outward(err)
	}
	if err == nil && b.isFull() {
		err = b.roll()
	}
	if err != nil && !errors.Is(err, journal.ErrFull) {
		b.stop(err)
	}
	return late
}

// layerOf returns the layer of the newest segment.
func (b *bucket) layerOf(seg *journal.Segment) *layer {
	if live := b.over.Load().live; len(live) > 0 && live[0].seg == seg {
		return live[0]
	}
	l := newLayer(seg, &b.g.rows)
	b.change(func(live []*layer, gone []sunk) ([]*layer, []sunk) { return append([]*layer{l}, live...), gone })
	return l
}

// may returns why a change must not be made, after an earlier one of the batch to the same name.
func (b *bucket) may(c, before *change) error {
	if c.if_ == (serve.Condition{}) {
		return nil
	}
	tag, seq := "", int64(0)
	switch r := b.newest(c.Name); {
	case before != nil:
		tag = before.tag()
	case r != nil && r.archive >= 0:
		tag, seq = tagOf(r.etag, blake3Of(r.sum)), r.seq
	case r != nil:
	case c.seen != b.gone.Load():
		return errAgain
	case c.base != nil:
		tag, seq = tagOf(c.base.ETag, c.base.Digest), c.base.Seq
	}
	return c.check(tag, seq)
}

// tag is the ETag after the change, or "" if it is a deletion.
func (c *change) tag() string {
	if c.Deleted {
		return ""
	}
	return tagOf(c.ETag, blake3Of(c.Sum))
}

// check returns why a change must not be made, if there is a version with that tag.
func (c *change) check(tag string, seq int64) error {
	err := c.if_.Check(tag)
	if err == nil && c.of != 0 && c.of != seq {
		err = serve.ErrCondition
	}
	return err
}

// newest returns the newest row that the log has of a name, or nil.
func (b *bucket) newest(name string) *brief {
	for _, l := range b.over.Load().live {
		if r := l.get(name); r != nil {
			return r
		}
	}
	return nil
}

// stop lets nothing be written any more.
func (b *bucket) stop(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil {
		return
	}
	b.why = why
	close(b.shut)
	if !errors.Is(why, serve.ErrNoArchive) && !errors.Is(why, serve.ErrBusy) {
		b.g.o.Logger.Error("nothing is written any more", "bucket", b.name, "error", why)
	}
}

// Put implements [serve.Bucket].
func (b *bucket) Put(ctx context.Context, key string, u *serve.Upload) (done serve.Written, err error) {
	done, err = b.put(ctx, key, u, b.g.now(), 0)
	return done, outward(err)
}

func (b *bucket) put(ctx context.Context, key string, u *serve.Upload, at time.Time, of int64) (done serve.Written, err error) {
	if b.isBusy() {
		return done, serve.ErrBusy
	}
	if u.Size >= b.g.o.large {
		return b.putLarge(ctx, key, u, at, of)
	}
	if u.Size > small {
		soon, cancel := context.WithTimeout(ctx, mostPatience)
		err := b.g.memory.Acquire(soon, u.Size)
		if cancel(); err != nil {
			return done, cmp.Or(context.Cause(ctx), serve.ErrBusy)
		}
		defer b.g.memory.Release(u.Size)
	}
	content := make([]byte, u.Size)
	if _, err := io.ReadFull(u.Body, content); err != nil {
		return done, err
	}
	if err := atEnd(u.Body); err != nil {
		return done, err
	}
	return b.putContent(ctx, key, content, u, at, of)
}

// putContent is put for all of the body.
func (b *bucket) putContent(ctx context.Context, key string, content []byte, u *serve.Upload, at time.Time, of int64) (serve.Written, error) {
	etag, headers := u.End()
	c := &change{Record: journal.Record{LogRow: caf.LogRow{Name: key, Sum: blake3.Sum256(content), Modified: at, ETag: etag, Headers: catalog.HeaderText(headers)}, Content: content}, if_: u.If, of: of}
	return serve.Written{Time: at}, b.write(ctx, c)[0]
}

// atEnd returns an error unless a body is at its end, and is what its client has said.
func atEnd(r io.Reader) error {
	var one [1]byte
	switch n, err := r.Read(one[:]); {
	case n > 0:
		return errors.New("the body is longer than was said")
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// Delete implements [serve.Bucket].
func (b *bucket) Delete(ctx context.Context, all []serve.Deletion) []error {
	changes := make([]*change, len(all))
	for i, d := range all {
		changes[i] = &change{Record: journal.Record{LogRow: caf.LogRow{Name: d.Key, Deleted: true, Modified: b.g.now()}}, if_: d.If}
	}
	return b.write(ctx, changes...)
}

// Change implements [serve.Bucket]. The content is written again: what the log has must be complete in itself.
func (b *bucket) Change(ctx context.Context, key string, change func(headers map[string]string) (map[string]string, error)) error {
	for tries := 0; ; tries++ {
		e, err := b.tree.Lookup(ctx, key)
		l, ok := e.Ref.(catalog.Location)
		if o, is := e.Ref.(*shelf.Original); is {
			l, ok = o.Location(), true
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!ok || !e.Kind.HasContent()) {
			err = serve.ErrNoObject
		}
		if err != nil {
			return err
		}
		headers, err := b.book.HeadersOf(ctx, l)
		if err == nil {
			headers, err = change(headers)
		}
		if err != nil {
			return err
		}
		in, err := b.tree.OpenEntry(ctx, e)
		if errors.Is(err, fs.ErrNotExist) && tries < 3 { // it was deleted, or its archive was replaced, meanwhile
			continue
		}
		if err != nil {
			return err
		}
		end := func() (string, map[string]string) { return cmp.Or(l.ETag, serve.TagOf(l.Digest)), headers }
		_, err = b.put(ctx, key, &serve.Upload{Body: in, Size: e.Size, End: end, If: serve.Condition{Match: tagOf(l.ETag, l.Digest)}}, l.Modified, l.Seq)
		in.Close()
		// A segment that was removed has a commit now.
		gone := errors.Is(err, fs.ErrNotExist) && !errors.Is(err, serve.ErrNoObject) || errors.Is(err, journal.ErrRemoved)
		if !(gone && tries < 3) && !errors.Is(err, serve.ErrCondition) { // otherwise another has changed it
			return err
		}
	}
}

// Versions implements [serve.Bucket]. Rows of the same content, time and ETag are of one version: that of a segment
// and that of its commit, and those before and after a change of headers.
func (b *bucket) Versions(ctx context.Context, prefix, from string) iter.Seq2[serve.Version, error] {
	return func(yield func(serve.Version, error) bool) {
		key, seen := "", map[string]bool{}
		for l, err := range b.book.Versions(ctx, max(prefix, from), catalog.After(prefix)) {
			v := serve.Version{Key: l.Path}
			if err == nil {
				v.Entry, err = b.hall.Entry(ctx, l)
			}
			if err != nil {
				yield(v, err)
				return
			}
			if len(seen) == 0 || l.Path != key {
				clear(seen)
				key, v.Newest = l.Path, !l.Gone
				if l.Gone && !yield(serve.Version{Key: key, Entry: v.Entry, Newest: true, Deleted: true}, nil) {
					return
				}
			}
			sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", l.Modified.UnixMilli(), l.Content()))
			v.ID = base32.StdEncoding.EncodeToString(sum[:15])
			if !seen[v.ID] && !yield(v, nil) {
				return
			}
			seen[v.ID] = true
		}
	}
}

// tagOf is what conditions compare with. What was packed from elsewhere may have no ETag of its own, and no digest.
func tagOf(etag string, d format.Digest) string {
	return cmp.Or(etag, serve.TagOf(d), `"-"`)
}

func blake3Of(sum [32]byte) format.Digest {
	return format.Digest{Algo: "blake3", Sum: string(sum[:])}
}

// outward is an error of a write as clients hear of it.
func outward(err error) error {
	if errors.Is(err, journal.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", serve.ErrFull, err)
	}
	return err // of one that has failed to sync, nobody knows whether it is there
}

// apply adds a row of the log to the layer of its segment.
func (b *bucket) apply(l *layer, r *caf.LogRow) error {
	// The name may be a part of something longer.
	x := &brief{name: strings.Clone(r.Name), seq: seqs + r.Seq, archive: -1}
	if !r.Deleted {
		x.etag, x.headers, x.off, x.size, x.time, x.sum, x.archive = r.ETag, r.Headers, r.Off, r.Size, r.Modified.UnixMilli(), r.Sum, 0
		if r.Elsewhere != "" {
			id, err := b.elsewhere(l, r.Elsewhere)
			if err != nil {
				return err
			}
			x.archive = int32(id.Ordinal)
		}
	}
	l.put(x)
	return nil
}

// seqs is more than the Seq of any commit.
const seqs = rows.MostCommit + 1

// close ends all work, and closes everything.
func (b *bucket) close() (err error) {
	b.stop(serve.ErrBusy)
	b.end()
	b.adopts.stop()
	b.work.Wait()
	if b.tree != nil {
		err = b.tree.Close()
	}
	if b.hall != nil {
		err = errors.Join(err, b.hall.Close())
	}
	for _, l := range b.over.Load().live {
		b.g.rows.Add(-int64(l.len()))
	}
	for _, l := range b.over.Load().every { // they stay: those who still read must not take a file for one that is not there
		l.seg.Release()
	}
	for _, l := range b.over.Load().sunk {
		b.forget(b.ctx, l.dead)
	}
	if b.log != nil {
		err = errors.Join(err, b.log.Close())
	}
	if b.temporary != "" {
		err = errors.Join(err, os.RemoveAll(b.temporary))
	}
	return errors.Join(err, b.book.Close())
}
