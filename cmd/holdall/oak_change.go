package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakCheckpointsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoints STORE",
		Short: "List checkpoints, and what they hold on to; remove some",
		Long: `Lists the checkpoints of the newest revision, the newest first: when each was
made, when it expires, whether asynchronous indexing goes on from it, and how
many bytes neither the head nor a newer checkpoint has. If a checkpoint and all
older ones are removed, the sum of these becomes garbage.`,
		Example: "  holdall oak checkpoints segmentstore\n  holdall oak checkpoints rm --unreferenced segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: a.onStore(func(ctx context.Context, s *oak.Store, _ []string) error {
			all, err := s.Checkpoints(ctx, time.Now(), true)
			if err != nil {
				return err
			}
			lost := int64(0)
			for _, c := range all {
				a.tell(c, func() { a.printCheckpoint(c, true) })
				lost += c.Lost
			}
			if lost > 0 {
				a.out.Flush()
				a.warn("%d places cannot be read, and are not in the sums", lost)
				return errNo
			}
			return nil
		}),
	}
	cmd.AddCommand(a.oakCheckpointsRmCommand())
	return cmd
}

func (a *app) printCheckpoint(c oak.Checkpoint, sizes bool) {
	at := func(t *time.Time, none string) string {
		if t == nil {
			return none
		}
		return t.Format(time.RFC3339)
	}
	fmt.Fprintf(a.out, "%s  created %s", printable(c.Name), at(c.Created, "?"))
	if c.Created != nil {
		fmt.Fprintf(a.out, ", %s ago", age(time.Since(*c.Created)))
	}
	fmt.Fprintf(a.out, ", expires %s", at(c.Expires, "never"))
	if c.Expired {
		fmt.Fprint(a.out, " (expired)")
	}
	if sizes {
		fmt.Fprintf(a.out, ", holds %s", a.humanSize(c.Bytes))
		if c.External > 0 {
			fmt.Fprintf(a.out, " and %s of a data store", a.humanSize(c.External))
		}
	}
	if !c.Referenced {
		fmt.Fprint(a.out, ", not referenced")
	}
	fmt.Fprintln(a.out)
	for _, name := range slices.Sorted(maps.Keys(c.Properties)) {
		fmt.Fprintf(a.out, "  %s = %s\n", printable(name), printable(c.Properties[name]))
	}
	fmt.Fprint(a.out, ifAny("  damaged: %s\n", printable(c.Problem)))
}

// age is how long ago something was, as people say it.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return count(int64(d/(24*time.Hour)), "day")
	case d >= 2*time.Hour:
		return count(int64(d/time.Hour), "hour")
	}
	return count(int64(max(d, 0)/time.Minute), "minute")
}

func (a *app) oakCheckpointsRmCommand() *cobra.Command {
	var o oak.CheckpointChoice
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rm STORE [NAME...]",
		Short: "Write a revision without some checkpoints",
		Long: `Writes a new revision without checkpoints: those that are named, or those that
flags say. Asynchronous indexing whose checkpoint is gone begins anew.
What they held on to is garbage then; 'holdall oak compact', or Oak's own
compaction, gives its room back.

The store must not be open in another program, which is found out by its lock.
Whenever this is cut off, the store is as it was, or has the new revision.`,
		Example: "  holdall oak checkpoints rm --dry-run --unreferenced segmentstore\n  holdall oak checkpoints rm segmentstore 0a1b2c3d-0000-4000-8000-000000000000",
		Args:    args(1, -1, "a store, and names of checkpoints"),
		RunE: run(func(ctx context.Context, args []string) error {
			o.Names = args[1:]
			if len(o.Names) == 0 && !o.All && !o.Expired && !o.Unreferenced {
				return usage("expected names of checkpoints, --unreferenced, --expired or --all")
			}
			return a.withOak(ctx, args[0], !dryRun, func(s *oak.Store) error {
				r, err := s.RemoveCheckpoints(ctx, o, time.Now(), dryRun)
				if err != nil {
					return err
				}
				a.tell(r, func() {
					for _, c := range r.Removed {
						a.printCheckpoint(c, dryRun)
					}
					fmt.Fprintf(a.out, "%s %s\n", count(int64(len(r.Removed)), "checkpoint"), done(dryRun, "removed"))
					if len(r.Removed) > 0 {
						a.printRevised(r.Revised)
						fmt.Fprintln(a.out, "their room comes back when the store is compacted: 'holdall oak compact'")
					}
				})
				return nil
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Unreferenced, "unreferenced", false, "those that asynchronous indexing does not go on from")
	f.BoolVar(&o.Expired, "expired", false, "those that have expired")
	f.BoolVar(&o.All, "all", false, "all of them")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be done")
	return cmd
}

// done is what was done, or would be.
func done(dryRun bool, what string) string {
	if dryRun {
		return "would be " + what
	}
	return what
}

func (a *app) printRevised(r oak.Revised) {
	if r.Revision != "" {
		fmt.Fprintf(a.out, "new revision %s, in %s of %s; before it %s\n", r.Revision, strings.Join(r.Tars, ", "), a.humanSize(r.Bytes), r.Before)
	}
}
