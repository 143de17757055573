package explore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestPagesReadTheVectors has the reader of static pages read the vectors of docs/bytes/index.md, as Go
// and Python do.
func TestPagesReadTheVectors(t *testing.T) {
	read := "../../read/"
	cmd := exec.Command(testkit.Program(t, "node"), "testdata/vectors.mjs", "ui/flat.js", read+"kept/testdata/rows", read+"kept/testdata/wrong.json", read+"content/testdata/proof.json")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTheScriptsParse has node look at the modules as they are joined for a static page.
func TestTheScriptsParse(t *testing.T) {
	node := testkit.Program(t, "node")
	script, err := joined("static.js", "app.js")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "script.js")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(node, "--check", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSqueezingKeepsTheMeaning has node's parser compare each module with what is left of it.
func TestSqueezingKeepsTheMeaning(t *testing.T) {
	node := testkit.Program(t, "node")
	dir := t.TempDir()
	names, err := fs.Glob(ui, "ui/*.js")
	if err != nil {
		t.Fatal(err)
	}
	scripts := []string{"let a = /* b */ 1 / 2 / +3 - -4; return\n/[/`]'/g.exec(`x${ { b: `y ${ a } $ // z` } }  }`) in 'it\\'s // b' // c\n+ +a"}
	for _, name := range append(names, "ui/"+kindsModule) {
		b, err := module(path.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, string(b))
	}
	for i, script := range scripts {
		short, err := squeezed(script)
		if err != nil || strings.Contains(short, "/**") || len(short) >= len(script) {
			t.Errorf("%v: %.2000s", err, short)
		}
		if err := errors.Join(os.WriteFile(fmt.Sprintf("%s/%d.long", dir, i), []byte(script), 0o666), os.WriteFile(fmt.Sprintf("%s/%d.short", dir, i), []byte(short), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(node, "--expose-internals", "testdata/same.cjs", dir, fmt.Sprint(len(scripts))).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSqueezingRefusesWhatItDoesNotKnow gives it scripts that end too early.
func TestSqueezingRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, script := range []string{"a = 'b", "a = `b", "a = /b", "}`"} {
		if short, err := squeezed(script); err == nil {
			t.Errorf("%q becomes %q", script, short)
		}
	}
}

// TestThePageInNode runs the tests of the page's modules under node's own test runner.
func TestThePageInNode(t *testing.T) {
	node := testkit.Program(t, "node")
	dir := t.TempDir()
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.CopyFS(dir, os.DirFS("testdata/ui")), os.CopyFS(dir+"/ui", os.DirFS("ui"))); err != nil {
		t.Fatal(err)
	}
	kinds, err := module(kindsModule)
	if err != nil {
		t.Fatal(err)
	}
	put("ui/"+kindsModule, kinds)
	put("ui/package.json", []byte(`{"type": "module"}`)) // node takes .js for a script
	tests, err := filepath.Glob(dir + "/*.test.mjs")
	if err != nil || len(tests) < 5 {
		t.Fatalf("%q: %v", tests, err)
	}
	if out, err := exec.Command(node, append([]string{"--test"}, tests...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// FuzzSqueezed squeezes what may not be a script at all.
func FuzzSqueezed(f *testing.F) {
	for _, script := range []string{"a = `b${ { c } }d` / 2 // e", "}`", "/[/]/g.x /* f */ / 'g\\''", "\xff$`"} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		if short, err := squeezed(script); err == nil && len(short) > len(script) {
			t.Errorf("%q becomes %q", script, short)
		}
	})
}
