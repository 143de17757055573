package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakCheckCommand() *cobra.Command {
	var o oak.CheckOptions
	var fix, fixPaths, fixGC, dryRun bool
	cmd := &cobra.Command{
		Use:   "check STORE [PATH...]",
		Short: "Find the newest intact revision",
		Long: `Reads revisions, newest first, until it finds one that has lost nothing, in the
head and all checkpoints, or in the given paths. It reports what the newest
revision has lost. The exit code is 1 if it lost anything, even if an older
revision is intact, or if the journal has problems. --fix-journal goes back to
that revision, and makes it the newest of all.

--fix writes a new revision without damage. Each damaged path is restored from
the newest older revision or checkpoint that has it intact, or removed if there
is none. Each step is printed as the command that does the same; --dry-run only
prints them.

--fix-gc makes the store safe from Oak's own cleanup, which deletes what is in
use if gc.log or the order of the tars is wrong. It writes a line of gc.log and,
if the order is wrong, a revision that equals the newest one. --fix-journal and
--fix-gc exit with 0 if the store is good then; with --dry-run they exit with 1
if it is not.`,
		Example: "  holdall oak check segmentstore\n  holdall oak check --head --bin segmentstore /content/dam\n  holdall oak check --fix --dry-run segmentstore\n  holdall oak check --fix-journal segmentstore",
		Args:    args(1, -1, "a store and optionally paths"),
		RunE: run(func(ctx context.Context, args []string) error {
			o.Paths = args[1:]
			if fix && len(o.Paths) > 0 {
				return usage("--fix-journal checks the whole tree: expected no PATH")
			}
			if fixPaths {
				if fix || len(o.Paths) > 0 || o.Head || len(o.Checkpoints) > 0 || o.Last > 0 {
					return usage("--fix checks the whole newest revision: expected no PATH, and neither --head, --checkpoints, --last nor --fix-journal")
				}
				return a.oakFix(ctx, args[0], o.Binaries, dryRun)
			}
			if fixGC {
				if fix || len(o.Paths) > 0 || o.Head || len(o.Checkpoints) > 0 || o.Last > 0 || o.Binaries {
					return usage("--fix-gc is about the whole store: expected no PATH and no other option but --dry-run")
				}
				return a.oakFixGC(ctx, args[0], dryRun)
			}
			if dryRun {
				return usage("--dry-run needs --fix or --fix-gc")
			}
			return a.withOak(ctx, args[0], fix, func(s *oak.Store) error { return a.oakCheck(ctx, s, o, fix) })
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Head, "head", false, "check the head")
	f.StringArrayVar(&o.Checkpoints, "checkpoints", nil, "check the checkpoint with this `name`, or all; may be repeated")
	a.formerly(cmd.Flags(), "checkpoint", "", cmd.Flags().Lookup("checkpoints"))
	f.BoolVar(&o.Binaries, "bin", false, "also read the content of binaries")
	f.IntVar(&o.Last, "last", 0, "check the newest `n` revisions, intact or not")
	f.BoolVar(&fixPaths, "fix", false, "restore or remove each damaged path in a new revision")
	f.BoolVarP(&dryRun, "dry-run", "n", false, "with --fix and --fix-gc: "+dryRunUsage)
	f.BoolVar(&fixGC, "fix-gc", false, "make the store safe from Oak's own cleanup")
	f.BoolVar(&fix, "fix-journal", false, "drop the revisions that are newer than the newest intact one")
	return cmd
}

type checkedJSON struct {
	oak.CheckResult
	Findings []problemJSON      `json:"findings"`
	Fixed    *oak.JournalChange `json:"fixed,omitempty"`
}

func checkedOf(r oak.CheckResult) checkedJSON {
	c := checkedJSON{CheckResult: r, Findings: []problemJSON{}}
	for _, p := range r.Findings {
		c.Findings = append(c.Findings, problemAsJSON(p))
	}
	return c
}

func (c checkedJSON) answer() error {
	found := slices.ContainsFunc(c.CheckResult.Findings, func(p format.Problem) bool { return p.Severity > format.Note })
	return answer((!c.Whole || found) && c.Fixed == nil)
}

func (a *app) oakCheck(ctx context.Context, s *oak.Store, o oak.CheckOptions, fix bool) error {
	r, err := s.Check(ctx, o)
	if err != nil {
		return err
	}
	if missing := r.Missing(); len(missing) > 0 {
		t := missing[0]
		return fmt.Errorf("%s%s: not in any of %d revisions: %w", inCheckpoint(t.Checkpoint), t.Path, r.Looked, fs.ErrNotExist)
	}
	said := checkedOf(r)
	if fix && r.Good != nil {
		c, err := s.FixJournal(ctx, r)
		if err != nil {
			return err
		}
		if c.Changed || !r.Whole {
			said.Fixed = &c
		}
	}
	a.tell(said, func() { a.printChecked(said, o.Last > 0) })
	return said.answer()
}

// mostPrinted is how many losses are printed for people.
const mostPrinted = 20

func (a *app) printChecked(c checkedJSON, list bool) {
	if c.BeingWritten {
		a.notes([]string{c.By + " is writing to the store: this is its state when it was opened"})
	}
	for _, p := range c.CheckResult.Findings {
		a.printProblem("", p)
	}
	a.printLosses(c.Losses, c.Lost)
	for _, r := range c.Revisions {
		if r.Whole && !list {
			break
		}
		a.printRevision(r, list)
	}
	switch {
	case c.Newest == nil:
		fmt.Fprintln(a.out, "the journal is empty: 'holdall oak recover-journal' rebuilds it")
	case c.Whole:
		fmt.Fprintf(a.out, "intact: %s%s\n", c.Newest.Revision, timeIn(c.Newest.Time))
		if c.Fixed != nil {
			a.notes(c.Fixed.Notes)
		}
	case c.Good == nil:
		fmt.Fprintf(a.out, "no intact revision among %s: 'holdall oak salvage' writes what is left to a new store\n", count(int64(c.Looked), "revision"))
	default:
		fmt.Fprintf(a.out, "newest intact: %s%s\n", c.Good.Revision, timeIn(c.Good.Time))
		a.printBehind(c)
	}
	for _, t := range c.Trees {
		what := "this path is intact in"
		if t.State == oak.PathNotThere {
			what = "no longer exists; intact in"
		}
		if t.Good != nil && (t.State == oak.PathNotThere || c.Good == nil || t.Good.Newer < c.Good.Newer) {
			fmt.Fprintf(a.out, "%s%s: %s\n      %s%s\n", inCheckpoint(t.Checkpoint), printable(t.Path), what, t.Good.Revision, timeIn(t.Good.Time))
		}
	}
}

// printRevision prints the faults of one revision or, if all are to be listed,
// its outcome.
func (a *app) printRevision(r oak.CheckedRevision, list bool) {
	switch {
	case r.Problem != "":
		fmt.Fprintf(a.out, "missing  %s\n         %s\n", printable(r.Revision), printable(r.Problem))
	case list && r.Whole:
		fmt.Fprintf(a.out, "intact   %s%s\n", r.Revision, timeIn(r.Time))
	case list:
		fmt.Fprintf(a.out, "damaged  %s%s\n", r.Revision, timeIn(r.Time))
	}
}

func (a *app) printLosses(some []oak.Loss, all int64) {
	for _, l := range some[:min(len(some), mostPrinted)] {
		a.printLoss(l)
	}
	a.printMore(all)
}

// printMore prints how many of a list were not printed.
func (a *app) printMore(all int64) {
	if all > mostPrinted {
		fmt.Fprintf(a.out, "and %d more; --json has the first 10,000\n", all-mostPrinted)
	}
}

func (a *app) printLoss(l oak.Loss) {
	what := inCheckpoint(l.Checkpoint) + l.Path + ifAny(" property %s", l.Property)
	if l.Children {
		what += " some children"
	}
	where := l.Segment
	if l.Record >= 0 {
		where += fmt.Sprintf(":%d", l.Record)
	}
	fmt.Fprintf(a.out, "lost: %s\n  %s%s\n  %s\n", printable(what), where, ifAny(" in %s", l.Tar), printable(l.Problem))
	if l.Others > 0 {
		fmt.Fprintf(a.out, "  this damage also hides %s\n", count(int64(l.Others), "other place"))
	}
}

// printBehind prints what going back to the good revision loses, or has lost.
func (a *app) printBehind(c checkedJSON) {
	lines := count(int64(c.Good.Newer), "newer revision")
	if c.Fixed != nil {
		fmt.Fprintf(a.out, "the journal now ends with this revision; %s has the %s\n", c.Fixed.Backup, lines)
		a.notes(c.Fixed.Notes)
		return
	}
	span := ""
	if c.Newest.Time != nil && c.Good.Time != nil {
		span = fmt.Sprintf(", %v of work", c.Newest.Time.Sub(*c.Good.Time))
	}
	if slices.ContainsFunc(c.Losses, func(l oak.Loss) bool { return l.Tar != "" }) {
		fmt.Fprintln(a.out, "run 'holdall repair' first: it repairs segments if it can prove their content")
	}
	fmt.Fprintf(a.out, "--fix-journal goes back to it and loses %s%s\n", lines, span)
}

func inCheckpoint(name string) string { return ifAny("checkpoint %s ", name) }

func timeIn(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " of " + t.Format(time.RFC3339)
}

func (a *app) oakRecoverCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "recover-journal STORE",
		Short: "Rebuild the journal from the segments",
		Long: `Searches all segments for revisions, and writes a journal that ends with the
newest revision whose tree, checkpoints and binaries are intact. It also works
for stores that never had a checkpoint. The old journal stays beside the new
one, as journal.log.bak.NNN.`,
		Example: "  holdall oak recover-journal --dry-run segmentstore\n  holdall oak recover-journal segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.withOak(ctx, args[0], !dryRun, func(s *oak.Store) error { return a.oakRecover(ctx, s, dryRun) })
		}),
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

