package explore

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
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
	if !strings.HasPrefix(script, "let archive, entry;\n") {
		t.Errorf("it begins with %.40q, expected the variables that modules share", script)
	}
	if first, last := strings.Index(script, "const of_static ="), strings.Index(script, "const of_app ="); first < 0 || last < first {
		t.Errorf("the page is at %d, what answers it at %d", last, first)
	}
	for name, n := range map[string]int{"of_base": 1, "of_fzstd": 1, "of_kinds": 1, "of_map": 1} {
		if found := strings.Count(script, "const "+name+" ="); found != n {
			t.Errorf("%s is there %d times", name, found)
		}
	}
}
