package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) catalogCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Find and read files in many archives, by a catalogue of them",
		Long: `Keeps a catalogue, which records which archive has which file, and at which
offset. One lookup finds a file among millions, and one request reads it.

The catalogue is a folder whose name ends in .catalog, on a disk or in a bucket,
beside the archives or elsewhere: --catalog, or $HOLDALL_CATALOG, or one in your
data folder. It needs no database.`,
		Example: `  holdall catalog init --catalog s3://packed/photos.catalog
  holdall catalog add https://example.org/docs-00001.caf
  holdall catalog cat guide/intro.md`,
	}
	a.catalogFlag(cmd.PersistentFlags())
	cmd.AddCommand(a.catalogInitCommand(), a.catalogFindCommand(), a.catalogListCommand(), a.catalogRemoveCommand(), a.catalogExportCommand(), a.catalogRelocateCommand(), a.catalogGCCommand())
	for _, c := range []*cobra.Command{a.catalogAddCommand(), a.catalogCheckCommand(), a.catalogCatCommand(), a.catalogExtractCommand(), a.catalogRebuildCommand()} {
		cmd.AddCommand(a.takes(format.ToOpen|format.ToVerify, c, format.All()...))
	}
	return cmd
}

func (a *app) catalogInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Create a catalogue",
		Long:  `Creates an empty catalogue. If it exists already, it stays as it is.`,
		Example: `  holdall catalog init
  holdall catalog init --catalog s3://packed/photos.catalog`,
		Args: args(0, 0, "no arguments"),
		RunE: run(func(ctx context.Context, _ []string) error {
			address, usual, err := a.catalogAddress()
			if err != nil {
				return err
			}
			if usual {
				if err := os.MkdirAll(filepath.Dir(address), 0o700); err != nil {
					return err
				}
			}
			err = createBook(ctx, address)
			made := err == nil
			if errors.Is(err, fs.ErrExist) {
				var c *book.Book
				if c, err = a.openCatalog(ctx, address, forWriting); err == nil {
					err = c.Close()
				}
			}
			if err != nil {
				return err
			}
			shown, did := shownCatalog(address), "exists already"
			if made {
				did = "created"
			}
			a.tell(map[string]any{"catalog": shown, "made": made}, func() { fmt.Fprintf(a.out, "%s: %s\n", shown, did) })
			return nil
		}),
	}
}

func createBook(ctx context.Context, address string) error {
	if !isBook(address) {
		return usage("%s: expected a folder or a prefix in a bucket whose name ends in %s", shownCatalog(address), book.Suffix)
	}
	st, name, err := store.OpenAddress(ctx, strings.TrimRight(address, "/"))
	if err != nil {
		return err
	}
	b, err := book.Create(ctx, st, name)
	if err != nil {
		return err
	}
	return b.Close()
}

type archiveJSON struct {
	ID       int64      `json:"id"`
	Archive  string     `json:"archive"`
	Format   string     `json:"format"`
	Size     int64      `json:"size"`
	Version  string     `json:"version,omitempty"`
	Entries  int64      `json:"entries"`
	Added    time.Time  `json:"added"`
	Verified *time.Time `json:"verified,omitempty"`
	Parity   string     `json:"parity,omitempty"`
	From     []string   `json:"from,omitempty"`
	Facts    string     `json:"facts,omitempty"`
}

func archiveAsJSON(x catalog.Archive) archiveJSON {
	j := archiveJSON{ID: x.ID, Archive: format.Escape(x.Address), Format: x.Format, Size: x.Size, Version: format.Escape(x.Version), Entries: x.Entries, Added: x.Added, Parity: x.Parity}
	if !x.Verified.IsZero() {
		j.Verified = &x.Verified
	}
	j.Facts, _, _ = strings.Cut(x.Facts, ":")
	for _, r := range x.Roots.All() {
		j.From = append(j.From, format.Escape(store.Redact(r.Address)))
	}
	return j
}

type locationJSON struct {
	pathJSON
	Kind      string     `json:"kind"`
	Size      int64      `json:"size"`
	Digest    string     `json:"digest,omitempty"`
	ArchiveID int64      `json:"archive_id,omitempty"`
	Archive   string     `json:"archive,omitempty"`
	Format    string     `json:"format,omitempty"`
	Offset    *int64     `json:"offset,omitempty"`
	Length    *int64     `json:"length,omitempty"`
	Newest    bool       `json:"newest,omitempty"`
	Added     *time.Time `json:"added,omitempty"`
}

func locationAsJSON(l catalog.Location) locationJSON {
	j := locationJSON{pathJSON: pathOf(l.Path), Kind: l.Kind.String(), Size: l.Size, Digest: l.Digest.String(), ArchiveID: l.Archive}
	if l.Raw {
		j.Offset, j.Length = &l.Off, &l.Size
	}
	return j
}

