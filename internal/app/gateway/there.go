package gateway

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/serve"
)

// With Options.InBucket, a batch is an archive and a commit in the store before it is answered. Nothing of it is on
// this machine then, so any number of gateways may write: the chain of commits is the order of all changes. The log is
// a temporary one, each segment of which has one batch.

// sharedClaim is the claim of all gateways that write so.
const sharedClaim = "shared"

// A refusal says which changes of a batch do not meet their conditions: errLate if that is due to an earlier one of
// the batch, and so is known only when that one is committed.
type refusal map[*change]error

var errLate = errors.New("look again later")

func (refusal) Error() string { return "conditions are not met" }

// commitThere makes a batch a commit.
func (b *bucket) commitThere(batch []*change) {
	var late []*change
	for len(batch) > 0 {
		err := b.tryThere(b.ctx, batch)
		if errors.Is(err, book.ErrConflict) {
			continue
		}
		refused, is := errors.AsType[refusal](err)
		var rest []*change
		for _, c := range batch {
			switch {
			case !is:
				c.unknown = err != nil && !errors.Is(err, errGivenUp)
				c.done <- outward(err)
			case refused[c] == errLate:
				late = append(late, c)
			case refused[c] != nil:
				c.done <- refused[c]
			default:
				rest = append(rest, c)
			}
		}
		if _, fenced := errors.AsType[*ClaimError](err); fenced || errors.Is(err, journal.ErrStopped) {
			b.stop(err)
		}
		if batch = rest; len(rest) == 0 {
			batch, late = late, nil
		}
	}
}

func (b *bucket) tryThere(ctx context.Context, batch []*change) error {
	records := make([]*journal.Record, len(batch))
	for i, c := range batch {
		c.Segment, records[i] = nil, &c.Record
	}
	if err := b.log.Append(records); err != nil {
		return err
	}
	l := newLayer(records[0].Segment, new(atomic.Int64))
	defer l.seg.Release()
	_, err := b.log.Roll()
	for i := 0; i < len(records) && err == nil; i++ {
		err = b.apply(l, &records[i].LogRow)
	}
	if err == nil {
		err = b.sealOne(ctx, l, func(s *book.State) error { return b.meets(ctx, s, batch) })
	}
	if err != nil {
		return errors.Join(err, l.seg.Remove())
	}
	_, _, dead := l.uses()
	b.forget(ctx, dead)
	return nil
}

// meets returns the changes of a batch that do not meet their conditions after a state, and what is before them in the
// batch.
func (b *bucket) meets(ctx context.Context, s *book.State, batch []*change) error {
	refused, now := refusal{}, map[string]*change{}
	for _, c := range batch {
		var err error
		if c.if_ != (serve.Condition{}) {
			tag, seq := "", int64(0)
			if before := now[c.Name]; before != nil {
				tag = before.tag()
			} else if f, err := b.book.NewestAt(ctx, s, c.Name); err == nil {
				tag, seq = tagOf(f.ETag, f.Digest), f.Seq
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			} else if c.base != nil && c.base.Seq < 0 && s.Source != "" && !errors.Is(err, catalog.ErrDeleted) {
				tag, seq = tagOf(c.base.ETag, c.base.Digest), c.base.Seq
			}
			if err = c.check(tag, seq); err != nil && now[c.Name] != nil {
				err = errLate
			}
		}
		if err != nil {
			refused[c] = err
		} else {
			now[c.Name] = c
		}
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}
