package holdall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// RepairOptions are the options of [Repair].
type RepairOptions struct {
	OpenOptions
	// From is the address of another copy of the archive from which damaged pieces are fetched.
	// This requires an index with digests of pieces, which Index leads to. The digests show which
	// pieces are damaged, and prove the fetched pieces. The index is accepted if its archive has
	// the same size. If From is empty, the archive is repaired from what it contains and from its
	// parity.
	From string `json:"from,omitempty"`
	// FromStore, if not nil, is the store of the other copy, and From its name there.
	FromStore store.Store `json:"-"`
	// Image means that the archive, whose format OpenOptions.Format names, is only a part of the
	// object, as in the image of a disk. ApplyStore then writes a new archive of its entries. Not
	// with From.
	Image bool `json:"image,omitempty"`
	// Pieces are the addresses of further objects, with Image: the archive is in the object and
	// these, one behind the other.
	Pieces []string `json:"pieces,omitempty"`
	// Force lets ApplyStore replace an object that is not an archive of the same format. Without
	// it, the error wraps [fs.ErrExist].
	Force bool `json:"force,omitempty"`
	// Report, if not nil, is called for each problem in the archive. It is not used with From.
	Report func(Problem) `json:"-"`
	// Meter, if not nil, counts progress.
	Meter *Meter `json:"-"`
}

// A RepairPlan describes how to repair an archive. If Changes returns false, there is nothing to
// repair. The caller must close the plan, which holds fetched data until then.
type RepairPlan struct {
	format.Plan
	// With RepairOptions.From, Damaged is the number of damaged pieces of contents, Healed the
	// number of those that the other copy repairs, and Fetched the number of bytes that were
	// fetched.
	Damaged, Healed, Fetched int64
	// Parity is the result of a check against the archive's parity. It is nil if there is none.
	// Plan does not include the changes that come from parity, only the remaining ones.
	Parity *ParityReport

	guard   *parity.Guard // set if it repairs anything
	healed  bool          // parity's repairs have been written to the archive
	backsUp bool          // the archive as it is may have what parity does not restore
	st      store.Store
	name    string
	fetched []io.Closer
	asked   OpenOptions
	format  string // if the format has planned anything
	force   bool
	image   bool
}

// Repair checks the archive at an address and plans how to repair it. It does not change the
// archive; see [RepairPlan.Apply]. If there is no way to repair archives of the format, the error
// wraps [errors.ErrUnsupported].
func Repair(ctx context.Context, address string, o RepairOptions) (*RepairPlan, error) {
	st, name, err := at(ctx, o.Store, address)
	if err == nil {
		err = o.untrusting(address)
	}
	if err != nil {
		return nil, err
	}
	p := &RepairPlan{st: st, name: name, asked: o.OpenOptions, force: o.Force}
	at := o.Parity
	o.NoVerify, o.Parity = false, parity.None // the archive itself is checked
	switch {
	case o.Image && (o.From != "" || o.Format == ""):
		return p, fmt.Errorf("to repair from an image, set its format and no other copy: %w", errors.ErrUnsupported)
	case o.Image:
		if err := p.byImage(ctx, o); err != nil {
			_ = p.Close()
			return nil, err
		}
		return p, nil
	case o.From != "":
		return p, p.from(ctx, o)
	}
	done, err := p.byParity(ctx, at, o)
	if !done && err == nil {
		if p.guard != nil {
			st = storekit.Over(st, p.guard.Rest())
		}
		err = p.byFormat(ctx, cache.Shared(st, o.CacheBytes), o)
		if p.guard != nil && err != nil && ctx.Err() == nil && !storekit.Temporary(err) {
			kit.Say(&p.Lost, "%v", err)
			err = nil // parity repairs a part
		}
	}
	if err != nil {
		_ = p.Close() // the caller does not get p
	}
	return p, err
}

