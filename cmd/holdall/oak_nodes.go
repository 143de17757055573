package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/zip"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
)

func (a *app) showsNodes(in *holdall.Archive) bool {
	return in.Format() == oak.Format && cmp.Or(a.view, oak.Format.Views[0]) == "tree"
}

func (a *app) catNodes(ctx context.Context, address string, names []string, depth int) error {
	return a.withTree(ctx, address, func(t *oak.Tree) error {
		lost := int64(0)
		for _, name := range names {
			n, err := t.WriteJSON(ctx, a.out, name, depth)
			if lost += n; err != nil {
				return err
			}
		}
		return a.lostNodes(lost)
	})
}

func (a *app) oakExportCommand() *cobra.Command {
	var o oak.ExportOptions
	var out, packed string
	var resume bool
	cmd := &cobra.Command{
		Use:   "export STORE [PATH...]",
		Short: "Export nodes as JSON lines, or as a FileVault package",
		Long: `Writes a node and everything below it as JSON lines, parents first: one line per
node, with all its properties. Values that are too long for the line follow in
lines of their own. --revision and --checkpoint select the tree. Damage is
written as a line that describes the loss, and the exit code is 1.

-o FILE writes to FILE.part, and renames it to FILE at the end. If the export is
interrupted, --resume continues with FILE.part. --after continues after a node
that was written. Both need the same revision, PATH and options.

--package writes a package of Apache Jackrabbit FileVault instead, which a
repository can install. It has one or several PATHs with everything below them.
Hidden nodes are left out. Losses by damage, and properties that a package
cannot hold, are listed, and the exit code is 1. Binaries in a data store need
--datastore.`,
		Example: `  holdall oak export segmentstore /content/site > site.jsonl
  holdall oak export --package site.zip segmentstore /content/site /content/dam/site
  holdall oak export --no-binaries -o all.jsonl segmentstore
  holdall oak export --no-binaries -o all.jsonl --resume segmentstore`,
		Args: args(1, -1, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			switch {
			case packed != "" && (out != "" || resume || o.After != "" || o.NoBinaries || o.Depth >= 0):
				return usage("--package cannot be combined with the other flags")
			case packed != "" && len(args) == 1:
				return usage("--package: expected the paths of nodes")
			case packed != "":
				return a.oakPackage(ctx, args[0], packed, args[1:])
			case len(args) > 2:
				return usage("several paths need --package")
			case resume && out == "":
				return usage("--resume needs -o FILE")
			case resume && o.After != "":
				return usage("expected one of --resume and --after")
			}
			return a.withTree(ctx, args[0], func(t *oak.Tree) error {
				name := argOr(args, 1, "/")
				if out == "" || a.dryRun && !resume {
					return a.oakExport(ctx, t, a.out, name, o)
				}
				if err := a.mayWrite(ctx, args[0], out, "an export", begins("{")); err != nil {
					return err
				}
				if isSpecial(out) && !resume {
					return writeFile(ctx, out, func(w io.Writer) error { return a.oakExport(ctx, t, w, name, o) })
				}
				return a.oakExportFile(ctx, t, out, name, o, resume)
			})
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write to this file")
	a.forceFlag(cmd.Flags())
	cmd.Flags().StringVar(&packed, "package", "", "write a FileVault package to this file")
	cmd.Flags().IntVar(&o.Depth, "depth", -1, "levels to export below PATH; 0 is only PATH, -1 is all")
	cmd.Flags().BoolVar(&o.NoBinaries, "no-binaries", false, "leave out the content of binaries")
	cmd.Flags().StringVar(&o.After, "after", "", "continue after the node at this path")
	cmd.Flags().BoolVar(&resume, "resume", false, "continue an interrupted export to the file of -o")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) oakPackage(ctx context.Context, address, out string, paths []string) error {
	o := oak.PackageOptions{Scratch: pack.NewScratch, Lost: func(path, what string) { a.warn("%s: lost: %s", printable(path), printable(what)) }}
	if said := a.params["datastore"]; said != "" {
		var err error
		if o.Datastore, err = a.datastore(ctx, said); err != nil {
			return err
		}
	}
	st, name, err := a.locateOut(ctx, out)
	if err != nil {
		return err
	}
	if err := a.mayWrite(ctx, address, out, "a zip", format.All().Detects(zip.Format)); err != nil {
		return err
	}
	return a.withTree(ctx, address, func(t *oak.Tree) error {
		w, err := kit.Create(ctx, zip.Format, st, name, format.CreateOptions{Scratch: pack.NewScratch})
		if err != nil {
			return err
		}
		done, err := t.Package(ctx, w, paths, o)
		if err != nil {
			return errors.Join(err, w.Abort())
		}
		a.tell(done, func() { fmt.Fprintf(a.out, "%s: %s%s\n", out, count(done.Nodes, "node"), a.didNot()) })
		return answer(done.Lost > 0)
	})
}

type packageFiles struct{ *holdall.Archive }

func (p packageFiles) Open(ctx context.Context, e format.Entry) (io.ReadCloser, error) {
	return p.OpenEntry(ctx, e)
}

// openPackage opens a file as a package, if it begins like an archive of that
// kind.
func (a *app) openPackage(ctx context.Context, name string) (oak.Package, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 4)
	if _, err := io.ReadFull(f, b); err != nil || string(b[:2]) != "PK" {
		return nil, nil
	}
	in, err := a.open(ctx, name, false)
	if err != nil {
		return nil, err
	}
	if in.Format() != zip.Format {
		return nil, errors.Join(fmt.Errorf("%s: expected a FileVault package, found %s", name, in.Format().Name), in.Close())
	}
	return packageFiles{in}, nil
}

func (a *app) withTree(ctx context.Context, address string, do func(*oak.Tree) error) error {
	return a.withOak(ctx, address, false, func(s *oak.Store) error {
		t, err := s.Tree(ctx, a.openOptions().Param)
		if err != nil {
			return err
		}
		return do(t)
	})
}

// isSpecial reports whether a file is written to instead of replaced: a device
// or a pipe.
func isSpecial(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.Mode().IsRegular()
}

// oakExportFile exports into a file, which gets its name when it is complete.
func (a *app) oakExportFile(ctx context.Context, t *oak.Tree, out, name string, o oak.ExportOptions, resume bool) error {
	part, how := out+".part", os.O_RDWR|os.O_CREATE
	if a.dryRun {
		how = os.O_RDONLY
	}
	f, err := os.OpenFile(part, how, 0o644)
	if a.dryRun && errors.Is(err, fs.ErrNotExist) {
		return a.oakExport(ctx, t, nil, name, o)
	} else if err != nil {
		return err
	}
	defer f.Close()
	w := &partWriter{File: f}
	if resume {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if o.From, w.at, err = oak.ResumeExport(f, info.Size()); err != nil {
			return err
		}
	}
	done := a.oakExport(ctx, t, w, name, o)
	if a.dryRun {
		return done
	}
	if done != nil && done != errNo { // errNo comes with a complete result
		if w.cut {
			a.warn("%s has the export so far: --resume continues it", part)
		} else if info, err := f.Stat(); err == nil && info.Size() == 0 {
			os.Remove(part)
		}
		return done
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(part, out), done)
}

// A partWriter truncates a file only at the first write, and then writes to
// it. So a path that does not exist does not destroy the file's old contents.
type partWriter struct {
	*os.File
	at  int64
	cut bool
}

func (w *partWriter) Write(b []byte) (int, error) {
	if !w.cut {
		if err := w.Truncate(w.at); err != nil {
			return 0, err
		}
		if _, err := w.Seek(w.at, io.SeekStart); err != nil {
			return 0, err
		}
		w.cut = true
	}
	return w.File.Write(b)
}

func (a *app) oakExport(ctx context.Context, t *oak.Tree, w io.Writer, name string, o oak.ExportOptions) error {
	dry := &dryWriter{}
	if a.dryRun {
		w = dry
	}
	x, err := t.Export(ctx, w, name, o)
	if err != nil {
		return err
	}
	if a.dryRun {
		a.tell(x, func() { fmt.Fprintf(a.out, "%s, %s%s\n", count(x.Nodes, "node"), a.humanSize(dry.n), a.didNot()) })
	}
	return a.lostNodes(x.Lost)
}

// lostNodes returns the result of a verb that met damage and has reported it.
func (a *app) lostNodes(n int64) error {
	if n == 0 {
		return nil
	}
	a.out.Flush()
	where := "; see \"lost\" in the output"
	if a.dryRun {
		where = ""
	}
	a.warn("%d nodes or values are lost%s", n, where)
	return errNo
}

func (a *app) oakImportCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import FILE -o STORE",
		Short: "Make a store from an export or a FileVault package",
		Long: `Makes a new store from the output of 'oak export'; FILE - is standard input.
Nodes and values that the export reports as lost or left out are missing in the
store, and the exit code is then 1. If one value of a property is missing, all
are left out.

FILE may also be a package of Apache Jackrabbit FileVault. The store then gets
the nodes that match the filter of the package.`,
		Example: "  holdall oak import site.jsonl -o site\n  holdall oak export segmentstore /content | holdall oak import - -o content",
		Args:    args(1, 1, "a file, or -"),
		RunE: run(func(ctx context.Context, args []string) error {
			if out == "" {
				return usage("-o STORE is missing")
			}
			return a.oakImport(ctx, args[0], out)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder of the new store")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) oakImport(ctx context.Context, from, out string) error {
	st, name, err := a.locateOut(ctx, out)
	if err != nil {
		return err
	}
	var done oak.Imported
	how := format.CreateOptions{Scratch: pack.NewScratch}
	write := func(ctx context.Context, to store.Store, name string, _ bool) error {
		return a.withExport(ctx, from, func(in oak.Donor) (err error) {
			if in.Package != nil {
				done, err = oak.ImportPackage(ctx, in.Package, to, name, how)
			} else {
				done, err = oak.Import(ctx, in.Export, to, name, how)
			}
			return err
		})
	}
	if err := repairs.Apply(ctx, nil, "", format.Plan{Build: write}, a.dry(st, false), name); err != nil {
		return err
	}
	a.tell(done, func() {
		fmt.Fprintf(a.out, "%s: %s, %s%s\n", out, count(done.Nodes, "node"), a.humanSize(done.Bytes), a.didNot())
	})
	if done.Lost+done.Omitted > 0 {
		a.warn("according to the export, %d nodes or values are lost and %d left out", done.Lost, done.Omitted)
		return errNo
	}
	return nil
}

// withExport opens the output of an export: lines of JSON, or a package.
func (a *app) withExport(ctx context.Context, name string, do func(oak.Donor) error) error {
	d := oak.Donor{Scratch: pack.NewScratch}
	var err error
	if name != "-" {
		if d.Package, err = a.openPackage(ctx, name); err != nil {
			return err
		}
	}
	if d.Package != nil {
		return errors.Join(do(d), d.Package.(packageFiles).Close())
	}
	in, err := a.input(name)
	if err != nil {
		return err
	}
	d.Export = in
	return errors.Join(do(d), in.Close())
}

func (a *app) oakDiffCommand() *cobra.Command {
	var o oak.ChangesOptions
	cmd := &cobra.Command{
		Use:   "diff STORE A..B [PATH]",
		Short: "List the changes between two revisions",
		Long: `Lists the changes below PATH from revision A to B. + and - are nodes that were
added or removed with everything below them, and properties with their values; ~
is a changed property; ? is hidden by damage. Records that both revisions share
are not read.

A and B are UUID:NUMBER, a time, head, or checkpoint:ID; without B it is head.
The exit code is 1 if there are differences.`,
		Example: `  holdall oak diff segmentstore 2026-11-20T00:00:00Z.. /content
  holdall oak diff --json segmentstore checkpoint:0a1b2c3d-0000-4000-8000-000000000000..head`,
		Args: args(2, 3, "a store, A..B, and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			from, to, ok := strings.Cut(args[1], "..")
			if !ok || from == "" {
				return usage("%q: expected two revisions as A..B", args[1])
			}
			if a.params["revision"]+a.params["checkpoint"] != "" {
				return usage("--revision and --checkpoint do not apply: A..B names the revisions")
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
				err = each(before.Changes(ctx, after, argOr(args, 2, "/"), o), func(c oak.Change) error {
					found = true
					a.tell(c, func() { fmt.Fprintln(a.out, printable(c.String())) })
					return nil
				})
				return cmp.Or(err, answer(found))
			})
		}),
	}
	cmd.Flags().IntVar(&o.Depth, "depth", 0, "levels to compare in detail; deeper nodes are only reported as different; 0 or -1 is all")
	return cmd
}

