package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/grep"
)

func (a *app) grepCommand() *cobra.Command {
	var g grepping
	var s searched
	var sel selection
	cmd := &cobra.Command{
		Use:   "grep ARCHIVE REGEX [GLOB]",
		Short: "Search the content of files",
		Long: `Prints the lines that match REGEX (RE2 syntax), with the name of the file and
the line number. For a file that is not text, with a NUL byte near its
beginning, it prints only that the file matches. GLOB, as in 'holdall find',
selects the files. With -e there is no REGEX among the arguments. The flags mean
what they mean to grep(1). The exit code is 1 if nothing matches, or if a file
could not be read.`,
		Example: `  holdall grep docs.caf 'TODO|FIXME' '*.md'
  holdall grep -l logs.caf 'status=5\d\d'
  holdall grep -e TODO -e FIXME docs.caf
  holdall grep -cF docs.caf 'a.b'`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(s.exprs) > 0 {
				return args(1, 2, "an archive and optionally a pattern, as -e is the regular expression")(cmd, given)
			}
			return args(2, 3, "an archive, a regular expression and optionally a pattern")(cmd, given)
		},
		RunE: run(func(ctx context.Context, args []string) (err error) {
			exprs, pattern := s.exprs, argOr(args, 1, "**")
			if len(exprs) == 0 {
				exprs, pattern = args[1:2], argOr(args, 2, "**")
				if !isAddress(args[0]) && isAddress(args[1]) {
					return usage("there is no archive %s: the archive comes first, then the regular expression", args[0])
				}
			}
			if g.re, err = s.compile(exprs); err != nil {
				return &usageError{err}
			}
			match, err := globMatcher(pattern, false)
			if err != nil {
				return &usageError{err}
			}
			names, err := sel.filter(a)
			if err != nil {
				return err
			}
			g.app, g.searched, g.colours = a, s, a.colours(a.stdout, grepColours, "GREP_COLORS")
			g.match = func(name string) bool { return names.Wants(name) && match(name) }
			return a.compared(names, a.use(ctx, args[0], false, func(in *holdall.Archive) error { return g.run(ctx, in) }))
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&s.fold, "ignore-case", "i", false, "ignore case")
	f.BoolVarP(&g.namesOnly, "files-with-matches", "l", false, "print only the names of files that match")
	f.BoolVarP(&g.count, "count", "c", false, "print only the number of lines that match, for each file")
	f.BoolVarP(&s.invert, "invert-match", "v", false, "select the lines that do not match")
	f.BoolVarP(&s.words, "word-regexp", "w", false, "match whole words only")
	f.BoolVarP(&s.fixed, "fixed-strings", "F", false, "REGEX is plain text, not a regular expression")
	f.StringArrayVarP(&s.exprs, "regexp", "e", nil, "search for this; may be repeated")
	for long, short := range map[string]string{"line-number": "n", "extended-regexp": "E"} { // it is so anyway
		f.BoolP(long, short, false, "")
		f.MarkHidden(long)
	}
	sel.register(f)
	cmd.MarkFlagsMutuallyExclusive("count", "files-with-matches")
	return cmd
}

type searched struct {
	exprs                      []string
	fold, invert, words, fixed bool
}

func (s *searched) compile(exprs []string) (*regexp.Regexp, error) {
	var any []string
	for _, expr := range exprs {
		if s.fixed {
			expr = regexp.QuoteMeta(expr)
		}
		if _, err := regexp.Compile(expr); err != nil {
			return nil, err
		}
		any = append(any, "(?:"+expr+")")
	}
	expr := strings.Join(any, "|")
	if s.words {
		expr = `(?:^|[^\pL\pN_])(` + expr + `)(?:[^\pL\pN_]|$)`
	}
	if s.fold {
		expr = "(?i)" + expr
	}
	return regexp.Compile(expr)
}

// matches returns where re matches in a line, for each match from and to.
func (s *searched) matches(re *regexp.Regexp, line []byte) (all [][]int) {
	if !s.words {
		return re.FindAllIndex(line, -1)
	}
	for at := 0; ; { // what is between two words belongs to both matches
		m := re.FindSubmatchIndex(line[at:])
		if m == nil || m[2] == m[3] {
			return all
		}
		all = append(all, []int{at + m[2], at + m[3]})
		at += m[3]
	}
}

type grepping struct {
	searched
	app       *app
	colours   *colours
	re        *regexp.Regexp
	match     func(string) bool
	namesOnly bool
	count     bool
	found     bool
	failed    int64
}

func (g *grepping) run(ctx context.Context, in *holdall.Archive) error {
	wanted := func(e holdall.Entry) bool {
		if !e.Kind.HasContent() {
			g.app.lost(in, e) // this also covers everything below it
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
	c, lines := g.colours, int64(0)
	named, colon := c.paint("fn", name), c.paint("se", ":")
	for m, err := range grep.Lines(content, func(line []byte) bool { return g.re.Match(line) != g.invert }) {
		if err != nil {
			return err
		}
		g.found = true
		lines++
		switch {
		case g.count:
			continue
		case g.app.json:
			g.json(e, m)
		case g.namesOnly:
			fmt.Fprintln(g.app.out, named)
		case m.Binary:
			fmt.Fprintf(g.app.out, "%s: binary file matches\n", name)
		default:
			fmt.Fprint(g.app.out, named, colon, c.paint("ln", strconv.Itoa(m.Line)), colon, g.marked(m.Text), "\n")
		}
		if g.namesOnly || m.Binary {
			break
		}
	}
	if g.count {
		c := struct {
			pathJSON
			Count int64 `json:"count"`
		}{pathOf(e.Name), lines}
		g.app.tell(c, func() { fmt.Fprint(g.app.out, named, colon, lines, "\n") })
	}
	return nil
}

// marked returns a line with its matches coloured.
func (g *grepping) marked(line []byte) string {
	if g.colours == nil || g.invert {
		return format.Escape(string(line))
	}
	var b strings.Builder
	at := 0
	for _, m := range g.matches(g.re, line) {
		b.WriteString(format.Escape(string(line[at:m[0]])))
		b.WriteString(g.colours.with(cmp.Or(g.colours.codes["ms"], g.colours.codes["mt"]), format.Escape(string(line[m[0]:m[1]]))))
		at = m[1]
	}
	b.WriteString(format.Escape(string(line[at:])))
	return b.String()
}

func (g *grepping) json(e holdall.Entry, found grep.Match) {
	m := struct {
		pathJSON
		Line   int    `json:"line,omitempty"`
		Offset int64  `json:"offset"`
		Text   string `json:"text,omitempty"`
	}{pathJSON: pathOf(e.Name), Line: found.Line, Offset: found.Off}
	if found.Binary || g.namesOnly {
		m.Line = 0
	} else {
		m.Text = format.Escape(string(found.Text))
	}
	g.app.printJSON(m)
}
