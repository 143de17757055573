package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/fleet"
)

func (a *app) fleetEraseCommand() *cobra.Command {
	var filesFrom string
	var o fleet.ErasureOptions
	var work fleet.WorkOptions
	cmd := &cobra.Command{
		Use:   "forget-object KEY...",
		Short: "Erase objects, with all their versions and their names",
		Long: `Erases packed objects for good, as a person may ask for. Their contents and
names are removed from all archives of plans, and from the catalogue, its
commits, and the lists and logs of the fleet. A proof remains, without the
names.

This gives up grace times, and what the catalogue was before:
'photos.catalog@DATE' cannot be read any more for earlier dates. Other archives
and copies of the catalogue stay as they are.

The originals must not exist any more, and no other work may wait. If the
command was interrupted, run it again.`,
		Example: `  holdall fleet forget-object users/4711.json
  holdall fleet forget-object --files-from keys.txt --dry-run`,
		RunE: a.onFleet(forWriting, func(ctx context.Context, f fleet.Fleet, names []string) error {
			if (filesFrom == "") == (len(names) == 0) {
				return usage("expected either keys or --files-from")
			}
			if filesFrom != "" {
				var err error
				if names, err = a.readList(filesFrom); err != nil {
					return err
				}
			}
			if work.Workers < 1 {
				return usage("--workers: expected at least 1, found %d", work.Workers)
			}
			return a.fleetErase(ctx, f, names, o, work)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&filesFrom, "files-from", "", "read the keys from a file, one per line; - is standard input")
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, dryRunUsage)
	fs.BoolVar(&o.Yes, "yes", false, "also erase keys that the catalogue does not know any more")
	fs.IntVar(&work.Workers, "workers", 1, "archives to write at once")
	fs.IntVarP(&work.Jobs, "jobs", "j", 0, "objects of an archive to read at once (default 16)")
	return cmd
}

func (a *app) fleetErase(ctx context.Context, f fleet.Fleet, names []string, o fleet.ErasureOptions, work fleet.WorkOptions) error {
	for range 5 { // what is being written may get a file that is deleted
		found, err := fleet.PrepareErasure(ctx, f, names, o)
		if err != nil {
			return err
		}
		if o.DryRun || len(found.Chunks) > 0 {
			a.tell(found, func() {
				fmt.Fprintf(a.out, "%s of %s to rewrite, %s\n", count(int64(found.Archives), "archive"), count(int64(len(names)), "name"), a.humanSize(found.Bytes))
			})
		}
		if o.DryRun {
			return nil
		}
		if len(found.Chunks) == 0 {
			done, err := fleet.FinishErasure(ctx, f, names)
			if err == nil {
				a.tell(done, func() {
					fmt.Fprintf(a.out, "erased %s: %s and %s removed, %s and %s rewritten\n", count(int64(len(names)), "name"), count(int64(len(done.Archives)), "archive"), count(int64(done.Runs+done.States), "object"),
						count(int64(done.Commits), "commit"), count(int64(done.Lists+done.Deletions), "list"))
				})
			}
			return err
		}
		for plan := range found.Chunks {
			work.Plan, work.NoVerify, work.Tries = plan, a.noVerify, 5
			if err := a.fleetWork(ctx, f, work, ""); err == errNo {
				return fmt.Errorf("plan %s: an archive with the names could not be rewritten: 'holdall fleet repair --contents' rebuilds damaged ones", format.Escape(plan))
			} else if err != nil {
				return err
			}
		}
	}
	return errors.New("other workers keep writing archives with these names: stop them first")
}