func (a *app) oakHistoryCommand() *cobra.Command {
	var o oak.HistoryOptions
	cmd := &cobra.Command{
		Use:   "history STORE PATH",
		Short: "List the revisions that changed a node",
		Long: `Lists the revisions of the journal, newest first, with their effect on a node:
it was added, removed, or changed, with the properties and children that
differ. Consecutive revisions that changed nothing share a line. So do
revisions that can no longer be read, like most old ones after a cleanup. The
exit code is 1 if the newest revision cannot be read.`,
		Example: "  holdall oak history segmentstore /content/site\n  holdall oak history --last 20 --json segmentstore /content/site/jcr:content",
		Args:    args(2, 2, "a store and the path of a node"),
		RunE: run(func(ctx context.Context, args []string) error {
			if a.params["revision"]+a.params["checkpoint"] != "" {
				return usage("--revision and --checkpoint do not apply: history reads all revisions")
			}
			return a.withOak(ctx, args[0], false, func(s *oak.Store) error {
				newest, lost := true, false
				err := each(s.History(ctx, args[1], o), func(step oak.Step) error {
					lost, newest = lost || newest && step.Lost != "", false
					a.tell(step, func() { a.printStep(step) })
					return nil
				})
				return cmp.Or(err, answer(lost))
			})
		}),
	}
	cmd.Flags().IntVar(&o.Last, "last", 0, "read only this many revisions; 0 is all")
	cmd.Flags().BoolVar(&o.All, "all", false, "also print one line for each revision that changed nothing")
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
