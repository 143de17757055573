package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/store"
)

func (a *app) oakCompactCommand() *cobra.Command {
	var out string
	var o oak.CompactOptions
	cmd := &cobra.Command{
		Use:   "compact STORE -o OUT",
		Short: "Write a new store of what the newest revision holds",
		Long: `Writes the newest revision, with its checkpoints, as a new store without garbage.
The old one stays as it is. Each segment that is read is compared with its
checksum: damage ends it, and says which path is lost.

The new store appears whole or not at all. Its journal has one line; --history
keeps revisions before that too.`,
		Example: "  holdall oak compact segmentstore -o compacted\n  holdall oak compact --no-checkpoints segmentstore -o compacted",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			if out == "" {
				return usage("-o OUT is missing")
			}
			if o.History < -1 {
				return usage("--history is how many, or -1 for all")
			}
			return a.oakCompact(ctx, args[0], out, o)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "the folder of the new store")
	cmd.Flags().IntVar(&o.History, "history", 0, "how many older revisions to keep; -1 is all")
	cmd.Flags().BoolVar(&o.NoCheckpoints, "no-checkpoints", false, "leave out the checkpoints")
	return cmd
}

func (a *app) oakCompact(ctx context.Context, address, out string, o oak.CompactOptions) error {
	outStore, outName, err := a.locateOut(ctx, out)
	if err != nil {
		return err
	}
	m := &holdall.Meter{}
	o.Progress = func(nodes int64) { m.Add(nodes, 0) }
	var c oak.Compaction
	err = a.withOak(ctx, address, false, func(s *oak.Store) error {
		defer a.showProgress(m, "compacted")()
		write := func(ctx context.Context, to store.Store, name string, _ bool) (err error) {
			c, err = s.Compact(ctx, to, name, o)
			return err
		}
		_, err := holdall.Apply(ctx, nil, "", holdall.Plan{Build: write}, outStore, outName)
		return err
	})
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(c)
		return nil
	}
	a.notes(c.Notes)
	fmt.Fprintf(a.out, "%s: %s of %s; %s before, %s now\n", out, count(c.Nodes, "node"), count(int64(c.Revisions), "revision"), a.humanSize(c.Before), a.humanSize(c.After))
	return nil
}
