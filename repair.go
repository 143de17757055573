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
	"github.com/holdall/holdall/internal/parity"
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
	// Parity says what was found by the archive's parity; nil if it has none. What it heals
	// is no part of the Plan, which is for the rest.
	Parity *ParityReport

	guard   *parity.Guard // that heals something
	healed  bool          // in the archive's place
	changed bool          // the archive was changed on purpose, as far as it shows
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
	at := o.Parity
	o.NoVerify, o.Parity = false, NoParity // what is looked at is the archive
	if o.From != "" {
		return p, p.from(ctx, o)
	}
	done, err := p.byParity(ctx, at, o)
	if !done && err == nil {
		if p.guard != nil {
			st = p.guard.Rest()
		}
		err = p.byFormat(ctx, cache.Far(st, o.CacheBytes), o)
		if p.guard != nil && err != nil && ctx.Err() == nil && !store.Temporary(err) {
			formatkit.Say(&p.Lost, "%v", err)
			err = nil // what is healed is more than nothing
		}
	}
	if err != nil {
		_ = p.Close() // nobody gets it
	}
	return p, err
}

// byParity finds out what the archive's parity heals, and reports whether nothing else is to be
// done.
func (p *RepairPlan) byParity(ctx context.Context, at string, o RepairOptions) (done bool, err error) {
	g, r, err := seekParity(ctx, p.st, p.name, at)
	if p.Parity = r; g == nil || err != nil {
		return false, err
	}
	p.guard = g
	if r.Report, err = g.Check(ctx, true, o.Meter); err != nil {
		return false, err
	}
	lost, err := g.IsBeyond()
	if err != nil {
		return false, err
	}
	if r.Healed > 0 {
		p.KeepsBackup = true // nothing is lost by it
		if !g.Same && !lost {
			if p.changed, err = soundAsIs(ctx, p.st, p.name, o); err != nil {
				return false, err
			}
		}
		if p.changed {
			p.KeepsBackup = false
			p.Notes = append(p.Notes, "the archive was written after its parity, and matches its own digests: it may have been changed on purpose")
		}
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d damaged blocks of %d bytes, from %s", r.Healed, r.Damaged, r.Block, r.At))
	}
	if lost {
		p.Partial = true
		p.Lost = append(p.Lost, fmt.Sprintf("%d damaged blocks of %d bytes: too many for the parity", r.Beyond(), r.Block))
		_, err = r.beyond(ctx, g, p.name, o.OpenOptions)
	}
	if r.Healed == 0 { // it is of no help
		p.guard = nil
		return false, errors.Join(err, g.Close())
	}
	return !lost, err
}

// soundAsIs reports whether an archive proves by itself that all of it is right.
func soundAsIs(ctx context.Context, st store.Store, name string, o RepairOptions) (bool, error) {
	sum, err := VerifyStore(ctx, st, name, VerifyOptions{OpenOptions: o.OpenOptions, Meter: o.Meter}, func(Problem) {})
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && sum.Errors+sum.Warnings+sum.Unproven == 0, nil
}

// byFormat plans what the format knows to mend.
func (p *RepairPlan) byFormat(ctx context.Context, st store.Store, o RepairOptions) error {
	name := p.name
	a, err := OpenStore(ctx, st, name, o.OpenOptions)
	f := formatOf(a, o.OpenOptions, err)
	if a != nil {
		a.Close()
	}
	if f == nil {
		return err
	}
	if f.Repair == nil {
		return fmt.Errorf("%s archives cannot be repaired: %w", f.Name, errors.ErrUnsupported)
	}
	report := o.Report
	if report == nil {
		report = func(Problem) {}
	}
	plan, err := f.Repair(ctx, st, name, o.inner(), report)
	if err != nil {
		return err
	}
	if p.Partial { // by what is beyond the parity
		plan.Notes, plan.Lost, plan.Partial = append(p.Notes, plan.Notes...), append(p.Lost, plan.Lost...), true
		plan.KeepsBackup = plan.KeepsBackup || !plan.Changes()
	}
	if p.Plan = plan; !f.ReadsAll { // else it has counted itself
		err = p.count(ctx, o, st)
	}
	return err
}

// Changes reports whether there is anything to do.
func (p *RepairPlan) Changes() bool { return p.guard != nil || p.Plan.Changes() }

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
	case p.Plan.Changes():
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
	if p.Plan.Changes() || len(wrong) > 0 {
		p.Account = fmt.Sprintf("readable files: %d before, %d after", before, after)
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

// ApplyStore is Apply to a given store. The archive itself may be replaced. Of what parity
// heals, only the damaged blocks are written then, where the store can change objects.
func (p *RepairPlan) ApplyStore(ctx context.Context, st store.Store, name string) error {
	switch inPlace := st == p.st && name == p.name; {
	case p.guard == nil:
	case !inPlace:
		return mend.Apply(ctx, p.guard.Rest(), p.name, p.Plan, st, name)
	default:
		if err := p.heal(ctx); err != nil || !p.Plan.Changes() {
			return err
		}
	}
	return mend.Apply(ctx, p.st, p.name, p.Plan, st, name)
}

// heal writes what parity heals in the archive's place. What the format mends then was planned
// for the archive as it is after that.
func (p *RepairPlan) heal(ctx context.Context) error {
	if p.guard == nil || p.healed {
		return nil
	}
	p.healed = true
	return p.guard.WriteBack(ctx)
}

// Backup copies what the plan changes of the archive beside it, under its name and
// suffix, where nothing may be yet: a backup is never the price of another. A plan
// that keeps a backup itself needs none. What parity heals is written in the archive's place
// before: nothing is lost by that, so that the backup has it. Of an archive that was changed
// on purpose, as far as it shows, all is kept.
func (p *RepairPlan) Backup(ctx context.Context, suffix string) error {
	if p.changed { // what is there may be wanted
		return mend.Backup(ctx, p.st, p.name, suffix, p.Plan)
	}
	if err := p.heal(ctx); err != nil {
		return err
	}
	return mend.Backup(ctx, p.st, p.name, suffix, p.Plan)
}

// Close gives up what was fetched and healed.
func (p *RepairPlan) Close() error {
	var errs []error
	if p.guard != nil {
		errs = append(errs, p.guard.Close())
	}
	if p.fetched != nil {
		errs = append(errs, p.fetched.Close())
	}
	return errors.Join(errs...)
}
