package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/export"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) catalogCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Find and read files through a record of many archives",
		Long: `Keeps a catalogue, which records which archive has which file, and at which
offset. One lookup finds a file among millions, and one request reads it.

The catalogue is --db, or $HOLDALL_CATALOG, or a file in your data folder. If
its name ends in .catalog it is a folder, on a disk or in a bucket, beside the
archives or elsewhere, and needs no database. Otherwise it is a file, or
postgres://USER@HOST/DATABASE.`,
		Example: `  holdall catalog init --db s3://packed/photos.catalog
  holdall catalog add https://example.org/docs-00001.caf
  holdall catalog cat guide/intro.md`,
	}
	cmd.PersistentFlags().StringVar(&a.db, "db", "", dbUsage)
	cmd.AddCommand(a.catalogInitCommand(), a.catalogFindCommand(), a.catalogListCommand(), a.catalogRemoveCommand(), a.catalogExportCommand(), a.catalogRelocateCommand(), a.catalogGCCommand())
	for _, c := range []*cobra.Command{a.catalogAddCommand(), a.catalogCheckCommand(), a.catalogCatCommand(), a.catalogExtractCommand(), a.catalogRebuildCommand()} {
		cmd.AddCommand(a.takes(format.ToOpen|format.ToVerify, c, format.All()...))
	}
	return cmd
}

const dbUsage = "the catalogue: FOLDER.catalog, a file, or postgres://USER@HOST/DATABASE (default $HOLDALL_CATALOG, or holdall/catalog.db in your data folder)"

// catalogAddress returns the address of the user's catalogue. usual is true if
// no address was given.
func (a *app) catalogAddress() (address string, usual bool, err error) {
	if named := cmp.Or(a.db, os.Getenv("HOLDALL_CATALOG")); named != "" {
		return named, false, nil
	}
	dir := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(dir) { // the specification requires programs to ignore other paths
		if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
			dir, err = os.UserConfigDir() // on these systems it is for data, too
		} else if dir, err = os.UserHomeDir(); err == nil {
			dir = filepath.Join(dir, ".local", "share")
		}
	}
	return filepath.Join(dir, "holdall", "catalog.db"), true, err
}

// shownCatalog returns an address of a catalogue for messages, without a
// password.
func shownCatalog(address string) string {
	if strings.HasPrefix(address, "postgres") {
		address = store.Redact(address)
	}
	return format.Escape(address)
}

type noCatalogError struct{ error }

func (e *noCatalogError) Unwrap() error { return e.error }

func (a *app) withCatalog(ctx context.Context, o catalog.Options, do func(c catalog.Files) error) error {
	address, _, err := a.catalogAddress()
	if err != nil {
		return err
	}
	c, err := a.openCatalog(ctx, address, o)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close())
}

// isBook reports whether an address is that of a catalogue in a folder, not in a database.
func isBook(address string) bool {
	address, _ = atCommit(address)
	switch store.Scheme(address) {
	case "postgres", "postgresql", "sqlite":
		return false
	case "":
		if info, err := os.Stat(address); err == nil && !info.IsDir() {
			return false
		}
	}
	return strings.HasSuffix(strings.TrimRight(address, "/"), book.Suffix)
}

// bookFresh is for how long a state of a catalogue in a folder is used.
const bookFresh = 2 * time.Second

// openCatalog opens a catalogue of any kind.
func (a *app) openCatalog(ctx context.Context, address string, o catalog.Options) (c catalog.Files, err error) {
	if !isBook(address) {
		return openDatabase(ctx, address, o)
	}
	address, when := atCommit(address)
	if when != "" && !o.ReadOnly {
		return nil, usage("%s@%s: what a catalogue was cannot be changed", shownCatalog(address), when)
	}
	st, name, err := store.OpenAddress(ctx, strings.TrimRight(address, "/"))
	if err != nil {
		return nil, err
	}
	b, err := book.Open(ctx, st, name, book.Options{Write: !o.ReadOnly, Fresh: bookFresh})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &noCatalogError{err}
	}
	if err == nil && when != "" {
		err = goBack(ctx, b, when)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func openDatabase(ctx context.Context, address string, o catalog.Options) (*catalog.Catalog, error) {
	c, err := catalog.Open(ctx, address, o)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &noCatalogError{err}
	}
	return c, err
}

