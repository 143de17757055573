package explore

import (
	"os/exec"
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
