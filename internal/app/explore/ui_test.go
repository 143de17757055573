package explore

import (
	"io/fs"
	"path"
	"regexp"
	"testing"
)

// TestModulesPointOneWay keeps each module of the page one that can be read alone: what it
// imports does not import it, however far that goes, and nobody imports the page itself.
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
