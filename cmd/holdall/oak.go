package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

func (a *app) oakCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "oak",
		Short: "Inspect, check and repair segment stores of Apache Oak",
		Long: `Inspects, checks, repairs and copies segment stores of Apache Oak, which AEM
uses. A STORE is the folder with the tars, or one of them. Verbs that only read
never write anything into the folder, even if the store is damaged.`,
		Example: `  holdall oak check segmentstore
  holdall oak recover-journal --dry-run segmentstore
  holdall oak sizes segmentstore /content`,
	}
	cmd.AddCommand(a.oakSegmentCommand(), a.oakRecordCommand(), a.oakGraphCommand(), a.oakCleanupCommand(), a.oakCompactCommand(),
		a.oakImportCommand(), a.oakCheckCommand(), a.oakRecoverCommand(), a.oakSalvageCommand(), a.oakWatchCommand(), a.oakCopyCommand(), a.oakCheckpointsCommand(),
		a.oakSetCommand(), a.oakRmCommand(), a.oakReplaceCommand(), a.oakBackupCommand(), a.oakRestoreCommand())
	for _, c := range []*cobra.Command{a.oakExportCommand(), a.oakFindCommand(), a.oakIndexesCommand(), a.oakDiffCommand(), a.oakHistoryCommand(), a.oakBlobsCommand(), a.oakSizesCommand(), a.oakRefsCommand()} {
		cmd.AddCommand(a.takes(format.ToOpen, c, oak.Format))
	}
	return cmd
}

var oakHints = map[string]string{
	"oak not-a-store":     "expected the folder with the tars, which is usually called segmentstore",
	"oak no-head":         "'holdall oak recover-journal' finds revisions without a journal, 'holdall oak salvage' writes what is left to a new store",
	"oak no-root":         "--revision shows another revision, 'holdall oak salvage' writes what is left to a new store",
	"oak checksum":        "'holdall repair' repairs what it can, --no-verify reads the damaged data",
	"oak missing-segment": "'holdall oak check' finds the newest revision that is intact",
	"oak bad-record":      "'holdall oak check' finds the newest revision that is intact",
	"oak needed":          "'holdall oak recover-journal --dry-run' shows whether the journal is old, 'holdall oak compact' writes a new store in the right order",
	"oak external-blob":   "--datastore names the folder with the content",
}

// withOak opens a segment store for do. If it is to be changed, it takes the
// store's lock.
func (a *app) withOak(ctx context.Context, address string, change bool, do func(*oak.Store) error) (err error) {
	return a.locked(ctx, address, change, func(st store.Store, name string) error {
		s, err := oak.OpenStore(ctx, st, name, a.oakOptions())
		if err != nil {
			return err
		}
		if err = s.Fixed(); err == nil || !change {
			err = do(s)
		}
		if p := s.Doubt(); p != nil && err == nil {
			a.report(&format.CorruptError{Format: oak.Format.Name, Problem: *p})
			err = errNo
		}
		return errors.Join(err, s.Close())
	})
}

// oakOptions returns the options for opening a segment store.
func (a *app) oakOptions() format.OpenOptions {
	said := a.saysHealed(a.address)
	return format.OpenOptions{Limits: a.openOptions().Limits, NoVerify: a.noVerify, OnHeal: sync.OnceFunc(func() { said("its checksums") })}
}

// onStore adapts a function on a segment store; onTree one on the tree that
// flags select.
func (a *app) onStore(do func(ctx context.Context, s *oak.Store, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withOak(ctx, args[0], false, func(s *oak.Store) error { return do(ctx, s, args) })
	})
}

func (a *app) onTree(do func(ctx context.Context, t *oak.Tree, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withTree(ctx, args[0], func(t *oak.Tree) error { return do(ctx, t, args) })
	})
}

