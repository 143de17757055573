package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/docs"
	"github.com/holdall/holdall/format"
)

// topics are the sections of docs/reference.md that 'holdall help' shows besides
// verbs.
var topics = []struct{ name, heading, short string }{
	{"addresses", "Addresses", "Where archives lie: paths, servers, buckets, catalogues"},
	{"environment", "Environment", "Environment variables"},
	{"exit-codes", "Exit codes", "What the exit codes mean"},
	{"patterns", "Patterns", "Patterns of names: *, ?, [a-z], {a,b} and **"},
}

// formatsTopic is a verb that the help lists as a topic.
const formatsTopic = "formats"

// topicCommands returns the topics as commands that do nothing: 'holdall help'
// lists them apart.
func (a *app) topicCommands() (cmds []*cobra.Command) {
	opening := &cobra.Command{Use: "opening", Short: "Flags of the verbs that open archives"}
	opening.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		flags := flagsLike(cmd.Root().PersistentFlags(), func(f *pflag.Flag) bool { return slices.Contains(strings.Fields(openingFlags), f.Name) })
		fmt.Fprint(cmd.OutOrStdout(), "Verbs that open archives take these flags:\n\n"+flags.FlagUsagesWrapped(min(columnsOf(a.stdout), 100))+`
--external allows an address and everything below it, and may be repeated.
--no-verify also skips the checksums of Oak segments, and those that a bucket
has of objects to pack. 'holdall verify' and 'holdall repair' ignore it.
`)
	})
	cmds = append(cmds, opening)
	for _, t := range topics {
		cmd := &cobra.Command{Use: t.name, Short: t.short}
		cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { // formatted only when it is asked for
			_, section, _ := strings.Cut(docs.Reference, "\n## "+t.heading+"\n")
			section, _, _ = strings.Cut(section, "\n## ")
			fmt.Fprintln(cmd.OutOrStdout(), plainText(section))
		})
		cmds = append(cmds, cmd)
	}
	return cmds
}

// helpCommand returns 'holdall help'. Cobra's own succeeds for an unknown
// word.
func (a *app) helpCommand() *cobra.Command {
	names := []string{"opening"}
	for _, t := range topics {
		names = append(names, t.name)
	}
	return &cobra.Command{
		Use:     "help [VERB | TOPIC]",
		Short:   "Describe a verb or a topic",
		Long:    "Describes a verb or a topic. Topics are\n" + inWords(append(names, formatsTopic)) + ".",
		Example: "  holdall help pack\n  holdall help oak check\n  holdall help patterns",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
			if at, _, err := cmd.Root().Find(args); err == nil {
				for _, c := range at.Commands() {
					if !c.Hidden {
						all = append(all, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, word := range args {
				next, _, err := at.Find([]string{word})
				if f := format.All().ByName(word); f != nil && at == cmd.Root() && (err != nil || next == at) {
					return describeFormat(cmd.OutOrStdout(), f, min(columnsOf(a.stdout), 100))
				}
				if err != nil || next == at {
					return unknownVerb(at, word)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		},
	}
}

// describeFormat writes what a format is, what it can do and keeps, and its flags.
func describeFormat(w io.Writer, f *format.Format, columns int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.\n\n", f.Name, f.Title)
	for _, x := range []struct {
		what string
		list []string
	}{{"Files", f.Extensions}, {"Views", f.Views}, {"Can", abilities(f)}, {"Keeps", keeps(f)}} {
		if len(x.list) > 0 {
			fmt.Fprintf(&b, "  %-6s %s\n", x.what, strings.TrimSpace(wrapped(strings.Join(x.list, " "), columns, "         ")))
		}
	}
	for _, x := range []struct {
		what string
		ops  format.Op
	}{{"Flags to read", ^format.ToCreate}, {"Flags to write", format.ToCreate}} {
		cmd := newApp(strings.NewReader(""), io.Discard, io.Discard).takes(x.ops, &cobra.Command{}, f)
		if flags := paramFlags(cmd, f); flags.HasFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", x.what, flags.FlagUsagesWrapped(columns))
		}
	}
	_, err := fmt.Fprint(w, b.String())
	return err
}

func formatTable() string {
	var b strings.Builder
	for _, f := range format.All() {
		fmt.Fprintf(&b, "  %-11s %s\n", f.Name, strings.TrimSpace(wrapped(f.Title+ifAny(": %s", strings.Join(f.Extensions, " ")), 80, strings.Repeat(" ", 14))))
	}
	return strings.TrimRight(b.String(), "\n")
}

// plainText formats a section of a page for a terminal. Links become their
// texts. In rows of tables, the first cell comes before the others.
func plainText(section string) string {
	mdLink := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	mdRule := regexp.MustCompile(`^\|[-| ]+\|$`)
	var b, paragraph strings.Builder
	indent, fenced := "", false
	flush := func() {
		if paragraph.Len() > 0 {
			b.WriteString(wrapped(paragraph.String(), 80, indent) + "\n")
		}
		paragraph.Reset()
		indent = ""
	}
	var heads []string
	lines := strings.Split(strings.TrimSpace(section), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, "```") {
			flush()
			fenced = !fenced
			continue
		}
		if fenced {
			b.WriteString("  " + line + "\n")
			continue
		}
		line = strings.TrimPrefix(line, "### ")
		line = strings.ReplaceAll(mdLink.ReplaceAllString(line, "$1"), "`", "")
		switch {
		case line == "":
			flush()
			b.WriteByte('\n')
		case strings.HasPrefix(line, "|"):
			flush()
			if i+1 < len(lines) && mdRule.MatchString(lines[i+1]) {
				heads = strings.Split(strings.Trim(line, "| "), " | ")
				i++
				continue
			}
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			for i := 1; i < len(cells) && len(cells) > 2 && i < len(heads); i++ {
				cells[i] = heads[i] + ": " + cells[i]
			}
			b.WriteString(wrapped(cells[0], 80, "  ") + "\n" + wrapped(strings.Join(cells[1:], "; "), 80, "      ") + "\n")
		default:
			if strings.HasPrefix(line, "- ") {
				flush()
				indent = "  "
			}
			paragraph.WriteString(strings.TrimSpace(line) + " ")
		}
	}
	flush()
	return strings.TrimRight(b.String(), "\n")
}

// folded breaks examples into lines that fit a terminal, in the syntax of a
// shell.
func folded(examples string) string {
	const most = 78
	var b strings.Builder
	for line := range strings.Lines(examples) {
		for len(line) > most+2 {
			at := strings.LastIndex(line[:most], " -")
			if at < 10 {
				at = strings.LastIndexByte(line[:most], ' ')
			}
			if at < 10 {
				break
			}
			b.WriteString(line[:at] + " \\\n")
			line = "    " + line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// wrapped breaks a text into lines with an indent. The first line of an item
// has a smaller one.
func wrapped(text string, columns int, indent string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0 && word == "-":
			at = 0
		case i == 0:
			b.WriteString(indent)
			at = len(indent)
		case at+1+n > columns:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
