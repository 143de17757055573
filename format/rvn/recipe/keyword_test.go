package recipe

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
)

func TestKeywordsActOnTheirArguments(t *testing.T) {
	mode := Attr{Owner: "o", Mode: 0o750, HasMode: true}
	attributes := "attributes { owner: o, mode: \"0750\" }\n"
	for _, tt := range []struct {
		name, keyword, list string
		only, dirs          map[string]Attr
		made, notice        string
	}{
		{"a file gets the attributes", "actions: [file]\n" + attributes, "@do bin/a", map[string]Attr{"raven/bin/a": mode}, nil, "[]", ""},
		{"the nth action takes the nth argument", "actions: [file, dir, file]\n" + attributes, "@do   bin/a  var   bin/b",
			map[string]Attr{"raven/bin/a": mode, "raven/bin/b": mode}, nil, `[{"group":false,"owner":"o","path":"var","perms":488}]`, ""},
		{"a folder that is packed later gets them", "actions: [dir]\n" + attributes, "@do bin\nbin/a",
			map[string]Attr{"raven/bin/a": {}}, map[string]Attr{"raven/bin": mode}, "[]", ""},
		{"a folder that is packed already does not, as in the reference", "actions: [dir]\n" + attributes, "bin/a\n@do bin",
			map[string]Attr{"raven/bin/a": {}}, nil, "[]", "keyword do: \"bin\": attributes not changed"},
		{"nor need it", "actions: [dir]", "bin/a\n@do bin", map[string]Attr{"raven/bin/a": {}}, nil, "[]", ""},
		{"no actions leave the argument to nobody", "actions: []", "@do none", nil, nil, "[]", ""},
		{"a keyword may be deprecated", "deprecated: true", "@do x\n@do y", nil, nil, "[]", "line 1: keyword do: deprecated"},
		{"one that is not says nothing", "deprecated: false\ndeprecation_message: x", "@do x", nil, nil, "[]", ""},
		{"a key that does not exist is said", "action: [file]", "@do bin/a", nil, nil, "[]", `keyword do: "action": ignored: no such key`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "raven/bin/a", "raven/bin/b")
			b.whitelist, b.keywords = tt.list, map[string]string{"do": tt.keyword}
			r := b.mustMake(t)
			same(t, "Only", r.Only, tt.only)
			same(t, "Dirs", r.Dirs, tt.dirs)
			if got := asJSON(t, metadata(t, r).Get("directories")); got != tt.made {
				t.Errorf("directories %s, want %s", got, tt.made)
			}
			switch {
			case tt.notice != "":
				contains(t, r.Notices, tt.notice)
				if len(r.Notices) != 1 {
					t.Errorf("notices %q", r.Notices)
				}
			case len(r.Notices) > 0:
				t.Errorf("notices %q", r.Notices)
			}
		})
	}
}

