package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakRecoverCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "recover-journal STORE",
		Short: "Make a journal of the revisions that the segments have",
		Long: `Looks through all segments for revisions, and makes a journal of those up to the
newest that is whole, with its checkpoints and binaries. Stores that never had a
checkpoint are recovered too. The old journal is kept beside the new one.`,
		Example: "  holdall oak recover-journal --dry-run segmentstore\n  holdall oak recover-journal segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.withOak(ctx, args[0], !dryRun, func(s *oak.Store) error { return a.oakRecover(ctx, s, dryRun) })
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done")
	return cmd
}

// recoveredJSON is what recover-journal found, and what it did.
type recoveredJSON struct {
	*oak.RecoveredJournal
	Written *oak.JournalChange `json:"written,omitempty"`
}

func (a *app) oakRecover(ctx context.Context, s *oak.Store, dryRun bool) error {
	j, err := s.PlanJournal(ctx, oak.RecoverOptions{})
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
		fmt.Fprintf(a.out, "%s left out: something is lost in each\n", count(int64(r.Dropped), "newer revision"))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(a.out, "%s passed over: damaged, or without a time\n", count(int64(r.Skipped), "segment"))
	}
	a.notes(r.Notes)
	if r.Lines == 0 {
		return
	}
	verb := "would be "
	if r.Written != nil {
		verb = ""
		fmt.Fprint(a.out, ifAny("the old journal is %s\n", r.Written.Backup))
		a.notes(r.Written.Notes)
	}
	fmt.Fprintf(a.out, "%swritten: %s; head %s%s\n", verb, count(int64(r.Lines), "line"), r.Head.Revision, timeIn(r.Head.Time))
}
