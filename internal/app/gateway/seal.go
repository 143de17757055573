package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// A segment is full when it has mostRows names. When mostUnsealed full segments wait to be sealed, or the segments
	// of all buckets have mostUnsealedRows names, clients are asked to slow down. Shortly before, smaller ones are full.
	mostRows         = 50_000
	mostUnsealed     = 8
	mostUnsealedRows = 150_000
	// linger is for how long what was in the log can be read after a commit has it: some readers have just looked.
	linger = time.Minute
)

// nameStep leaves room in the number of an archive for what makes it different from that of another log.
const nameStep = 1_000_000_000

// reading is how archives that were just written are opened.
func reading() holdall.OpenOptions {
	return holdall.OpenOptions{Formats: []*format.Format{caf.Format}, Parity: parity.None}
}

// isFull reports whether the newest segment is.
func (b *bucket) isFull() bool {
	l, most := b.over.Load().live[0], mostRows
	if b.g.rows.Load() >= mostUnsealedRows*3/4 {
		most /= 8
	}
	return l.seg.Size() >= b.g.o.SegmentSize || l.len() >= most
}

// roll ends the newest segment, and has it sealed. Only the goroutine that commits calls it.
func (b *bucket) roll() error {
	seg, err := b.log.Roll()
	if seg == nil {
		return err
	}
	b.change(func(live []*layer, gone []sunk) ([]*layer, []sunk) {
		live[0].rolled = true // the newest one has rows
		return live, gone
	})
	b.wake()
	return err
}

// wake has full segments looked for.
func (b *bucket) wake() {
	select {
	case b.full <- struct{}{}:
	default:
	}
}

// tick has segments sealed that are not full, every now and then.
func (b *bucket) tick(ctx context.Context) {
	for b.g.o.wait(ctx, b.g.o.SealAfter) {
		_ = b.rollNow(ctx) // it stops the bucket
		b.wake()
	}
}

// rollNow is roll for other goroutines.
func (b *bucket) rollNow(ctx context.Context) error {
	return b.between(ctx, func() error {
		err := b.roll()
		if err != nil && !errors.Is(err, journal.ErrFull) {
			b.stop(err)
		}
		return err
	})
}

