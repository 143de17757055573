package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakCheckpointsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoints STORE",
		Short: "List checkpoints and their sizes, or remove some",
		Long: `Lists the checkpoints of the newest revision, newest first. For each it prints
when it was created, when it expires, whether asynchronous indexing uses it, and
how many bytes are only in it and older checkpoints. If you remove a checkpoint
and all older ones, the sum of these bytes becomes garbage.`,
		Example: "  holdall oak checkpoints segmentstore\n  holdall oak checkpoints rm --unreferenced segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: a.onStore(func(ctx context.Context, s *oak.Store, _ []string) error {
			all, err := s.Checkpoints(ctx, time.Now(), true)
			if err != nil {
				return err
			}
			lost := int64(0)
			for _, c := range all {
				a.tell(c, func() { a.printCheckpoint(c, true) })
				lost += c.Lost
			}
			if lost > 0 {
				a.out.Flush()
				a.warn("%d nodes or values cannot be read and are not counted", lost)
				return errNo
			}
			return nil
		}),
	}
	cmd.AddCommand(a.oakCheckpointsRmCommand())
	return cmd
}

func (a *app) printCheckpoint(c oak.Checkpoint, sizes bool) {
	at := func(t *time.Time, none string) string {
		if t == nil {
			return none
		}
		return t.Format(time.RFC3339)
	}
	fmt.Fprintf(a.out, "%s  created %s", printable(c.Name), at(c.Created, "?"))
	if c.Created != nil {
		fmt.Fprintf(a.out, ", %s ago", age(time.Since(*c.Created)))
	}
	fmt.Fprintf(a.out, ", expires %s", at(c.Expires, "never"))
	if c.Expired {
		fmt.Fprint(a.out, " (expired)")
	}
	if sizes {
		fmt.Fprintf(a.out, ", holds %s", a.humanSize(c.Bytes))
		if c.External > 0 {
			fmt.Fprintf(a.out, " and %s in a data store", a.humanSize(c.External))
		}
	}
	if !c.Referenced {
		fmt.Fprint(a.out, ", not referenced")
	}
	fmt.Fprintln(a.out)
	for _, name := range slices.Sorted(maps.Keys(c.Properties)) {
		fmt.Fprintf(a.out, "  %s = %s\n", printable(name), printable(c.Properties[name]))
	}
	fmt.Fprint(a.out, ifAny("  damaged: %s\n", printable(c.Problem)))
}

func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return count(int64(d/(24*time.Hour)), "day")
	case d >= 2*time.Hour:
		return count(int64(d/time.Hour), "hour")
	}
	return count(int64(max(d, 0)/time.Minute), "minute")
}

