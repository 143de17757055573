package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakWatchCommand() *cobra.Command {
	var o oak.WatchOptions
	var every time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "watch STORE [PATH]",
		Short: "Print the changes of each new revision of a store",
		Long: `Prints each new revision of a store that another program writes, with its
changes in the form of 'oak diff'. With PATH it prints only revisions that
changed something there; the node need not exist yet. It runs until you
interrupt it, and then the exit code is 0.

--from starts after a revision of the journal, or after a time. --once stops
after the newest revision. --interval sets how often the journal is read. A
revision that a cleanup removes before it is read is reported as lost.`,
		Example: "  holdall oak watch segmentstore /content\n  holdall oak watch --json --from 2026-11-20T00:00:00Z --once segmentstore",
		Args:    args(1, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			if every < 0 {
				return usage("--interval: expected at least 0, found %s", every)
			}
			o.Path = argOr(args, 1, "/")
			err := a.oakWatch(ctx, args[0], o, every, once)
			if errors.Is(context.Cause(ctx), errInterrupted) {
				return nil
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.From, "from", "", "start after this revision, UUID:NUMBER or a time (default the newest)")
	f.DurationVar(&every, "interval", time.Second, "how often to read the journal")
	f.BoolVar(&once, "once", false, "stop after the newest revision")
	return cmd
}

func (a *app) oakWatch(ctx context.Context, address string, o oak.WatchOptions, every time.Duration, once bool) (err error) {
	st, name, err := a.locateIn(ctx, address)
	if err != nil {
		return err
	}
	w, err := oak.Watch(ctx, st, name, a.oakOptions(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	doubt := w.Doubt()
	if doubt != nil {
		a.report(&format.CorruptError{Format: oak.Format.Name, Problem: *doubt})
	}
	for {
		err := each(w.Next(ctx), func(r oak.Arrival) error {
			a.tell(r, func() { a.printArrival(r) })
			return a.out.Flush()
		})
		if err != nil || once {
			return errors.Join(err, answer(doubt != nil))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

func (a *app) printArrival(r oak.Arrival) {
	if r.Gap {
		fmt.Fprintln(a.out, "note: the journal was rewritten: earlier revisions may be missing here")
	}
	fmt.Fprintf(a.out, "%s%s%s\n", r.Revision, timeIn(r.Time), ifAny(": %s", r.Lost))
	for _, c := range r.Changes {
		fmt.Fprintln(a.out, "    "+printable(c.String()))
	}
	if r.More {
		fmt.Fprintln(a.out, "    and others")
	}
}
