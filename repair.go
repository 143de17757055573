package holdall

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/internal/mend"
	"github.com/holdall/holdall/store"
)

// RepairOptions are wishes for a repair.
type RepairOptions struct {
	OpenOptions
	// From is the address of another copy of the archive, from which damaged pieces are
	// fetched. An index with digests, to which Index leads, tells what is damaged and
	// proves what is fetched; it must be of an archive of the same length, no more.
	// Without it, what is wrong is mended from the archive itself.
	From string `json:"from,omitempty"`
	// FromStore, if it is not nil, has the other copy: From is its name there.
	FromStore store.Store `json:"-"`
	// Report hears of what is wrong, without From.
	Report func(Problem) `json:"-"`
	// Meter counts.
	Meter *Meter `json:"-"`
}

// A RepairPlan says what would mend an archive. One without changes says that nothing
// needs mending. It holds on to what was fetched until it is closed.
type RepairPlan struct {
	format.Plan
	// With RepairOptions.From: how many pieces of contents were damaged, how many of
	// them the other copy mends, and how many bytes were fetched for that.
	Damaged, Healed, Fetched int64

	st      store.Store
	name    string
	fetched io.Closer
}

// Repair finds out what is wrong with the archive at an address and what would mend it. It
// changes nothing; [RepairPlan.Apply] does.
func Repair(ctx context.Context, address string, o RepairOptions) (*RepairPlan, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	return RepairStore(ctx, st, name, o)
}

// RepairStore is Repair of the archive called name in st.
func RepairStore(ctx context.Context, st store.Store, name string, o RepairOptions) (*RepairPlan, error) {
	p := &RepairPlan{st: st, name: name}
	if o.From != "" {
		return p, p.from(ctx, o)
	}
	st = cache.Far(st, o.CacheBytes)
	o.NoVerify = false
	a, err := OpenStore(ctx, st, name, o.OpenOptions)
	f := formatOf(a, o.OpenOptions, err)
	if a != nil {
		a.Close()
	}
	if f == nil {
		return nil, err
	}
	if f.Repair == nil {
		return nil, fmt.Errorf("%s archives cannot be repaired: %w", f.Name, errors.ErrUnsupported)
	}
	report := o.Report
	if report == nil {
		report = func(Problem) {}
	}
	if p.Plan, err = f.Repair(ctx, st, name, o.inner(), report); err == nil && !f.ReadsAll { // else it has counted itself
		err = p.count(ctx, o, st)
	}
	return p, err
}

// count finds out how many files can be read before and after, and has what is still wrong
// then among what is lost.
func (p *RepairPlan) count(ctx context.Context, o RepairOptions, st store.Store) error {
	var wrong []string
	files := func(st store.Store) (int64, error) {
		wrong = nil
		sum, err := VerifyStore(ctx, st, p.name, VerifyOptions{OpenOptions: o.OpenOptions, Meter: o.Meter}, func(problem Problem) {
			if problem.Severity == format.Error {
				formatkit.Say(&wrong, "%s", problemText(problem))
			}
		})
		if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
			err = nil // it cannot be opened
		}
		return sum.Proven.Digest + sum.Proven.Checksum + sum.Proven.Decoding + sum.Unproven, err
	}
	before, err := files(st)
	if err != nil {
		return err
	}
	after := before
	switch {
	case p.Build != nil:
		after, wrong = p.Readable[format.FilesAfter], nil // it says itself what is lost
	case p.Changes():
		planned, err := mend.NewPlanned(ctx, st, p.name, p.Plan)
		if err != nil {
			return err
		}
		defer planned.Close()
		o.Param = nil // they are of what was wrong
		if after, err = files(planned); err != nil {
			return err
		}
	}
	if p.Changes() || len(wrong) > 0 {
		p.Account = fmt.Sprintf("files that can be read: before %d; after %d", before, after)
	}
	p.Lost, p.Partial = append(p.Lost, wrong...), p.Partial || len(wrong) > 0
	p.Readable = map[string]int64{format.FilesBefore: before, format.FilesAfter: after}
	return nil
}

func problemText(p Problem) string {
	if p.HasEntry {
		return format.Escape(p.Entry) + ": " + p.Message
	}
	return p.Message
}

// from plans by another copy.
func (p *RepairPlan) from(ctx context.Context, o RepairOptions) error {
	mirror, mirrorName := o.FromStore, o.From
	if mirror == nil {
		var err error
		if mirror, mirrorName, err = store.OpenAddress(ctx, o.From); err != nil {
			return err
		}
	}
	o.Index.sizeOnly = true
	a, err := OpenStore(ctx, p.st, p.name, o.OpenOptions)
	if err != nil {
		return err
	}
	defer a.Close()
	if a.src.Proof() == nil {
		return errors.Join(mend.ErrNoProof, a.index.Why)
	}
	var sum mend.Healed
	p.Plan, sum, p.fetched, err = mend.From(ctx, a.src, mirror, mirrorName, o.Meter)
	p.Damaged, p.Healed, p.Fetched = sum.Damaged, sum.Healed, sum.Fetched
	return err
}

// Apply writes what the plan makes of the archive to an address. It appears whole or not
// at all.
func (p *RepairPlan) Apply(ctx context.Context, address string) error {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return err
	}
	return p.ApplyStore(ctx, st, name)
}

// ApplyStore is Apply to a given store. The archive itself may be replaced.
func (p *RepairPlan) ApplyStore(ctx context.Context, st store.Store, name string) error {
	return mend.Apply(ctx, p.st, p.name, p.Plan, st, name)
}

// Backup copies what the plan changes of the archive beside it, under its name and
// suffix, where nothing may be yet: a backup is never the price of another. A plan
// that keeps a backup itself needs none.
func (p *RepairPlan) Backup(ctx context.Context, suffix string) error {
	return mend.Backup(ctx, p.st, p.name, suffix, p.Plan)
}

// Close gives up what was fetched.
func (p *RepairPlan) Close() error {
	if p.fetched == nil {
		return nil
	}
	return p.fetched.Close()
}