func (a *app) oakSegmentCommand() *cobra.Command {
	var dump bool
	cmd := &cobra.Command{
		Use:     "segment STORE UUID",
		Short:   "Show the header, references and records of a segment",
		Long:    "Shows the header of a segment, its references and records, and its tar entry.\nThe exit code is 1 if the segment is damaged.",
		Example: "  holdall oak segment segmentstore 486aa03b-5c65-4d55-ad28-72210ab8c5e7",
		Args:    args(2, 2, "a store and the id of a segment"),
		RunE: a.onStore(func(ctx context.Context, s *oak.Store, args []string) error {
			info, err := s.Segment(ctx, args[1])
			if err != nil {
				return err
			}
			a.tell(info, func() { a.printSegment(info) })
			if !dump {
				return answer(len(info.Problems) > 0)
			}
			b, err := s.Bytes(ctx, args[1])
			if err != nil {
				return err
			}
			d := hex.Dumper(a.out)
			_, err = d.Write(b)
			return cmp.Or(errors.Join(err, d.Close()), answer(len(info.Problems) > 0))
		}),
	}
	cmd.Flags().BoolVar(&dump, "hex", false, "also print the bytes")
	return cmd
}

// notThere is shown in place of the tar of a segment that is in no tar.
const notThere = "(missing)"

func (a *app) printSegment(s oak.SegmentInfo) {
	line := a.line
	line("segment", "%s", s.ID)
	line("kind", "%s", s.Kind)
	line("tar", "%s, %d bytes at %d", s.Tar, s.Size, s.Position)
	if len(s.Copies) > 0 {
		line("also in", "%s", strings.Join(s.Copies, ", "))
	}
	if s.Kind == "data" {
		compacted := ""
		if s.Compacted {
			compacted = ", compacted"
		}
		line("version", "%d", s.Version)
		line("generation", "%d, full %d%s", s.Generation, s.Full, compacted)
		line("info", "%s", printable(s.Info))
	}
	for _, p := range s.Problems {
		line("problem", "%s", printable(p))
	}
	head := func(n int, words string) {
		if n > 0 {
			fmt.Fprintf(a.out, "\n%s\n", words)
		}
	}
	head(len(s.References), "refers to")
	for _, r := range s.References {
		fmt.Fprintf(a.out, "%6d  %s  %-5s %s\n", r.Number, r.ID, r.Kind, cmp.Or(r.Tar, notThere))
	}
	head(len(s.Types), "records")
	for _, t := range slices.Sorted(maps.Keys(s.Types)) {
		fmt.Fprintf(a.out, "%6d  %s\n", s.Types[t], t)
	}
	head(len(s.Records), "number  position  type")
	for _, r := range s.Records {
		fmt.Fprintf(a.out, "%6d  %8d  %s\n", r.Number, r.Position, r.Type)
	}
}

func (a *app) oakRecordCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "record STORE UUID:NUMBER",
		Short:   "Show the fields of a record and their references",
		Long:    "Shows each field of a record of any type, its references, and any damage.",
		Example: "  holdall oak record segmentstore 486aa03b-5c65-4d55-ad28-72210ab8c5e7:5",
		Args:    args(2, 2, "a store and the id of a record"),
		RunE: a.onStore(func(ctx context.Context, s *oak.Store, args []string) error {
			r, err := s.Record(ctx, args[1])
			if err != nil {
				return err
			}
			a.tell(r, func() {
				fmt.Fprintf(a.out, "%s, %s at offset %d of its segment, in %s\n", r.ID, r.Type, r.Position, r.Tar)
				for _, f := range r.Fields {
					fmt.Fprintf(a.out, "%8d  %-18s%s%s%s\n", f.Position, f.Name, ifAny(" %s", f.Record), ifAny(" %s", f.Value), ifAny(" (%s)", f.Problem))
				}
				fmt.Fprint(a.out, ifAny("problem: %s\n", r.Problem))
			})
			return nil
		}),
	}
}

func (a *app) oakGraphCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "graph STORE",
		Short: "Write the graph of segments, for Graphviz or as JSON",
		Long: `Writes the graph of all data segments: which segment refers to which. The output
is for Graphviz, or with --json one line per segment. If the graph in a tar is
damaged, holdall reads the segments instead.`,
		Example: "  holdall oak graph segmentstore | dot -Tsvg -o graph.svg",
		Args:    args(1, 1, "a store"),
		RunE: a.onStore(func(ctx context.Context, s *oak.Store, args []string) error {
			if out != "" {
				if err := a.mayWrite(ctx, args[0], out, "a graph", begins("digraph ")); err != nil {
					return err
				}
				return writeFile(ctx, out, func(w io.Writer) error { return writeGraph(ctx, s, w) })
			}
			if !a.json {
				return writeGraph(ctx, s, a.out)
			}
			for e, err := range s.Graph(ctx) {
				if err != nil {
					return err
				}
				a.printJSON(e)
			}
			return nil
		}),
	}
	a.forceFlag(cmd.Flags())
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this file")
	return cmd
}

