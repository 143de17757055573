package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/pipe"
	"github.com/holdall/holdall/store"
)

func (a *app) catalogCatCommand() *cobra.Command {
	var r byteRange
	var filesFrom string
	cmd := &cobra.Command{
		Use:   "cat PATH...",
		Short: "Write files to standard output, wherever they are",
		Long: `Writes the contents of files to standard output, one behind the other: of each
the newest. Where it is one run of bytes in its archive, nothing else of that is
read. Several are read at once. Contents are compared with digests as
'holdall cat' does.`,
		Example: `  holdall catalog cat 2026/05/a.jpg > a.jpg
  holdall catalog cat --files-from list > all`,
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *catalog.Catalog, paths []string) error {
			if (filesFrom == "") == (len(paths) == 0) {
				return usage("expected a path, or --files-from")
			}
			if filesFrom != "" {
				var err error
				if paths, err = a.readList(filesFrom); err != nil {
					return err
				}
			}
			return a.catalogCat(ctx, c, paths, r)
		}),
	}
	cmd.Flags().Var(&r, "range", "START-END, START- or -N: part of each")
	cmd.Flags().StringVar(&filesFrom, "files-from", "", "read the paths from a file, a line each; - is standard input")
	return cmd
}

const (
	catsAhead  = 16      // files that are read at once
	mostHeldOf = 1 << 20 // what of a file is read ahead: none of one that is longer
)

// A foundFile is one of several whose contents are written in order.
type foundFile struct {
	path  string
	found catalog.Found
	ahead bool // held has what is wanted of it
	held  bytes.Buffer
	err   error
}

// catalogCat reads files ahead that are short and need nothing else of their archives: of others
// the index may be large.
func (a *app) catalogCat(ctx context.Context, c *catalog.Catalog, paths []string, r byteRange) error {
	files := func(yield func(*foundFile, error) bool) {
		for _, path := range paths {
			if !yield(&foundFile{path: path}, nil) {
				return
			}
		}
	}
	return pipe.Ordered(ctx, files, min(catsAhead, len(paths)), func(ctx context.Context, x *foundFile) {
		if x.found, x.err = newestOf(ctx, c, x.path); x.err != nil {
			return
		}
		n := x.found.Size
		if r.set {
			_, n = r.of(n)
		}
		if x.ahead = x.found.Raw && n <= mostHeldOf; x.ahead {
			x.err = a.writeFound(ctx, &x.held, x.found, r)
		}
	}, func(x *foundFile) error {
		a.address = store.Redact(x.found.In.Address)
		if x.err == nil && !x.ahead {
			return a.catEnded(a.writeFound(ctx, a.out, x.found, r))
		}
		if _, err := a.out.Write(x.held.Bytes()); err != nil {
			return err
		}
		return a.catEnded(x.err)
	}, func(*foundFile) {})
}

// writeFound writes what is wanted of a file, wherever it is.
func (a *app) writeFound(ctx context.Context, w io.Writer, found catalog.Found, r byteRange) error {
	in, err := a.openFound(ctx, found.In, []catalog.Location{found.Location}, found.Raw)
	if err != nil {
		return err
	}
	defer in.Close()
	e, err := in.Lookup(ctx, found.Path)
	if err != nil {
		return err
	}
	return writeContent(ctx, w, in, e, r)
}

// openFound opens the archive that files are in: as its format reads it, or with
// these files only.
func (a *app) openFound(ctx context.Context, x catalog.Archive, files []catalog.Location, raw bool) (*holdall.Archive, error) {
	st, name, err := a.storeOf(ctx, x.Address)
	if err != nil {
		return nil, err
	}
	if raw {
		return openLocated(ctx, st, name, x, files, a.noVerify)
	}
	o := a.openOptions()
	o.Format = cmp.Or(o.Format, x.Format)
	o.Param, o.FewLookups = a.paramsOf(x.Format), len(files) == 1
	return holdall.OpenStore(ctx, st, name, o)
}

