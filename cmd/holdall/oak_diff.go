package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff STORE A..B [PATH]",
		Short: "Say what changed from one revision to another",
		Long: `Lists what changed below PATH from revision A to B: + and - nodes that were added
or removed, with all below them, and + - ~ properties, with their values; ? is what
damage hides. What both revisions share is not read.

A and B are UUID:NUMBER, a time, head, or checkpoint:ID; without B it is head. The
exit code is 1 if there are differences.`,
		Example: `  holdall oak diff segmentstore 2026-11-20T00:00:00Z.. /content
  holdall oak diff --json segmentstore checkpoint:0a1b2c3d-0000-4000-8000-000000000000..head`,
		Args: args(2, 3, "a store, A..B, and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			from, to, ok := strings.Cut(args[1], "..")
			if !ok || from == "" {
				return usage("%q: expected two revisions as A..B", args[1])
			}
			if a.params["revision"]+a.params["checkpoint"] != "" {
				return usage("--revision, --checkpoint: expected A..B alone to say of which revisions")
			}
			return a.withOak(ctx, args[0], false, func(s *oak.Store) error {
				before, err := s.TreeNamed(ctx, from)
				if err != nil {
					return err
				}
				after, err := s.TreeNamed(ctx, cmp.Or(to, "head"))
				if err != nil {
					return err
				}
				found := false
				err = each(before.Changes(ctx, after, argOr(args, 2, "/")), func(c oak.Change) error {
					found = true
					a.tell(c, func() { fmt.Fprintln(a.out, printable(c.String())) })
					return nil
				})
				return cmp.Or(err, answer(found))
			})
		}),
	}
}
