package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdall/holdall/docs"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// eachVerb visits all commands, including subcommands.
func eachVerb(t *testing.T, visit func(cmd *cobra.Command)) {
	t.Helper()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		visit(cmd)
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	root := wholeCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root)
}

// These are the exceptions, with reasons: names with two letters or two kinds
// of values, and letters with two names.
var (
	lettersOf = map[string]string{
		"recursive": "rm -r and ls -R are those of POSIX",
		"directory": "extract -C is that of tar, ls -d that of POSIX",
		"depth":     "tree -L is that of tree(1)",
		"all":       "ls -a is that of POSIX, and changes nothing",
	}
	kindsOf = map[string]string{
		"directory": "extract: a folder; ls: whether folders themselves are listed",
	}
	lettersWith = map[string]string{
		"r": "rm -r, ls -r (reverse): those of POSIX",
		"l": "ls -l (long), grep -l (files-with-matches): those of POSIX",
		"v": "grep -v (invert-match) is that of POSIX",
		"n": "grep -n (line-number) is that of POSIX",
	}
)

func TestOneNameOneFlagOneMeaning(t *testing.T) {
	letters, kinds, names := map[string]map[string]string{}, map[string]map[string]string{}, map[string]map[string]string{}
	note := func(of map[string]map[string]string, key, value, verb string) {
		if of[key] == nil {
			of[key] = map[string]string{}
		}
		of[key][value] += " " + verb
	}
	eachVerb(t, func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "holdall completion") {
			return // cobra's own flag
		}
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, former := f.Value.(*formerFlag); former || f.Name == "help" || f.Name == "index" && f.Hidden {
				return
			}
			note(letters, f.Name, f.Shorthand, cmd.CommandPath())
			kind := f.Value.Type()
			if p, ok := f.Value.(*paramFlag); ok {
				kind = p.Type()
			}
			note(kinds, f.Name, kind, cmd.CommandPath())
			if f.Shorthand != "" {
				note(names, f.Shorthand, f.Name, cmd.CommandPath())
			}
		})
	})
	for what, c := range map[string]struct {
		found   map[string]map[string]string
		allowed map[string]string
	}{"letters": {letters, lettersOf}, "kinds of values": {kinds, kindsOf}, "names of a letter": {names, lettersWith}} {
		for _, key := range slices.Sorted(maps.Keys(c.found)) {
			if len(c.found[key]) > 1 && c.allowed[key] == "" {
				t.Errorf("%s: two %s: %v", key, what, c.found[key])
			}
		}
		for key := range c.allowed {
			if len(c.found[key]) < 2 {
				t.Errorf("%s: one of the %s by now: it need not be allowed any more", key, what)
			}
		}
	}
}

// generated compares a file with what it must have, or writes that with -update.
func generated(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the command says: go test ./cmd/holdall -run Generated -update", file)
	}
}

// The page of the command line is the help of all verbs.
func TestGeneratedCLIPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# The command line

<!-- Generated from the help: go test ./cmd/holdall -run Generated -update -->

