package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

type repairedJSON struct {
	Output   string           `json:"output,omitempty"`
	Backup   string           `json:"backup,omitempty"`
	Changed  bool             `json:"changed"`
	Partial  bool             `json:"partial"`
	Notes    []string         `json:"notes"`
	Lost     []string         `json:"lost"`
	Readable map[string]int64 `json:"readable,omitempty"`
	// Parity is the result of checking the archive's parity.
	Parity  *holdall.ParityReport `json:"parity,omitempty"`
	account string
	stale   bool // its parity belongs to an earlier version
}

func (a *app) repairCommand() *cobra.Command {
	var out string
	var inPlace bool
	var from string
	cmd := &cobra.Command{
		Use:   "repair [ARCHIVE | --from IMAGE [PIECE...]] -o OUT",
		Short: "Repair a damaged archive",
		Long: `Writes everything that can be recovered from ARCHIVE to OUT, and lists repairs
and losses. OUT appears whole or not at all, and ARCHIVE stays unchanged. With
--in-place the result replaces ARCHIVE, and the damaged archive is kept as
ARCHIVE.bak.

If the archive has parity ("holdall protect"), holdall recovers the damaged
blocks first, in any format. OUT is then identical to the undamaged archive,
unless there is more damage than the parity can recover; holdall repairs the
rest by the rules of the format. With --in-place and parity, only the damaged
blocks are written, and there is no backup, because nothing is lost. If bytes
were inserted or moved, the whole archive is written, and there is a backup.

With --from, holdall takes an archive out of the image of a disk, or out of
pieces that follow each other. OUT's extension, or --as, selects the format.
CAF, zip, LINDI and tar are found by their parts, RVN and compressed tars only
in one piece. If there are several archives, holdall takes one.

The exit code is 1 if something is lost.`,
		Example: `  holdall repair broken.caf -o repaired.caf
  holdall repair --dry-run broken.caf
  holdall repair --in-place broken.caf
  holdall repair --from disk.img -o found.caf`,
		RunE: run(func(ctx context.Context, args []string) error {
			if from != "" {
				if out == "" || inPlace {
					return usage("expected -o OUT with --from")
				}
				return a.carve(ctx, from, args, out)
			}
			if len(args) != 1 {
				return usage("expected an archive, found %s", count(int64(len(args)), "argument"))
			}
			if out != "" && inPlace || out == "" && !inPlace && !a.dryRun {
				return usage("expected one of -o OUT, --in-place and --dry-run")
			}
			return a.repair(ctx, args[0], out, inPlace)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the repaired archive to this file")
	cmd.Flags().StringVar(&from, "from", "", "take the archive out of this image, and the pieces that follow")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "replace the archive, and keep the old one as ARCHIVE.bak")
	a.forceFlag(cmd.Flags())
	a.dryRunFlag(cmd.Flags())
	return cmd
}

// carve takes an archive out of an image, or out of pieces.
func (a *app) carve(ctx context.Context, image string, pieces []string, out string) error {
	if a.format == "" {
		f := format.All().ByExtension(out)
		if f == nil {
			return usage("%s: no format has this extension: set --as", out)
		}
		a.format = f.Name
	}
	return a.repairWith(ctx, image, out, false, holdall.RepairOptions{Image: true, Pieces: pieces})
}

func (a *app) repair(ctx context.Context, address, out string, inPlace bool) error {
	return a.repairWith(ctx, address, out, inPlace, holdall.RepairOptions{Report: func(p holdall.Problem) {
		if !a.json && !a.quiet && p.Severity == format.Error {
			a.printProblem("found ", p)
		}
	}})
}

func (a *app) repairWith(ctx context.Context, address, out string, inPlace bool, o holdall.RepairOptions) error {
	return a.locked(ctx, address, inPlace && !a.dryRun, func(st store.Store, name string) error {
		m := &holdall.Meter{}
		stop := a.showProgress(m, "compared")
		o.OpenOptions, o.Force, o.Meter = a.openOptions().In(st), a.force, m
		plan, err := holdall.Repair(ctx, name, o)
		stop()
		if err != nil {
			return err
		}
		defer plan.Close()
		r := repairedOf(plan, out)
		if err := a.carryOut(ctx, address, plan, st, name, &r); err != nil {
			return err
		}
		r.Lost, r.Partial = append([]string{}, plan.Lost...), plan.Partial // from an image, more may have been left out
		a.tell(r, func() { a.printRepaired(r) })
		return answer(plan.Partial)
	})
}

// locked finds an archive and calls do. For a repair in place, it holds the
// archive's lock meanwhile, so that no other program can change it.
func (a *app) locked(ctx context.Context, address string, inPlace bool, do func(st store.Store, name string) error) (err error) {
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return err
	}
	if inPlace {
		locked, unlock, refused := a.lockStore(ctx, st, name)
		if refused != nil {
			return refused
		}
		defer func() { err = errors.Join(err, unlock()) }()
		st = locked
	}
	return do(st, name)
}

func repairedOf(plan *holdall.RepairPlan, out string) repairedJSON {
	return repairedJSON{
		Changed: plan.Changes(), Partial: plan.Partial, Notes: append([]string{}, plan.Notes...), Lost: append([]string{}, plan.Lost...), Readable: plan.Readable,
		Parity: plan.Parity, account: plan.Account, stale: plan.Parity != nil && plan.Parity.NotUsed == "" && out == "" && plan.Plan.Changes(), Output: out,
	}
}

// carryOut applies a plan to the archive called name in st. It writes the
// result to r.Output, or, if that is empty, changes the archive in place and
// keeps the old one. A dry run discards the result.
func (a *app) carryOut(ctx context.Context, address string, plan *holdall.RepairPlan, st store.Store, name string, r *repairedJSON) (err error) {
	switch {
	case r.Output != "":
		if st, name, err = a.locateOut(ctx, r.Output); err != nil {
			return err
		}
		if a.dryRun {
			r.Output = ""
		}
	case a.dryRun:
		r.stale = false
		return nil
	case !r.Changed: // a killed repair may have done everything already
		if l, ok := st.(*local.Store); ok {
			return l.Tidy(name)
		}
		return nil
	default:
		if r.Output = store.Redact(address); !plan.KeepsBackup {
			r.Backup = r.Output + ".bak"
		}
		if err := plan.Backup(ctx, ".bak"); err != nil {
			return err
		}
	}
	return plan.ApplyStore(ctx, st, name)
}

func (a *app) printRepaired(r repairedJSON) {
	c := a.colours(a.stdout, "", "")
	switch {
	case r.Changed:
	case r.Partial:
		fmt.Fprintln(a.out, c.paint("error", "nothing can be repaired"))
	default:
		fmt.Fprintln(a.out, c.paint("sound", "nothing needs repair"))
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.out, c.paint("sound", "repaired:")+" "+n)
	}
	if r.account != "" {
		fmt.Fprintln(a.out, r.account)
	}
	for _, l := range r.Lost {
		fmt.Fprintln(a.out, c.paint("error", "lost:")+" "+l)
	}
	if p := r.Parity; p != nil {
		a.printBeyond(p)
		switch {
		case p.NotUsed != "":
			fmt.Fprintf(a.out, "%s not used: %s\n", p.At, p.NotUsed)
		case r.stale:
			fmt.Fprintf(a.out, "%s belongs to the old archive: 'holdall protect' writes a new one\n", p.At)
		}
	}
	if r.Backup != "" {
		fmt.Fprintln(a.out, "kept as "+r.Backup)
	}
}
