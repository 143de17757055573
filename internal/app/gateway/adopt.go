package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A bucket may have a source: another bucket, whose objects are shown as long as nothing is here of their names, neither
// an object nor a deletion. The catalogue names it, so all gateways show the same, and deletions stay as long as it does.

// None as Options.Through ends the source of a bucket.
const None = "none"

// A SourceError reports that a bucket has another source than was asked for.
type SourceError struct{ Bucket, Source, Asked string }

func (e *SourceError) Error() string {
	return fmt.Sprintf("%s: its source is %s, and not %s: end that with '--through none' before another is named", format.Escape(e.Bucket), format.Escape(store.Redact(e.Source)), format.Escape(store.Redact(e.Asked)))
}

// reaches returns an error if a source is about to be named that cannot be listed.
func (b *bucket) reaches(ctx context.Context) error {
	if b.g.o.Through == "" || b.g.o.Through == None || b.book.Source() != "" {
		return nil
	}
	st, err := b.g.o.Source(ctx, b.g.o.Through)
	if err != nil {
		return err
	}
	for _, err := range storekit.List(ctx, st, "") {
		return err
	}
	return nil
}

// through adds to a commit what it says of the source.
func (b *bucket) through(s *book.State, c *book.Commit) error {
	switch is, asked := string(s.Source), b.g.o.Through; {
	case asked == "", asked == is, asked == None && is == "":
	case asked == None:
		c.Through("")
	case is == "":
		c.Through(asked)
	default:
		return &SourceError{b.name, is, asked}
	}
	return nil
}

const (
	adopters     = 16 // that write at once
	mostAdopted  = 1024
	mostAdoptedL = 64 // large ones, which are read again
)

// An adopter makes objects of the source that were read objects of the bucket. Nobody waits for it. What it has no room
// for is adopted when it is read again.
type adopter struct {
	b       *bucket
	queue   chan shelf.Original
	large   chan shelf.Original // without their contents
	named   sync.Map            // those in the queues
	failing atomic.Bool

	work sync.WaitGroup
	ctx  context.Context
	end  context.CancelFunc
}

func newAdopter(b *bucket) *adopter {
	a := &adopter{b: b, queue: make(chan shelf.Original, mostAdopted), large: make(chan shelf.Original, mostAdoptedL)}
	a.ctx, a.end = context.WithCancel(b.ctx)
	for range adopters {
		a.work.Go(func() { a.each(a.queue) })
	}
	a.work.Go(func() { a.each(a.large) })
	return a
}

// stop ends the work of an adopter, if there is one. Nothing is adopted any more.
func (a *adopter) stop() {
	if a != nil {
		a.end()
		a.work.Wait()
	}
}

// read queues an object that was read. An object without an ETag stays at its source: nothing would tell its versions
// apart.
func (a *adopter) read(o shelf.Original) {
	if a.ctx.Err() != nil || o.Location().ETag == "" {
		return
	}
	if _, is := a.named.LoadOrStore(o.Name, true); is {
		return
	}
	queue := a.queue
	if o.Info.Size > int64(len(o.Content)) {
		o.Content, queue = nil, a.large
	}
	n := int64(len(o.Content))
	if a.b.g.memory.TryAcquire(n) {
		select {
		case queue <- o:
			return
		default:
			a.b.g.memory.Release(n)
		}
	}
	a.named.Delete(o.Name)
}

func (a *adopter) each(queue chan shelf.Original) {
	for {
		select {
		case o := <-queue:
			err := a.adopt(a.ctx, o)
			a.b.g.memory.Release(int64(len(o.Content)))
			a.named.Delete(o.Name)
			switch {
			case err == nil:
				a.failing.Store(false)
			case a.ctx.Err() != nil || errors.Is(err, serve.ErrCondition) || errors.Is(err, serve.ErrBusy) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrChanged):
			case !a.failing.Swap(true): // the next ones mostly fail for the same reason
				a.b.g.o.Logger.Warn("cannot be adopted now", "bucket", a.b.name, "key", format.Escape(o.Name), "error", err)
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// adopt puts an object if the source still has its version, and nothing is here.
func (a *adopter) adopt(ctx context.Context, o shelf.Original) (err error) {
	l := o.Location()
	u := &serve.Upload{Size: l.Size, If: serve.Condition{Match: l.ETag}, End: func() (string, map[string]string) { return l.ETag, o.Headers }}
	if o.Content != nil && l.Size < a.b.g.o.large {
		_, err = a.b.putContent(ctx, o.Name, o.Content, u, l.Modified, l.Seq)
		return err
	}
	in, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	u.Body = kit.NewSection(ctx, in, 0, l.Size)
	if o.Content != nil {
		u.Body = bytes.NewReader(o.Content)
	}
	_, err = a.b.put(ctx, o.Name, u, l.Modified, l.Seq)
	return err
}
