package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

type amendedJSON struct {
	format.Amended
	Failed int64 `json:"failed,omitempty"`
}

func (a *app) lindiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lindi",
		Short: "Change LINDI archives in place",
		Long: `Changes LINDI archives in place, without rewriting them. Archives of other
formats cannot be changed in place: 'holdall convert' writes a changed copy.`,
		Example: `  holdall lindi add recording.lindi.tar notes.txt
  holdall lindi rm recording.lindi.tar notes.txt`,
	}
	cmd.AddCommand(a.takes(format.ToOpen|format.ToAmend, a.addCommand(), format.All()...)) // --from opens other formats
	cmd.AddCommand(a.takes(format.ToAmend|format.ToOpen, a.rmCommand()), a.takes(format.ToAmend|format.ToOpen, a.mvCommand()))
	return cmd
}

func (a *app) addCommand() *cobra.Command {
	var o holdall.AddOptions
	var from string
	var sel selection
	cmd := &cobra.Command{
		Use:   "add ARCHIVE INPUT...",
		Short: "Add files and folders to an archive in place",
		Long: `Adds files and folders to ARCHIVE, under the names that pack gives them. Entries
that already have these names are replaced. The change is atomic: after a crash
the archive has all of it or none of it. A second writer gets an error
meanwhile.

With --from SRC, each INPUT is the path of a group or array in SRC: an HDF5
file, a LINDI archive or another Zarr hierarchy. Without an INPUT, all groups
and arrays of SRC are added.`,
		Example: `  holdall lindi add recording.lindi.tar notes.txt
  holdall lindi add --view zarr recording.lindi.tar zarr-folder
  holdall lindi add --prefix extra/ recording.lindi.tar notes
  holdall lindi add recording.lindi.tar --from sorted.nwb processing/ecephys units`,
		Args: args(1, -1, "an archive and what to add"),
		RunE: run(func(ctx context.Context, args []string) error {
			o.OnError = a.entryFailed
			o.Meter = a.newMeter()
			var err error
			if o.Include, o.Exclude, err = sel.patterns(a); err != nil {
				return err
			}
			switch {
			case from != "":
				return a.addFrom(ctx, args[0], from, args[1:], o)
			case len(args) < 2:
				return usage("expected an archive and what to add, found 1 argument")
			case o.Embed || o.Refer != "":
				return usage("--embed and --refer need --from")
			}
			if len(args) == 2 {
				a.single = args[1]
			}
			return a.amend(ctx, args[0], func(m *holdall.Amendment) (int64, error) {
				defer a.showProgress(o.Meter, "added")()
				return m.Add(ctx, args[1:], o)
			})
		}),
	}
	f := cmd.Flags()
	sel.register(f)
	a.verboseFlag(f)
	a.dryRunFlag(f)
	a.strictFlag(f)
	f.BoolVar(&o.Follow, "follow", false, "add the files that symbolic links point to")
	f.StringVar(&o.Prefix, "prefix", "", "put this in front of every name")
	f.StringVar(&from, "from", "", "add groups and arrays of this file or archive")
	f.BoolVar(&o.Embed, "embed", false, "with --from: copy content that SRC only refers to")
	f.StringVar(&o.Refer, "refer", "", "with --from: refer to the content of SRC at this address; here is its current one")
	cmd.MarkFlagsMutuallyExclusive("embed", "refer")
	for _, name := range []string{"include", "exclude", "exclude-from"} {
		cmd.MarkFlagsMutuallyExclusive("from", name)
	}
	cmd.MarkFlagsMutuallyExclusive("from", "follow")
	return cmd
}

func (a *app) addFrom(ctx context.Context, archive, src string, names []string, o holdall.AddOptions) error {
	if a.view != "" && a.view != zarrView {
		return usage("--from adds keys and needs --view %s", zarrView)
	}
	a.view, a.several = zarrView, true
	in, err := a.openKeys(ctx, src, asked{}, false)
	if err != nil {
		return err
	}
	defer in.Close()
	refers(in, formatNamed(archive, a.format), src, archive, o.Embed, &o.Refer)
	return a.amend(ctx, archive, func(m *holdall.Amendment) (int64, error) {
		defer a.showProgress(o.Meter, "added")()
		return m.AddFrom(ctx, in, names, o)
	})
}