// newestOf finds the newest file for a path that the user gave, by the rules
// of lookup.
func newestOf(ctx context.Context, c *book.Book, path string) (found catalog.Found, err error) {
	for _, p := range slices.Compact([]string{path, strings.TrimPrefix(strings.TrimSuffix(path, "/"), "./"), naming.Unescape(path)}) {
		if found, err = c.Newest(ctx, p); !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	return found, catalog.Absent(path)
}

func (a *app) catalogFindCommand() *cobra.Command {
	var where []string
	cmd := &cobra.Command{
		Use:   "find [PATH...]",
		Short: "Find archives that have a file, or recordings by their metadata",
		Long: `Lists the archives that have a file, newest first. The exit code is 1 if no
archive has one of the paths.

With --where instead of paths, it lists recordings that were added with 'holdall
catalog add --facts', by their metadata. A condition is FIELD OP VALUE. OP is =
!= < <= > >= or ~ (contains, in upper or lower case). A VALUE with spaces is in
quotes. Conditions joined by 'and' must hold for the same series, device or
table. If you repeat --where, all conditions must hold. The exit code is 1 if no
recording is found.`,
		Example: `  holdall catalog find 2026/05/a.jpg
  holdall catalog find --where 'subject.species ~ mus and series.rate >= 30000'`,
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *book.Book, args []string) error {
			if (len(args) == 0) == (len(where) == 0) {
				return usage("expected either paths or --where")
			}
			if len(where) > 0 {
				return a.findRecordings(ctx, c, where)
			}
			var no error
			for _, path := range args {
				newest, err := newestOf(ctx, c, path)
				if errors.Is(err, fs.ErrNotExist) {
					no = errNo
					continue
				} else if err != nil {
					return err
				}
				found, err := c.Holders(ctx, newest.Path)
				if err != nil {
					return err
				}
				for i, f := range found {
					a.tellFound(f, i == 0)
				}
			}
			return no
		}),
	}
	cmd.Flags().StringArrayVar(&where, "where", nil, "list recordings for which this `condition` holds, as in 'session.lab = \"A lab\"'")
	return cmd
}

func foundAsJSON(f catalog.Found) locationJSON {
	j := locationAsJSON(f.Location)
	j.Archive, j.Format, j.Added = format.Escape(f.In.Address), f.In.Format, &f.In.Added
	return j
}

func (a *app) tellFound(f catalog.Found, newest bool) {
	j := foundAsJSON(f)
	j.Newest = newest
	a.tell(j, func() {
		where := "in pieces"
		if f.Raw {
			where = fmt.Sprintf("at %d", f.Off)
		}
		fmt.Fprintf(a.out, "%s: %s, %s, %s\n", j.Archive, quoteEmpty(j.Path), a.humanSize(f.Size), where)
	})
}

func (a *app) catalogListCommand() *cobra.Command {
	var long, recursive, archives bool
	cmd := &cobra.Command{
		Use:   "ls [FOLDER...]",
		Short: "List the files of a catalogue",
		Long: `Lists the top level of all archives together, or the given folders; -R lists
everything below them. If several archives have a file, the newest is listed.
--archives lists the archives instead.`,
		Example: `  holdall catalog ls
  holdall catalog ls -l 2026/05
  holdall catalog ls --archives`,
		RunE: run(func(ctx context.Context, folders []string) error {
			if archives && len(folders) > 0 {
				return usage("--archives cannot be combined with folders")
			}
			return a.withCatalog(ctx, forReading, func(c *book.Book) error {
				if archives {
					return a.listArchives(ctx, c)
				}
				if len(folders) == 0 {
					folders = []string{"."}
				}
				return all(folders, func(folder string) error { return a.listCatalog(ctx, c, folder, long, recursive) })
			})
		}),
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "also print the size and the number of the archive")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "list everything below")
	cmd.Flags().BoolVar(&archives, "archives", false, "list the archives")
	return cmd
}

func (a *app) listArchives(ctx context.Context, c *book.Book) error {
	all, err := c.Archives(ctx)
	for _, x := range all {
		a.tell(archiveAsJSON(x), func() {
			fmt.Fprintf(a.out, "%6d  %-10s %10s  %14s  %s  %s\n", x.ID, x.Format, a.humanSize(x.Size), count(x.Entries, "entry"), x.Added.Format(time.DateTime), format.Escape(x.Address))
		})
	}
	return err
}

