package main

import (
	"io"
	"maps"
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
		"index":      "pack: a word of DataBundle; others: where the index of an archive lies",
		"directory":  "extract: a folder; ls: whether folders themselves are listed",
		"checkpoint": "oak check: several; others: the one that is shown",
	}
	namesOf = map[string]string{
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
			if f.Name == "help" {
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
	}{"letters": {letters, lettersOf}, "kinds of values": {kinds, kindsOf}, "names of a letter": {names, namesOf}} {
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

// sectionOf returns the text of docs/cli.md about a verb and about its common
// flags.
func sectionOf(heading string) string {
	_, section, ok := strings.Cut(docs.CLI, "\n## "+heading+"\n")
	if !ok {
		return ""
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func TestCLIPageHasEveryVerbAndFlag(t *testing.T) {
	common := sectionOf("Flags of every verb")
	n := 0
	eachVerb(t, func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if len(path) == 0 || path[0] == "completion" || cmd.IsAdditionalHelpTopicCommand() || cmd.Hidden {
			return
		}
		section := sectionOf(path[0])
		if section == "" {
			t.Errorf("cli.md has no section for %s", path[0])
			return
		}
		if last := path[len(path)-1]; !regexp.MustCompile(`\b`+last+`\b`).MatchString(section) && len(path) > 1 {
			t.Errorf("cli.md: section %s does not have %s", path[0], last)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, param := f.Value.(*paramFlag)
			if f.Hidden || f.Name == "help" || cmd.InheritedFlags().Lookup(f.Name) == f {
				return
			}
			n++
			if described := "`[^`]*--" + f.Name + `\b`; !regexp.MustCompile(described).MatchString(section) && !(param || cmd.Root().PersistentFlags().Lookup(f.Name) != nil) || param && !regexp.MustCompile(described).MatchString(section+common) {
				t.Errorf("cli.md: section %s does not have --%s of %s", path[0], f.Name, cmd.CommandPath())
			}
		})
	})
	if n < 150 {
		t.Errorf("only %d flags found", n)
	}
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
		if !strings.Contains(section, "`"+variable(f.Name)+"`") {
			t.Errorf("cli.md does not have %s", variable(f.Name))
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
		if cmd, _, err := root.Find([]string{other}); err != nil || cmd == root {
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