func (a *app) oakCheckpointsRmCommand() *cobra.Command {
	var o oak.CheckpointChoice
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rm STORE [NAME...]",
		Short: "Remove checkpoints in a new revision",
		Long: `Writes a new revision without the given checkpoints, or without those that the
flags select. Oak rebuilds an asynchronous index whose checkpoint is removed.
'holdall oak compact', or Oak's own compaction, frees the space.
` + stopped,
		Example: "  holdall oak checkpoints rm --dry-run --unreferenced segmentstore\n  holdall oak checkpoints rm segmentstore 0a1b2c3d-0000-4000-8000-000000000000",
		Args:    args(1, -1, "a store, and names of checkpoints"),
		RunE: run(func(ctx context.Context, args []string) error {
			o.Names = args[1:]
			if len(o.Names) == 0 && !o.All && !o.Expired && !o.Unreferenced {
				return usage("expected NAMEs, --unreferenced, --expired or --all")
			}
			return a.withOak(ctx, args[0], !dryRun, func(s *oak.Store) error {
				r, err := s.RemoveCheckpoints(ctx, o, time.Now(), dryRun)
				if err != nil {
					return err
				}
				a.tell(r, func() {
					for _, c := range r.Removed {
						a.printCheckpoint(c, dryRun)
					}
					fmt.Fprintf(a.out, "%s %s\n", count(int64(len(r.Removed)), "checkpoint"), done(dryRun, "removed"))
					if len(r.Removed) > 0 {
						a.printRevised(r.Revised)
						fmt.Fprintln(a.out, "compact the store to free the space: 'holdall oak compact'")
					}
				})
				return nil
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Unreferenced, "unreferenced", false, "remove those that asynchronous indexing does not use")
	f.BoolVar(&o.Expired, "expired", false, "remove those that have expired")
	f.BoolVar(&o.All, "all", false, "remove all checkpoints")
	f.BoolVarP(&dryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

// done returns the words for what was done, or would be done in a dry run.
func done(dryRun bool, what string) string {
	if dryRun {
		return "would be " + what
	}
	return what
}

func (a *app) printRevised(r oak.Revised) {
	if r.Revision != "" {
		fmt.Fprintf(a.out, "new revision %s, in %s, %s; previous revision %s\n", r.Revision, strings.Join(r.Tars, ", "), a.humanSize(r.Bytes), r.Before)
	}
}

func (a *app) oakSetCommand() *cobra.Command {
	var o oak.SetOptions
	cmd := &cobra.Command{
		Use:   "set STORE PATH PROPERTY VALUE...",
		Short: "Set a property of a node in a new revision",
		Long: `Sets a property of the node at PATH to one or more values. Without --type and
--multiple an existing property keeps its type, and a new one is a String. Types
are String, Binary, Long, Double, Date, Boolean, Name, Path, Reference,
WeakReference, URI and Decimal.

Node types are not checked, and property indexes are not updated: rebuild them
if they cover the property.
` + stopped,
		Example: "  holdall oak set segmentstore /content/site/jcr:content jcr:title 'A title'\n  holdall oak set --type Long segmentstore /content/a size 12",
		Args:    args(3, -1, "a store, the path of a node, a property and its value"),
		RunE: run(func(ctx context.Context, args []string) error {
			if len(args) == 3 && !o.Multiple {
				return usage("expected a VALUE; only with --multiple there may be none")
			}
			return a.operate(ctx, args[0], o.DryRun, func(s *oak.Store) (oak.Surgery, error) { return s.Set(ctx, args[1], args[2], args[3:], o) })
		}),
	}
	cmd.Flags().StringVar(&o.Type, "type", "", "type of the values")
	cmd.Flags().BoolVar(&o.Multiple, "multiple", false, "make it a property with any number of values")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

// stopped is the end of the help of all verbs that write a revision.
const stopped = `
The store must not be open in another program; holdall checks its lock. If the
command is interrupted, the store has either the old revision or the new one.
The old one stays in the journal: 'holdall ls --revision' shows it.`

func (a *app) oakRmCommand() *cobra.Command {
	var o oak.RemoveOptions
	cmd := &cobra.Command{
		Use:   "rm STORE PATH",
		Short: "Remove a node or a property in a new revision",
		Long: `Removes the node at PATH and everything below it, or one of its properties. The
node may be damaged; only the nodes above it must be readable. --lost keeps the
node, and removes its unreadable properties and the children with lost names.
` + stopped,
		Example: "  holdall oak rm --dry-run segmentstore /content/broken\n  holdall oak rm --property jcr:data segmentstore /content/a.png/jcr:content",
		Args:    args(2, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			if o.Lost && o.Property != "" {
				return usage("expected one of --lost and --property")
			}
			return a.operate(ctx, args[0], o.DryRun, func(s *oak.Store) (oak.Surgery, error) { return s.Remove(ctx, args[1], o) })
		}),
	}
	cmd.Flags().StringVar(&o.Property, "property", "", "remove only this property of the node")
	cmd.Flags().BoolVar(&o.Lost, "lost", false, "remove only unreadable properties and children of the node")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

func (a *app) oakReplaceCommand() *cobra.Command {
	var o oak.ReplaceOptions
	var from string
	cmd := &cobra.Command{
		Use:   "replace STORE PATH --from OTHER[@REVISION]",
		Short: "Restore a node from another store or revision",
		Long: `Writes a new revision in which the node at PATH, with everything below it, is
replaced by the node that OTHER has at this path. OTHER is another store, such
as a backup, a JSON export, or a FileVault package. Without OTHER it is the
same store. REVISION is UUID:NUMBER, a time, head, or checkpoint:ID.

The node may be damaged or missing; its parent must be readable. If the source
of the copy is damaged, the command fails. Binaries in a data store stay there.` + stopped,
		Example: "  holdall oak replace segmentstore /content/site --from @2026-11-20T00:00:00Z\n  holdall oak replace segmentstore /content/site --from /backup/segmentstore",
		Args:    args(2, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			if from == "" {
				return usage("--from OTHER[@REVISION] is missing")
			}
			return a.operate(ctx, args[0], o.DryRun, func(s *oak.Store) (done oak.Surgery, err error) {
				err = a.withDonor(ctx, s, args[0], from, func(d oak.Donor) (err error) {
					done, err = s.Replace(ctx, args[1], d, o)
					return err
				})
				return done, err
			})
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "copy from this store or revision: `OTHER[@REVISION]`")
	cmd.Flags().StringVar(&o.Property, "property", "", "replace only this property of the node")
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

// named matches the names that TreeNamed takes.
var named = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(head|checkpoint:.+|[0-9a-f]{8}-[-0-9a-f]{27}[:.][0-9a-f]+|[0-9]{4}-[0-9]{2}-[0-9]{2}T[-+:.0-9Z]+)$`)
})

// withDonor opens the source that a node is to be copied from.
func (a *app) withDonor(ctx context.Context, s *oak.Store, own, said string, do func(oak.Donor) error) error {
	address, revision := said, "head"
	if i := strings.LastIndexByte(said, '@'); i >= 0 && (i == 0 || named().MatchString(said[i+1:])) {
		address, revision = said[:i], said[i+1:]
	}
	tree := func(s *oak.Store) error {
		t, err := s.TreeNamed(ctx, revision)
		if err != nil {
			return err
		}
		return do(oak.Donor{Tree: t})
	}
	if address == "" || address == own {
		return tree(s)
	}
	if info, err := os.Stat(address); address == said && (said == "-" || err == nil && info.Mode().IsRegular()) {
		return a.withExport(ctx, said, do)
	}
	return a.withOak(ctx, address, false, tree)
}

func (a *app) input(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.stdin), nil
	}
	return os.Open(name)
}

func (a *app) operate(ctx context.Context, address string, dryRun bool, do func(*oak.Store) (oak.Surgery, error)) error {
	return a.withOak(ctx, address, !dryRun, func(s *oak.Store) error {
		r, err := do(s)
		if err != nil {
			return err
		}
		a.tell(r, func() {
			fmt.Fprintf(a.out, "%s%s %s%s", printable(r.Path), ifAny(" property %s", printable(r.Property)), done(dryRun, map[string]string{"set": "set", "remove": "removed", "replace": "replaced"}[r.Action]), ifAny(", type %s", r.Type))
			if r.Nodes > 0 {
				fmt.Fprintf(a.out, "; %s copied", count(r.Nodes, "node"))
			}
			fmt.Fprintln(a.out)
			a.printRevised(r.Revised)
		})
		return nil
	})
}
