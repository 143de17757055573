package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
)

// plainly unsets what changes colours.
func plainly(t *testing.T) {
	for _, v := range []string{"HOLDALL_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "LS_COLORS", "GREP_COLORS"} {
		t.Setenv(v, "")
	}
	t.Setenv("TERM", "xterm")
}

func TestNamesAreColouredAsLSDoes(t *testing.T) {
	file := func(name string, mode fs.FileMode) holdall.Entry {
		return holdall.Entry{Name: name, Mode: mode, HasMode: true}
	}
	dir := holdall.Entry{Name: "d.txt", Kind: format.Dir, Mode: 0o755, HasMode: true}
	link := holdall.Entry{Name: "l.txt", Kind: format.Symlink, Mode: 0o777, HasMode: true}
	for _, tt := range []struct {
		set  string
		e    holdall.Entry
		want string // its code, and what ends it
	}{
		{"", dir, "01;34 0"}, {"", link, "01;36 0"}, {"", file("x", 0o755), "01;32 0"}, {"", file("x.tar", 0o644), ""},
		{"", holdall.Entry{Name: "p", Kind: format.Fifo}, "33 0"},
		{"di=34", dir, "34 0"}, {"di=0", dir, ""}, {"di=", dir, ""}, {"rs=00:di=1", dir, "1 00"},
		{"*.txt=35", file("a/b.txt", 0o644), "35 0"}, {"*.txt=35", file("B.TXT", 0o644), "35 0"}, {"*.txt=35", dir, "01;34 0"}, {"*.txt=35", file("b.txt", 0o755), "01;32 0"},
		{"*.tar.gz=31:*.gz=32", file("x.tar.gz", 0o644), "32 0"}, {"*.gz=32:*.tar.gz=31", file("x.tar.gz", 0o644), "31 0"},
		{"*README=4", file("d/README", 0o644), "4 0"}, {"*README=4", file("me", 0o644), ""},
		{"ex=0:*.sh=33", file("x.sh", 0o755), "33 0"}, {"fi=37:*.sh=00", file("x.sh", 0o644), ""},
		{"fi=37", file("x", 0o644), "37 0"}, {"no=36", file("x", 0o644), "36 0"}, {"no=36:fi=37", file("x", 0o644), "37 0"},
		{"ln=target", link, "01;36 0"}, {"mh=44", holdall.Entry{Name: "h", Kind: format.HardLink}, "44 0"},
		{"no=38;2;1;2;3", file("x", 0o644), "38;2;1;2;3 0"},
		// These are no codes.
		{"di=\x1b[31m", dir, "01;34 0"}, {"di=1m\x1b]0;title", dir, "01;34 0"}, {"di", dir, "01;34 0"}, {"::=:*=:=1:di=3=4", dir, "01;34 0"},
	} {
		got := parseColours(ownColours+fileColours+tt.set).name(&tt.e, "shown")
		want := "shown"
		if code, reset, ok := strings.Cut(tt.want, " "); ok {
			want = "\x1b[" + code + "mshown\x1b[" + reset + "m"
		}
		if got != want {
			t.Errorf("%q: %s is %q, not %q", tt.set, tt.e.Name, got, want)
		}
	}
	if got := (*colours)(nil).name(&dir, "shown"); got != "shown" {
		t.Errorf("without colours, a name is %q", got)
	}
}

// onlyColour is a sequence that changes colours, and does nothing else.
var onlyColour = regexp.MustCompile("\x1b\\[[0-9;]*m")

func FuzzColours(f *testing.F) {
	f.Add("rs=0:di=01;34:*.tar=01;31", "a.tar")
	f.Add("*=\x1b:no=\x07:ex=9;;9", "x")
	f.Fuzz(func(t *testing.T, set, name string) {
		c := parseColours(ownColours + fileColours + set)
		for kind := range format.Property + 1 {
			shown := format.Escape(name)
			got := c.name(&holdall.Entry{Name: name, Kind: kind}, shown)
			if onlyColour.ReplaceAllString(got, "") != shown {
				t.Fatalf("%q with %q is %q", name, set, got)
			}
		}
	})
}

