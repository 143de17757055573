package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/format"
)

// writeUsage writes the part of a verb's help that follows its description. It
// uses no template: with package text/template, Go's linker keeps every method
// of every linked type, which is 5 MB.
func (a *app) writeUsage(w io.Writer, cmd *cobra.Command, columns int) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "\n  %s", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n  %s VERB", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\n\nExamples:\n%s", cmd.Example)
	}
	list := func(title, group string) {
		b.WriteString("\n\n" + title)
		all := slices.Clone(cmd.Commands())
		if group != "" { // those that are used most are first
			order := verbs()
			place := func(c *cobra.Command) int {
				return slices.IndexFunc(order, func(v verbSpec) bool { return v.name == c.Name() })
			}
			slices.SortStableFunc(all, func(x, y *cobra.Command) int { return cmp.Compare(place(x), place(y)) })
		}
		for _, c := range all {
			if c.GroupID == group && c.IsAvailableCommand() {
				fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	if cmd.HasAvailableSubCommands() && len(cmd.Groups()) == 0 {
		list("Verbs:", "")
	}
	section := func(title, lines string) {
		if lines = strings.TrimRight(lines, " \n"); lines != "" {
			fmt.Fprintf(&b, "\n\n%s:\n%s", title, lines)
		}
	}
	section("Flags", ownFlags(cmd).FlagUsagesWrapped(columns))
	opening, common := sharedFlags(cmd)
	section("Common flags", common.FlagUsagesWrapped(columns))
	if few(opening) {
		section("Flags for opening archives", opening.FlagUsagesWrapped(columns))
	} else {
		section("Flags for opening archives, which 'holdall help opening' describes", wrapped("--"+strings.Join(namesIn(opening), ", --"), columns, "  "))
	}
	as, flag := a.format, "--as"
	if own := cmd.LocalFlags().Lookup("format"); own != nil && !own.Hidden {
		as, flag = cmp.Or(a.target, a.format), "-f"
	}
	if f := format.All().ByName(as); f != nil {
		section(f.Title, paramFlags(cmd, f).FlagUsagesWrapped(columns))
	} else if hasParams(cmd) {
		fmt.Fprintf(&b, "\n\nFormats have flags of their own: %s FORMAT --help lists them.", flag)
	}
	if cmd.HasHelpSubCommands() {
		b.WriteString("\n\nTopics:")
		for _, c := range cmd.Commands() {
			if c.IsAdditionalHelpTopicCommand() || c.Name() == formatsTopic {
				fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s VERB --help\" for details.", cmd.CommandPath())
	}
	if !cmd.HasParent() {
		b.WriteString("\n'holdall completion SHELL --help' describes completions for your shell.")
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

// few reports whether so few flags are in a set that each has a line in the help.
func few(flags *pflag.FlagSet) bool { return len(namesIn(flags)) < 6 }

func namesIn(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// hasParams reports whether a verb takes parameters of formats.
func hasParams(cmd *cobra.Command) bool {
	return slices.ContainsFunc(format.All(), func(f *format.Format) bool { return paramFlags(cmd, f).HasFlags() })
}
