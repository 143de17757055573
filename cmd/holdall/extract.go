package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
)

func (a *app) extractCommand() *cobra.Command {
	var dir string
	var o holdall.ExtractOptions
	var maxBytes sizeFlag
	cmd := &cobra.Command{
		Use:   "extract ARCHIVE [PATH...] -C DIR",
		Short: "Write files of an archive to disk",
		Long: `Writes all of an archive, or the files and folders named, below DIR.

Nothing is ever written outside DIR: names that would lead out, links that
would, and entries that would replace one another are refused, each with its
reason, and the exit code is 1. Files are compared with the archive's digests
before they appear. Files that are there already stay, unless --overwrite.`,
		Example: `  holdall extract docs.caf -C out
  holdall extract docs.caf guide/intro.md images -C out
  holdall extract https://example.org/docs.caf guide -C .`,
		Args: args(1, -1, "an archive"),
		RunE: a.onArchive(func(ctx context.Context, in *holdall.Archive, names []string) error {
			o.Meter, o.Max.Bytes = &holdall.Meter{}, int64(maxBytes)
			for _, name := range names {
				e, err := lookup(ctx, in, name)
				if err != nil {
					return err
				}
				o.Names = append(o.Names, e.Name)
			}
			return a.extractTo(ctx, in, dir, o)
		}),
		ValidArgsFunction: a.completeMembers,
	}
	fs := cmd.Flags()
	extractFlags(fs, &dir, &o)
	fs.BoolVar(&o.OutsideLinks, "outside-links", false, "make symbolic links that lead outside DIR too, as packages have them")
	fs.Int64Var(&o.Max.Entries, "max-entries", 0, "stop at more entries than this (default 20 million, -1 no limit)")
	fs.Var(&maxBytes, "max-bytes", "stop at more content than this (default no limit)")
	fs.Int64Var(&o.Max.Ratio, "max-ratio", 0, "stop when content is this many times the archive, from 1 GiB on (default 1000, -1 no limit)")
	fs.IntVar(&o.Max.Depth, "max-depth", 0, "refuse entries in more folders than this (default 256, -1 no limit)")
	return cmd
}

// extractFlags are those of all that extracts.
func extractFlags(fs *pflag.FlagSet, dir *string, o *holdall.ExtractOptions) {
	fs.StringVarP(dir, "directory", "C", ".", "where to, made if it is not there")
	fs.BoolVar(&o.Overwrite, "overwrite", false, "replace files that are there already")
	fs.BoolVar(&o.KeepDamaged, "keep-damaged", false, "write what can be read of a damaged file as NAME.damaged")
	fs.BoolVar(&o.NoOwner, "no-owner", false, "leave files to whoever extracts (root only; others always do)")
}
