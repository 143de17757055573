// Package bagit_test tests that the Library of Congress's tool for bags accepts what holdall writes,
// and the reverse.
//
// It contains only tests. They run if HOLDALL_BAGIT_PYTHON names a Python with the reference, which
// ../install bagit installs; ./check does both.
package bagit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

var dir string // has the command under test

func TestMain(m *testing.M) { testkit.Main(m, func() error { return os.RemoveAll(dir) }) }

// program builds the command, and returns its path.
var program = sync.OnceValues(func() (name string, err error) {
	if dir, err = os.MkdirTemp("", ""); err != nil {
		return "", err
	}
	name = filepath.Join(dir, "holdall")
	said, err := exec.Command("go", "build", "-o", name, "github.com/holdall/holdall/cmd/holdall").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return name, err
})

// names are what files of a bag may be called, as far as the reference reads its own lists.
var names = []string{"a", "d/e/b.txt", "ü/€", "two\nlines", "100%", "50%25", " first space", "c:d", "*star", "#hash"}

func files(t *testing.T) string {
	t.Helper()
	all := map[string]string{}
	for i, name := range names {
		all[name] = strings.Repeat(name, i*100)
	}
	return testkit.Tree(t, t.TempDir(), all)
}

func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

// holdall runs the command and returns its exit code and what it prints.
func holdall(t *testing.T, args ...string) (int, string) {
	t.Helper()
	name, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, name, args...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return code, out
}

func same(t *testing.T, a, b string) {
	t.Helper()
	if code, out := holdall(t, "diff", a, b); code != 0 {
		t.Errorf("%s", out)
	}
}

func TestTheReferenceAcceptsWhatIsWritten(t *testing.T) {
	python := testkit.Needs(t, "HOLDALL_BAGIT_PYTHON")
	in, dir := files(t), t.TempDir()
	for _, percent := range []string{"", "--exclude=*%*"} {
		bag := filepath.Join(dir, "bag"+percent)
		args := []string{"convert", "-f", "bag", in, bag}
		if percent != "" {
			args = append(args, percent)
		}
		if code, out := holdall(t, args...); code != 0 {
			t.Fatal(out)
		}
		if out, err := run(t, python, "-m", "bagit", "--validate", bag); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := os.WriteFile(filepath.Join(bag, "data", "a"), []byte("other"), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, python, "-m", "bagit", "--validate", bag); err == nil {
			t.Error("a damaged bag is valid")
		}
	}
}

func TestBagsOfTheReferenceComeBackAsTheyWere(t *testing.T) {
	python := testkit.Needs(t, "HOLDALL_BAGIT_PYTHON")
	for _, digests := range [][]string{nil, {"--md5", "--sha1"}, {"--sha512"}} {
		bag, dir := files(t), t.TempDir()
		args := append(append([]string{"-m", "bagit"}, digests...), "--source-organization", "Ümlaut", bag)
		if out, err := run(t, python, args...); err != nil {
			t.Fatal(out)
		}
		caf, back := filepath.Join(dir, "x.caf"), filepath.Join(dir, "back")
		for _, args := range [][]string{{"convert", bag, caf}, {"convert", "-f", "bag", caf, back}} {
			if code, out := holdall(t, args...); code != 0 {
				t.Fatal(out)
			}
		}
		same(t, bag, back)
		if out, err := run(t, python, "-m", "bagit", "--validate", back); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		if err := os.Remove(filepath.Join(bag, "data", "a")); err != nil {
			t.Fatal(err)
		}
		if code, out := holdall(t, "convert", bag, filepath.Join(dir, "y.caf")); code != 1 || !strings.Contains(out, "data/a: it is in manifest-") {
			t.Errorf("%d: %s", code, out)
		}
	}
}
