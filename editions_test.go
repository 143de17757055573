package holdall_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// editionFiles are the contents of the archives in testdata/editions.
var editionFiles = map[string]string{
	"hello.txt": "hello\n", "empty": "", "dir/a b ü.txt": "a name with spaces\n", "dir/sub/deep": "deep\n",
	"dir/numbers": func() string {
		var b strings.Builder
		for i := range 4000 {
			fmt.Fprintln(&b, i+1)
		}
		return b.String()
	}(),
}

// editionSums are the SHA-256 of what the folders of testdata/editions have: of the names and the
// contents of their files, in order. Files of a released edition never change.
var editionSums = map[string]string{
	"0.0.1": "ef29633d4c18b881db39a90924ad7c8427b516dab4b4ae1f7e9aa7a72aabc988",
	"0.0.2": "bc0e5eb530fb4cd8e09d68c876f98e883fc72edd7f22722f58eeb665c8fe9863",
	"0.0.3": "499e42c3da252f2dc25c0e2afae7323bf6b46a99d8bba31b4bf54d292570d550",
	"0.1.0": "91c1579251b9effc2d5194dec074dcd8887db9ca0a09e273c40d77b93ebff3fb",
}

// What any edition of holdall has written is read for ever.
func TestArchivesOfEveryEditionAreRead(t *testing.T) {
	const root = "testdata/editions"
	all, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, edition := range all {
		if !edition.IsDir() {
			continue
		}
		found++
		t.Run(edition.Name(), func(t *testing.T) {
			if sum := sumOfFolder(t, filepath.Join(root, edition.Name())); sum != editionSums[edition.Name()] {
				t.Errorf("the files have changed: their sum is %s", sum)
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, edition.Name()))); err != nil {
				t.Fatal(err)
			}
			archives, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, x := range archives {
				name := x.Name()
				switch {
				case name == "catalog.db" || strings.HasSuffix(name, ".holdall") || strings.HasSuffix(name, ".parity"):
				case strings.HasPrefix(name, "parts-"):
					for name, content := range readEdition(t, filepath.Join(dir, name), holdall.UseIndex{}) {
						parts[name] = content
					}
				default:
					wantEdition(t, name, readEdition(t, filepath.Join(dir, name), holdall.UseIndex{}))
				}
			}
			wantEdition(t, "parts", parts)
			if _, err := os.Stat(filepath.Join(dir, "x.tar.holdall")); err == nil {
				tar := filepath.Join(dir, "x.tar")
				if err := os.Chtimes(tar, time.Time{}, time.Unix(1_700_000_000, 0)); err != nil {
					t.Fatal(err)
				}
				// Indexes from before the first release are ignored, and the archive is read.
				used := edition.Name() >= "0.0.3"
				wantEdition(t, "x.tar by its index", readEdition(t, tar, holdall.UseIndex{Beside: used}))
			}
			if _, err := os.Stat(filepath.Join(dir, "protected.caf.parity")); err == nil {
				p := filepath.Join(dir, "protected.caf")
				b, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				b[5000] ^= 1
				if err := os.WriteFile(p, b, 0o666); err != nil {
					t.Fatal(err)
				}
				sum, err := holdall.Verify(t.Context(), p, holdall.VerifyOptions{}, func(holdall.Problem) {})
				if err != nil || sum.Parity == nil || sum.Parity.NotUsed != "" || sum.Parity.Damaged != 1 {
					t.Errorf("parity: %+v, %v", sum.Parity, err)
				}
				wantEdition(t, "a damaged archive with parity", readEdition(t, p, holdall.UseIndex{}))
			}
		})
	}
	if found != len(editionSums) {
		t.Errorf("%d editions are in %s, expected %d", found, root, len(editionSums))
	}
}

// readEdition returns the contents of an archive's files.
func readEdition(t *testing.T, p string, index holdall.UseIndex) map[string]string {
	t.Helper()
	if !strings.HasSuffix(p, "protected.caf") {
		sum, err := holdall.Verify(t.Context(), p, holdall.VerifyOptions{}, func(p holdall.Problem) {
			if p.Severity != format.Note {
				t.Errorf("%+v", p)
			}
		})
		if err != nil || sum.Errors+sum.Warnings > 0 {
			t.Errorf("%s: verify: %+v, %v", filepath.Base(p), sum, err)
		}
	}
	view := ""
	if strings.HasSuffix(p, "segmentstore") {
		view = "files"
	}
	a, err := holdall.Open(t.Context(), p, holdall.OpenOptions{View: view, Index: index})
	if err != nil {
		t.Error(err)
		return nil
	}
	defer a.Close()
	if state := a.Index(); index.Beside && state.Used == "" {
		t.Errorf("%s: the index is not used: %v", filepath.Base(p), state.Why)
	}
	got := map[string]string{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Error(err)
			break
		}
		if e.Kind.HasContent() && !e.Internal {
			b, err := a.Get(t.Context(), e.Name, 1<<20)
			if err != nil {
				t.Error(err)
			}
			got[e.Name] = string(b)
		}
	}
	return got
}

func wantEdition(t *testing.T, what string, got map[string]string) {
	t.Helper()
	for name, want := range editionFiles {
		if content, ok := got[name]; !ok || content != want {
			t.Errorf("%s: %s: %d bytes, expected %d; present: %v", what, name, len(content), len(want), ok)
		}
	}
	if len(got) != len(editionFiles) {
		t.Errorf("%s: %d files, expected %d", what, len(got), len(editionFiles))
	}
}

func sumOfFolder(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	var names []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, p := range names {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(rel), len(b), b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
