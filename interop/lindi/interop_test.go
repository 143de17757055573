// Package lindi_test tests that the reference implementation of LINDI reads what holdall writes,
// and the reverse.
//
// It contains only tests. They run if HOLDALL_LINDI_PYTHON names a Python with the reference,
// which ../install lindi installs; ./check does both.
package lindi_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

const (
	pythonVar = "HOLDALL_LINDI_PYTHON"
	script    = "check_with_reference.py"
	fixtures  = "../../format/lindi/testdata"
)

func TestMain(m *testing.M) { testkit.Main(m, shared.End, hdf5Batch.End) }

// python runs a script of this folder by itself and returns what it prints. It
// fails the test if the script says no.
func python(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryPython(t, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryPython(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testkit.Needs(t, pythonVar), args...).CombinedOutput()
	return string(out), err
}

var shared = testkit.Batch{Var: pythonVar, Args: []string{script, "batch"}}

// An answer is what one command line of the script came to.
type answer struct {
	Code           int
	Stdout, Stderr string
}

// ask hands the script a command line and returns what it came to.
func ask(t *testing.T, args ...string) (a answer) {
	t.Helper()
	shared.Ask(t, &a, args...)
	return a
}

// check lets the reference read an archive and compares that with an
// expect.json. Flags are those of the script: "--exact", "--superset", ….
func check(t *testing.T, archive, expect string, flags ...string) {
	t.Helper()
	if a := ask(t, append([]string{"check", archive, expect}, flags...)...); a.Code != 0 {
		t.Errorf("%s: exit code %d\n%s%s", archive, a.Code, a.Stdout, a.Stderr)
	}
}

// appendWith lets the reference add to an archive in place, and checks that it
// reads all of it afterwards. Flags are those of the script: "--seed", "2",
// "--blobs", "100", "--grow-json", "9000", "--out", EXPECT.
func appendWith(t *testing.T, archive string, flags ...string) {
	t.Helper()
	if a := ask(t, append([]string{"append", archive}, flags...)...); a.Code != 0 {
		t.Errorf("%s: exit code %d\n%s%s", archive, a.Code, a.Stdout, a.Stderr)
	}
}

// copyOf copies a fixture and its expect.json to a folder of the test.
func copyOf(t *testing.T, name string) (archive, expect string) {
	t.Helper()
	testkit.Needs(t, pythonVar)
	from := ""
	err := filepath.WalkDir(fixtures, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			from = p
			return fs.SkipAll
		}
		return err
	})
	if err != nil || from == "" {
		t.Fatalf("%s below %s: no such fixture; %v", name, fixtures, err)
	}
	dir := t.TempDir()
	for _, ending := range []string{"", ".expect.json"} {
		b, err := os.ReadFile(from + ending)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+ending), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	archive = filepath.Join(dir, name)
	return archive, archive + ".expect.json"
}

var few = []string{"p01_empty.lindi.tar", "p02_few_blobs.lindi.tar", "p06_attrs_groups_links.lindi.tar"}

func TestReferenceReadsFixtures(t *testing.T) {
	for _, name := range few {
		archive, expect := copyOf(t, name)
		check(t, archive, expect, "--exact")
	}
}

// The reference must be able to say no, or its yes means nothing.
func TestReferenceSaysNo(t *testing.T) {
	archive, expect := copyOf(t, "p02_few_blobs.lindi.tar")
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	type member struct {
		N    string // name
		D, S int    // where its data is, and how long
	}
	var want struct{ Members []member }
	text, err := os.ReadFile(expect)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	hit := slices.IndexFunc(want.Members, func(m member) bool { return strings.HasPrefix(m.N, "blobs/") })
	if hit < 0 {
		t.Fatal("no member of the fixture is a blob")
	}
	blob := want.Members[hit]
	b[blob.D+blob.S/2] ^= 1
	if err := os.WriteFile(archive, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, "check", archive, expect); a.Code != 1 || !strings.Contains(a.Stderr, blob.N) {
		t.Errorf("a flipped bit: exit code %d\n%s%s", a.Code, a.Stdout, a.Stderr)
	}
	if a := ask(t, "check", archive); a.Code != 2 {
		t.Errorf("a command line without its end: exit code %d", a.Code)
	}
	if a := ask(t, "check", archive+".none", expect); a.Code == 0 {
		t.Error("an archive that is not there: exit code 0")
	}
}

func TestReferenceAppends(t *testing.T) {
	archive, expect := copyOf(t, "p02_few_blobs.lindi.tar")
	fresh := filepath.Join(t.TempDir(), "fresh.json")
	appendWith(t, archive, "--seed", "7", "--blobs", "60", "--out", fresh)
	check(t, archive, fresh, "--exact")
	if a := ask(t, "check", archive, expect, "--exact"); a.Code != 1 {
		t.Errorf("nothing was appended: exit code %d", a.Code)
	}
}

// zarrOverHTTP lets stock zarr read a group at url and compares it.
func zarrOverHTTP(t *testing.T, url, expect string) (string, error) {
	t.Helper()
	return tryPython(t, "zarr_over_http.py", url, expect)
}

func TestZarrReadsOverHTTP(t *testing.T) {
	archive, expect := copyOf(t, "p06_attrs_groups_links.lindi.tar")
	keys := t.TempDir()
	if out := python(t, script, "export", archive, keys); !strings.HasPrefix(out, "OK ") {
		t.Fatal(out)
	}
	files := http.FileServer(http.Dir(keys))
	web := httptest.NewServer(files)
	defer web.Close()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/words/0" {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer broken.Close()
	if out, err := zarrOverHTTP(t, web.URL, expect); err != nil || !strings.Contains(out, "OK words\n") || strings.Contains(out, "FAIL") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := zarrOverHTTP(t, broken.URL, expect); err == nil || !strings.Contains(out, "500 Internal Server Error") {
		t.Errorf("the server fails, and nobody notices: %v\n%s", err, out)
	}
	chunk := filepath.Join(keys, "scalar_f", "0")
	b, err := os.ReadFile(chunk)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(chunk, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := zarrOverHTTP(t, web.URL, expect); err == nil || !strings.Contains(out, "FAIL scalar_f: ") {
		t.Errorf("a chunk differs, and nobody notices: %v\n%s", err, out)
	}
}
