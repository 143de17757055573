package recipe

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLinesOfAWhitelist(t *testing.T) {
	both := Attr{Owner: "o", Group: "g", Mode: 0o640, HasMode: true}
	for _, tt := range []struct {
		name, list string
		only, dirs map[string]Attr
	}{
		{"a file below the prefix, another below the top", "bin/a\n/etc/c", map[string]Attr{"raven/bin/a": {}, "etc/c": {}}, nil},
		{"blanks around a path are no part of it, those within are", "   bin/a b  \n\n   \n", map[string]Attr{"raven/bin/a b": {}}, nil},
		{"comments need no blank", "@comment x\n@commentary\n@comment", nil, nil},
		{"slashes and dots too many make no difference", ".//bin/./a\n//etc//c", map[string]Attr{"raven/bin/a": {}, "etc/c": {}}, nil},
		{"attributes", "@(o,g,0640) bin/a", map[string]Attr{"raven/bin/a": both}, nil},
		{"attributes that are left out", "@(,,) bin/a\n@(,g,)    bin/a b", map[string]Attr{"raven/bin/a": {}, "raven/bin/a b": {Group: "g"}}, nil},
		{"three digits, and bits beyond", "@(,,640) bin/a\n@(,,7000) bin/a b",
			map[string]Attr{"raven/bin/a": {Mode: 0o640, HasMode: true}, "raven/bin/a b": {Mode: fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky, HasMode: true}}, nil},
		{"brackets in a path", "@(o,g,0640) bin/x(1,2) y", map[string]Attr{"raven/bin/x(1,2) y": both}, nil},
		{"a mode of nothing", "@(,,000) bin/a", map[string]Attr{"raven/bin/a": {HasMode: true}}, nil},
		{"symlinks, also those that lead nowhere or out", "link\nout", map[string]Attr{"raven/link": {}, "raven/out": {}}, nil},
		{"a folder that is packed gets its attributes, before and after", "@dir(o,g,0640) bin\nbin/a\n@dir(,g,) .//",
			map[string]Attr{"raven/bin/a": {}}, map[string]Attr{"raven/bin": both, "raven": {Group: "g"}}},
		{"the last line needs no end", "bin/a\nbin/a b", map[string]Attr{"raven/bin/a": {}, "raven/bin/a b": {}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "raven/bin/a", "raven/bin/a b", "raven/bin/x(1,2) y", "etc/c")
			b.link(t, "nowhere", "raven/link")
			b.link(t, "/", "raven/out")
			b.whitelist = tt.list
			r := b.mustMake(t)
			same(t, "Only", r.Only, tt.only)
			same(t, "Dirs", r.Dirs, tt.dirs)
			if len(r.Notices) > 0 {
				t.Errorf("notices %q", r.Notices)
			}
		})
	}
}

