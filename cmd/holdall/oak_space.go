package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
)

func (a *app) oakCompactCommand() *cobra.Command {
	var out string
	var o oak.CompactOptions
	cmd := &cobra.Command{
		Use:   "compact STORE -o OUT",
		Short: "Write the newest revision to a new store, without garbage",
		Long: `Writes the newest revision, with its checkpoints, to a new store without
garbage. The old store stays unchanged. Each segment that is read is compared
with its checksum. If one is damaged, the command fails and reports the lost
path.

The new store appears whole or not at all. Its journal has one line; --history
also keeps older revisions.`,
		Example: "  holdall oak compact segmentstore -o compacted\n  holdall oak compact --no-checkpoints segmentstore -o compacted",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			if out == "" && !a.dryRun {
				return usage("expected one of -o OUT and --dry-run")
			}
			if o.History < -1 {
				return usage("--history: expected a number of revisions, or -1 for all")
			}
			return a.oakCompact(ctx, args[0], out, o)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder of the new store")
	cmd.Flags().IntVar(&o.History, "history", 0, "number of older revisions to keep; -1 is all")
	cmd.Flags().BoolVar(&o.NoCheckpoints, "no-checkpoints", false, "leave out the checkpoints")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) oakCompact(ctx context.Context, address, out string, o oak.CompactOptions) error {
	var c oak.Compaction
	err := a.newStore(ctx, address, out, "compacted", func(ctx context.Context, s *oak.Store, m *holdall.Meter, to store.Store, name string) (err error) {
		o.Progress = func(nodes int64) { m.Add(nodes, 0) }
		c, err = s.Compact(ctx, to, name, o)
		return err
	})
	if err != nil {
		return err
	}
	a.tell(c, func() {
		a.notes(c.Notes)
		fmt.Fprintf(a.out, "%s%s of %s; %s before, %s now%s\n", ifAny("%s: ", out), count(c.Nodes, "node"), count(int64(c.Revisions), "revision"), a.humanSize(c.Before), a.humanSize(c.After), a.didNot())
	})
	return nil
}

// newStore lets write make a new store of another one. Without an output it is a dry run.
func (a *app) newStore(ctx context.Context, address, out, word string, write func(context.Context, *oak.Store, *holdall.Meter, store.Store, string) error) error {
	outStore, outName, err := a.locateOut(ctx, cmp.Or(out, word))
	if err != nil {
		return err
	}
	outStore = a.dry(outStore, false)
	m := &holdall.Meter{}
	return a.withOak(ctx, address, false, func(s *oak.Store) error {
		defer a.showProgress(m, word)()
		build := func(ctx context.Context, to store.Store, name string, _ bool) error {
			return write(ctx, s, m, to, name)
		}
		if out == "" { // nothing is in the way of a store that has no name
			return build(ctx, outStore, outName, false)
		}
		return repairs.Apply(ctx, nil, "", format.Plan{Build: build, Place: oak.Format.Place}, outStore, outName)
	})
}

func (a *app) oakSizesCommand() *cobra.Command {
	var o oak.SizesOptions
	cmd := &cobra.Command{
		Use:   "sizes STORE [PATH]",
		Short: "Show which nodes take the space",
		Long: `Shows the size of PATH and of its largest children, down to --depth levels:
bytes of records (nodes, names, texts), of binaries in the store, and of
binaries in a data store. Records that several nodes share count once, for the
first node that is read. The exit code is 1 if damage hides records.`,
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
				a.warn("%d nodes or values cannot be read and are not counted", sum.Lost)
				return errNo
			}
			return nil
		}),
	}
	cmd.Flags().IntVar(&o.Depth, "depth", 1, "levels of children to show; -1 is all")
	cmd.Flags().IntVar(&o.Top, "top", 20, "number of children to show for each node")
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