// byParity finds out what parity repairs, and reports whether nothing remains to be repaired.
func (p *RepairPlan) byParity(ctx context.Context, at string, o RepairOptions) (done bool, err error) {
	g, r, err := seekParity(ctx, p.st, p.name, at, o.OpenOptions)
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
		changed := false
		if !g.Same && !lost {
			if changed, err = soundAsIs(ctx, p.st, p.name, o); err != nil {
				return false, err
			}
		}
		p.backsUp = g.Moved()
		if changed {
			p.backsUp = true
			p.Notes = append(p.Notes, "the archive was written after its parity, and matches its own digests: it may have been changed on purpose")
		}
		p.KeepsBackup = !p.backsUp // otherwise parity's repairs lose nothing
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d damaged blocks of %d bytes, from %s", r.Healed, r.Damaged, r.Block, r.At))
	}
	if lost {
		p.Partial = true
		p.Lost = append(p.Lost, fmt.Sprintf("%d damaged blocks of %d bytes: too many for the parity", r.Beyond(), r.Block))
		_, err = r.beyond(ctx, p.st, g, p.name, o.OpenOptions)
	}
	if r.Healed == 0 { // it repairs nothing
		p.guard = nil
		return false, errors.Join(err, g.Close())
	}
	return !lost, err
}

// soundAsIs reports whether all of the archive is proven correct without parity.
func soundAsIs(ctx context.Context, st store.Store, name string, o RepairOptions) (bool, error) {
	sum, err := verify(ctx, st, name, VerifyOptions{OpenOptions: o.OpenOptions, Meter: o.Meter}, func(Problem) {})
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && sum.Errors+sum.Warnings+sum.Unproven == 0, nil
}

// byImage plans to repair the archive that is in an object and further pieces.
func (p *RepairPlan) byImage(ctx context.Context, o RepairOptions) error {
	p.image = true
	joined, err := repairs.Join(ctx, p.st, p.name, o.Pieces)
	if err != nil {
		return err
	}
	p.fetched = append(p.fetched, joined)
	p.st = joined
	return p.byFormat(ctx, joined, o)
}

// take writes the entries of the archive that is in an image.
func (p *RepairPlan) take(ctx context.Context, st store.Store, name string) error {
	planned, err := repairs.NewPlanned(ctx, p.st, p.name, p.Plan)
	if err != nil {
		return err
	}
	defer planned.Close()
	a, err := open(ctx, planned, p.name, OpenOptions{Format: p.asked.Format, Formats: p.asked.Formats, Limits: p.asked.Limits, Password: p.asked.Password, Parity: parity.None})
	if err != nil {
		return err
	}
	defer a.Close()
	sum, err := Convert(ctx, a, name, PackOptions{Store: st, Format: p.asked.Format, Formats: p.asked.Formats, Force: p.force, KeepDamaged: true, OnError: func(string, error) {}})
	for _, left := range sum.LeftOut {
		kit.Say(&p.Lost, "left out: %s", problemText(left))
		p.Partial = true
	}
	return err
}

// byFormat adds the repairs that the format plans.
func (p *RepairPlan) byFormat(ctx context.Context, st store.Store, o RepairOptions) error {
	name := p.name
	a, err := open(ctx, st, name, o.OpenOptions)
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
	if c, corrupt := errors.AsType[*format.CorruptError](err); corrupt && c.Code != format.Limit && c.Code != format.Unsupported && len(f.Marks) > 0 {
		plan, err = p.carve(ctx, st, f, o, err)
	}
	if err != nil {
		return err
	}
	if p.Partial { // because of damage that parity cannot repair
		plan.Notes, plan.Lost, plan.Partial = append(p.Notes, plan.Notes...), append(p.Lost, plan.Lost...), true
		plan.KeepsBackup = !p.backsUp && (plan.KeepsBackup || !plan.Changes())
	}
	if p.Plan, p.format = plan, f.Name; !f.ReadsAll { // such a format counts files itself
		o.Format = f.Name // a tar of bzip2 becomes one of zstd, of the same name
		err = p.count(ctx, o, st)
	}
	return err
}