func (a *app) listCatalog(ctx context.Context, c *book.Book, folder string, long, recursive bool) error {
	prefix := folderPrefix(folder)
	shownAny := false
	tell := func(l catalog.Location) error {
		shownAny = true
		switch folder := l.Kind == format.Dir; {
		case a.json:
			j := locationAsJSON(l)
			if folder {
				j.pathJSON = pathOf(strings.TrimSuffix(l.Path, "/"))
			}
			a.printJSON(j)
		case long && folder:
			fmt.Fprintf(a.out, "%10s  %6s  %s\n", "-", "-", format.Escape(l.Path))
		case long:
			fmt.Fprintf(a.out, "%10s  %6d  %s\n", a.humanSize(l.Size), l.Archive, quoteEmpty(format.Escape(l.Path)))
		default:
			fmt.Fprintln(a.out, quoteEmpty(format.Escape(l.Path)))
		}
		return nil
	}
	var err error
	if recursive {
		err = each(c.Below(ctx, prefix), tell)
	} else {
		err = each(c.List(ctx, prefix), func(l catalog.Listed) error { return tell(l.Location) })
	}
	if err == nil && !shownAny && prefix != "" {
		var found catalog.Found
		if found, err = newestOf(ctx, c, folder); err == nil {
			tell(found.Location)
		}
	}
	return err
}

func folderPrefix(folder string) string {
	folder = naming.Unescape(strings.TrimPrefix(folder, "./"))
	if folder == "." || folder == "" {
		return ""
	}
	if strings.HasSuffix(folder, "/") {
		return folder
	}
	return folder + "/"
}

func (a *app) catalogRemoveCommand() *cobra.Command {
	var files bool
	cmd := &cobra.Command{
		Use:   "rm ARCHIVE...",
		Short: "Remove archives or files from the catalogue",
		Long: `Removes archives and their entries from the catalogue. The archives themselves
stay unchanged.

With --files the arguments are names of files, or of folders if they end in a
slash. All versions of these files are deleted from the catalogue. Their bytes
stay in the archives until 'holdall fleet compact' rewrites those.

The exit code is 1 if a name is not in the catalogue.`,
		Example: `  holdall catalog rm s3://packed/photos-00001.caf
  holdall catalog rm --files 2026/05/a.jpg 2025/`,
		Args: args(1, -1, "an archive"),
		RunE: a.onCatalog(forWriting, func(ctx context.Context, c *book.Book, names []string) error {
			remove := a.forgetArchive
			if files {
				remove = a.deleteFile
			}
			var no error
			for _, name := range names {
				err := remove(ctx, c, name)
				if errors.Is(err, fs.ErrNotExist) {
					a.warn("%s: not in the catalogue", format.Escape(store.Redact(name)))
					no = errNo
				} else if err != nil {
					return err
				}
			}
			return no
		}),
	}
	cmd.Flags().BoolVar(&files, "files", false, "delete files: the arguments are names of files or folders")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

func (a *app) forgetArchive(ctx context.Context, c *book.Book, address string) error {
	x, err := a.knownArchive(ctx, c, address)
	if err == nil && !a.dryRun {
		x, err = c.Remove(ctx, x.Address)
	}
	if err == nil {
		a.tellAdded("removed", x)
	}
	return err
}

func (a *app) deleteFile(ctx context.Context, c *book.Book, name string) error {
	del := func(paths ...string) (int64, error) {
		if a.dryRun {
			return int64(len(paths)), nil
		}
		return c.Delete(ctx, paths)
	}
	if !strings.HasSuffix(name, "/") {
		found, err := newestOf(ctx, c, name)
		if err != nil {
			return err
		}
		n, err := del(found.Path)
		if err == nil {
			a.tellDeleted(name, n)
		}
		return err
	}
	const batch = 1000
	prefix, deleted := folderPrefix(name), int64(0)
	for from := prefix; ; {
		var paths []string
		for l, err := range c.Between(ctx, from, "", nil) {
			if err != nil {
				return err
			}
			if len(paths) == batch || !strings.HasPrefix(l.Path, prefix) {
				break
			}
			paths = append(paths, l.Path)
		}
		if len(paths) == 0 {
			break
		}
		n, err := del(paths...)
		if deleted += n; err != nil {
			return err
		}
		from = paths[len(paths)-1] + "\x00"
	}
	if deleted == 0 {
		return catalog.Absent(name)
	}
	a.tellDeleted(name, deleted)
	return nil
}

type deletedJSON struct {
	Did    string `json:"did"`
	Path   string `json:"path"`
	Files  int64  `json:"files"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (a *app) tellDeleted(name string, files int64) {
	a.tell(deletedJSON{"deleted", format.Escape(name), files, a.dryRun}, func() {
		fmt.Fprintf(a.out, "%s: deleted, %s%s\n", format.Escape(name), count(files, "file"), a.didNot())
	})
}

// knownArchive finds the catalogue's record of an archive, by its address as
// recorded or as given. The archive itself need not exist any more.
func (a *app) knownArchive(ctx context.Context, c *book.Book, address string) (catalog.Archive, error) {
	x, err := c.Archive(ctx, naming.Unescape(address))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return x, err
	}
	st, name, lerr := a.locateCatalogued(ctx, address)
	if lerr != nil {
		return x, lerr
	}
	return c.Archive(ctx, storekit.AddressOf(st, name))
}
