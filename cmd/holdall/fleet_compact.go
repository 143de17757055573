package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/fleet"
)

type rewriting struct {
	work   fleet.WorkOptions
	grace  time.Duration
	dryRun bool
}

func (r *rewriting) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&r.dryRun, "dry-run", "n", false, dryRunUsage)
	fs.DurationVar(&r.grace, "grace", 7*24*time.Hour, "how long an old archive stays after its files have moved to others")
	fs.IntVar(&r.work.Workers, "workers", 1, "archives to write at once")
	fs.IntVarP(&r.work.Jobs, "jobs", "j", 0, "objects of an archive to read at once (default 16)")
}

// onPlans calls plan for the named plans that can be rewritten, or for all of
// them. It then packs the chunks that plan made, and removes old archives.
func (a *app) onPlans(ctx context.Context, names []string, r *rewriting, plan func(f fleet.Fleet, p fleet.Plan) (chunks int, err error)) error {
	if r.work.Workers < 1 {
		return usage("--workers: expected at least 1, found %d", r.work.Workers)
	}
	if r.grace < 0 {
		return usage("--grace: expected at least 0, found %s", r.grace)
	}
	no := false
	err := a.withFleet(ctx, forWriting, func(f fleet.Fleet) error {
		return a.plansNamed(ctx, f.Book, names, func(p fleet.Plan) error {
			if of := format.All().ByName(p.Format); len(names) == 0 && (of == nil || !of.Chunked) {
				return nil
			}
			chunks, err := plan(f, p)
			if err != nil || r.dryRun {
				return err
			}
			if chunks > 0 {
				o := r.work
				o.Plan, o.NoVerify, o.Tries = p.Name, a.noVerify, 5
				if err := a.fleetWork(ctx, f, o, ""); err != nil && err != errNo {
					return err
				} else if err != nil {
					no = true
				}
			}
			dead, removed, err := fleet.Tidy(ctx, f, p, r.grace)
			if dead+removed > 0 {
				a.tell(map[string]any{"plan": p.Name, "removed": removed, "waiting": dead}, func() {
					fmt.Fprintf(a.out, "%s: %s removed, %d to be removed after the grace period\n", format.Escape(p.Name), count(int64(removed), "old archive"), dead)
				})
			}
			return err
		})
	})
	if err == nil {
		err = answer(no)
	}
	return err
}

type compactedJSON struct {
	Plan string `json:"plan"`
	fleet.Compacted
}

func (a *app) fleetCompactCommand() *cobra.Command {
	var o fleet.CompactOptions
	var r rewriting
	var dead shareFlag
	cmd := &cobra.Command{
		Use:   "compact [PLAN...]",
		Short: "Delete files that are gone at the source, and rewrite archives",
		Long: `Deletes files from the catalogue whose objects are gone at the source. An object
is gone if a listing by 'holdall fleet plan' found it after it was packed, and
two listings did not, at least --gone-after apart. Until then it is missing.
Retired originals do not count.

Then it rewrites archives in which a large share is deleted or replaced, and
joins small archives. The server copies what it can by itself. An old archive
is removed --grace after all its files are in other archives, so that readers
always find every file.

You may interrupt or kill the command at any time; run it again to continue.`,
		Example: `  holdall fleet compact
  holdall fleet compact --dead 10% --grace 24h s3://packed/photos.caf
  holdall fleet compact --expire 2160h --dry-run`,
		RunE: run(func(ctx context.Context, names []string) error {
			switch {
			case o.Expire < 0:
				return usage("--expire: expected at least 0, found %s", o.Expire)
			case o.GoneAfter <= 0:
				return usage("--gone-after: expected more than 0, found %s", o.GoneAfter)
			}
			o.Dead, o.DryRun = float64(dead), r.dryRun
			return a.onPlans(ctx, names, &r, func(f fleet.Fleet, p fleet.Plan) (int, error) {
				done, err := fleet.Compact(ctx, f, p, o)
				if err != nil {
					return 0, err
				}
				a.tell(compactedJSON{p.Name, done}, func() {
					fmt.Fprintf(a.out, "%s: %s, %s in %s of %s; %d gone, %d expired, %d missing; %s to rewrite, %s\n", format.Escape(p.Name), count(done.Live, "file"), a.humanSize(done.LiveBytes),
						count(done.Archives, "archive"), a.humanSize(done.Bytes), done.Gone, done.Expired, done.Missing, count(int64(done.Old), "archive"), a.humanSize(done.Rewritten))
				})
				return done.Chunks, nil
			})
		}),
	}
	fs := cmd.Flags()
	fs.Var(&dead, "dead", "rewrite archives with at least this share of deleted content (default 20%)")
	fs.DurationVar(&o.GoneAfter, "gone-after", 7*24*time.Hour, "how long an object must be missing at the source before its file is deleted")
	fs.DurationVar(&o.Expire, "expire", 0, "delete files that were written longer ago than this")
	fs.BoolVar(&o.Yes, "yes", false, "delete files even if they are more than a fifth of all, or less than an hour old")
	r.flags(cmd)
	return cmd
}

func (a *app) fleetRepairCommand() *cobra.Command {
	var o fleet.RepairOptions
	var r rewriting
	cmd := &cobra.Command{
		Use:   "repair [PLAN...]",
		Short: "Rebuild archives that are lost or damaged",
		Long: `Looks for archives of plans that are lost or have changed since they were
packed, and with --contents also for damaged ones. It rebuilds them from the
originals if these still have the packed version, and otherwise from the
readable parts of the archive, repaired with its parity.

Files that are lost for good are listed, and the exit code is 1. A damaged
archive stays while it is the only one that has some file.`,
		Example: `  holdall fleet repair
  holdall fleet repair --contents s3://packed/photos.caf
  holdall fleet repair --archive s3://packed/photos-00042-00007.caf --contents`,
		RunE: run(func(ctx context.Context, names []string) error {
			for i, address := range o.Archives {
				o.Archives[i] = everywhere(address)
			}
			o.DryRun = r.dryRun
			return a.onPlans(ctx, names, &r, func(f fleet.Fleet, p fleet.Plan) (int, error) {
				o.Tell = func(x catalog.Archive, why string) {
					a.tell(differenceJSON{Difference: "damaged", Archive: format.Escape(x.Address), Message: why}, func() {
						fmt.Fprintf(a.out, "%s: %s\n", format.Escape(x.Address), printable(why))
					})
				}
				done, err := fleet.Repair(ctx, f, p, o)
				if err != nil {
					return 0, err
				}
				a.tell(map[string]any{"plan": p.Name, "archives": done.Archives, "damaged": done.Damaged, "files": done.Files, "chunks": done.Chunks}, func() {
					fmt.Fprintf(a.out, "%s: %d of %s to rebuild, with %s\n", format.Escape(p.Name), done.Damaged, count(int64(done.Archives), "archive"), count(done.Files, "file"))
				})
				return done.Chunks, nil
			})
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.Contents, "contents", false, "read all content of the archives to find damage")
	fs.StringArrayVar(&o.Archives, "archive", nil, "check only this archive; may be repeated")
	r.flags(cmd)
	return cmd
}