// carve plans to take the archive out of what is in front of it. If there is none, it returns why the
// whole cannot be repaired.
func (p *RepairPlan) carve(ctx context.Context, st store.Store, f *format.Format, o RepairOptions, why error) (format.Plan, error) {
	plan, from, held, err := repairs.Carve(ctx, st, p.name, f, func(st store.Store) (format.Plan, error) {
		return f.Repair(ctx, st, p.name, o.inner(), func(Problem) {})
	})
	if errors.Is(err, repairs.ErrNotFound) {
		err = why
	}
	if err != nil {
		return format.Plan{}, err
	}
	p.fetched = append(p.fetched, held)
	if !o.Image {
		plan.Lost, plan.Partial = append(plan.Lost, fmt.Sprintf("the %d bytes before it", from)), true
	}
	return plan, nil
}

// Changes reports whether the plan changes anything.
func (p *RepairPlan) Changes() bool { return p.guard != nil || p.Plan.Changes() }

// count reads the archive before and after the repair, and counts the files that can be read. It
// adds the problems that remain to what is lost. A file that can be read before and not after
// forbids the repair.
func (p *RepairPlan) count(ctx context.Context, o RepairOptions, st store.Store) error {
	before, err := o.files(ctx, st, p.name)
	if err != nil {
		return err
	}
	after := before
	if p.Plan.Changes() {
		planned, err := repairs.NewPlanned(ctx, st, p.name, p.Plan)
		if err != nil {
			return err
		}
		defer planned.Close()
		then := o
		then.Param = nil // they may fit only the damaged archive
		if after, err = then.files(ctx, planned, p.name); err != nil {
			return err
		}
		if p.Build != nil {
			after.wrong = nil // the plan itself names what is lost
		}
		if err := notLess(ctx, p.name, o, before, st, then, after, planned); err != nil {
			return err
		}
	}
	if p.Plan.Changes() || len(after.wrong) > 0 {
		p.Account = fmt.Sprintf("readable files: %d before, %d after", before.n, after.n)
	}
	p.Lost, p.Partial = append(p.Lost, after.wrong...), p.Partial || len(after.wrong) > 0
	p.Readable = map[string]int64{kit.FilesBefore: before.n, kit.FilesAfter: after.n}
	return nil
}

// readFiles says which files of an archive can be read: n in all, and not those in bad.
type readFiles struct {
	n     int64
	bad   map[string]bool
	wrong []string // the errors, for people
	doubt bool     // the archive itself has errors, so that names and sizes may be wrong
}

func (o RepairOptions) files(ctx context.Context, st store.Store, name string) (readFiles, error) {
	f := readFiles{bad: map[string]bool{}}
	sum, err := verify(ctx, st, name, VerifyOptions{OpenOptions: o.OpenOptions, Meter: o.Meter}, func(problem Problem) {
		if problem.Severity == format.Error {
			kit.Say(&f.wrong, "%s", problemText(problem))
			if problem.HasEntry {
				f.bad[problem.Entry] = true
			} else {
				f.doubt = true
			}
		}
	})
	if _, damaged := errors.AsType[*format.CorruptError](err); damaged {
		err = nil // the archive cannot be opened
	}
	f.n = sum.Proven.Digest + sum.Proven.Checksum + sum.Proven.Decoding + sum.Unproven
	return f, err
}

