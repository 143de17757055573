package explore

import (
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