func TestFoldersThatAreNotPackedAreInTheMetadata(t *testing.T) {
	b := newBench(t, "raven/bin/a", "raven/not/listed")
	b.whitelist = "@dir var/b\n@dir(o,,2770) /var/a/\nbin/a\n@dir bin\n@dir(,g,) not\n@dir /raven/var/b\n"
	r := b.mustMake(t)
	want := `[{"group":false,"owner":false,"path":"var/b","perms":false},` +
		`{"group":false,"owner":"o","path":"/var/a/","perms":1528},` +
		`{"group":"g","owner":false,"path":"not","perms":false}]`
	if got := asJSON(t, metadata(t, r).Get("directories")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	same(t, "Dirs", r.Dirs, nil)
	contains(t, r.Notices, `line 4: "bin": not needed`)
	contains(t, r.Notices, `line 6: "/raven/var/b": ignored: the folder is on line 1 already`)
}

// Each is one line, the second of a whitelist.
func TestFaultsOfLines(t *testing.T) {
	b := newBench(t, "raven/bin/a", "raven/bin/b", "raven/lib/c")
	b.link(t, "lib", "raven/lib64")
	b.link(t, "../..", "raven/up")
	b.link(t, b.dir, "raven/away")
	if ln, err := net.Listen("unix", b.in("s")); err == nil { // the name of a socket is short, the folder's is not
		defer ln.Close()
		if err := os.Rename(b.in("s"), b.in("root/raven/socket")); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"bin/none":                            "no such file",
		"bin/a\r":                             `"bin/a\r": no such file`,
		"none/a":                              `"none/a": no such file`,
		"bin":                                 "expected a file, found a folder",
		"@(,,) bin":                           "expected a file, found a folder",
		"bin/a":                               "listed already, on line 1",
		"/raven/bin/../bin/a":                 "without ..",
		"../raven/bin/b":                      `expected a path without .., found "/raven/../raven/bin/b"`,
		"..":                                  "without ..",
		"/":                                   "found the top",
		"/./.":                                "found the top",
		"bin/b/":                              "expected a folder, as the slash says, found a file",
		"bin/b/c":                             `expected only folders on the way, found the file "raven/bin/b"`,
		"lib64/c":                             `found the symlink "raven/lib64"`,
		"up/root/raven/bin/b":                 `found the symlink "raven/up"`,
		"away/white.list":                     `found the symlink "raven/away"`,
		"socket":                              "found a socket or device",
		"a\x00b":                              "invalid argument",
		"@":                                   "expected @keyword and an argument",
		"@dir":                                "expected @keyword and an argument",
		"@ bin/b":                             "expected @keyword and an argument",
		"@none":                               "expected @keyword and an argument",
		"@none x":                             "no such file",
		"@../none x":                          "expected a word, found a path",
		`@..\none x`:                          "expected a word, found a path",
		"@a\x00b x":                           "invalid argument",
		"@(o,g,m)bin/b":                       "expected @(owner,group,mode) and a path",
		"@(o,g,0644)":                         "expected @(owner,group,mode) and a path",
		"@(o,g,0644 bin/b":                    "expected @(owner,group,mode) and a path",
		"@(o,g) bin/b":                        `expected (owner,group,mode), found "(o,g)"`,
		"@(o,g,0644,) bin/b":                  "expected (owner,group,mode)",
		"@(o,g,64) bin/b":                     `mode: expected 3 or 4 octal digits, found "64"`,
		"@(o,g,00644) bin/b":                  "expected 3 or 4 octal digits",
		"@(o,g,0684) bin/b":                   "expected 3 or 4 octal digits",
		"@(o,g,+644) bin/b":                   "expected 3 or 4 octal digits",
		"@(o,g,0_44) bin/b":                   "expected 3 or 4 octal digits",
		"@(o, g,0644) bin/b":                  `group: expected a name without spaces, found " g"`,
		"@(o\x01,g,0644) bin/b":               "owner: expected a name without spaces",
		"@dir(o,g,999) x":                     "expected 3 or 4 octal digits",
		"@dir(o,g) x":                         "expected (owner,group,mode)",
		"@dir(o,g,755)x y":                    "expected @dir(owner,group,mode) and a path",
		"@dir(o, g,755) x":                    "expected @dir(owner,group,mode) and a path",
		"@dir a b":                            `expected one path after @dir, which can have no spaces, found "a b"`,
		"@dir ../x":                           "without ..",
		"@dir /":                              "found the top",
		"@dir bin/a":                          "expected a file, as line 1 says, found a folder",
		"@dir(,,000) x":                       "expected a mode other than 0",
		"@dir bin/b\nbin/b":                   "line 3: \"bin/b\": expected a folder, as line 2 says, found a file",
		strings.Repeat("x", 300):              "file name too long",
		"@" + strings.Repeat("k", 252) + " x": "expected a keyword of at most 251 bytes",
		"@(" + strings.Repeat("o", 33) + ",,) bin/b": "owner: expected at most 32 bytes",
		"@(," + strings.Repeat("o", 33) + ",) bin/b": "group: expected at most 32 bytes",
		strings.Repeat("d/", maxLine/2) + "e":        "expected at most 65536 bytes, found more",
	} {
		b.whitelist = "bin/a\n" + line + "\n"
		_, err := b.make(t)
		var at *LineError
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", line, err, want)
			continue
		}
		if at.Line != 2+strings.Count(strings.TrimSuffix(line, "\nbin/none"), "\n") || at.File != b.in("white.list") {
			t.Errorf("%.60q: is said to be line %d of %s", line, at.Line, at.File)
		}
		if len(err.Error()) > 1500 {
			t.Errorf("%.60q: a complaint of %d bytes", line, len(err.Error()))
		}
	}
}

func TestAllFaultsAreReportedInTheOrderOfTheirLines(t *testing.T) {
	b := newBench(t, "raven/a")
	b.whitelist = "@dir(,,000) x\nnone\na\n@(,,9) a\na\n"
	_, err := b.make(t)
	if got := faultyLines(err); !slices.Equal(got, []int{1, 2, 4, 5}) {
		t.Errorf("lines %v: %v", got, err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("that a file is missing cannot be told: %v", err)
	}
	b.whitelist = strings.Repeat("none\n", 1000)
	_, err = b.make(t)
	if got := faultyLines(err); len(got) != maxFaults || got[maxFaults-1] != maxFaults || !strings.HasSuffix(err.Error(), "white.list: 980 more faults") {
		t.Errorf("lines %v: %v", got, err)
	}
}

func faultyLines(err error) (lines []int) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range all.Unwrap() {
			if at, ok := e.(*LineError); ok {
				lines = append(lines, at.Line)
			}
		}
	}
	return lines
}