func (a *app) oakBlobsCommand() *cobra.Command {
	var missing, unused, remove, dry bool
	var older time.Duration
	var to string
	var cmd *cobra.Command
	cmd = &cobra.Command{
		Use:   "blobs STORE...",
		Short: "List, copy or clean up binaries in a data store",
		Long: `Lists the binaries that a revision and its checkpoints have in a data store:
id, length, number of values that use it, and the path of the first. With
--datastore holdall looks each binary up there. The exit code is 1 if one is
missing or has another length; --missing lists only these. --copy-to copies
those that another data store lacks to it, and compares each with the digest
that is its id.

--unused lists the binaries in the data store that no segment of the STOREs
uses, in any revision or checkpoint. Binaries that were written or requested
during the last day are left out; --older-than sets this time. --delete removes
the unused binaries that have not changed since they were listed. It fails if a
repository has its mark in the data store and is not among the STOREs.`,
		Example: `  holdall oak blobs segmentstore
  holdall oak blobs --datastore datastore --missing segmentstore
  holdall oak blobs --datastore datastore --unused --delete --older-than 72h author/segmentstore publish/segmentstore`,
		Args: args(1, -1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			address := a.params["datastore"]
			switch {
			case (missing || unused) && address == "":
				return usage("--missing and --unused need --datastore")
			case to != "" && (address == "" || unused || missing):
				return usage("--copy-to needs --datastore, and neither --missing nor --unused")
			case missing && unused:
				return usage("expected one of --missing and --unused")
			case remove && !unused:
				return usage("--delete needs --unused")
			case older < 0:
				return usage("--older-than: expected at least 0, found %s", older)
			case dry && !remove:
				return usage("--dry-run needs --delete")
			case cmd.Flags().Changed("older-than") && !unused:
				return usage("--older-than needs --unused")
			case len(args) > 1 && !unused:
				return usage("several stores need --unused")
			}
			var in oak.Datastore
			if address != "" {
				var err error
				if in, err = a.datastore(ctx, address); err != nil {
					return err
				}
			}
			if unused {
				return a.oakGarbage(ctx, args, in, older, remove, dry)
			}
			var out *oak.Datastore
			if to != "" {
				st, dir, err := a.locateOut(ctx, to)
				if err != nil {
					return err
				}
				out = &oak.Datastore{Store: a.dry(st, false), Dir: dir, Cloud: oak.IsCloud(to)}
			}
			return a.withTree(ctx, args[0], func(t *oak.Tree) error { return a.oakBlobs(ctx, t, in, out, missing) })
		}),
	}
	cmd.Flags().BoolVar(&missing, "missing", false, "list only binaries that the data store lacks")
	cmd.Flags().StringVar(&to, "copy-to", "", "copy the binaries to the data store at this `address`")
	cmd.Flags().BoolVar(&unused, "unused", false, "list binaries of the data store that nothing uses")
	cmd.Flags().BoolVar(&remove, "delete", false, "with --unused: remove them")
	cmd.Flags().DurationVar(&older, "older-than", 24*time.Hour, "with --unused: only binaries that are at least this old")
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "with --delete: only print what would be removed")
	return cmd
}

func (a *app) datastore(ctx context.Context, address string) (in oak.Datastore, err error) {
	if in.Store, in.Dir, err = a.locate(ctx, address); err != nil {
		return in, err
	}
	in.Cloud = oak.IsCloud(address)
	return in, in.Found(ctx)
}

// copiesAtOnce is how many binaries are copied at once.
const copiesAtOnce = 8