// notLess returns an error if a file that can be read before a repair cannot be read after it, by
// its name or, if the repair corrects names, by another one. A file that nothing proves may become
// NAME.damaged.
func notLess(ctx context.Context, name string, o RepairOptions, before readFiles, st store.Store, then RepairOptions, after readFiles, planned store.Store) error {
	was, err := open(ctx, st, name, o.OpenOptions)
	if err != nil {
		return context.Cause(ctx) // nothing can be read now
	}
	defer was.Close()
	will, err := open(ctx, planned, name, then.OpenOptions)
	if err != nil {
		return fmt.Errorf("%s cannot be opened after this repair, so nothing is written: %w", name, err)
	}
	defer will.Close()
	type what struct {
		size int64
		sum  string
	}
	var gone []Entry
	for e, err := range was.Entries(ctx) {
		if err != nil {
			break // what follows cannot be read
		}
		if e.Internal || !e.Kind.HasContent() || e.Fault != nil || before.bad[e.Name] {
			continue
		}
		now, err := will.Lookup(ctx, e.Name)
		if err != nil || now.Fault != nil || after.bad[e.Name] || e.Digest.Algo == now.Digest.Algo && e.Digest != now.Digest {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return context.Cause(ctx)
	}
	fresh := map[what]int{}
	for e, err := range will.Entries(ctx) {
		if err != nil {
			break
		}
		old, lerr := was.Lookup(ctx, e.Name)
		if (lerr != nil || old.Size != e.Size || old.Digest != e.Digest) && e.Fault == nil && !after.bad[e.Name] {
			fresh[what{e.Size, e.Digest.Sum}]++
		}
	}
	gone = slices.DeleteFunc(gone, func(e Entry) bool {
		w := what{e.Size, e.Digest.Sum}
		fresh[w]--
		if fresh[w] >= 0 || before.doubt && was.Format().DigestsAll && e.Digest.Algo == "" {
			return true
		}
		_, err := will.Lookup(ctx, e.Name+kit.DamagedSuffix) // nothing proved the whole file
		return err == nil && was.Unproven(ctx, e)
	})
	if len(gone) == 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s: nothing is written, because %d files that can be read now could not be read after this repair, the first of them %s", name, len(gone), format.Escape(gone[0].Name))
}

func problemText(p Problem) string {
	if p.HasEntry {
		return format.Escape(p.Entry) + ": " + p.Message
	}
	return p.Message
}

// from plans repairs from another copy.
func (p *RepairPlan) from(ctx context.Context, o RepairOptions) error {
	mirror, mirrorName := o.FromStore, o.From
	if mirror == nil {
		var err error
		if mirror, mirrorName, err = store.OpenAddress(ctx, o.From); err != nil {
			return err
		}
	}
	o.Index.sizeOnly = true
	a, err := open(ctx, p.st, p.name, o.OpenOptions)
	if err != nil {
		return err
	}
	defer a.Close()
	if a.src.Index() == nil {
		return errors.Join(repairs.ErrNoProof, a.index.Why)
	}
	var sum repairs.Healed
	var held io.Closer
	if p.Plan, sum, held, err = repairs.From(ctx, a.src, mirror, mirrorName, o.Meter); held != nil {
		p.fetched = append(p.fetched, held)
	}
	p.Damaged, p.Healed, p.Fetched = sum.Damaged, sum.Healed, sum.Fetched
	return err
}

// Open opens the archive as the plan leaves it, before anything is written. It becomes part of the
// archive: closing that closes the plan. It is not for a plan with RepairOptions.Image.
func (p *RepairPlan) Open(ctx context.Context) (*Archive, error) {
	if p.image {
		return nil, fmt.Errorf("a repair from an image has no preview: %w", errors.ErrUnsupported)
	}
	st := p.st
	if p.guard != nil {
		st = storekit.Over(st, p.guard.Rest())
	}
	planned, err := repairs.NewPlanned(ctx, st, p.name, p.Plan)
	if err != nil {
		return nil, err
	}
	o := OpenOptions{Format: p.format, Formats: p.asked.Formats, Limits: p.asked.Limits, Password: p.asked.Password, External: p.asked.External, CacheBytes: p.asked.CacheBytes, Parity: parity.None}
	if !p.Plan.Changes() { // otherwise they may fit only the damaged archive
		o.Param = p.asked.Param
	}
	a, err := open(ctx, planned, p.name, o)
	if err != nil {
		return nil, errors.Join(err, planned.Close())
	}
	a.plan, a.planned = p, planned
	return a, nil
}

// Apply writes the repaired archive to an address. It appears completely or not at all.
func (p *RepairPlan) Apply(ctx context.Context, address string) error {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return err
	}
	return p.ApplyStore(ctx, st, name)
}