func (a *app) oakCleanupCommand() *cobra.Command {
	var o oak.CleanupOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "cleanup STORE",
		Short: "Remove garbage that compactions left",
		Long: `Rewrites tars without the segments that are garbage by the rules of Oak:
segments of old generations, and bulk segments without references. A tar that
is mostly in use stays unchanged. New tars are written before old ones are
removed. The store must not be open in another program; holdall checks its
lock.

What the newest revision or a checkpoint needs is kept, even if these rules
would remove it. If it is not certain what they need, nothing is changed, and
the exit code is 2. 'holdall oak check --fix-gc' makes the store safe from Oak's
cleanup.`,
		Example: "  holdall oak cleanup --dry-run segmentstore\n  holdall oak cleanup segmentstore",
		Args:    args(1, 1, "a store"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.withOak(ctx, args[0], !dryRun, func(s *oak.Store) error { return a.oakCleanup(ctx, s, o, dryRun) })
		}),
	}
	cmd.Flags().IntVar(&o.Retain, "retain", 1, "generations to keep; a running Oak keeps 2")
	cmd.Flags().BoolVar(&o.Tail, "tail", false, "assume that the last compaction was a tail compaction")
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, dryRunUsage)
	return cmd
}

func (a *app) oakCleanup(ctx context.Context, s *oak.Store, o oak.CleanupOptions, dryRun bool) error {
	c, err := s.PlanCleanup(ctx, o)
	if err != nil {
		return err
	}
	if !dryRun { // gc.log may be wrong though there is no garbage
		if err := c.Apply(ctx); err != nil {
			return err
		}
	}
	a.tell(c, func() {
		for _, t := range slices.Backward(c.Tars) {
			what := strings.ReplaceAll(t.Action, "-", " ") + ifAny(" as %s", t.NewName)
			fmt.Fprintf(a.out, "%s: %s; %s of %s in %d of %d segments are garbage\n", t.Name, what, a.humanSize(t.GarbageBytes), a.humanSize(t.Bytes), t.Garbage, t.Segments)
		}
		a.notes(c.Notes)
		fmt.Fprintf(a.out, "%s of %s %s\n", a.humanSize(c.Before-c.After), a.humanSize(c.Before), done(dryRun, "freed"))
	})
	return nil
}

func (a *app) notes(list []string) {
	for _, n := range list {
		fmt.Fprintln(a.out, "note: "+printable(n))
	}
}

// lockStore takes the lock that keeps Oak from writing the segment store, and
// returns the store as it is changed under the lock. Anything that is not a
// segment store, on a disk or in Azure, has no lock.
func (a *app) lockStore(ctx context.Context, st store.Store, name string) (locked store.Store, unlock func() error, err error) {
	l, ok := st.(*local.Store)
	if !ok {
		return oak.Lock(ctx, st, name)
	}
	none := func() error { return nil }
	dir := filepath.FromSlash(l.Address(name))
	if _, _, ok := oak.IsTar(filepath.Base(dir)); ok {
		dir = filepath.Dir(dir)
	}
	files, err := os.ReadDir(dir)
	if err != nil || !slices.ContainsFunc(files, func(f os.DirEntry) bool { _, _, ok := oak.IsTar(f.Name()); return ok }) {
		return st, none, nil // opening it later returns the error
	}
	free, err := lockRepository(dir)
	if err != nil {
		return nil, nil, err
	}
	return st, func() error { free(); return nil }, nil
}

// writeGraph writes a graph in the language of Graphviz. Data segments are
// boxes, grouped by tar; bulk segments are points.
func writeGraph(ctx context.Context, s *oak.Store, to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintln(w, "digraph segments {\n\trankdir=LR\n\tnode [shape=box, fontname=monospace]")
	bulk := map[string]bool{}
	for e, err := range s.Graph(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\t%q [label=%q, group=%q]\n", e.From, e.From[:8]+"\n"+e.Tar, e.Tar)
		for _, id := range e.To {
			fmt.Fprintf(w, "\t%q -> %q\n", e.From, id)
			if id[19] == 'b' && !bulk[id] {
				bulk[id] = true
				fmt.Fprintf(w, "\t%q [shape=point]\n", id)
			}
		}
	}
	fmt.Fprintln(w, "}")
	return w.Flush()
}