func (a *app) catalogExtractCommand() *cobra.Command {
	var dir string
	var o holdall.ExtractOptions
	cmd := &cobra.Command{
		Use:   "extract PATH... -C DIR",
		Short: "Write files to disk, wherever they are",
		Long: `Writes the newest of the files named, and of those in the folders named, below
DIR, under the same rules as 'holdall extract'. Only the files themselves are
read of archives that keep no modes and times.`,
		Args: args(1, -1, "a path"),
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *catalog.Catalog, args []string) error {
			o.Meter = &holdall.Meter{}
			x := &catalogExtraction{app: a, c: c, dir: dir, o: o, groups: map[int64][]catalog.Location{}}
			stop := a.showProgress(o.Meter, "extracted")
			err := x.run(ctx, args)
			stop()
			if err != nil {
				return err
			}
			return a.tellExtracted(x.sum)
		}),
	}
	extractFlags(cmd.Flags(), &dir, &o)
	return cmd
}

// catalogExtraction extracts files of many archives, one archive after the other.
type catalogExtraction struct {
	app *app
	c   *catalog.Catalog
	dir string
	o   holdall.ExtractOptions

	groups map[int64][]catalog.Location // by archive
	held   int
	sum    holdall.Extracted
}

// extractBatch is how many locations are held before their archives are opened.
const extractBatch = 50_000

func (x *catalogExtraction) run(ctx context.Context, paths []string) error {
	for _, path := range paths {
		found, err := newestOf(ctx, x.c, path)
		if err == nil {
			err = x.want(ctx, found.Location)
		} else if errors.Is(err, fs.ErrNotExist) {
			err = x.wantBelow(ctx, path, err)
		}
		if err != nil {
			return err
		}
	}
	return x.flush(ctx)
}

// wantBelow wants all that is in a folder; of one that is none, absent is the error.
func (x *catalogExtraction) wantBelow(ctx context.Context, folder string, absent error) error {
	err := each(x.c.Below(ctx, folderPrefix(folder)), func(l catalog.Location) error {
		absent = nil
		return x.want(ctx, l)
	})
	return cmp.Or(err, absent)
}

func (x *catalogExtraction) want(ctx context.Context, l catalog.Location) error {
	x.groups[l.Archive] = append(x.groups[l.Archive], l)
	if x.held++; x.held < extractBatch {
		return nil
	}
	return x.flush(ctx)
}

// flush extracts what is held.
func (x *catalogExtraction) flush(ctx context.Context) error {
	if x.held == 0 {
		return nil
	}
	archives, err := x.c.Archives(ctx)
	if err != nil {
		return err
	}
	for _, in := range archives {
		if files := x.groups[in.ID]; files != nil {
			if err := x.extract(ctx, in, files); err != nil {
				return err
			}
		}
	}
	clear(x.groups)
	x.held = 0
	return nil
}

func (x *catalogExtraction) extract(ctx context.Context, from catalog.Archive, files []catalog.Location) error {
	raw := true
	if f := format.All().ByName(from.Format); f == nil || f.Keeps&(format.KeepsModes|format.KeepsTimes|format.KeepsOwners) != 0 {
		raw = false // the catalogue does not know them
	}
	o := x.o
	for _, l := range files {
		raw = raw && l.Raw
		o.Names = append(o.Names, l.Path)
	}
	if raw {
		// In the order in which they are stored. Nothing is larger than its archive.
		slices.SortFunc(files, func(a, b catalog.Location) int { return cmp.Compare(a.Off, b.Off) })
		o.Names, o.Max.Ratio = nil, -1
	}
	x.app.address = store.Redact(from.Address)
	in, err := x.app.openFound(ctx, from, files, raw)
	if err != nil {
		return err
	}
	defer in.Close()
	sum, err := x.app.extractBelow(ctx, in, x.dir, o)
	x.sum.Entries += sum.Entries
	x.sum.Bytes += sum.Bytes
	x.sum.Failed += sum.Failed
	return err
}
