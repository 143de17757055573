package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/grep"
)

func (a *app) grepCommand() *cobra.Command {
	var g grepping
	var fold bool
	cmd := &cobra.Command{
		Use:   "grep ARCHIVE REGEX [GLOB]",
		Short: "Search the content of files",
		Long: `Prints the lines that match REGEX (RE2 syntax), with the name of the file and
the line number. For a file that is not text it prints only that the file
matches. GLOB, as in 'holdall find', selects the files. The exit code is 1 if
nothing matches, or if a file could not be read.`,
		Example: `  holdall grep docs.caf 'TODO|FIXME' '*.md'
  holdall grep -l logs.caf 'status=5\d\d'`,
		Args: args(2, 3, "an archive, a regular expression and optionally a pattern"),
		RunE: run(func(ctx context.Context, args []string) error {
			expr := args[1]
			if fold {
				expr = "(?i)" + expr
			}
			re, err := regexp.Compile(expr)
			if err != nil {
				return &usageError{err}
			}
			if g.match, err = globMatcher(argOr(args, 2, "**"), false); err != nil {
				return &usageError{err}
			}
			g.app, g.re = a, re
			return a.use(ctx, args[0], false, func(in *holdall.Archive) error { return g.run(ctx, in) })
		}),
	}
	cmd.Flags().BoolVarP(&fold, "ignore-case", "i", false, "ignore case")
	cmd.Flags().BoolVarP(&g.namesOnly, "files-with-matches", "l", false, "print only the names of files that match")
	return cmd
}

// grepping is one search.
type grepping struct {
	app       *app
	re        *regexp.Regexp
	match     func(string) bool
	namesOnly bool
	found     bool
	failed    int64
}

func (g *grepping) run(ctx context.Context, in *holdall.Archive) error {
	wanted := func(e holdall.Entry) bool {
		if !e.Kind.HasContent() {
			g.app.lost(in, e) // and with it what is below it
		}
		return e.Kind.HasContent() && g.match(e.Name)
	}
	err := in.Contents(ctx, wanted, func(e holdall.Entry, content io.Reader, err error) error {
		if err == nil {
			err = g.file(e, content)
		}
		if err != nil && ctx.Err() == nil {
			g.failed++
			g.app.entryFailed(format.Escape(e.Name), err)
			return nil
		}
		return err
	})
	return cmp.Or(err, answer(!g.found || g.failed > 0))
}

func (g *grepping) file(e holdall.Entry, content io.Reader) error {
	name := quoteEmpty(format.Escape(e.Name))
	for m, err := range grep.Lines(content, g.re) {
		if err != nil {
			return err
		}
		g.found = true
		switch {
		case g.app.json:
			g.json(e, m)
		case g.namesOnly:
			fmt.Fprintln(g.app.out, name)
		case m.Binary:
			fmt.Fprintf(g.app.out, "%s: binary file matches\n", name)
		default:
			fmt.Fprintf(g.app.out, "%s:%d:%s\n", name, m.Line, format.Escape(string(m.Text)))
		}
		if g.namesOnly {
			break
		}
	}
	return nil
}

func (g *grepping) json(e holdall.Entry, found grep.Match) {
	m := struct {
		Path    string `json:"path"`
		PathHex string `json:"path_hex,omitempty"`
		Line    int    `json:"line,omitempty"`
		Offset  int64  `json:"offset"`
		Text    string `json:"text,omitempty"`
	}{Line: found.Line, Offset: found.Off}
	m.Path, m.PathHex = shown(e.Name)
	if found.Binary || g.namesOnly {
		m.Line = 0
	} else {
		m.Text = format.Escape(string(found.Text))
	}
	g.app.printJSON(m)
}
