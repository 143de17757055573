package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
)

// writeUsage writes the part of a verb's help that follows its description. It
// uses no template: with package text/template, Go's linker keeps every method
// of every linked type, which is 5 MB.
func writeUsage(w io.Writer, cmd *cobra.Command, columns int) error {
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
		for _, c := range cmd.Commands() {
			if c.GroupID == group && (c.IsAvailableCommand() || c.Name() == "help") {
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
	section("Parameters of formats", paramUsages(cmd, columns))
	section("Global Flags", globalFlags(cmd).FlagUsagesWrapped(columns))
	if cmd.HasHelpSubCommands() {
		b.WriteString("\n\nTopics:")
		for _, c := range cmd.Commands() {
			if c.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s VERB --help\" for details.", cmd.CommandPath())
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

func paramUsages(cmd *cobra.Command, columns int) string {
	var b strings.Builder
	for _, f := range format.All() {
		if some := paramFlags(cmd, f); some.HasFlags() {
			fmt.Fprintf(&b, "  %s (%s):\n%s", f.Title, f.Name, some.FlagUsagesWrapped(columns))
		}
	}
	return b.String()
}
