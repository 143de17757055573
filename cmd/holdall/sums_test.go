package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestSumsAreReadByTheToolsThatCheckThem extracts an archive with names that need
// escapes, and has each list checked there.
func TestSumsAreReadByTheToolsThatCheckThem(t *testing.T) {
	testkit.Serial(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	for _, name := range []string{"plain", "with space", `back\slash`, "new\nline", "d/a\\n\nb", " lead", "*star", "empty"} {
		testkit.Tree(t, in, map[string]string{name: strings.TrimPrefix(name, "empty")})
	}
	holdall := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(os.Args[0], args...)
		cmd.Args[0] = "holdall"
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("holdall %q: %v: %s", args, err, stderr.Bytes())
		}
		return out
	}
	caf := filepath.Join(dir, "x.caf")
	holdall("pack", "-q", "-o", caf, in)
	holdall("extract", "-q", caf, "-C", filepath.Join(dir, "out"))
	checked := 0
	for algo, tool := range map[string]string{"sha256": "sha256sum", "blake3": "b3sum"} {
		list := holdall("verify", "--sums", algo, caf)
		if n := bytes.Count(list, []byte("\n")); n != 8 {
			t.Errorf("%s: %d lines, expected 8: %s", algo, n, list)
		}
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Logf("%s is not there", tool)
			continue
		}
		check := exec.Command(path, "-c", "-")
		check.Dir, check.Stdin = filepath.Join(dir, "out"), bytes.NewReader(list)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s\nof %s", tool, err, out, list)
		}
		checked++
	}
	if checked == 0 {
		t.Skip("neither sha256sum nor b3sum is there")
	}
}
