package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakSizesCommand() *cobra.Command {
	var o oak.SizesOptions
	cmd := &cobra.Command{
		Use:   "sizes STORE [PATH]",
		Short: "Say where the bytes of a tree are",
		Long: `Adds up what nodes take, and shows the largest children of PATH, to a depth, with
their own: bytes of records (nodes, names, texts), of binaries in the store, and of
binaries in a data store. What nodes share counts once, where it is met first.`,
		Example: "  holdall oak sizes segmentstore\n  holdall oak sizes --depth 3 segmentstore /content/dam",
		Args:    args(1, 2, "a store and the path of a node"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			sum, err := t.Sizes(ctx, argOr(args, 1, "/"), o)
			if err != nil {
				return err
			}
			a.tell(sum, func() {
				fmt.Fprintf(a.out, "%10s  %10s  %10s  %9s  path\n", "records", "binaries", "external", "nodes")
				a.printSizes(sum, 0)
			})
			if sum.Lost > 0 {
				a.out.Flush()
				a.warn("%d places cannot be read, and are not in the sums", sum.Lost)
				return errNo
			}
			return nil
		}),
	}
	cmd.Flags().IntVar(&o.Depth, "depth", 1, "levels of children")
	cmd.Flags().IntVar(&o.Top, "top", 20, "how many children of a node")
	return cmd
}

func (a *app) printSizes(n *oak.SizeNode, level int) {
	indent := strings.Repeat("  ", level)
	fmt.Fprintf(a.out, "%10s  %10s  %10s  %9d  %s%s\n", a.humanSize(n.Records), a.humanSize(n.Binaries), a.humanSize(n.External), n.Nodes, indent, printable(n.Path))
	for _, c := range n.Children {
		a.printSizes(c, level+1)
	}
	if n.Others > 0 {
		fmt.Fprintf(a.out, "%47s  %sand %d smaller ones\n", "", indent+"  ", n.Others)
	}
}
