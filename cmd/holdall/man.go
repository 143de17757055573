package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/format"
)

// manCommand writes manual pages. It is hidden, as it is for packagers.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a folder",
		Hidden: true,
		Args:   args(1, 1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writePages(args[0], wholeCommand())
		},
	}
}

func writePages(dir string, cmd *cobra.Command) error {
	if err := os.WriteFile(filepath.Join(dir, pageOf(cmd)+".1"), []byte(manPage(cmd)), 0o666); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			if err := writePages(dir, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the manual page of a command, in roff with the macros of man.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	flags := func(title string, set *pflag.FlagSet) {
		if set.HasAvailableFlags() {
			section(title)
			roffFlags(&b, set)
		}
	}
	day, _, _ := strings.Cut(cmp.Or(date, recorded("vcs.time"), "1970-01-01T"), "T")
	fmt.Fprintf(&b, ".TH %s 1 \"%s\" \"holdall %s\" \"holdall\"\n.ad l\n", strings.ToUpper(pageOf(cmd)), day, roff(versionString()))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageOf(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.UseLine()))
	section("DESCRIPTION")
	roffText(&b, cmp.Or(cmd.Long, cmd.Short+"."))
	flags("OPTIONS", ownFlags(cmd))
	for _, f := range format.All() {
		flags("OPTIONS FOR "+strings.ToUpper(f.Name), paramFlags(cmd, f))
	}
	opening, common := sharedFlags(cmd)
	flags("OPTIONS FOR OPENING ARCHIVES", opening)
	flags("COMMON OPTIONS", common)
	if cmd.Example != "" {
		section("EXAMPLES")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var see []string
	if cmd.HasParent() {
		see = append(see, pageOf(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			see = append(see, pageOf(c))
		}
	}
	if len(see) > 0 {
		section("SEE ALSO")
		for i, name := range see {
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), strings.Repeat(",", min(1, len(see)-1-i)))
		}
	}
	return b.String()
}

func roffFlags(b *strings.Builder, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// roffText writes paragraphs. An indented paragraph keeps its lines.
func roffText(b *strings.Builder, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		paragraph = strings.Trim(paragraph, "\n")
		if strings.Contains("\n"+paragraph, "\n ") || strings.Contains("\n"+paragraph, "\n\t") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", roff(paragraph))
		} else {
			fmt.Fprintln(b, roff(paragraph))
		}
	}
}

func roff(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " ")
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		for _, r := range line {
			switch {
			case r == '\\':
				b.WriteString(`\e`)
			case r == '-':
				b.WriteString(`\-`)
			case r > '~':
				fmt.Fprintf(&b, `\[u%04X]`, r)
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
