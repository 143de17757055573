package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/gateway/journal"
	"github.com/holdall/holdall/internal/app/gateway/journal/disk"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/store"
)

// One gateway owns a catalogue: it has changes in its log that no commit has. A claim in the catalogue says which.
// Its ID is in the folder of the log, too, and in each segment. Whoever has the log owns the catalogue. Each commit of
// a segment requires that the claim is still the same.

// A ClaimError reports that a catalogue is claimed by another gateway.
type ClaimError struct {
	Bucket       string
	Address, Log string
}

func (e *ClaimError) Error() string {
	if e.Log == "" {
		return fmt.Sprintf("%s: gateways without a log of their own write here: end them, and take the catalogue over", format.Escape(e.Bucket))
	}
	at := ""
	if e.Address != "" {
		at = " at " + format.Escape(e.Address)
	}
	return fmt.Sprintf("%s: another gateway%s has its newest changes in %s: start it there, or take the catalogue over without them", format.Escape(e.Bucket), at, format.Escape(e.Log))
}

// A StaleError reports that a log has changes which were given up: another gateway has taken the catalogue over since.
type StaleError struct{ Bucket, Log string }

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s: another gateway has taken it over, and the changes in %s are older: move that folder away to start without them", format.Escape(e.Bucket), format.Escape(e.Log))
}

// An owner says which claim of which catalogue a log belongs to.
type owner struct {
	Catalog string `json:"catalog"`
	Claim   string `json:"claim"`
}

const ownerName = "owner"

// owner returns the owner of the log, which is new if the log is. It is written before the catalogue has the claim.
func (b *bucket) owner(ctx context.Context, st store.Store) (is owner, text string, err error) {
	err = getJSON(ctx, st, ownerName, &is)
	if errors.Is(err, fs.ErrNotExist) {
		err = putJSON(ctx, st, ownerName, owner{b.book.ID(), b.g.o.text()}, store.Wishes{Once: true})
		if err == nil || errors.Is(err, fs.ErrExist) { // another process may have been first
			err = getJSON(ctx, st, ownerName, &is)
		}
	}
	if err == nil && is.Catalog != b.book.ID() {
		err = fmt.Errorf("%s: this log is of another catalogue than %s", format.Escape(b.g.folder(b.name)), format.Escape(b.book.Name()))
	}
	if err != nil {
		return is, "", err
	}
	line, err := json.Marshal(is)
	return is, string(line), err
}

// recover opens the log, claims the catalogue, and makes layers of what the log has.
func (b *bucket) recover(ctx context.Context) error {
	dir := b.g.folder(b.name)
	if b.g.o.InBucket {
		var err error
		if dir, err = os.MkdirTemp("", "holdall-gateway-"); err != nil {
			return err
		}
		b.temporary = dir
	}
	d, st, err := b.g.o.folder(dir)
	if err != nil {
		return err
	}
	claim, o := book.NewClaim(sharedClaim, "", ""), journal.Options{Disk: disk.Volatile{Disk: d}, Room: 1}
	if !b.g.o.InBucket {
		is, text, err := b.owner(ctx, st)
		if err != nil {
			return err
		}
		s, err := b.book.State(ctx)
		if err != nil {
			return err
		}
		claim = book.NewClaim(is.Claim, b.g.o.Address, dir)
		o = journal.Options{Disk: d, Room: b.g.o.room, Text: text, Used: func(log caf.Log) bool { return b.done(s, log) }}
	}
	b.claim = claim.ID
	log, all, err := journal.Open(ctx, dir, o)
	if err != nil {
		return err
	}
	b.log = log
	for _, seg := range all {
		if seg.Log().Text != o.Text {
			return fmt.Errorf("%s: this segment is of another log", format.Escape(seg.Path()))
		}
	}
	if b.packing, err = b.g.o.Packing(ctx, b.name); err != nil {
		return err
	}
	if err := b.reaches(ctx); err != nil {
		return err
	}
	plan := b.packing.Plan
	_, err = b.book.Commit(ctx, func(s *book.State) (*book.Commit, error) {
		c := &book.Commit{}
		switch k := s.Claim; {
		case k == nil || k.ID != b.claim && b.g.o.TakeOver:
			if c.Claim = claim; len(all) > 0 {
				return nil, &StaleError{Bucket: b.name, Log: dir}
			}
		case k.ID != b.claim:
			return nil, b.owns(s)
		case k.Address != claim.Address || k.Log != claim.Log:
			claim.Segment = k.Segment
			c.Claim = claim
		}
		if !slices.ContainsFunc(s.Plans, func(p book.Plan) bool { return p.Name == plan.Name && string(p.Spec) == string(plan.Spec) }) {
			c.Plans = []book.Plan{plan}
		}
		if err := b.through(s, c); err != nil {
			return nil, err
		}
		if c.Claim == nil && c.Plans == nil && c.Source == nil {
			return nil, nil
		}
		return c, nil
	})
	if err != nil {
		return err
	}
	var live []*layer
	for _, seg := range slices.Backward(all) {
		l := newLayer(seg, &b.g.rows)
		l.rolled = true
		for r, err := range seg.Rows(ctx) {
			if err == nil {
				err = b.apply(l, r)
			}
			if err != nil {
				return err
			}
		}
		live = append(live, l)
	}
	b.over.Store(newLayers(live, nil))
	return nil
}

// done reports whether a commit has a segment of the log. They become commits in their order.
func (b *bucket) done(s *book.State, log caf.Log) bool {
	return s.Claim != nil && s.Claim.ID == b.claim && log.Number <= s.Claim.Segment
}

// owns returns an error unless a state says that this gateway owns the catalogue.
func (b *bucket) owns(s *book.State) error {
	if s.Claim != nil && s.Claim.ID == b.claim {
		return nil
	}
	e := &ClaimError{Bucket: b.name}
	if s.Claim != nil {
		e.Address, e.Log = s.Claim.Address, string(s.Claim.Log)
	}
	return e
}

// leave ends the claim, if everything that the log has is in commits. Nothing is written then any more.
func (b *bucket) leave(ctx context.Context) error {
	if b.g.o.InBucket {
		return nil
	}
	ends := false
	err := b.between(ctx, func() error {
		if ends = len(b.over.Load().live) == 0; ends {
			b.stop(serve.ErrBusy)
		}
		return nil
	})
	if err != nil || !ends {
		return err
	}
	_, err = b.book.Commit(ctx, func(s *book.State) (*book.Commit, error) {
		if s.Claim == nil || s.Claim.ID != b.claim {
			return nil, nil
		}
		return &book.Commit{Claim: &book.Claim{}}, nil
	})
	return err
}