This is what ` + "`holdall VERB --help`" + ` prints. [The reference](reference.md) says what verbs read and print. Scripts may rely on both.
`)
	section := func(heading, help string) {
		fmt.Fprintf(&b, "\n%s\n\n```\n%s\n```\n", heading, strings.TrimSpace(help))
	}
	section("## holdall", verb(t, "--help").shown)
	root := wholeCommand()
	for _, g := range root.Groups() {
		for _, c := range root.Commands() {
			if c.GroupID != g.ID {
				continue
			}
			var walk func(c *cobra.Command, level string)
			walk = func(c *cobra.Command, level string) {
				path := strings.Fields(c.CommandPath())[1:]
				section(level+" "+strings.Join(path, " "), verb(t, append(path, "--help")...).shown)
				for _, sub := range c.Commands() {
					if sub.IsAvailableCommand() {
						walk(sub, "###")
					}
				}
			}
			walk(c, "##")
		}
	}
	section("## Flags for opening archives", verb(t, "help", "opening").shown)
	b.WriteString("\n## Formats\n")
	for _, f := range format.All() {
		section("### Format "+f.Name, verb(t, "formats", f.Name).shown)
	}
	generated(t, "../../docs/cli.md", b.String())
}

// The table shows at one look which verb takes which flags.
func TestGeneratedTableOfFlags(t *testing.T) {
	var b strings.Builder
	verbs := 0
	eachVerb(t, func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.Parent().HasParent() && cmd.GroupID != "" {
			verbs++
		}
		if !cmd.IsAvailableCommand() || !cmd.Runnable() {
			return
		}
		opening, common := sharedFlags(cmd)
		fmt.Fprintf(&b, "%s\n", strings.TrimPrefix(cmd.CommandPath(), "holdall "))
		line := func(what string, names []string) {
			if len(names) > 0 {
				fmt.Fprintf(&b, "  %-8s %s\n", what, strings.Join(names, " "))
			}
		}
		line("own", shownIn(ownFlags(cmd)))
		line("common", namesIn(common))
		line("opening", namesIn(opening))
		for _, f := range format.All() {
			line(f.Name, namesIn(paramFlags(cmd, f)))
		}
	})
	if verbs > 26 {
		t.Errorf("%d verbs at the top, which are too many to choose from", verbs)
	}
	generated(t, "testdata/flags.txt", b.String())
	if n := len(regexp.MustCompile(`(?m)^ +(-., )?--`).FindAllString(verb(t, "lindi", "mv", "--help").shown, -1)); n > 12 {
		t.Errorf("the help of lindi mv has %d flags", n)
	}
}

func shownIn(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// sectionOf returns a section of docs/reference.md.
func sectionOf(heading string) string {
	_, section, ok := strings.Cut(docs.Reference, "\n## "+heading+"\n")
	if !ok {
		return ""
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func TestHelpFitsATerminal(t *testing.T) {
	var paths [][]string
	eachVerb(t, func(cmd *cobra.Command) {
		if !strings.HasPrefix(cmd.CommandPath(), "holdall completion ") {
			paths = append(paths, strings.Fields(cmd.CommandPath())[1:])
		}
	})
	for _, path := range paths {
		s := verb(t, append(path, "--help")...)
		if s.code != 0 || s.error != "" || !strings.HasSuffix(s.shown, "\n") {
			t.Errorf("%s: exit code %d, %q, %d bytes", path, s.code, s.error, len(s.shown))
		}
		for line := range strings.Lines(s.shown) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", path, n, line)
			}
		}
	}
	all := verb(t, "help").shown + verb(t, "help", "addresses").shown
	_, _, err := store.OpenAddress(t.Context(), "none://x") // its error lists the known ones
	_, list, _ := strings.Cut(err.Error(), "known: ")
	list, _, _ = strings.Cut(list, ")")
	schemes := strings.Split(list, ", ")
	if len(schemes) < 6 {
		t.Errorf("known schemes: %q, from %v", schemes, err)
	}
	for _, scheme := range schemes {
		if !strings.Contains(all, scheme+":") && !strings.Contains(all, scheme+")://") {
			t.Errorf("help does not name the scheme %s", scheme)
		}
	}
	formats := verb(t, "help", "formats").shown
	for _, f := range format.All() {
		if !strings.Contains(formats, "\n  "+f.Name+" ") {
			t.Errorf("help does not name the format %s", f.Name)
		}
		for _, x := range f.Extensions {
			if !strings.Contains(formats, x) {
				t.Errorf("help does not name the extension %s", x)
			}
		}
	}
}

func TestEveryFlagOfEveryVerbHasAVariable(t *testing.T) {
	section := sectionOf("Environment")
	wholeCommand().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(section, "`"+variable(f.Name)+"`") {
			t.Errorf("the reference does not have %s", variable(f.Name))
		}
	})
}

func TestNearest(t *testing.T) {
	words := []string{"extract", "convert", "verify", "ls", "cat", "format"}
	for s, want := range map[string]string{"extrat": "extract", "foramt": "format", "verfy": "verify", "lss": "ls", "x": "", "conv": "convert", "zzz": "", "ls": "", "Cat": ""} {
		if got := nearest(s, words); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"ü", "u", 1}} {
		if n := distance(c.a, c.b); n != c.n {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, n, c.n)
		}
	}
	for verb, other := range otherVerbs {
		root := wholeCommand()
		if cmd, _, err := root.Find(strings.Fields(other)); err != nil || cmd == root {
			t.Errorf("%s: there is no verb %s", verb, other)
		}
		if cmd, _, err := root.Find([]string{verb}); err == nil && cmd != root {
			t.Errorf("%s is a verb", verb)
		}
	}
}

// A command line with a verb builds only this verb, as it is among all.
func TestAVerbAloneIsAsAmongAll(t *testing.T) {
	whole := wholeCommand()
	for _, v := range verbs() {
		root := newApp(strings.NewReader(""), io.Discard, io.Discard).rootCommand([]string{"--json", v.name, "x"})
		alone, _, err := root.Find([]string{v.name})
		if err != nil || alone.Name() != v.name || len(root.Commands()) != 1 {
			t.Errorf("%s: found %s among %d; %v", v.name, alone.Name(), len(root.Commands()), err)
			continue
		}
		among, _, err := whole.Find([]string{v.name})
		if err != nil || among.UsageString() != alone.UsageString() {
			t.Errorf("%s: its usage alone is\n%s\namong all\n%s%v", v.name, alone.UsageString(), among.UsageString(), err)
		}
	}
}
