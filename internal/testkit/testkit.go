// Package testkit has what tests of several packages share: random numbers with printed seeds,
// fixtures from testdata, other programs, and what a test requires. Only tests and
// format/formattest import it. Helpers for tests of stores are in store/storetest.
package testkit

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/store/storetest"
)

// SeedVar is the variable of the environment that sets the seed.
const SeedVar = "HOLDALL_SEED"

// Seed returns a random seed, a different one each time. It is printed if the test fails.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv(SeedVar); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", SeedVar, seed)
		}
	})
	return seed
}

// Rand returns a source of random numbers with such a seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// Names are the files in a folder that end with suffix, without it. There must be so
// many.
func Names(t testing.TB, dir, suffix string, count int) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(all) != count {
		t.Fatalf("%s/*%s: expected %d files, found %d, %v", dir, suffix, count, len(all), err)
	}
	for _, file := range all {
		names = append(names, strings.TrimSuffix(filepath.Base(file), suffix))
	}
	return names
}

// GoFiles are the files of Go's own sources that match a pattern. Some distributions leave
// testdata out.
func GoFiles(t testing.TB, pattern string) []string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), pattern))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		Missing(t, "go-testdata", pattern+" is not in Go's sources")
	}
	return files
}

// Read returns the content of a file. If it does not exist, Read returns the decompressed content
// of the file with .gz appended to its name.
func Read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		var f *os.File
		if f, err = os.Open(file + ".gz"); err == nil {
			defer f.Close()
			var z *gzip.Reader
			if z, err = gzip.NewReader(f); err == nil {
				b, err = io.ReadAll(z)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// JSON reads a file, as Read does, into v.
func JSON(t testing.TB, file string, v any) {
	t.Helper()
	if err := json.Unmarshal(Read(t, file), v); err != nil {
		t.Fatal(err)
	}
}

// Untar gives the regular files of a tar.gz.
func Untar(t testing.TB, file string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		t.Helper()
		if err := untar(file, yield); err != nil {
			t.Fatal(err)
		}
	}
}

func untar(file string, do func(name string, content []byte) bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil || !do(h.Name, b) {
			return err
		}
	}
}

// Unpack writes the regular files of a tar.gz into a folder.
func Unpack(file, dir string) error {
	var failed error
	err := untar(file, func(name string, b []byte) bool {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if failed = os.MkdirAll(filepath.Dir(at), 0o777); failed == nil {
			failed = os.WriteFile(at, b, 0o666)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// Unpacked returns a folder of the test's with the regular files of a tar.gz.
func Unpacked(t testing.TB, file string) string {
	t.Helper()
	dir := t.TempDir()
	if err := Unpack(file, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Put puts the files whose names begin with from into st, with to in its place.
func Put(st *storetest.Mem, files iter.Seq2[string, []byte], from, to string) {
	for name, b := range files {
		if rest, ok := strings.CutPrefix(name, from); ok {
			st.Put(to+rest, b)
		}
	}
}

// Files gives the files below a folder, by their names from there.
func Files(t testing.TB, dir string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		t.Helper()
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(dir, file)
			if err == nil && !yield(filepath.ToSlash(name), Read(t, file)) {
				return filepath.SkipAll
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