// withDatabase is withCatalog for what needs a database.
func (a *app) withDatabase(ctx context.Context, o catalog.Options, do func(c *catalog.Catalog) error) error {
	address, _, err := a.catalogAddress()
	if err != nil {
		return err
	}
	if isBook(address) {
		return usage("a fleet needs a catalogue in a database, found %s", shownCatalog(address))
	}
	c, err := openDatabase(ctx, address, o)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close())
}

func (a *app) onDatabase(o catalog.Options, do func(ctx context.Context, c *catalog.Catalog, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withDatabase(ctx, o, func(c *catalog.Catalog) error { return do(ctx, c, args) })
	})
}

func (a *app) onCatalog(o catalog.Options, do func(ctx context.Context, c catalog.Files, args []string) error) func(*cobra.Command, []string) error {
	return run(func(ctx context.Context, args []string) error {
		return a.withCatalog(ctx, o, func(c catalog.Files) error { return do(ctx, c, args) })
	})
}

var forReading = catalog.Options{ReadOnly: true}

func (a *app) catalogInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Create a catalogue",
		Long: `Creates an empty catalogue. If the catalogue exists already, its schema is
updated and its content stays. Any other file is left unchanged.`,
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
			if isBook(address) {
				err = createBook(ctx, address)
			} else {
				err = catalog.Create(ctx, address)
			}
			made := err == nil
			if errors.Is(err, fs.ErrExist) {
				var c catalog.Files
				if c, err = a.openCatalog(ctx, address, catalog.Options{}); err == nil {
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
}

func archiveAsJSON(x catalog.Archive) archiveJSON {
	j := archiveJSON{ID: x.ID, Archive: format.Escape(x.Address), Format: x.Format, Size: x.Size, Version: format.Escape(x.Version), Entries: x.Entries, Added: x.Added}
	if !x.Verified.IsZero() {
		j.Verified = &x.Verified
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

func (a *app) catalogAddCommand() *cobra.Command {
	var again, verify bool
	cmd := &cobra.Command{
		Use:   "add ARCHIVE...",
		Short: "Record the entries of archives",
		Long: `Records the entries of archives. Each archive is recorded whole or not at all.
An archive that the catalogue has in the same version is skipped, unless you
give --again. If the catalogue has another version of it, the new one replaces
that.

The exit code is 1 if one of several archives could not be added.`,
		Example: `  holdall catalog add photos-*.caf
  holdall catalog add --verify https://example.org/docs.caf`,
		Args: args(1, -1, "an archive"),
		RunE: a.onCatalog(catalog.Options{}, func(ctx context.Context, c catalog.Files, args []string) error {
			failed := false
			for some := range slices.Chunk(args, addsAtOnce) {
				err := a.catalogAdd(ctx, c, some, again, verify, func(address string, err error) error {
					if len(args) == 1 || ctx.Err() != nil {
						return err
					}
					if failed = true; !errors.Is(err, errNo) {
						a.entryFailed(store.Redact(address), err)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return answer(failed)
		}),
	}
	cmd.Flags().BoolVar(&again, "again", false, "read archives again even if their version is unchanged")
	cmd.Flags().BoolVar(&verify, "verify", false, "verify archives first, and record only sound ones")
	a.dryRunFlag(cmd.Flags())
	return cmd
}

// addsAtOnce is how many archives are recorded in one step, if none fails.
const addsAtOnce = 64

// catalogAdd records archives. It calls failed for each that cannot be recorded.
func (a *app) catalogAdd(ctx context.Context, c catalog.Files, addresses []string, again, verify bool, failed func(address string, err error) error) error {
	m := &holdall.Meter{}
	stop := a.showProgress(m, "added")
	defer func() { stop() }()
	var all []survey.Survey
	var from []string
	defer func() {
		for _, s := range all {
			s.In.Close()
		}
	}()
	for _, address := range addresses {
		s, err := a.surveyed(ctx, c, address, again, verify)
		if err == nil && s.In == nil {
			if verify && !a.dryRun {
				err = c.Verified(ctx, s.ID, s.Verified)
			}
			if err == nil {
				a.tellAdded("unchanged", s.Archive)
				continue
			}
		}
		if err != nil {
			if err := failed(address, err); err != nil {
				return err
			}
			continue
		}
		all, from = append(all, s), append(from, address)
	}
	add := func(some []survey.Survey) error {
		var additions []catalog.Addition
		for _, s := range some {
			additions = append(additions, catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, m)})
		}
		do := c.Add
		if a.dryRun {
			do = c.TryAdd
		}
		done, err := do(ctx, additions...)
		stop()
		stop = func() {}
		for _, d := range done {
			did := "added"
			if d.Replaced.ID != 0 {
				did = "replaced"
			}
			a.tellAdded(did, d.Archive)
		}
		return err
	}
	if len(all) == 0 {
		return nil
	}
	err := add(all)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for i := range all { // which of them cannot be recorded
		if len(all) > 1 {
			err = add(all[i : i+1])
		}
		if err != nil {
			if err := failed(from[i], err); err != nil {
				return err
			}
		}
	}
	return nil
}

// surveyed opens an archive that is to be recorded. If it is known in this version, In is nil.
func (a *app) surveyed(ctx context.Context, c catalog.Files, address string, again, verify bool) (s survey.Survey, err error) {
	st, name, err := a.locateCatalogued(ctx, address)
	if err != nil {
		return s, err
	}
	known, err := c.Archive(ctx, storekit.AddressOf(st, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if again {
		known = catalog.Archive{}
	}
	o := a.openOptions()
	o.Index = a.useIndex()
	if s, err = survey.Open(ctx, st, name, known, o); err != nil || !verify {
		return s, err
	}
	if err = a.verifyQuietly(ctx, st, []string{name}, a.openOptions()); err != nil && s.In != nil {
		s.In.Close()
	}
	s.Verified = time.Now().UTC()
	return s, err
}

// locateCatalogued finds an archive that is in a catalogue, or is to be added
// to it.
func (a *app) locateCatalogued(ctx context.Context, address string) (store.Store, string, error) {
	if address == "-" {
		return nil, "", errors.New("standard input has no address: a catalogue can only record archives with one")
	}
	return a.locate(ctx, address)
}

func (a *app) tellAdded(did string, x catalog.Archive) {
	a.tell(struct {
		Did    string `json:"did"`
		DryRun bool   `json:"dry_run,omitempty"`
		archiveJSON
	}{did, a.dryRun, archiveAsJSON(x)}, func() {
		fmt.Fprintf(a.out, "%s: %s, %s%s\n", format.Escape(x.Address), did, count(x.Entries, "entry"), a.didNot())
	})
}

// recordPacked records everything that a pack wrote, all its chunks in one
// step.
func (a *app) recordPacked(ctx context.Context, c catalog.Files, st store.Store, volumes []string, verified bool) (err error) {
	var all []catalog.Addition
	for _, name := range volumes {
		s, err := survey.Open(ctx, st, name, catalog.Archive{}, a.written())
		if err != nil {
			return err
		}
		defer s.In.Close()
		if verified {
			s.Verified = time.Now()
		}
		all = append(all, catalog.Addition{Archive: s.Archive, Rows: s.Rows(ctx, nil)})
	}
	_, err = c.Add(ctx, all...)
	return err
}

// newestOf finds the newest file for a path that the user gave, by the rules
// of lookup.
func newestOf(ctx context.Context, c catalog.Files, path string) (found catalog.Found, err error) {
	for _, p := range slices.Compact([]string{path, strings.TrimPrefix(strings.TrimSuffix(path, "/"), "./"), naming.Unescape(path)}) {
		if found, err = c.Newest(ctx, p); !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	return found, catalog.Absent(path)
}

func (a *app) catalogFindCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "find PATH...",
		Short: "List the archives that have a file, newest first",
		Long: `Lists the archives that have a file, newest first. The exit code is 1 if no
archive has one of the paths.`,
		Args: args(1, -1, "a path"),
		RunE: a.onCatalog(forReading, func(ctx context.Context, c catalog.Files, args []string) error {
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
}

func (a *app) tellFound(f catalog.Found, newest bool) {
	j := locationAsJSON(f.Location)
	j.Archive, j.Format, j.Newest, j.Added = format.Escape(f.In.Address), f.In.Format, newest, &f.In.Added
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
		RunE: run(func(ctx context.Context, folders []string) error {
			if archives && len(folders) > 0 {
				return usage("--archives cannot be combined with folders")
			}
			return a.withCatalog(ctx, forReading, func(c catalog.Files) error {
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

func (a *app) listArchives(ctx context.Context, c catalog.Files) error {
	all, err := c.Archives(ctx)
	for _, x := range all {
		a.tell(archiveAsJSON(x), func() {
			fmt.Fprintf(a.out, "%6d  %-10s %10s  %14s  %s  %s\n", x.ID, x.Format, a.humanSize(x.Size), count(x.Entries, "entry"), x.Added.Format(time.DateTime), format.Escape(x.Address))
		})
	}
	return err
}

func (a *app) listCatalog(ctx context.Context, c catalog.Files, folder string, long, recursive bool) error {
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
		RunE: a.onCatalog(catalog.Options{}, func(ctx context.Context, c catalog.Files, names []string) error {
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

func (a *app) forgetArchive(ctx context.Context, c catalog.Files, address string) error {
	x, err := a.knownArchive(ctx, c, address)
	if err == nil && !a.dryRun {
		x, err = c.Remove(ctx, x.Address)
	}
	if err == nil {
		a.tellAdded("removed", x)
	}
	return err
}

func (a *app) deleteFile(ctx context.Context, c catalog.Files, name string) error {
	del := func(paths ...string) (int64, error) {
		if a.dryRun {
			return int64(len(paths)), nil
		}
		return c.Delete(ctx, "", paths, 0)
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
func (a *app) knownArchive(ctx context.Context, c catalog.Files, address string) (catalog.Archive, error) {
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

func (a *app) catalogExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export [sqlite:FILE | postgres://...]",
		Short: "Write the locations of all files, as CSV or JSON or to a database",
		Long: `Writes the location of the newest file of each path. The CSV has two columns:
file_path, and caf_file_id, the number of the archive. --json writes a JSON
object a line, with all fields of 'catalog find'.

The CSV cannot hold a path that is not UTF-8, contains a NUL, or has more than
512 characters. The export fails at such a path.

To a database, it writes the tables archives and file_locations. If a catalogue
in a folder was exported there before, only what has changed is written.`,
		Args: args(0, 1, "at most a database"),
		RunE: a.onCatalog(forReading, func(ctx context.Context, c catalog.Files, to []string) error {
			if len(to) > 0 {
				return a.exportTo(ctx, c, to[0])
			}
			if a.json {
				return a.exportJSON(ctx, c)
			}
			return a.exportCSV(ctx, c)
		}),
	}
}

func (a *app) exportTo(ctx context.Context, c catalog.Files, address string) error {
	b, ok := c.(*book.Book)
	if !ok || !export.Is(address) {
		return usage("expected a catalogue in a folder, and a database as sqlite:FILE or postgres://HOST/NAME, found %s", shownCatalog(address))
	}
	done, err := export.To(ctx, b, address)
	if err != nil {
		return err
	}
	a.tell(done, func() {
		fmt.Fprintf(a.out, "%s: what the catalogue was after commit %d; %s written, %d removed\n", shownCatalog(address), done.Commit, count(done.Files, "file"), done.Removed)
	})
	return nil
}

func (a *app) exportJSON(ctx context.Context, c catalog.Files) error {
	all, err := c.Archives(ctx)
	if err != nil {
		return err
	}
	archives := map[int64]catalog.Archive{}
	for _, x := range all {
		archives[x.ID] = x
	}
	return each(c.Below(ctx, ""), func(l catalog.Location) error {
		j := locationAsJSON(l)
		j.Archive, j.Format = format.Escape(archives[l.Archive].Address), archives[l.Archive].Format
		a.printJSON(j)
		return nil
	})
}

// longestSeedPath is the length of file_path in databases where it is a
// VARCHAR.
const longestSeedPath = 512

func (a *app) exportCSV(ctx context.Context, c catalog.Files) error {
	w := csv.NewWriter(a.out)
	w.Write([]string{"file_path", "caf_file_id"})
	for l, err := range c.Below(ctx, "") {
		switch {
		case err != nil:
			return err
		case !utf8.ValidString(l.Path) || strings.IndexByte(l.Path, 0) >= 0:
			return fmt.Errorf("%s: expected a path in UTF-8 without NUL", format.Escape(l.Path))
		case utf8.RuneCountInString(l.Path) > longestSeedPath:
			return fmt.Errorf("%s: expected a path of at most %d characters, found %d", format.Escape(l.Path), longestSeedPath, utf8.RuneCountInString(l.Path))
		}
		if err := w.Write([]string{l.Path, strconv.FormatInt(l.Archive, 10)}); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
