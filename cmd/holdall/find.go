package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (a *app) findCommand() *cobra.Command {
	var fold bool
	var kind string
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
			found, below := false, "."
			err = a.use(ctx, args[0], false, func(in *holdall.Archive) error {
				print := a.entryPrinter(ctx, in, false)
				if !fold {
					below = folderOf(ctx, in, args[1])
				}
				return each(in.Below(ctx, below), func(e holdall.Entry) error {
					if kind != "" && e.Kind.String() != kind || !match(e.Name) {
						if !e.Kind.HasContent() {
							a.lost(in, e) // and with it what is below it
						}
						return nil
					}
					found = true
					return print(e)
				})
			})
			return cmp.Or(err, answer(!found))
		}),
	}
	cmd.Flags().BoolVarP(&fold, "ignore-case", "i", false, "ignore case")
	cmd.Flags().Var(newChoice(&kind, "", "file", "dir", "symlink", "hardlink", "fifo", "property"), "kind", "list only this kind: file, dir, symlink, hardlink, fifo, property")
	return cmd
}

// folderOf is a folder that a pattern says by its name, and below which all is that it
// can match.
func folderOf(ctx context.Context, in *holdall.Archive, glob string) string {
	if i := strings.IndexAny(glob, `*?[{\`); i >= 0 {
		glob = glob[:i]
	}
	i := strings.LastIndexByte(glob, '/')
	if i <= 0 {
		return "."
	}
	if e, err := in.Lookup(ctx, glob[:i]); err != nil || e.Kind != format.Dir || e.Fault != nil {
		return "."
	}
	return glob[:i]
}

// globMatcher returns whether names are like a pattern. path.Match knows no **
// and no {a,b}, so patterns become regular expressions.
func globMatcher(glob string, fold bool) (func(name string) bool, error) {
	var re strings.Builder
	re.WriteString("^")
	depth := 0
	for i := 0; i < len(glob); i++ {
		c := glob[i]
		switch {
		case strings.HasPrefix(glob[i:], "**/"):
			re.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(glob[i:], "**"):
			re.WriteString(".*")
			i++
		case c == '*':
			re.WriteString("[^/]*")
		case c == '?':
			re.WriteString("[^/]")
		case c == '[':
			end := strings.IndexByte(glob[i+1:], ']')
			if end < 1 {
				return nil, fmt.Errorf("pattern %s: missing ]", glob)
			}
			set := glob[i+1 : i+1+end]
			if set[0] == '!' {
				set = "^" + set[1:]
			}
			re.WriteString("[" + strings.ReplaceAll(set, `\`, `\\`) + "]")
			i += end + 1
		case c == '{':
			re.WriteString("(?:")
			depth++
		case c == '}' && depth > 0:
			re.WriteString(")")
			depth--
		case c == ',' && depth > 0:
			re.WriteString("|")
		case c == '\\' && i+1 < len(glob):
			i++
			re.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			re.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	re.WriteString("$")
	flags := "(?s)"
	if fold {
		flags = "(?si)"
	}
	r, err := regexp.Compile(flags + re.String())
	if err != nil {
		return nil, fmt.Errorf("pattern %s: %w", glob, err)
	}
	if !strings.Contains(glob, "/") {
		return func(name string) bool { return r.MatchString(path.Base(name)) }, nil
	}
	return r.MatchString, nil
}