func TestScriptsAndMessagesOfKeywords(t *testing.T) {
	b := newBench(t, "raven/a")
	b.keywords = map[string]string{
		"sh": "actions: [file]\npost-install: \"%1 %@ %0 100% %D %f %%2 $PATH\"\npre-deinstall: \"\"\npre-install-lua: \"%1 $7\"",
		"say": "messages [\n{message: one}\n{type: upgrade, message: two}\n{type: install, message: three}\n" +
			"{type: remove, message: four}\n{type: remove, message: \"\"}\n]",
	}
	b.whitelist = "@say x\n@sh  a   b\n@say y\n"
	r := b.mustMake(t)
	want := `{"post-install":[{"args":"a b","code":"$1 $@ $0 100% %D %f %$2 $PATH"}],` +
		`"pre-deinstall":[{"args":"a b","code":""}],"pre-install-lua":[{"args":"a b","code":"%1 $7"}]}`
	if got := asJSON(t, metadata(t, r).Get("scripts")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `[one install][three install][one install][three install][four remove][four remove][two upgrade][two upgrade]`
	var got strings.Builder
	for _, m := range metadata(t, r).Get("messages").Elems() {
		text, _ := m.Get("message").Str()
		when, _ := m.Get("type").Str()
		got.WriteString("[" + text + " " + when + "]")
	}
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

func TestFaultsOfKeywords(t *testing.T) {
	for _, tt := range []struct{ name, keyword, args, want string }{
		{"Lua here", "actions: [file]\nprepackaging: <<EOS\nreturn(0)\nEOS", "a", "line 1: keyword do: prepackaging runs Lua here: not supported"},
		{"no UCL", "a: [\n", "a", "do.ucl: line 2, column 1: expected ']' for the '[' of line 1, column 4, found the end of the text"},
		{"an array", "[file]", "a", "do.ucl: expected keys and values, found an array"},
		{"too long", strings.Repeat("#", ucl.MaxText+1), "a", "do.ucl: expected at most 524288 bytes of keyword, found more"},
		{"too few arguments", "actions: [file, dir]", "a", "keyword do: expected 2 arguments, found 1"},
		{"too many arguments", "actions: [file]", "a b", "keyword do: expected 1 arguments, found 2"},
		{"too many for no actions", "actions: []", "a b", "keyword do: expected 1 arguments, found 2"},
		{"an argument that a script lacks", "post-install: \"echo %1 %3\"", "a b", "keyword do: post-install needs argument 3, found 2 arguments"},
		{"a file that is not there", "actions: [file]", "none", `keyword do: "none": no such file`},
		{"a folder outside", "actions: [dir]", "../../x", "without .."},
		{"the same file twice", "actions: [file, file]", "a a", "listed already, on line 1"},
		{"an action that does not exist", "actions: [file, link]", "a b", `do.ucl: actions[1]: expected file or dir, found "link"`},
		{"an action that is a number", "actions: [1]", "a", "actions[0]: expected a string, found an integer"},
		{"actions that are no array", "actions: file", "a", "actions: expected an array, found a string"},
		{"attributes that are no object", "attributes: []", "a", "attributes: expected an object, found an array"},
		{"a mode that is a number", "attributes { mode: 0755 }", "a", "attributes.mode: expected a string, found an integer"},
		{"a mode that is none", "attributes { mode: rwx }", "a", `attributes: mode: expected 3 or 4 octal digits, found "rwx"`},
		{"an attribute that does not exist", "attributes { user: x }", "a", `attributes: expected owner, group and mode, found "user"`},
		{"messages that are no array", "messages: x", "a", "messages: expected an array, found a string"},
		{"a message that is no object", "messages: [x]", "a", "messages[0]: expected an object, found a string"},
		{"a message without text", "messages: [{type: install}]", "a", "messages[0].message: expected a string, found a null"},
		{"a message at an odd time", "messages: [{message: x, type: later}]", "a", `messages[0].type: expected install, remove, upgrade, found "later"`},
		{"a message at a number", "messages: [{message: x, type: 1}]", "a", "messages[0].type: expected a string, found an integer"},
		{"a script that is an object", "post-install { a: b }", "a", "post-install: expected a string, found an object"},
		{"a deprecation that is a string", "deprecated: soon", "a", "deprecated: expected a boolean, found a string"},
		{"a deprecation message that is an array", "deprecation_message: []", "a", "deprecation_message: expected a string, found an array"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "raven/a")
			b.whitelist, b.keywords = "@do "+tt.args+"\n@comment\n", map[string]string{"do": tt.keyword}
			_, err := b.make(t)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %s", err, tt.want)
			}
			if lines := faultyLines(err); len(lines) != 1 || lines[0] != 1 {
				t.Errorf("lines %v: %v", lines, err)
			}
		})
	}
}

func TestKeywordsCannotSayMoreThanMetadataHolds(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("x", ucl.MaxText/4)
	folders := ""
	for i := range 10 {
		folders += fmt.Sprintf("@dir %d%s\n", i, strings.Repeat("x", maxLine-100))
	}
	for _, tt := range []struct {
		name, keyword, list string
		line                int
	}{
		{"messages", "messages: [{message: " + long + "}]", strings.Repeat("@do x\n", 1000), 4},
		{"scripts", "post-install-lua: " + long, strings.Repeat("@do x\n", 1000), 4},
		{"arguments", "post-install-lua: x\npre-install: x", strings.Repeat("@do "+strings.Repeat("x", maxLine-100)+"\n", 10), 5},
		{"folders", "", folders, 9},
	} {
		b.keywords, b.whitelist = map[string]string{"do": tt.keyword}, tt.list
		_, err := b.make(t)
		lines := faultyLines(err)
		if len(lines) != 1 || lines[0] != tt.line || !strings.HasSuffix(err.Error(), "expected folders, scripts and messages of at most 524288 bytes in all, found more") {
			t.Errorf("%s: got %.300v, want line %d", tt.name, err, tt.line)
		}
	}
}

func TestAKeywordFileIsReadOnce(t *testing.T) {
	b := newBench(t, "raven/a", "raven/b")
	b.keywords = map[string]string{"bad": "actions: 1"}
	b.whitelist = "@bad a\n@bad b\n@none a\n@none b\n"
	_, err := b.make(t)
	if lines := faultyLines(err); len(lines) != 2 || lines[0] != 1 || lines[1] != 3 {
		t.Errorf("lines %v: %v", lines, err)
	}
}

func TestKeywordsMayBeSymlinks(t *testing.T) {
	b := newBench(t, "raven/a")
	b.whitelist = "@do a\n"
	o := b.options(t)
	if err := os.WriteFile(b.in("elsewhere"), []byte("actions: [file]"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", b.in("keywords/do.ucl")); err != nil {
		t.Fatal(err)
	}
	r, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "Only", r.Only, map[string]Attr{"raven/a": {}})
}