// ApplyStore is like [RepairPlan.Apply], but writes the archive to name in st. That can be the
// damaged archive itself. Of the blocks that parity repairs, only the damaged ones are then
// written, if the store can change objects in place.
func (p *RepairPlan) ApplyStore(ctx context.Context, st store.Store, name string) error {
	inPlace := st == p.st && name == p.name
	if p.image {
		return p.take(ctx, st, name)
	}
	if !inPlace {
		if err := p.mayWrite(ctx, st, name); err != nil {
			return err
		}
	}
	switch {
	case p.guard == nil:
	case !inPlace && p.st.Can().Over != nil && st.Can().Over != nil && !p.Plan.Changes():
		return repairs.Apply(ctx, p.guard.Rest(), p.name, p.Plan, storekit.Under(st), name) // byte for byte as it was stored
	case !inPlace:
		return repairs.Apply(ctx, storekit.Over(p.st, p.guard.Rest()), p.name, p.Plan, st, name)
	default:
		if err := p.heal(ctx); err != nil || !p.Plan.Changes() {
			return err
		}
	}
	return repairs.Apply(ctx, p.st, p.name, p.Plan, st, name)
}

// mayWrite returns an error if the repaired archive may not be written to name in st.
func (p *RepairPlan) mayWrite(ctx context.Context, st store.Store, name string) error {
	from := p.st
	if p.guard != nil {
		from = storekit.Over(p.st, p.guard.Rest())
	}
	g := output.Guard{Inputs: []string{storekit.AddressOf(p.st, p.name)}, Kind: "an archive of the same format", Force: p.force, Ours: func(found format.Probe) bool {
		source, release, err := probe(ctx, from, p.name)
		release()
		if err != nil {
			return false
		}
		f, err := p.asked.formats().Detect(source)
		if err != nil {
			f = p.asked.formats().ByExtension(p.name)
		}
		return f != nil && p.asked.formats().Detects(f)(found)
	}}
	return g.Check(ctx, st, name)
}

// heal writes the blocks that parity repairs to the archive. The rest of the plan was made for
// the archive as it is after that.
func (p *RepairPlan) heal(ctx context.Context) error {
	if p.guard == nil || p.healed {
		return nil
	}
	p.healed = true
	return p.guard.WriteBack(ctx)
}

// Backup copies the parts of the archive that the plan changes to the archive's name plus suffix.
// It fails if an object of that name exists, so it never replaces another backup. A plan with
// KeepsBackup needs no call of Backup.
//
// Backup first writes the blocks that parity repairs to the archive, so the backup contains them;
// nothing is lost by that. If the archive seems to have been changed on purpose, or has bytes that
// parity does not restore, Backup leaves it unchanged and keeps all of it.
func (p *RepairPlan) Backup(ctx context.Context, suffix string) error {
	if p.backsUp { // the current state may be wanted
		return repairs.Backup(ctx, p.st, p.name, suffix, p.Plan)
	}
	if err := p.heal(ctx); err != nil {
		return err
	}
	return repairs.Backup(ctx, p.st, p.name, suffix, p.Plan)
}

// Close discards fetched and repaired data.
func (p *RepairPlan) Close() error {
	var errs []error
	if p.guard != nil {
		errs = append(errs, p.guard.Close())
	}
	for _, held := range p.fetched {
		errs = append(errs, held.Close())
	}
	return errors.Join(errs...)
}