func TestLongLinesAndLists(t *testing.T) {
	b := newBench(t, "raven/a")
	full := strings.Repeat(strings.Repeat(" ", 1<<10-1)+"\n", maxList>>10)
	for _, tt := range []struct {
		name, list, want string
	}{
		{"the longest line", strings.Repeat(" ", maxLine-1) + "a\n", ""},
		{"the longest line, without an end", strings.Repeat(" ", maxLine-1) + "a", ""},
		{"one byte more", strings.Repeat(" ", maxLine) + "a\nnone\n", "line 1: expected at most 65536 bytes, found more"},
		{"one byte more, without an end", strings.Repeat(" ", maxLine) + "a", "line 1: expected at most 65536 bytes, found more"},
		{"the lines after it are counted", strings.Repeat("a", 3*maxLine) + "\nnone\n", "line 2: \"none\": no such file"},
		{"the longest list", full[1:] + "a", ""},
		{"one byte more of it", full + "a", "expected at most 16777216 bytes of whitelist, found more"},
	} {
		b.whitelist = tt.list
		r, err := b.make(t)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		case tt.want == "":
			same(t, tt.name, r.Only, map[string]Attr{"raven/a": {}})
		}
	}
}

// FuzzWhitelist applies any list to a folder with one file of every kind. The result must be
// packable, or the fault must have a place.
func FuzzWhitelist(f *testing.F) {
	for _, s := range []string{
		"bin/a\n/etc/c\n", "@(o,g,0640) bin/a\n", "@dir(o,g,2770) var/x\n@dir bin\n", "@do bin/a x\n@do etc\n",
		"@comment\n\n  link \n", "lib64/c\n../a\n@dir ..\n", "@(,,9) bin/a\n@( x\n@dir( x\n@ x\n", "@old a b c\n@lua bin/a\n",
	} {
		f.Add("/raven", s)
	}
	b := newBench(f, "raven/bin/a", "raven/lib/c", "etc/c", "bin/a")
	b.link(f, "lib", "raven/lib64")
	b.link(f, "../..", "raven/link")
	b.keywords = map[string]string{
		"do":  "actions: [file, dir]\nattributes { mode: \"755\" }\npost-install: \"echo %@ %2\"\nmessages [ {message: m} ]",
		"old": "deprecated: yes\npre-install-lua: x",
		"lua": "prepackaging: x",
	}
	o := b.options(f)
	root, err := os.OpenRoot(o.Root)
	if err != nil {
		f.Fatal(err)
	}
	defer root.Close()
	f.Fuzz(func(t *testing.T, prefix, list string) {
		var said notices
		w := newWhitelist("list", root, prefix, o.Keywords, &said)
		err := w.read(t.Context(), strings.NewReader(list))
		last := 0
		for _, line := range faultyLines(err) {
			if line < last || line < 1 || line > strings.Count(list, "\n")+1 {
				t.Errorf("a fault on line %d, after one on line %d: %v", line, last, err)
			}
			last = line
		}
		if err != nil {
			if last == 0 {
				t.Errorf("a fault without a line: %v", err)
			}
			return
		}
		for name := range w.only {
			if !fs.ValidPath(name) || path.Clean(name) != name {
				t.Errorf("%q is packed", name)
			}
			info, err := os.Lstat(filepath.Join(o.Root, name))
			if err != nil || info.IsDir() {
				t.Errorf("%q is packed: %v, %v", name, info, err)
			}
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				if info, err := os.Lstat(filepath.Join(o.Root, dir)); err != nil || !info.IsDir() {
					t.Errorf("%q is packed, in %q: %v, %v", name, dir, info, err)
				}
				if !w.packed[dir] {
					t.Errorf("%q is packed, but not %q", name, dir)
				}
			}
		}
		for name, a := range w.dirs {
			if !w.packed[name] || a == (Attr{}) {
				t.Errorf("folder %q is changed to %v", name, a)
			}
		}
		for _, a := range w.folders {
			if w.packed[a.name] || slices.Contains(strings.Split(a.path, "/"), "..") {
				t.Errorf("folder %q is made", a.path)
			}
			if back := fmt.Sprintf("%04o", a.attr.octal()); a.attr.HasMode {
				if again, err := newAttr(a.attr.Owner, a.attr.Group, back); err != nil || again != a.attr {
					t.Errorf("%v comes back as %v, %v", a.attr, again, err)
				}
			}
		}
	})
}
