package main

import (
	"context"
	"errors"
	iofs "io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
)

func (a *app) extractCommand() *cobra.Command {
	var dir string
	var o holdall.ExtractOptions
	var maxBytes sizeFlag
	var sel selection
	cmd := &cobra.Command{
		Use:   "extract ARCHIVE [PATH...] -C DIR",
		Short: "Extract files of an archive to disk",
		Long: `Writes all of an archive, or the given files and folders, below DIR.

holdall never writes outside DIR. It refuses names and links that lead out of
DIR, and entries that would replace each other. It reports each with the reason,
and the exit code is then 1. A file appears under its name after its content has
been compared with the archive's digest. Existing files stay, unless you give
--overwrite. Links in DIR are replaced, never followed.`,
		Example: `  holdall extract docs.caf -C out
  holdall extract docs.caf guide/intro.md images -C out
  holdall extract https://example.org/docs.caf guide -C .`,
		Args: args(1, -1, "an archive"),
		RunE: a.onArchive(func(ctx context.Context, in *holdall.Archive, names []string) error {
			o.Meter, o.Max.Bytes = a.newMeter(), int64(maxBytes)
			entries, err := expandAll(ctx, in, names)
			if errors.Is(err, iofs.ErrNotExist) && len(names) == 1 && dir == "." && !strings.Contains(names[0], "*") && !is[*misspeltError](err) {
				return &misspeltError{err, "-C " + names[0]}
			}
			if err != nil {
				return err
			}
			for _, e := range entries {
				o.Names = append(o.Names, e.Name)
			}
			if o.Include, o.Exclude, err = sel.patterns(a); err != nil {
				return err
			}
			return a.extractTo(ctx, in, dir, o)
		}),
		ValidArgsFunction: a.completeMembers,
	}
	fs := cmd.Flags()
	extractFlags(fs, &dir, &o)
	sel.register(fs)
	a.verboseFlag(fs)
	a.dryRunFlag(fs)
	fs.IntVar(&o.Strip, "strip-components", 0, "remove this many leading elements from names, as tar does")
	fs.BoolP("preserve-permissions", "p", true, "") // a habit of tar's users: modes are kept
	fs.MarkHidden("preserve-permissions")
	fs.BoolVar(&o.OutsideLinks, "outside-links", false, "also create symbolic links that lead outside DIR")
	fs.Int64Var(&o.Max.Entries, "max-entries", 0, "stop if there are more entries (default 20 million, -1 no limit)")
	fs.Var(&maxBytes, "max-bytes", "stop if there is more content (default no limit)")
	fs.Int64Var(&o.Max.Ratio, "max-ratio", 0, "stop if content over 1 GiB is this many times the archive (default 1000, -1 no limit)")
	fs.IntVar(&o.Max.Depth, "max-depth", 0, "refuse entries nested deeper than this (default 2048, -1 no limit)")
	return cmd
}

func extractFlags(fs *pflag.FlagSet, dir *string, o *holdall.ExtractOptions) {
	fs.StringVarP(dir, "directory", "C", ".", "folder to extract into, created if it does not exist")
	fs.BoolVar(&o.Overwrite, "overwrite", false, "replace existing files")
	fs.BoolVar(&o.KeepDamaged, "keep-damaged", false, "write the readable parts of a damaged file as NAME.damaged")
	fs.BoolVar(&o.NoOwner, "no-owner", false, "do not set owners (only root sets them)")
}
