package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
)

func (a *app) oakCopyCommand() *cobra.Command {
	var o oak.CopyOptions
	var check bool
	cmd := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy a segment store between tars, Azure and S3",
		Long: `Copies a segment store. A copy in a folder has tars; a copy in Azure or S3 has
one blob per segment, in the layout of oak-segment-azure. Segments that DST has
already are not copied again, so the same command completes an interrupted copy
or updates an old one. The journal is written last: until then DST shows its
old state.

If DST has segments that SRC never had, it is not a copy of SRC, and the command
fails. Archives that SRC no longer has stay in DST and are listed. In Azure,
holdall holds the lease of repo.lock during the copy, and refuses a DST that a
running Oak has leased. With --check the exit code is 1 if DST differs from SRC,
or lacks its newest revisions.`,
		Example: "  holdall oak copy segmentstore az://account/container/oak\n  holdall oak copy --check segmentstore az://account/container/oak\n  holdall oak copy az://account/container/oak restored",
		Args:    args(2, 2, "a store and a destination"),
		RunE: run(func(ctx context.Context, args []string) error {
			switch {
			case o.Last < 0:
				return usage("--last: expected a number of revisions, or 0 for all")
			case check && o.DryRun:
				return usage("expected one of --check and --dry-run")
			}
			return a.oakCopy(ctx, args[0], args[1], o, check)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&o.Last, "last", 0, "write at most the newest `n` revisions to the journal of DST; 0 is all")
	f.BoolVarP(&o.DryRun, "dry-run", "n", false, "only print what would be copied")
	f.BoolVar(&check, "check", false, "compare DST with SRC byte by byte; copy nothing")
	return cmd
}

func (a *app) oakCopy(ctx context.Context, from, out string, o oak.CopyOptions, check bool) error {
	m := &holdall.Meter{}
	o.Progress = func(segments, bytes int64) { m.Add(segments, bytes) }
	return a.locked(ctx, out, !check && !o.DryRun, func(to store.Store, name string) error {
		return a.withOak(ctx, from, false, func(s *oak.Store) error {
			if check {
				done := a.showProgress(m, "compared")
				c, err := s.CheckCopy(ctx, to, name, o)
				done()
				if err != nil {
					return err
				}
				a.tell(c, func() { a.printCopyCheck(c) })
				return answer(c.Different > 0 || c.Behind > 0)
			}
			done := a.showProgress(m, "copied")
			c, err := s.Copy(ctx, to, name, o)
			done()
			if err != nil {
				return err
			}
			a.tell(c, func() { a.printCopied(c, o.DryRun) })
			return nil
		})
	})
}

func (a *app) printCopied(c *oak.Copied, dry bool) {
	for _, r := range c.Archives {
		if r.Copied > 0 {
			fmt.Fprintf(a.out, "%s: %d of %d segments, %s\n", r.Name, r.Copied, r.Segments, a.humanSize(r.Bytes))
		}
	}
	a.printStay(c.Stay)
	a.notes(c.Notes)
	word := "copied"
	if dry {
		word = "to copy"
	}
	fmt.Fprintf(a.out, "%s %s, %s, and %s; %s present before; the head is %s\n", count(c.Segments, "segment"), word, a.humanSize(c.Bytes), count(int64(c.Revisions), "revision"), count(c.There, "segment"), c.Head)
}

func (a *app) printStay(names []string) {
	for _, n := range names {
		fmt.Fprintf(a.out, "%s: not in the source; stays in the copy\n", n)
	}
}

func (a *app) printCopyCheck(c *oak.CopyCheck) {
	for i, d := range c.Differences {
		if i == mostPrinted {
			fmt.Fprintf(a.out, "and %d more; --json has the first 1,000\n", c.Different-mostPrinted)
			break
		}
		fmt.Fprintf(a.out, "%s%s%s\n", ifAny("%s: ", d.Archive), ifAny("%s: ", d.Segment), printable(d.What))
	}
	a.printStay(c.Stay)
	if c.Behind > 0 {
		fmt.Fprintf(a.out, "the copy lacks the newest %s\n", count(int64(c.Behind), "revision"))
	}
	fmt.Fprintf(a.out, "%s compared, %s: %s\n", count(c.Segments, "segment"), a.humanSize(c.Bytes), count(c.Different, "difference"))
}