// TestOnlyTerminalsGetColours runs all verbs that have colours with their output in a pipe.
func TestOnlyTerminalsGetColours(t *testing.T) {
	plainly(t)
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.Tree(t, "in", map[string]string{"d/a.txt": "foo \x1b[31m bar\n", "x\x1b[31m\u009b1m.tar": "foo", "b": "foo\n"})
	testkit.Tree(t, "other", map[string]string{"d/a.txt": "changed", "new\x1b]0;": ""})
	if s := verb(t, "pack", "-q", "-o", "x.caf", "in"); s.code != 0 {
		t.Fatal(s)
	}
	b, err := os.ReadFile("x.caf")
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(b, []byte("foo \x1b"))
	b[i]++
	if err := os.WriteFile("bad.caf", b, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ls", "-lR", "x.caf"}, {"tree", "x.caf"}, {"find", "x.caf", "**"}, {"grep", "x.caf", "foo"}, {"grep", "-c", "x.caf", "foo"}, {"grep", "-w", "x.caf", "foo|31m"},
		{"diff", "x.caf", "other"}, {"verify", "x.caf"}, {"verify", "bad.caf"}, {"verify", "-v", "bad.caf"}, {"repair", "bad.caf", "-o", "out.caf"}, {"repair", "--dry-run", "x.caf"},
		{"info", "bad.caf"}, {"cat", "bad.caf", "d/a.txt"}, {"extract", "bad.caf", "-C", filepath.Join(dir, "out")}, {"ls", "none.caf"}, {"ls", "--nonsense", "x.caf"},
	} {
		plain := verb(t, args...)
		if strings.ContainsAny(plain.shown+plain.error, "\x1b\u009b") {
			t.Errorf("%q: colours in a pipe: %q", args, plain.shown+plain.error)
		}
		if plain.shown+plain.error == "" {
			t.Errorf("%q says nothing", args)
		}
		os.Remove("out.caf")
		os.RemoveAll("out")
		forced := verb(t, append(args, "--color", "always")...)
		took := onlyColour.ReplaceAllString(forced.shown+forced.error, "")
		if took != plain.shown+plain.error {
			t.Errorf("%q: with colours, it is\n%q, not\n%q", args, took, plain.shown+plain.error)
		}
		if json := verb(t, append(args, "--color", "always", "--json")...); strings.Contains(json.shown+json.error, "\x1b") && args[0] != "cat" {
			t.Errorf("%q: colours in JSON: %q", args, json.shown+json.error)
		}
		os.Remove("out.caf")
		os.RemoveAll("out")
	}
	for _, tt := range []struct {
		env, value string
		flag       string
		want       bool
	}{
		{"CLICOLOR_FORCE", "1", "auto", true}, {"CLICOLOR_FORCE", "0", "auto", false}, {"CLICOLOR_FORCE", "1", "never", false}, {"HOLDALL_COLOR", "always", "", true},
		{"HOLDALL_COLOR", "always", "never", false}, {"NO_COLOR", "1", "always", true}, {"NO_COLOR", "1", "auto", false}, {"TERM", "dumb", "always", true},
	} {
		t.Run(tt.env+" "+tt.value+" "+tt.flag, func(t *testing.T) {
			t.Setenv(tt.env, tt.value)
			args := []string{"ls", "x.caf"}
			if tt.flag != "" {
				args = append(args, "--color="+tt.flag)
			}
			if s := verb(t, args...); strings.Contains(s.shown, "\x1b") != tt.want {
				t.Errorf("%q", s.shown)
			}
		})
	}
	t.Setenv("CLICOLOR_FORCE", "1")
	t.Setenv("NO_COLOR", "1")
	if s := verb(t, "ls", "x.caf"); strings.Contains(s.shown, "\x1b") {
		t.Errorf("NO_COLOR does not win: %q", s.shown)
	}
}