func (a *app) oakBlobs(ctx context.Context, t *oak.Tree, in oak.Datastore, to *oak.Datastore, missing bool) error {
	absent, lost, n, bytes := false, int64(0), int64(0), int64(0)
	type row struct {
		oak.Blob
		err error
	}
	rows := func(yield func(*row, error) bool) {
		for b, err := range t.Blobs(ctx, oak.BlobOptions{Scratch: pack.NewScratch, Datastore: in}, &lost) {
			if !yield(&row{Blob: b}, err) {
				return
			}
		}
	}
	err := pipe.Ordered(ctx, rows, copiesAtOnce, func(ctx context.Context, r *row) {
		if to != nil {
			r.Copied, r.err = in.Copy(ctx, *to, &r.Blob)
		}
	}, func(r *row) error {
		if r.Copied {
			n, bytes = n+1, bytes+r.Length
		}
		absent = absent || r.Problem != ""
		if to == nil && !missing || r.Problem != "" || r.Copied && a.json {
			a.tell(r.Blob, func() { a.printBlob(r.Blob) })
		}
		return r.err
	}, func(*row) {})
	if err == nil && to != nil && !a.json {
		fmt.Fprintf(a.out, "copied: %s, %s\n", count(n, "binary"), a.humanSize(bytes))
	}
	if err == nil && lost > 0 {
		a.out.Flush()
		a.warn("%d nodes or values cannot be read: the binaries they use are unknown", lost)
	}
	return cmp.Or(err, answer(absent || lost > 0))
}

func (a *app) oakGarbage(ctx context.Context, addresses []string, in oak.Datastore, older time.Duration, remove, dry bool) error {
	o := oak.GarbageOptions{Datastore: in, Scratch: pack.NewScratch, Before: time.Now().Add(-older)}
	var stores []*oak.Store
	// Each store stays open until the end.
	var open func(rest []string) error
	open = func(rest []string) error {
		if len(rest) > 0 {
			return a.withOak(ctx, rest[0], false, func(s *oak.Store) error {
				stores = append(stores, s)
				return open(rest[1:])
			})
		}
		strangers, err := in.Strangers(ctx, stores)
		if err != nil {
			return err
		}
		if len(strangers) > 0 {
			said := "other repositories use the data store too: " + printable(strings.Join(strangers, ", "))
			if remove {
				return errors.New(said)
			}
			a.warn("%s", said)
		}
		return a.removeGarbage(ctx, stores, o, remove, dry)
	}
	return open(addresses)
}

func (a *app) removeGarbage(ctx context.Context, stores []*oak.Store, o oak.GarbageOptions, remove, dry bool) error {
	n, bytes, kept := int64(0), int64(0), int64(0)
	err := each(oak.Garbage(ctx, stores, o), func(b oak.Blob) error {
		if remove && !dry {
			gone, err := o.Delete(ctx, b)
			if err != nil {
				return err
			}
			if !gone {
				kept++
				return nil
			}
		}
		n, bytes = n+1, bytes+b.Length
		a.tell(b, func() { a.printBlob(b) })
		return nil
	})
	what := "unused"
	if remove {
		what = done(dry, "removed")
	}
	if !a.json && (n > 0 || remove) {
		fmt.Fprintf(a.out, "%s %s, %s\n", count(n, "binary"), what, a.humanSize(bytes))
	}
	if kept > 0 {
		a.warn("%s changed since the listing: kept", count(kept, "binary"))
	}
	return err
}

func (a *app) printBlob(b oak.Blob) {
	name := b.ID
	if b.Uses == 0 {
		name = b.Object
	}
	fmt.Fprintf(a.out, "%s  %s  %d%s%s\n", printable(name), a.humanSize(b.Length), b.Uses, ifAny("  %s", b.Path), ifAny(" (%s)", b.Problem))
}

func (a *app) oakRefsCommand() *cobra.Command {
	var nodes int
	cmd := &cobra.Command{
		Use:   "refs STORE UUID",
		Short: "List the references that keep a segment alive",
		Long: `Lists the segments that refer to a segment, with their tars, and a shortest
path to it from the segment of the newest revision, or of --revision. --paths N
searches the tree for N nodes with records in the segment; records of lists and
maps are not searched.`,
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
	cmd.Flags().IntVar(&nodes, "paths", 0, "search for this many nodes that need the segment")
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
		fmt.Fprintf(a.out, "\nno path from revision %s\n", x.Head)
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
