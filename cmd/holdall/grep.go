package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

func (a *app) grepCommand() *cobra.Command {
	var g grepping
	var fold bool
	cmd := &cobra.Command{
		Use:   "grep ARCHIVE REGEX [GLOB]",
		Short: "Search in contents",
		Long: `Prints the lines of files that REGEX (RE2 syntax) matches, with their file and
number; of files that are not text, only that they match. GLOB, as in find,
narrows down the files. The exit code is 1 if nothing matches.`,
		Example: `  holdall grep docs.caf 'TODO|FIXME' '*.md'
  holdall grep -l logs.caf 'status=5\d\d'`,
		Args: args(2, 3, "an archive, a regular expression and perhaps a pattern"),
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
	cmd.Flags().BoolVarP(&fold, "ignore-case", "i", false, "capitals do not matter")
	cmd.Flags().BoolVarP(&g.namesOnly, "files-with-matches", "l", false, "only the names of files that match")
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

// longestLine is how much of a line is looked at at once.
const longestLine = 1 << 20

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
	r := bufio.NewReaderSize(content, longestLine)
	head, err := r.Peek(8000)
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return err
	}
	binary := bytes.IndexByte(head, 0) >= 0
	name := quoteEmpty(format.Escape(e.Name))
	var off int64
	for n := 1; ; {
		line, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
		text := bytes.TrimRight(line, "\r\n")
		if len(line) > 0 && g.re.Match(text) {
			g.found = true
			switch {
			case g.app.json:
				g.json(e, n, off, text, binary)
			case g.namesOnly:
				fmt.Fprintln(g.app.out, name)
			case binary:
				fmt.Fprintf(g.app.out, "%s: matches, not text\n", name)
			default:
				fmt.Fprintf(g.app.out, "%s:%d:%s\n", name, n, format.Escape(string(text)))
			}
			if g.namesOnly || binary {
				return nil
			}
		}
		off += int64(len(line))
		if err == io.EOF {
			return nil
		}
		if err == nil {
			n++
		}
	}
}

func (g *grepping) json(e holdall.Entry, line int, off int64, text []byte, binary bool) {
	m := struct {
		Path    string `json:"path"`
		PathHex string `json:"path_hex,omitempty"`
		Line    int    `json:"line,omitempty"`
		Offset  int64  `json:"offset"`
		Text    string `json:"text,omitempty"`
	}{Line: line, Offset: off}
	m.Path, m.PathHex = shown(e.Name)
	if binary || g.namesOnly {
		m.Line = 0
	} else {
		m.Text = format.Escape(string(text))
	}
	g.app.printJSON(m)
}
