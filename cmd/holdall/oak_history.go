package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format/oak"
)

func (a *app) oakHistoryCommand() *cobra.Command {
	var o oak.HistoryOptions
	cmd := &cobra.Command{
		Use:   "history STORE PATH",
		Short: "Say which revisions changed a node",
		Long: `Goes through the journal, the newest revision first, and says what each did to a
node: added, removed, or changed with the properties and children that differ.
Revisions in a row that changed nothing are one line, and so are those that can
no longer be read, as most old ones after a cleanup.`,
		Example: "  holdall oak history segmentstore /content/site\n  holdall oak history --last 20 --json segmentstore /content/site/jcr:content",
		Args:    args(2, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			if a.params["revision"]+a.params["checkpoint"] != "" {
				return usage("--revision, --checkpoint: expected none, for all revisions are looked at")
			}
			return a.withOak(ctx, args[0], false, func(s *oak.Store) error {
				return each(s.History(ctx, args[1], o), func(step oak.Step) error {
					a.tell(step, func() { a.printStep(step) })
					return nil
				})
			})
		}),
	}
	cmd.Flags().IntVar(&o.Last, "last", 0, "how many revisions to look at; 0 is all")
	cmd.Flags().BoolVar(&o.All, "all", false, "a line for each revision that changed nothing, too")
	return cmd
}

func (a *app) printStep(s oak.Step) {
	fmt.Fprintf(a.out, "%-20s  %s  %s", cmp.Or(s.Time(), "-"), s.Revision, s.Change)
	if s.Revisions > 1 {
		fmt.Fprintf(a.out, " in %d revisions, down to %s", s.Revisions, s.Oldest)
	}
	fmt.Fprintln(a.out, ifAny(": %s", s.Lost))
	for _, list := range []struct {
		of    string
		names []oak.NameChange
	}{{"property", s.Properties}, {"child", s.Children}} {
		for _, n := range list.names {
			fmt.Fprintf(a.out, "    %-8s  %-8s  %s\n", n.Change, list.of, quoteEmpty(printable(n.Name)))
		}
	}
	if s.More {
		fmt.Fprintln(a.out, "    and others")
	}
}