type recoveredJSON struct {
	*oak.RecoveredJournal
	Written *oak.JournalChange `json:"written,omitempty"`
}

func (a *app) oakRecover(ctx context.Context, s *oak.Store, dryRun bool) error {
	j, err := s.PlanJournal(ctx)
	said := recoveredJSON{RecoveredJournal: j}
	if err == nil && !dryRun {
		c, err := j.Apply(ctx)
		if err != nil {
			return err
		}
		said.Written = &c
	}
	if j != nil {
		a.tell(said, func() { a.printRecovered(said) })
	}
	return err
}

func (a *app) printRecovered(r recoveredJSON) {
	for _, l := range r.Losses[:min(len(r.Losses), mostPrinted)] {
		a.printLoss(l)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(a.out, "%s left out: each has lost something\n", count(int64(r.Dropped), "newer revision"))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(a.out, "%s skipped: damaged, or without a time\n", count(int64(r.Skipped), "segment"))
	}
	a.notes(r.Notes)
	if r.Lines == 0 {
		return
	}
	if r.Written != nil {
		fmt.Fprint(a.out, ifAny("the old journal is %s\n", r.Written.Backup))
		a.notes(r.Written.Notes)
	}
	fmt.Fprintf(a.out, "%s: %s; head %s%s\n", done(r.Written == nil, "written"), count(int64(r.Lines), "line"), r.Head.Revision, timeIn(r.Head.Time))
}

