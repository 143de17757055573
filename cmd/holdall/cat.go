package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (a *app) catCommand() *cobra.Command {
	var r byteRange
	var decode, slice string
	var depth int
	cmd := &cobra.Command{
		Use:   "cat ARCHIVE PATH...",
		Short: "Write files of an archive to standard output",
		Long: `Writes the content of files to standard output, one after the other. holdall
reads only the parts of the archive that it needs. It compares whole files with
the archive's digests: files up to 1 MiB before it writes the first byte, longer
files while it writes. A part of a longer file is compared if the archive has an
index with digests of pieces, or checksums of the stored parts. The exit code is
1 if a file is damaged.

--range writes a part of each file: START-END excludes the byte at END, START-
reads to the end, -N is the last N bytes. The range may end after the end of the
file.

--view meta without a PATH writes the metadata of a package.

--decode writes the elements of Zarr arrays: as text, a line for each row, with
tabs between its elements and a blank line between planes, or with --decode=npy
as a NumPy file. Missing chunks have the fill value. holdall decodes Blosc,
zlib, gzip, zstd, lz4, bz2, lzma and the filters of numcodecs. --slice writes a
part of an array, and reads only its chunks: as in NumPy, 0:100,:,5 are the
elements 0 to 99 of the first axis, all of the second, and the one at 5 of the
third.

--json in the tree of an Oak store writes a node with its properties as one
JSON object, or a single property. --depth N includes N levels of children as
objects; below them there are only names. Other content is written unchanged.`,
		Example: `  holdall cat docs.caf guide/intro.md
  holdall cat https://example.org/docs.caf guide/intro.md | less
  holdall cat --view tree --json --depth 1 segmentstore content/site
  holdall cat --decode --slice 0:100,:4 recording.nwb acquisition/raw/data`,
		Args: args(1, -1, "an archive and a path in it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			args, err := a.withTogether(ctx, args)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if a.view != metaView {
					return usage("expected an archive and a path in it, found 1 argument")
				}
				args = append(args, metaText)
			}
			if decode == "" && slice != "" {
				return usage("--slice needs --decode")
			}
			if decode != "" {
				return a.catArrays(ctx, args, decode, slice, r.set)
			}
			return a.catNames(ctx, args[0], args[1:], r, depth, cmd.Flags().Changed("depth"))
		},
		ValidArgsFunction: a.completeMembers,
	}
	cmd.Flags().Var(&r, "range", "write only these bytes of each file: START-END, START- or -N")
	cmd.Flags().Var(newChoice(&decode, "", "text", "npy"), "decode", "write the elements of a Zarr array: text, or npy, a NumPy file")
	cmd.Flags().Lookup("decode").NoOptDefVal = "text"
	cmd.Flags().StringVar(&slice, "slice", "", "with --decode: write a `part` of the array, as NumPy selects it: 0:100,:,5")
	cmd.Flags().IntVar(&depth, "depth", 0, "with --json, of Oak nodes: levels of children to include as objects; -1 is all")
	return cmd
}

// catNames writes the contents of entries or, on request, nodes with their
// properties.
func (a *app) catNames(ctx context.Context, address string, names []string, r byteRange, depth int, deep bool) error {
	in, err := a.open(ctx, address, len(names) == 1)
	if err != nil {
		return err
	}
	defer a.close(ctx, in)
	if a.json && a.showsNodes(in) {
		if r.set {
			return usage("--range does not apply to a node as JSON")
		}
		return a.catNodes(ctx, address, names, depth)
	}
	if deep {
		return usage("--depth needs --json and the tree of an Oak store")
	}
	return all(names, func(name string) error {
		entries, err := expand(ctx, in, name)
		if err != nil {
			return err
		}
		if len(entries) > 1 { // a pattern stands for the files
			entries = slices.DeleteFunc(entries, func(e holdall.Entry) bool { return !e.Kind.HasContent() })
		}
		return all(entries, func(e holdall.Entry) error {
			if e.Kind == format.Dir {
				return fmt.Errorf("%s is a folder: 'holdall ls' lists it, 'holdall extract' writes its files", format.Escape(e.Name))
			}
			if e.Kind == format.Symlink || e.Kind == format.HardLink {
				if e, err = in.Resolve(ctx, e.Name); err != nil {
					return err
				}
			}
			return a.catEnded(writeContent(ctx, a.out, in, e, r))
		})
	})
}

func (a *app) catArrays(ctx context.Context, args []string, as, slice string, ranged bool) error {
	if ranged {
		return &usageError{errDecodeRange}
	}
	in, err := a.openKeys(ctx, args[0], a.asked, false)
	if err != nil {
		return err
	}
	defer a.close(ctx, in)
	return all(args[1:], func(name string) error { return a.decode(ctx, in, name, as, slice) })
}

func writeContent(ctx context.Context, w io.Writer, in *holdall.Archive, e holdall.Entry, r byteRange) error {
	if r.set {
		return catRange(ctx, w, in, e, r)
	}
	return in.WriteContent(ctx, w, e)
}

// catEnded reports that content was written but is wrong.
func (a *app) catEnded(err error) error {
	if is[*holdall.DigestError](err) || is[*holdall.ProofError](err) {
		a.out.Flush()
		a.report(err)
		return errNo
	}
	return err
}

func catRange(ctx context.Context, w io.Writer, in *holdall.Archive, e holdall.Entry, r byteRange) error {
	f, err := in.OpenEntry(ctx, e)
	if err != nil {
		return err
	}
	defer f.Close()
	off, n := r.of(e.Size)
	if r.start > e.Size || r.start == e.Size && e.Size > 0 {
		return fmt.Errorf("%s: --range begins at %d, and the file has %s", format.Escape(e.Name), r.start, count(e.Size, "byte"))
	}
	if n <= 1<<20 {
		// Read exactly the requested bytes: reading ahead would fetch more.
		b := make([]byte, n)
		if k, err := in.ReadAt(ctx, e, b, off); int64(k) < n {
			if k == 0 {
				return err
			}
			return fmt.Errorf("%d of %d bytes: %w", k, n, err)
		}
		_, err := w.Write(b)
		return err
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, n)
	return err
}