func (a *app) rmCommand() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "rm ARCHIVE PATH...",
		Short: "Remove entries from an archive in place",
		Long: `Removes entries. The change is atomic. The bytes of removed entries stay in the
archive; 'holdall convert OLD NEW' writes a new archive without them. To remove
a member that keys refer to, remove its keys with --view zarr.`,
		Example: `  holdall lindi rm recording.lindi.tar notes.txt
  holdall lindi rm -r --view zarr recording.lindi.tar acquisition/test`,
		Args: args(2, -1, "an archive and what to remove"),
		RunE: run(func(ctx context.Context, args []string) error {
			return a.amendNames(ctx, args[0], args[1:], recursive, func(m *holdall.Amendment, name string) error { return m.Remove(ctx, name) })
		}),
		ValidArgsFunction: a.completeMembers,
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "also remove folders and everything in them")
	a.verboseFlag(cmd.Flags())
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) mvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mv ARCHIVE FROM TO",
		Short: "Rename an entry or a folder in place",
		Long: `Renames an entry, or a folder with everything in it. The new name must be free.
The change is atomic, and no content is copied. Keys still refer to a member
that you rename.`,
		Example: `  holdall lindi mv recording.lindi.tar notes.txt readme.txt
  holdall lindi mv --view zarr recording.lindi.tar acquisition/test acquisition/run1`,
		Args: args(3, 3, "an archive, a name and a new name"),
		RunE: run(func(ctx context.Context, args []string) error {
			from, to := strings.TrimSuffix(args[1], "/"), strings.TrimSuffix(args[2], "/")
			return a.amendNames(ctx, args[0], []string{from}, true, func(m *holdall.Amendment, name string) error {
				return m.Rename(ctx, name, to+strings.TrimPrefix(name, from))
			})
		}),
		ValidArgsFunction: a.completeMembers,
	}
	a.verboseFlag(cmd.Flags())
	a.dryRunFlag(cmd.Flags())
	return cmd
}

// amendNames changes the entries that paths name. For folders, it changes
// everything in them if requested.
func (a *app) amendNames(ctx context.Context, address string, paths []string, folders bool, change func(m *holdall.Amendment, name string) error) error {
	names, err := a.namesBelow(ctx, address, paths, folders)
	if err != nil {
		return err
	}
	return a.amend(ctx, address, func(m *holdall.Amendment) (int64, error) {
		return 0, all(names, func(name string) error {
			err := change(m, name)
			if err == nil {
				a.nameDone(name)
			}
			return err
		})
	})
}

// namesBelow returns the entries that paths name. For folders, it returns
// everything in them if requested.
func (a *app) namesBelow(ctx context.Context, address string, paths []string, folders bool) ([]string, error) {
	if err := a.oneByOne(ctx, address); err != nil {
		return nil, err
	}
	in, err := a.open(ctx, address, false)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var names []string
	entries, err := expandAll(ctx, in, paths)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Kind != format.Dir {
			names = append(names, e.Name)
			continue
		}
		if !folders {
			return nil, fmt.Errorf("%s is a folder: -r removes it and everything in it", format.Escape(e.Name))
		}
		err = each(in.Entries(ctx), func(b holdall.Entry) error {
			if strings.HasPrefix(b.Name, e.Name+"/") || b.Name == e.Name {
				names = append(names, b.Name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil, &fs.PathError{Op: "find", Path: strings.Join(paths, ", "), Err: fs.ErrNotExist}
	}
	return names, nil
}

func (a *app) amend(ctx context.Context, address string, change func(*holdall.Amendment) (failed int64, err error)) (err error) {
	if err := a.oneByOne(ctx, address); err != nil {
		return err
	}
	st, name, err := a.locate(ctx, address)
	if err != nil {
		return err
	}
	m, err := withParams(a, a.openOptions(), func(o holdall.OpenOptions) (*holdall.Amendment, error) {
		return holdall.Amend(ctx, name, o.In(a.dry(st, true)))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	failed, err := change(m)
	if err != nil {
		return err
	}
	sum, err := m.Commit(ctx)
	if err != nil {
		return err
	}
	for _, n := range sum.Notes {
		a.warn("%s", n)
	}
	a.tellUnmatched(sum.Unmatched)
	a.tellAgain(sum.Again)
	a.tellLost(sum.Lost)
	if a.json {
		a.printJSON(amendedJSON{sum, failed})
	} else if !a.quiet {
		var words []string
		for _, c := range []struct {
			n    int64
			what string
		}{{sum.Added, "added"}, {sum.Replaced, "replaced"}, {sum.Removed, "removed"}, {sum.Renamed, "renamed"}} {
			if c.n > 0 {
				words = append(words, thousands(c.n)+" "+c.what)
			}
		}
		if words == nil {
			words = []string{"nothing changed"}
		}
		fmt.Fprintf(a.out, "%s: %s, %s%s\n", a.address, strings.Join(words, ", "), a.humanSize(sum.Stored), a.didNot())
	}
	return answer(failed > 0 || a.strict && len(sum.Lost) > 0)
}