// flush makes commits of everything that is in the log.
func (b *bucket) flush(ctx context.Context) error {
	err := b.rollNow(ctx)
	for err == nil && b.oldest() != nil {
		if !b.g.o.wait(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
		if isClosed(b.shut) {
			err = b.stopped()
		}
	}
	return err
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// seal makes commits of full segments, one after the other, until ctx ends.
func (b *bucket) seal(ctx context.Context) {
	for tries := 0; ctx.Err() == nil; {
		for b.bury(ctx) {
		}
		l := b.oldest()
		if l == nil {
			select {
			case <-b.full:
			case <-ctx.Done():
			}
			continue
		}
		err := b.sealOne(ctx, l, nil)
		if err == nil {
			tries = 0
			b.sink(l)
			continue
		}
		if _, is := errors.AsType[*ClaimError](err); is || errors.Is(err, journal.ErrStopped) {
			b.stop(err)
			return
		}
		if tries++; ctx.Err() == nil {
			b.g.o.Logger.Warn("cannot be sealed now", "bucket", b.name, "segment", l.seg.Log().Number, "tries", tries, "error", err)
			b.g.o.wait(ctx, min(time.Duration(tries*tries)*100*time.Millisecond, 30*time.Second))
		}
	}
}

// oldest returns the oldest layer, if it was rolled.
func (b *bucket) oldest() *layer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if live := b.over.Load().live; len(live) > 0 && live[len(live)-1].rolled {
		return live[len(live)-1]
	}
	return nil
}

// sink takes the last layer away: a commit has its rows.
func (b *bucket) sink(l *layer) {
	_, _, dead := l.uses()
	last := sunk{&layer{seg: l.seg, archives: l.archives}, dead, b.g.now().Add(linger)}
	b.gone.Add(1)
	b.g.rows.Add(-int64(l.len()))
	b.change(func(live []*layer, gone []sunk) ([]*layer, []sunk) {
		return slices.DeleteFunc(slices.Clone(live), func(x *layer) bool { return x == l }), append(slices.Clone(gone), last)
	})
}

// bury forgets a layer that has sunk long ago, if there is one.
func (b *bucket) bury(ctx context.Context) bool {
	if over := b.over.Load(); len(over.sunk) == 0 || !b.g.now().After(over.sunk[0].until) {
		return false
	}
	var old sunk
	b.change(func(live []*layer, gone []sunk) ([]*layer, []sunk) {
		old = gone[0]
		return live, gone[1:]
	})
	old.seg.Release()
	b.forget(ctx, old.dead)
	return true
}

// forget removes archives of objects that were replaced before their segment ended. No commit has them, and only the
// rows of that segment had.
func (b *bucket) forget(ctx context.Context, dead []string) {
	for _, name := range dead {
		b.discardArchive(ctx, name)
	}
}

// state returns the newest state.
func (b *bucket) state(ctx context.Context) (*book.State, error) {
	return b.book.Commit(ctx, func(*book.State) (*book.Commit, error) { return nil, nil })
}

// sealOne makes an archive of a segment, and records everything that it says in one commit, if the state allows that.
func (b *bucket) sealOne(ctx context.Context, l *layer, may func(*book.State) error) error {
	log := l.seg.Log()
	s, err := b.state(ctx)
	if err != nil {
		return err
	}
	own, names, _ := l.uses()
	name := b.archiveOf(log)
	if own {
		names = append(names, name)
	}
	step := book.Step{Rows: l.deletions, If: func(s *book.State) error {
		err := b.owns(s)
		if err == nil && b.done(s, log) { // the program was killed, or the answer to an earlier try was lost
			err = book.ErrDone
		}
		if err == nil && slices.ContainsFunc(names, s.ToBeRemoved) {
			err = errGivenUp
		}
		if err == nil && may != nil {
			err = may(s)
		}
		return err
	}}
	switch err := step.If(s); {
	case errors.Is(err, book.ErrDone):
		return l.seg.Remove()
	case err != nil:
		return err
	}
	if !b.g.o.InBucket {
		now := *s.Claim
		now.Segment, step.Claim = log.Number, &now
	}
	if own {
		// What an earlier try has left may be replaced, and nothing else.
		if _, err := b.book.Archive(ctx, storekit.AddressOf(b.book.Store(), b.in(name))); !errors.Is(err, fs.ErrNotExist) {
			return cmp.Or(err, fmt.Errorf("%s: the catalogue has another archive of this name: %w", format.Escape(name), fs.ErrExist))
		}
		if err := b.place(ctx, l, b.in(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		x, err := survey.Open(ctx, b.book.Store(), b.in(name), catalog.Archive{}, reading())
		if err != nil {
			return err
		}
		defer x.In.Close()
		if err := b.packing.Protect(ctx, name, &x); err != nil {
			return err
		}
		x.Roots = b.packing.Roots
		step.Add = append(step.Add, catalog.Addition{Archive: x.Archive, Rows: x.Rows(ctx, nil)})
	}
	_, err = b.book.Do(ctx, step)
	_, refused := errors.AsType[refusal](err)
	if refused = refused || b.g.o.InBucket && errors.Is(err, errGivenUp); refused && own {
		b.discardArchive(ctx, name)
	}
	if err != nil && !errors.Is(err, book.ErrDone) {
		return err
	}
	return l.seg.Remove()
}

// errGivenUp reports that so much time has passed since an archive was written that it is to be removed.
var errGivenUp = fmt.Errorf("%w: the archive was given up meanwhile", serve.ErrBusy)

// archiveOf returns the name of the archive that a segment becomes.
func (b *bucket) archiveOf(log caf.Log) string {
	return b.packing.Name(log.Number*nameStep + int64(binary.LittleEndian.Uint32(log.ID[:]))%nameStep)
}

// discardArchive removes an archive that no commit has or will have, also when work ends. Without it, nobody would find
// its parity.
func (b *bucket) discardArchive(ctx context.Context, name string) {
	ctx = context.WithoutCancel(ctx)
	for _, name := range []string{name + parity.Suffix, name} {
		if err := storekit.Remove(ctx, b.book.Store(), b.in(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.g.o.Logger.Warn("cannot be removed", "archive", name, "error", err)
		}
	}
}

// place makes a segment an archive in the store. The file itself becomes one, if it can, and if all that it has is of
// objects that are there. Otherwise these are copied: what was replaced or deleted, and its name, then goes with the
// segment.
func (b *bucket) place(ctx context.Context, l *layer, name string) error {
	st := b.book.Store()
	if at := storekit.AddressOf(st, name); l.pure() && st.Can().Near && store.Scheme(at) == "" && !b.g.o.InBucket {
		if _, err := l.seg.Seal(ctx); err != nil {
			return err
		}
		if err := link(l.seg.Path(), filepath.FromSlash(at)); err == nil {
			return nil
		}
	}
	w, err := caf.Format.Create(ctx, st, name, format.CreateOptions{Scratch: sorter.TempFile})
	if err != nil {
		return err
	}
	defer w.Abort()
	var all []*brief
	for r := range l.all() {
		if r.archive == 0 {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *brief) int { return cmp.Compare(a.seq, b.seq) })
	for i := range all {
		r := l.row(all[i])
		x := catalog.Location{ETag: r.ETag, HeaderText: r.Headers}
		headers, err := b.book.HeadersOf(ctx, x)
		if err != nil {
			return err
		}
		e := format.Entry{Name: r.Name, Kind: r.Kind, Size: r.Size, ModTime: r.Time, Digest: r.Digest, Attr: x.Attributes(headers)}
		if err := w.Add(ctx, e, kit.NewSection(ctx, logged{l.seg}, r.Off, r.Size)); err != nil {
			return err
		}
	}
	_, err = w.Commit(ctx)
	return err
}

// link gives a file a second name, durably.
func link(file, name string) error {
	err := os.Link(file, name)
	if errors.Is(err, fs.ErrExist) { // the program was killed after it had done so
		a, aerr := os.Stat(file)
		b, berr := os.Stat(name)
		if aerr == nil && berr == nil && os.SameFile(a, b) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return sysfile.SyncFolder(filepath.Dir(name))
}

// deletions are the rows of objects that were deleted.
func (l *layer) deletions(yield func(*rows.Row, error) bool) {
	for x := range l.all() {
		if x.archive < 0 && !yield(&rows.Row{Name: x.name, What: rows.Delete}, nil) {
			return
		}
	}
}
