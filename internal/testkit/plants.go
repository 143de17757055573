package testkit

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Plant is a fault that is planted into a package: a change of one place in a file.
type Plant = struct{ What, File, Old, New string }

// Plants plants faults into the package that is tested, one after the other: its tests, as the words for 'go test'
// choose them, must find each, with so many rounds or, if that is "", with those that run always. It takes long:
// only HOLDALL_LONG tries that.
func Plants(t *testing.T, rounds string, planted []Plant, words ...string) {
	t.Helper()
	if !All(t) {
		return
	}
	for _, p := range planted {
		t.Run(p.What, func(t *testing.T) {
			file, err := filepath.Abs(p.File)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), p.Old); n != 1 {
				t.Fatalf("%s has %q %d times", p.File, p.Old, n)
			}
			dir := t.TempDir()
			other, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
			said, err := json.Marshal(map[string]map[string]string{"Replace": {file: other}})
			if err == nil {
				err = os.WriteFile(other, []byte(strings.Replace(string(text), p.Old, p.New, 1)), 0o666)
			}
			if err == nil {
				err = os.WriteFile(overlay, said, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
			test := exec.CommandContext(t.Context(), "go", append([]string{"test", "-overlay", overlay, "-vet=off", "-failfast", "-count=1", "-timeout=60m", "."}, words...)...)
			test.Env = append(os.Environ(), LongVar+"="+rounds)
			out, err := test.CombinedOutput()
			switch {
			case err == nil:
				t.Error("it is not found")
			case strings.Contains(string(out), "build failed"):
				t.Errorf("%s", out)
			default:
				_, said, _ := strings.Cut(string(out), "_test.go:")
				t.Logf("%.200s", strings.TrimSpace(said))
			}
		})
	}
}
