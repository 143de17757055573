package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/rvn/internal/ucl"
	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// A bench has the input of a recipe. Each of the files, except those of root, exists if its text
// is not empty.
type bench struct {
	dir       string // holds everything
	whitelist string
	metadata  string
	keywords  map[string]string
	prefix    string
	abi       string
}

const named = "namebase: x\nsubpackage: primary\n"

func newBench(t testing.TB, files ...string) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(), metadata: named, prefix: "/raven"}
	if err := os.Mkdir(b.in("root"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b.put(t, name, "content of "+name)
	}
	return b
}

func (b *bench) in(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) put(t testing.TB, name, content string) {
	t.Helper()
	p := b.in("root/" + name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) link(t testing.TB, target, name string) {
	t.Helper()
	p := b.in("root/" + name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.Symlink(target, p)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) options(t testing.TB) Options {
	t.Helper()
	o := Options{Root: b.in("root"), Prefix: b.prefix, ABI: b.abi, Keywords: b.in("keywords")}
	write := func(name, text string) string {
		if err := os.WriteFile(b.in(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return b.in(name)
	}
	if b.metadata != "" {
		o.Metadata = write("meta.ucl", b.metadata)
	}
	if b.whitelist != "" {
		o.Whitelist = write("white.list", b.whitelist)
	}
	if err := os.MkdirAll(o.Keywords, 0o755); err != nil {
		t.Fatal(err)
	}
	for word, text := range b.keywords {
		write("keywords/"+word+".ucl", text)
	}
	return o
}

// make is made on a machine whose libraries are in the folder system.
func (b *bench) make(t testing.TB) (*Recipe, error) {
	t.Helper()
	return makeOn(t.Context(), b.options(t), []string{b.in("system")})
}

func (b *bench) mustMake(t testing.TB) *Recipe {
	t.Helper()
	r, err := b.make(t)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func metadata(t testing.TB, r *Recipe) ucl.Value {
	t.Helper()
	v, err := ucl.Parse(r.Metadata)
	if err != nil {
		t.Fatalf("the metadata is no UCL: %v\n%s", err, r.Metadata)
	}
	return v
}

func asJSON(t testing.TB, v ucl.Value) string {
	t.Helper()
	b, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func same[K comparable, V comparable](t *testing.T, what string, got, want map[K]V) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func contains(t *testing.T, notices []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, want) }) {
		t.Errorf("no notice says %q: %q", want, notices)
	}
}

// The reference has packed a tree like this. What it stored is beside the package.
func TestTheReferencePacksTheSameAndSaysTheSame(t *testing.T) {
	b := newBench(t, "usr/local/bin/not-listed", "usr/local/lib/lib.so", "usr/local/share/doc/no", "usr/local/unlisted/deep/f",
		"usr/local/bin/daemon", "usr/local/bin/tool", "usr/local/etc/app.conf.sample", "usr/local/etc/secret",
		"usr/local/share/doc/read me.txt", "usr/local/share/info/x.info", "var/top.txt")
	b.link(t, "lib.so", "usr/local/lib/link")
	b.prefix = "/usr/local"
	b.whitelist = strings.Join([]string{
		"  bin/tool  ",
		"@comment the daemon keeps scores",
		"@(games,games,2755) bin/daemon",
		"",
		"@sample etc/app.conf.sample",
		"@(,,600) etc/secret",
		"lib/link",
		"share/doc/read me.txt",
		"@info share/info/x.info",
		"/var/top.txt",
		"@dir(daemon,daemon,0751) share/doc",
		"@dir var/db/app",
		"@dir(nobody,nogroup,0770) var/spool/app",
	}, "\n")
	b.keywords = map[string]string{
		"sample": "actions: [file]\nattributes { owner: daemon, group: games, mode: \"0640\" }\n" +
			"post-install: <<EOD\ncp %D/%@ %D/%@.conf\necho %1\nEOD\n" +
			"messages [ { message: sample installed }, { type: remove, message: bye } ]\n",
		"info": "actions: [file]\ndeprecated: true\ndeprecation_message: old thing\npost-install-lua: \"print(1)\"\n",
	}
	b.metadata = `# as it was given
name: fixture
namebase: fixt
version: "1.2.3_4"
variant = std
subpackage = primary
maintainer: "Zoë <z@example.org>"
licenses: [ BSD2CLAUSE, MIT ]
users: []
neg: -5; size: 123456789012
deps { foo: "1.0"; bar { version: 2, flag: true, ratio: 1.5 } }
desc: <<ANY
line one
line "two" with \\ and tab	.

  indented
ANY
`
	r := b.mustMake(t)

	var want struct {
		PackOutput string `json:"pack_output"`
		Metadata   string
		Entries    []struct{ Path, Type, Mode, Owner, Group string }
	}
	text, err := os.ReadFile("../testdata/whitelist.expect.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}

	only, dirs := map[string]Attr{}, map[string]Attr{}
	for _, e := range want.Entries {
		a := attr(t, e.Owner, e.Group, e.Mode)
		usual := map[string]string{"directory": "0755", "regular": "0644", "symlink": "0777"}[e.Type]
		switch { // the reference stores what an entry finally is, not what was requested
		case e.Owner == "root" && e.Mode == usual:
			a = Attr{}
		case e.Owner == "root":
			a.Owner, a.Group = "", ""
		}
		if e.Type != "directory" {
			only[e.Path] = a
		} else if a != (Attr{}) {
			dirs[e.Path] = a
		}
	}
	if len(only) != 8 || len(dirs) != 1 {
		t.Fatalf("the fixture is not understood: %v, %v", only, dirs)
	}
	same(t, "Only", r.Only, only)
	same(t, "Dirs", r.Dirs, dirs)

	// The writer adds what depends on the contents, and an ABI that was not given;
	// the reference cannot write fractions.
	said := strings.NewReplacer("abi: \"\"\n", "", "flatsize: 363\n", "", "ratio: 2.-5\n", "ratio: 1.5\n").Replace(want.Metadata)
	if string(r.Metadata) != said {
		t.Errorf("metadata:\n%s\nthe reference:\n%s", r.Metadata, said)
	}
	if len(r.Notices) != 1 || !strings.HasSuffix(r.Notices[0], "line 9: keyword info: deprecated: old thing") {
		t.Errorf("notices %q; the reference said %q", r.Notices, want.PackOutput)
	}
}

func attr(t *testing.T, owner, group, mode string) Attr {
	t.Helper()
	a, err := newAttr(owner, group, mode)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestWithoutWhitelistEverythingIsPackedAndAnEmptyOnePacksNothing(t *testing.T) {
	b := newBench(t, "raven/a")
	if r := b.mustMake(t); r.Only != nil || r.Dirs != nil {
		t.Errorf("without: %v, %v", r.Only, r.Dirs)
	}
	b.whitelist = " \n@comment\n"
	if r := b.mustMake(t); r.Only == nil || len(r.Only) > 0 {
		t.Errorf("empty: %v", r.Only)
	}
}

func TestMetadata(t *testing.T) {
	lists := `"directories":[],"messages":[],`
	libs := `"scripts":{},"shlibs_adjacent":[],"shlibs_provided":[],"shlibs_required":[]`
	script := `{"args":"raven/f","code":"true"}`
	for _, tt := range []struct {
		name, metadata, prefix, abi, whitelist string
		want, notice                           string
	}{
		{name: "none says only where and for what", prefix: "/raven", abi: "linux", want: `{"abi":"linux","prefix":"/raven"}`},
		{name: "none and nothing else", want: `{}`},
		{name: "text becomes the description", metadata: "This {{{ is\nno \"UCL", prefix: "/p", notice: "not UCL",
			want: `{"desc":"This {{{ is\nno \"UCL","prefix":"/p"}`},
		{name: "an array becomes the description", metadata: "[1, 2]", notice: "found an array", want: `{"desc":"[1, 2]"}`},
		{name: "nothing is added without a namebase", metadata: "a: 1", want: `{"a":1}`},
		{name: "nor with one that is unset", metadata: "namebase: unset", want: `{"namebase":"unset"}`},
		{name: "JSON is UCL", metadata: `{"namebase": "js", "abi": "given"}`, abi: "wish", notice: "abi kept, not replaced",
			want: `{"abi":"given",` + lists + `"namebase":"js",` + libs + `}`},
		{name: "nulls are left out", metadata: "a: null\nlist [1, null]\nscripts: null\nprefix: null", prefix: "/p", notice: "left out 4 times",
			want: `{"list":[1],"prefix":"/p"}`},
		{name: "what was found is added", metadata: named, whitelist: "@dir x\n@do raven/f\n",
			want: `{"directories":[{"group":false,"owner":false,"path":"x","perms":false}],"messages":[{"message":"new","type":"upgrade"}],` +
				`"namebase":"x","scripts":{"pre-install":[` + script + `]},"shlibs_adjacent":[],"shlibs_provided":[],"shlibs_required":[],"subpackage":"primary"}`},
		{name: "scripts and messages come after those that are there",
			metadata:  named + "scripts { pre-install [ {code: a, args: \"\"} ], post-install [] }\nmessages [ {type: install, message: hi} ]",
			whitelist: "@do raven/f\n",
			want: `{"directories":[],"messages":[{"message":"hi","type":"install"},{"message":"new","type":"upgrade"}],` +
				`"namebase":"x","scripts":{"post-install":[],"pre-install":[{"args":"","code":"a"},` + script + `]},"shlibs_adjacent":[],"shlibs_provided":[],"shlibs_required":[],"subpackage":"primary"}`},
		{name: "folders and libraries that are there stay alone",
			metadata:  named + "directories [ 1 ]\nshlibs_required: [ libx.so ]\n",
			whitelist: "@dir x\n", notice: "directories kept; 1 that were found are not added",
			want: `{"directories":[1],"messages":[],"namebase":"x","scripts":{},"shlibs_adjacent":[],"shlibs_provided":[],"shlibs_required":["libx.so"],"subpackage":"primary"}`},
		{name: "scripts of another kind stay if there are none to add", metadata: named + "scripts: none", whitelist: "@dir x\n",
			want: `{"directories":[{"group":false,"owner":false,"path":"x","perms":false}],"messages":[],"namebase":"x","scripts":"none","shlibs_adjacent":[],"shlibs_provided":[],"shlibs_required":[],"subpackage":"primary"}`},
		{name: "what is lost without a namebase is said", metadata: "a: 1", whitelist: "@dir x\n@do raven/f\n",
			notice: "1 folders, 1 scripts, 1 messages", want: `{"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "raven/f")
			b.metadata, b.prefix, b.abi, b.whitelist = tt.metadata, tt.prefix, tt.abi, tt.whitelist
			b.keywords = map[string]string{"do": "pre-install: \"true\"\nmessages: [ {type: upgrade, message: new} ]"}
			r := b.mustMake(t)
			if got := asJSON(t, metadata(t, r)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if tt.notice != "" {
				contains(t, r.Notices, tt.notice)
			} else if len(r.Notices) > 0 {
				t.Errorf("notices %q", r.Notices)
			}
		})
	}
}

func TestMetadataThatWillNotDoIsRefused(t *testing.T) {
	long := strings.Repeat("x", ucl.MaxText-20)
	for _, tt := range []struct{ name, metadata, whitelist, want string }{
		{"longer than readers take", strings.Repeat("#", ucl.MaxText+1), "", "meta.ucl: expected at most 524288 bytes of metadata, found more"},
		{"longer with what is added", "namebase: " + long, "", "with all that belongs to it: expected at most 524288 bytes"},
		{"a namebase that is a number", "namebase: 7", "", "meta.ucl: namebase: expected a string, found an integer"},
		{"a subpackage that is an array", "subpackage: []", "", "subpackage: expected a string, found an array"},
		{"a prefix that is an object", "prefix {}", "", "prefix: expected a string, found an object"},
		{"a prefix not from the top", "prefix: usr", "a\n", `prefix: expected a path that begins with /, found "usr"`},
		{"scripts that cannot be added to", named + "scripts: none", "@do f\n", "scripts: expected an object, because the whitelist adds to it, found a string"},
		{"a phase that cannot be added to", named + "scripts { pre-install: x }", "@do f\n", "scripts.pre-install: expected an array, because the whitelist adds to it, found a string"},
		{"messages that cannot be added to", named + "messages {}", "@do f\n", "messages: expected an array, because the whitelist adds to it, found an object"},
		{"a key with control bytes", "\"a\tb\": 1", "", "expected a key without control bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.metadata, b.whitelist, b.prefix = tt.metadata, tt.whitelist, ""
			b.keywords = map[string]string{"do": "pre-install: \"true\"\nmessages: [ {message: new} ]"}
			if _, err := b.make(t); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.300v, want %s", err, tt.want)
			}
		})
	}
}

func TestThePrefixOfTheMetadataIsWhatPathsAreBelow(t *testing.T) {
	b := newBench(t, "opt/a", "raven/b")
	b.metadata, b.whitelist = named+"prefix: /opt/", "a\n"
	r := b.mustMake(t)
	same(t, "Only", r.Only, map[string]Attr{"opt/a": {}})
	contains(t, r.Notices, `prefix kept, not replaced by "/raven"`)

	b.metadata, b.prefix, b.whitelist = "", "", "raven/b\n/opt/a\n"
	same(t, "Only without a prefix", b.mustMake(t).Only, map[string]Attr{"raven/b": {}, "opt/a": {}})
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	b := newBench(t, "raven/a")
	b.whitelist = "a\n"
	good := b.options(t)
	for name, spoil := range map[string]func(*Options){
		"root":                 func(o *Options) { o.Root += "/none" },
		"root that is a file":  func(o *Options) { o.Root = o.Metadata },
		"whitelist":            func(o *Options) { o.Whitelist += ".none" },
		"whitelist, a folder":  func(o *Options) { o.Whitelist = o.Root },
		"metadata":             func(o *Options) { o.Metadata += ".none" },
		"metadata in a folder": func(o *Options) { o.Metadata = o.Root },
	} {
		o := good
		spoil(&o)
		var at *fs.PathError
		if _, err := Make(t.Context(), o); !errors.As(err, &at) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Make(t.Context(), good); err != nil {
		t.Errorf("nothing spoilt: %v", err)
	}
}

func TestMakeStopsWhenItIsCancelled(t *testing.T) {
	b := newBench(t, "raven/a")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, list := range []string{"", "a\n"} {
		b.whitelist = list
		if _, err := Make(ctx, b.options(t)); !errors.Is(err, why) {
			t.Errorf("whitelist %q: %v", list, err)
		}
	}
}

func TestNoticesAreCountedWhenThereAreTooMany(t *testing.T) {
	b := newBench(t)
	b.whitelist = strings.Repeat("@dir x\n", maxNotices+8)
	r := b.mustMake(t)
	if len(r.Notices) != maxNotices+1 || r.Notices[maxNotices] != "and 7 more of these" {
		t.Errorf("%d notices, the last %q", len(r.Notices), r.Notices[len(r.Notices)-1])
	}
}

func ExampleMake() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	stage, list := filepath.Join(dir, "stage"), filepath.Join(dir, "plist")
	os.MkdirAll(filepath.Join(stage, "raven/bin"), 0o755)
	os.WriteFile(filepath.Join(stage, "raven/bin/tool"), []byte("#!/bin/sh\n"), 0o755)
	os.WriteFile(list, []byte("@(root,wheel,4755) bin/tool\n"), 0o644)

	r, err := Make(context.Background(), Options{Root: stage, Whitelist: list, Prefix: "/raven", ABI: "linux:x86_64:6.1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, a := range r.Only {
		fmt.Println(name, a.Owner, a.Group, a.Mode)
	}
	fmt.Printf("%s", r.Metadata)
	// Output:
	// raven/bin/tool root wheel urwxr-xr-x
	// abi: "linux:x86_64:6.1"
	// prefix: "/raven"
}
