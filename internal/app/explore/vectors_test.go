package explore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestPagesReadTheVectors has the reader of static pages read the vectors of docs/index.md, as Go
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
