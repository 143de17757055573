package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// packages returns the RVN fixtures, including damaged and hostile packages.
func packages(t testing.TB) map[string][]byte {
	t.Helper()
	all, err := filepath.Glob("../../format/rvn/testdata/*.rvn")
	if err != nil || len(all) == 0 {
		t.Fatal("no packages", err)
	}
	out := map[string][]byte{}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = b
	}
	return out
}

// extractInside extracts an archive into a folder that has a file beside it.
// It fails if that file changes, or if anything else appears there.
func extractInside(t *testing.T, b []byte, o holdall.ExtractOptions) (holdall.Extracted, error) {
	t.Helper()
	outer := t.TempDir()
	into := filepath.Join(outer, "in")
	victim := filepath.Join(outer, "victim")
	err := os.Mkdir(into, 0o777)
	if err == nil {
		err = os.WriteFile(victim, []byte("untouched"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("x.rvn", b)
	a, err := holdall.Open(t.Context(), "x.rvn", holdall.OpenOptions{Store: st, Format: "rvn"})
	if err != nil {
		return holdall.Extracted{}, err
	}
	defer a.Close()
	root, err := os.OpenRoot(into)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	o.NoOwner = true
	sum, err := holdall.Extract(t.Context(), a, root, o)
	list, lerr := os.ReadDir(outer)
	info, serr := os.Lstat(victim)
	text, rerr := os.ReadFile(victim)
	if lerr != nil || len(list) != 2 || serr != nil || info.Mode() != 0o600 || rerr != nil || string(text) != "untouched" {
		t.Errorf("something got out: %v, %v, %v, %q", list, info, rerr, text)
	}
	// If the test could not remove the folder, that would be a failure in itself.
	filepath.WalkDir(into, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return sum, err
}

func TestHostilePackagesStayInside(t *testing.T) {
	testkit.Serial(t)
	for name, b := range packages(t) {
		if name == "dmg-bomb-zeros.rvn" {
			continue // sound, but 200 MiB large
		}
		for _, outside := range []bool{false, true} {
			refused := 0
			_, err := extractInside(t, b, holdall.ExtractOptions{OutsideLinks: outside, OnError: func(p holdall.Problem, _ error) { refused++ }})
			// If a path occurs twice, only the last one counts, which is harmless. A
			// leading slash is dropped.
			harmless := strings.Contains(name, "-evil-abs") || strings.Contains(name, "-ctrl-") || strings.Contains(name, "-over") || strings.Contains(name, "-hl-write") || strings.Contains(name, "-symlink-dir")
			if strings.HasPrefix(name, "dmg-evil") && !harmless && err == nil && refused == 0 {
				t.Errorf("%s: nothing was refused", name)
			}
		}
	}
}

func FuzzExtractPackage(f *testing.F) {
	testkit.Serial(f)
	for _, b := range packages(f) {
		if len(b) < 7000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := holdall.ExtractOptions{OutsideLinks: true, OnError: func(holdall.Problem, error) {}}
		o.Max.Bytes, o.Max.Entries = 1<<20, 1000
		extractInside(t, b, o)
	})
}

// TestOutsideLinks checks that a link that leads outside is made only on
// request, and that nothing is ever written through it.
func TestOutsideLinks(t *testing.T) {
	b := packages(t)["links.rvn"]
	var plain, asked bytes.Buffer
	count := func(w *bytes.Buffer) holdall.ExtractOptions {
		return holdall.ExtractOptions{OnError: func(p holdall.Problem, _ error) { w.WriteString(p.Class + "\n") }}
	}
	if _, err := extractInside(t, b, count(&plain)); err != nil {
		t.Fatal(err)
	}
	o := count(&asked)
	o.OutsideLinks = true
	if _, err := extractInside(t, b, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plain.String(), "link-outside") || strings.Contains(asked.String(), "link-outside") {
		t.Errorf("without asking %q, asked for %q", plain.String(), asked.String())
	}
}
