package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
)

func (a *app) catalogCatCommand() *cobra.Command {
	var r byteRange
	var filesFrom string
	cmd := &cobra.Command{
		Use:   "cat PATH...",
		Short: "Write files to standard output",
		Long: `Writes the newest version of each file to standard output, one after the other.
If the content is one run of bytes in its archive, nothing else of the archive
is read. Several files are read at once. Content is compared with digests as by
'holdall cat'.`,
		Example: `  holdall catalog cat 2026/05/a.jpg > a.jpg
  holdall catalog cat --files-from list > all`,
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *book.Book, paths []string) error {
			if (filesFrom == "") == (len(paths) == 0) {
				return usage("expected either paths or --files-from")
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
	cmd.Flags().Var(&r, "range", "write only these bytes of each file: START-END, START- or -N")
	cmd.Flags().StringVar(&filesFrom, "files-from", "", "read the paths from a file, one per line; - is standard input")
	return cmd
}

const (
	catsAhead  = 16      // files that are read at once
	mostHeldOf = 1 << 20 // longer files are not read ahead
)

// A foundFile is one of several files whose contents are written in order.
type foundFile struct {
	path  string
	e     holdall.Entry
	ahead bool // held has the requested bytes
	held  bytes.Buffer
	err   error
}

// catalogCat writes the contents of files. It reads ahead only files that are
// short and need nothing else from their archives: the index of another
// archive may be large.
func (a *app) catalogCat(ctx context.Context, c *book.Book, paths []string, r byteRange) error {
	in, end, err := a.openTree(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	files := func(yield func(*foundFile, error) bool) {
		for _, path := range paths {
			if !yield(&foundFile{path: path}, nil) {
				return
			}
		}
	}
	return pipe.Ordered(ctx, files, min(catsAhead, len(paths)), func(ctx context.Context, x *foundFile) {
		if x.e, x.err = lookup(ctx, in, x.path); errors.Is(x.err, fs.ErrNotExist) {
			x.err = catalog.Absent(x.path)
		}
		if x.err != nil {
			return
		}
		n := x.e.Size
		if r.set {
			_, n = r.of(n)
		}
		where, _ := x.e.Ref.(catalog.Location)
		if x.ahead = where.Raw && n <= mostHeldOf; x.ahead {
			x.err = writeContent(ctx, &x.held, in, x.e, r)
		}
	}, func(x *foundFile) error {
		if x.err == nil && !x.ahead {
			return a.catEnded(writeContent(ctx, a.out, in, x.e, r))
		}
		if _, err := a.out.Write(x.held.Bytes()); err != nil {
			return err
		}
		return a.catEnded(x.err)
	}, func(*foundFile) {})
}

func (a *app) catalogExtractCommand() *cobra.Command {
	var dir string
	var o holdall.ExtractOptions
	cmd := &cobra.Command{
		Use:   "extract PATH... -C DIR",
		Short: "Extract files to disk",
		Long: `Writes the newest version of the given files and folders below DIR. The rules
are those of 'holdall extract'. From an archive whose format keeps no modes and
times, holdall reads only the content of these files.`,
		Example: `  holdall catalog extract 2026/05 -C out`,
		Args:    args(1, -1, "a path"),
		RunE: a.onCatalog(forReading, func(ctx context.Context, c *book.Book, args []string) error {
			in, end, err := a.openTree(ctx, c)
			if err != nil {
				return err
			}
			defer end()
			for _, path := range args {
				e, err := lookup(ctx, in, path)
				if errors.Is(err, fs.ErrNotExist) {
					err = catalog.Absent(path)
				}
				if err != nil {
					return err
				}
				o.Names = append(o.Names, e.Name)
			}
			o.Meter = &holdall.Meter{}
			return a.extractTo(ctx, in, dir, o)
		}),
	}
	extractFlags(cmd.Flags(), &dir, &o)
	return cmd
}
