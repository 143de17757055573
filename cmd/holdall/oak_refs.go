package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakRefsCommand() *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use:   "refs STORE UUID",
		Short: "Say what keeps a segment alive",
		Long: `Lists the segments that refer to one, with their tars, and a shortest way to it from
the segment of the newest revision, or of --revision. --paths N looks through the
tree for N nodes whose records lie in it; records of lists and maps are not looked at.`,
		Example: "  holdall oak refs --paths 10 segmentstore 486aa03b-5c65-4d55-ad28-72210ab8c5e7",
		Args:    args(2, 2, "a store and the id of a segment"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			x, err := t.Referrers(ctx, args[1], nodes)
			if err != nil {
				return err
			}
			a.tell(x, func() { a.printReferrers(x, nodes > 0) })
			return a.lostNodes(x.Lost)
		}),
	}
	cmd.Flags().IntVar(&nodes, "paths", 0, "how many nodes that need it to look for")
	return cmd
}

func (a *app) printReferrers(x oak.Referrers, nodes bool) {
	fmt.Fprintf(a.out, "%s  %s\n\nreferred to by %d segments\n", x.Segment, cmp.Or(x.Tar, notThere), len(x.Direct)+x.More)
	for _, d := range x.Direct {
		fmt.Fprintf(a.out, "  %s  %s\n", d.Segment, d.Tar)
	}
	if x.More > 0 {
		fmt.Fprintf(a.out, "  and %d others\n", x.More)
	}
	if len(x.Path) == 0 {
		fmt.Fprintf(a.out, "\nrevision %s does not lead to it\n", x.Head)
	} else {
		fmt.Fprintf(a.out, "\nfrom revision %s\n", x.Head)
	}
	for _, p := range x.Path {
		fmt.Fprintf(a.out, "  %s  %s\n", p.Segment, p.Tar)
	}
	if nodes {
		fmt.Fprintf(a.out, "\nnodes\n")
	}
	for _, n := range x.Nodes {
		fmt.Fprintf(a.out, "  %s (%s)\n", printable(n.Path), printable(n.What))
	}
}