// oakFix repairs the newest revision by writing a new one, and checks that.
func (a *app) oakFix(ctx context.Context, address string, binaries, dryRun bool) error {
	var x *oak.Fix
	err := a.withOak(ctx, address, !dryRun, func(s *oak.Store) (err error) {
		if x, err = s.PlanFix(ctx, binaries); err == nil && !dryRun {
			err = x.Apply(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	a.tell(x, func() {
		for _, s := range x.Steps {
			a.printFix(address, s)
		}
		a.printRevised(x.Revised)
		if len(x.Steps) == 0 {
			fmt.Fprintln(a.out, "no damage found")
		}
	})
	if dryRun || len(x.Steps) == 0 {
		return answer(len(x.Steps) > 0)
	}
	return a.withOak(ctx, address, false, func(s *oak.Store) error {
		r, err := s.Check(ctx, oak.CheckOptions{Binaries: binaries})
		if err != nil {
			return err
		}
		if !a.json {
			a.printChecked(checkedOf(r), false)
		}
		return checkedOf(r).answer()
	})
}

type fixedGCJSON struct {
	*oak.FixGC
	Findings []problemJSON `json:"findings"`
}

func (a *app) oakFixGC(ctx context.Context, address string, dryRun bool) error {
	var x *oak.FixGC
	err := a.withOak(ctx, address, !dryRun, func(s *oak.Store) (err error) {
		x, err = s.FixGC(ctx, dryRun)
		return err
	})
	if err != nil {
		return err
	}
	said := fixedGCJSON{FixGC: x, Findings: []problemJSON{}}
	for _, p := range x.Findings {
		said.Findings = append(said.Findings, problemAsJSON(p))
	}
	a.tell(said, func() {
		for _, p := range x.Findings {
			a.printProblem("", p)
		}
		if x.Revision != "" {
			a.printRevised(x.Revised)
		}
		if x.Removed > 0 {
			fmt.Fprintf(a.out, "removed from gc.log: %s\n", count(int64(x.Removed), "line"))
		}
		if x.Line != "" {
			fmt.Fprintf(a.out, "added to gc.log: %s\n", x.Line)
		}
		if len(x.Findings) == 0 {
			fmt.Fprintln(a.out, "Oak's cleanup deletes nothing that is in use")
		}
	})
	if dryRun || len(x.Findings) == 0 {
		return answer(len(x.Findings) > 0)
	}
	return a.withOak(ctx, address, false, func(s *oak.Store) error { // what was written must be what was wanted
		again, err := s.FixGC(ctx, true)
		if err == nil && len(again.Findings) > 0 {
			err = &format.CorruptError{Format: oak.Format.Name, Problem: again.Findings[0]}
		}
		return err
	})
}

// printFix prints a step as the command that does it, with its losses.
func (a *app) printFix(store string, s oak.FixStep) {
	words := []string{"holdall", "oak"}
	var means string
	switch s.Action {
	case oak.FixReplace:
		words = append(words, "replace", store, s.Path, "--from", s.From)
		means = "restores the state" + timeIn(s.Time) + "; later changes below it are lost"
	case oak.FixRemove:
		words = append(words, "rm", store, s.Path)
		means = "lost: no older revision has it intact"
	case oak.FixRemoveLost:
		words = append(words, "rm", "--lost", store, s.Path)
		means = "removes children with lost names, except those that the next steps restore"
	case oak.FixRemoveCheckpoint:
		words = append(words, "checkpoints", "rm", store, cmp.Or(s.Checkpoint, "--all"))
		means = "the checkpoint is damaged; Oak rebuilds an asynchronous index that uses it"
	}
	if s.Property != "" {
		words = append(words, "--property", s.Property)
	}
	for i, w := range words {
		words[i] = shellWord(printable(w))
	}
	fmt.Fprintf(a.out, "%s\n  %s\n%s", strings.Join(words, " "), means, ifAny("  damage: %s\n", printable(s.Problem)))
}

func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
