package main

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/glob"
)

func (a *app) findCommand() *cobra.Command {
	var fold bool
	var kind string
	var sel selection
	cmd := &cobra.Command{
		Use:   "find ARCHIVE GLOB",
		Short: "Search for entries by name",
		Long: `Lists the entries whose names match GLOB. * matches anything except a slash, **
anything, ? one character, [a-z] one of a set, and {a,b} either. A GLOB without
a slash is compared with the last element of a name, a GLOB with a slash with
the whole name. The exit code is 1 if nothing is found.`,
		Example: `  holdall find docs.caf '*.md'
  holdall find docs.caf 'guide/**/*.{png,svg}'`,
		Args: args(2, 2, "an archive and a pattern"),
		RunE: run(func(ctx context.Context, args []string) error {
			match, err := globMatcher(args[1], fold)
			if err != nil {
				return &usageError{err}
			}
			names, err := sel.filter(a)
			if err != nil {
				return err
			}
			found, below := false, "."
			err = a.use(ctx, args[0], false, func(in *holdall.Archive) error {
				print := a.entryPrinter(ctx, in, false)
				if !fold {
					below = folderOf(ctx, in, args[1])
				}
				return each(in.Below(ctx, below), func(e holdall.Entry) error {
					if kind != "" && e.Kind.String() != kind || !names.Wants(e.Name) || !match(e.Name) {
						if !e.Kind.HasContent() {
							a.lost(in, e) // this also covers everything below it
						}
						return nil
					}
					found = true
					return print(e)
				})
			})
			return a.compared(names, cmp.Or(err, answer(!found)))
		}),
	}
	cmd.Flags().BoolVarP(&fold, "ignore-case", "i", false, "ignore case")
	cmd.Flags().Var(newChoice(&kind, "", "file", "dir", "symlink", "hardlink", "fifo", "property"), "kind", "list only this kind: file, dir, symlink, hardlink, fifo, property")
	sel.register(cmd.Flags())
	return cmd
}

// folderOf returns the folder that a pattern names literally. All matches are
// below it.
func folderOf(ctx context.Context, in *holdall.Archive, pattern string) string {
	if i := strings.IndexAny(pattern, glob.Meta); i >= 0 {
		pattern = pattern[:i]
	}
	i := strings.LastIndexByte(pattern, '/')
	if i <= 0 {
		return "."
	}
	if e, err := in.Lookup(ctx, pattern[:i]); err != nil || e.Kind != format.Dir || e.Fault != nil {
		return "."
	}
	return pattern[:i]
}

func globMatcher(pattern string, fold bool) (func(name string) bool, error) {
	p, err := glob.Compile(pattern, fold)
	return p.Match, err
}
