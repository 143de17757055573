package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/export"
)

func (a *app) catalogExportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export [sqlite:FILE | postgres://...]",
		Short: "Write the locations of all files, as CSV or JSON or to a database",
		Long: `Writes the location of the newest file of each path. The CSV has two columns:
file_path, and caf_file_id, the number of the archive. --json writes one JSON
object per line, with all fields of 'catalog find'.

The CSV cannot hold a path that is not UTF-8, contains a NUL, or has more than
512 characters. The export fails at such a path.

To a database, it writes the tables archives and file_locations. If the
catalogue was exported there before, only what has changed is written.`,
		Example: `  holdall catalog export > files.csv
  holdall catalog export sqlite:photos.db`,
		Args: args(0, 1, "at most a database"),
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *book.Book, to []string) error {
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

func (a *app) exportTo(ctx context.Context, c *book.Book, address string) error {
	if !export.Is(address) {
		return usage("expected a database as sqlite:FILE or postgres://HOST/NAME, found %s", shownCatalog(address))
	}
	done, err := export.To(ctx, c, address)
	if err != nil {
		return err
	}
	a.tell(done, func() {
		fmt.Fprintf(a.out, "%s: what the catalogue was after commit %d; %s written, %d removed\n", shownCatalog(address), done.Commit, count(done.Files, "file"), done.Removed)
	})
	return nil
}

func (a *app) exportJSON(ctx context.Context, c *book.Book) error {
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

func (a *app) exportCSV(ctx context.Context, c *book.Book) error {
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
