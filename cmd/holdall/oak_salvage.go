package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
)

func (a *app) oakSalvageCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "salvage STORE -o OUT",
		Short: "Write what is left of a store to a new one",
		Long: `Writes a new store of all nodes that are left, whether or not STORE has a
journal, a readable revision or all its tars. STORE stays unchanged. Use it if
'holdall oak recover-journal' finds no intact revision.

The tree is that of the newest revision. What that has lost comes from the
newest older revision or checkpoint that has it at the same path. Nodes of
unknown paths go below /lost+found, with their names if a map still has them.
A property that is not whole is left out. Damaged checkpoints are left out, and
indexes must be rebuilt.

Each segment is compared with its checksum, and nothing is taken from damaged
ones. The exit code is 1 if anything is lost, older, or below /lost+found, or if
a newer revision may be lost.`,
		Example: "  holdall oak salvage segmentstore -o salvaged\n  holdall oak salvage --dry-run segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			if out == "" && !a.dryRun {
				return usage("expected one of -o OUT and --dry-run")
			}
			a.noVerify = false
			return a.oakSalvage(ctx, args[0], out)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder of the new store")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) oakSalvage(ctx context.Context, address, out string) error {
	var x oak.Salvaged
	err := a.newStore(ctx, address, out, "salvaged", func(ctx context.Context, s *oak.Store, m *holdall.Meter, to store.Store, name string) (err error) {
		x, err = s.Salvage(ctx, to, name, func(nodes int64) { m.Add(nodes, 0) })
		return err
	})
	if err != nil {
		return err
	}
	a.tell(x, func() { a.printSalvaged(out, x) })
	return answer(!x.Whole())
}

func (a *app) printSalvaged(out string, x oak.Salvaged) {
	a.printLosses(x.Losses, x.Lost)
	for _, o := range x.Older[:min(len(x.Older), mostPrinted)] {
		what := "older"
		if o.Name {
			what = "older name"
		}
		fmt.Fprintf(a.out, "%s: %s\n  from %s%s\n", what, printable(o.Path), o.From, timeIn(o.Time))
	}
	a.printMore(x.OlderPaths)
	a.notes(x.Notes)
	if x.Skipped > 0 {
		fmt.Fprintf(a.out, "%s skipped: damaged, or without a time\n", count(int64(x.Skipped), "segment"))
	}
	fmt.Fprint(a.out, ifAny("the tree is that of revision %s\n", x.Revision))
	fmt.Fprintf(a.out, "%s%s, %s, %s; lost %s, from older revisions %s", ifAny("%s: ", out), count(x.Nodes, "node"), count(int64(x.Checkpoints), "checkpoint"), a.humanSize(x.Bytes), count(x.Lost, "place"), count(x.OlderPaths, "path"))
	if x.Found > 0 {
		fmt.Fprintf(a.out, ", below %s %s", x.Folder, count(x.Found, "subtree"))
	}
	fmt.Fprintln(a.out, a.didNot())
}
