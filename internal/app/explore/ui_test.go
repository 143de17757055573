package explore

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestModulesPointOneWay checks that each module of the page can be read
// alone: imports have no cycles, and no module imports the page itself.
func TestModulesPointOneWay(t *testing.T) {
	names, err := fs.Glob(ui, "ui/*.js")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d modules: %v", len(names), err)
	}
	imports := map[string][]string{}
	from := regexp.MustCompile(`(?m)^(?:import|export) .*from '\./([^']+)';$`)
	for _, name := range names {
		b, err := ui.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range from.FindAllSubmatch(b, -1) {
			if string(m[1]) == "app.js" {
				t.Errorf("%s imports the page", name)
			}
			imports[path.Base(name)] = append(imports[path.Base(name)], string(m[1]))
		}
	}
	if len(imports["app.js"]) < 5 {
		t.Fatalf("app.js imports %q only", imports["app.js"])
	}
	done := map[string]bool{}
	var walk func(name string, way []string)
	walk = func(name string, way []string) {
		for _, w := range way {
			if w == name {
				t.Fatalf("modules import each other: %v %s", way, name)
			}
		}
		if !done[name] {
			for _, next := range imports[name] {
				walk(next, append(way, name))
			}
			done[name] = true
		}
	}
	for name := range imports {
		walk(name, nil)
	}
}

// TestModulesAreJoined joins all modules to one script. It must not contain
// syntax that only modules have.
func TestModulesAreJoined(t *testing.T) {
	script, err := joined("static.js", "app.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{"<!--", "</script", "import(", "from './"} {
		if strings.Contains(script, odd) {
			t.Errorf("the script has %q", odd)
		}
	}
	if !strings.HasPrefix(script, "'use strict';let archive;let entry;") {
		t.Errorf("it begins with %.40q, expected the variables that modules share", script)
	}
	if first, last := strings.Index(script, "const of_static="), strings.Index(script, "const of_app="); first < 0 || last < first {
		t.Errorf("the page is at %d, what answers it at %d", last, first)
	}
	names, err := fs.Glob(ui, "ui/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "ui/"+kindsModule) {
		want := 1
		switch path.Base(name) {
		case "theme.js", "load.js": // scripts of their own
			want = 0
		case "plot.js", "recovery.js": // of modules that need a server
			want = 0
		}
		module := "const of_" + strings.TrimSuffix(path.Base(name), ".js") + "="
		if found := strings.Count(script, module); found != want {
			t.Errorf("%q is there %d times, expected %d", module, found, want)
		}
	}
}

// TestThePolicyAllowsWhatIsWritten compares the policy of a static page with
// the text of its scripts and its style, as they are stored.
func TestThePolicyAllowsWhatIsWritten(t *testing.T) {
	files := map[string][]byte{}
	if err := Static("a.caf", nil, nil, func(name string, content []byte) error { files[name] = content; return nil }); err != nil {
		t.Fatal(err)
	}
	page, size := string(files["index.html"]), 0
	for _, b := range files {
		size += len(b)
	}
	t.Logf("%d files, %d bytes; the page itself %d", len(files), size, len(page))
	if len(files) > 2 || size > 90_000 {
		t.Errorf("the page is %d files and %d bytes", len(files), size)
	}
	name := regexp.MustCompile(`data-code="([^"]+)"`).FindStringSubmatch(page)[1]
	if sum := sha256.Sum256(files[name]); name != fmt.Sprintf("holdall-%x.bin", sum[:8]) {
		t.Errorf("its code is in %s", name)
	}
	z, err := gzip.NewReader(bytes.NewReader(files[name]))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), codeEnd)
	if len(parts) != 2 {
		t.Fatalf("its code has %d parts", len(parts))
	}
	scripts := []string{parts[1]}
	for _, m := range regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>`).FindAllStringSubmatch(page, -1) {
		scripts = append(scripts, m[1])
	}
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]+)"`).FindStringSubmatch(page)[1]
	allowed := map[string][]string{}
	for part := range strings.SplitSeq(policy, "; ") {
		words := strings.Fields(part)
		allowed[words[0]] = slices.Sorted(slices.Values(words[1:]))
	}
	hashes := func(texts ...string) (list []string) {
		for _, text := range texts {
			list = append(list, sourceHash(text))
		}
		return slices.Sorted(slices.Values(list))
	}
	want := map[string][]string{
		"default-src": {"'none'"}, "script-src": hashes(scripts...), "style-src": hashes(parts[0]), "connect-src": {"'self'"},
		"img-src": {"blob:", "data:"}, "media-src": {"blob:"}, "base-uri": {"'none'"}, "form-action": {"'none'"},
	}
	if !maps.EqualFunc(allowed, want, slices.Equal) {
		t.Errorf("the policy is %q", policy)
	}
}

// TestTypesOfTheWordsAreThose compares the generated module with the types that the check of scripts
// has for it.
func TestTypesOfTheWordsAreThose(t *testing.T) {
	made, err := module(kindsModule)
	if err != nil {
		t.Fatal(err)
	}
	exports := regexp.MustCompile(`(?m)^export (?:const|function) (\w+)`)
	names := func(b []byte) (names []string) {
		for _, m := range exports.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
		return names
	}
	if want, got := names(testkit.Read(t, "../../../interop/types/kinds.d.ts")), names(made); len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("%s exports %q, its types %q", kindsModule, got, want)
	}
}
