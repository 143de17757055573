package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestCatalogRequests checks that reading through a catalogue requests only
// the needed bytes from a web server.
func TestCatalogRequests(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOLDALL_CATALOG", filepath.Join(dir, "cat.catalog"))
	large := strings.Repeat("z", 3<<20)
	in := testkit.Tree(t, filepath.Join(dir, "in"), map[string]string{"a/first": strings.Repeat("x", 300_000), "b/one": "one", "b/two": "two!", "c/large": large, "d/last": strings.Repeat("y", 300_000)})
	var mu sync.Mutex
	var asked []string
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Header.Get("Range"))
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	run := func(args ...string) string {
		t.Helper()
		asked = nil
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.String()
	}
	run("pack", "-o", filepath.Join(dir, "x.caf"), in)
	run("catalog", "init")
	run("catalog", "add", web.URL+"/x.caf")
	requests := func(want ...string) {
		t.Helper()
		if !slices.Equal(asked, want) {
			t.Errorf("asked for %q, want %q", asked, want)
		}
	}
	if got := run("catalog", "cat", "b/one"); got != "one" {
		t.Errorf("%q", got)
	}
	requests("GET bytes=300000-300002")
	if got := run("catalog", "cat", "--range", "1-3", "b/two"); got != "wo" {
		t.Errorf("%q", got)
	}
	requests("GET bytes=300003-300006") // the whole of it is compared
	if got := run("catalog", "cat", "c/large"); got != large {
		t.Errorf("%d bytes", len(got))
	}
	for _, r := range asked {
		if !strings.HasPrefix(r, "GET bytes=") {
			t.Errorf("asked for %q", asked)
		}
	}
	t.Logf("3 MiB: %q", asked)
	run("catalog", "extract", "b", "-C", filepath.Join(dir, "out"))
	requests("GET bytes=300000-300006")
	if got, err := os.ReadFile(filepath.Join(dir, "out", "b", "two")); string(got) != "two!" {
		t.Errorf("%q, %v", got, err)
	}
	run("catalog", "add", web.URL+"/x.caf") // already recorded: one request shows that it is unchanged, one looks for parity
	if len(asked) != 2 {
		t.Errorf("asked for %q", asked)
	}
}

// A server shows the buckets that archives in a folder's catalogue were packed from.
func TestBucketsOfACatalogueInAFolder(t *testing.T) {
	dir := t.TempDir()
	db, archive := filepath.Join(dir, "photos.catalog"), filepath.Join(dir, "x.caf")
	in := testkit.Tree(t, filepath.Join(dir, "in"), map[string]string{"a/b": "one"})
	for _, args := range [][]string{{"pack", "-o", archive, in}, {"catalog", "init", "--catalog", db}, {"catalog", "add", "--catalog", db, "--from", "gs://photos/2026", archive}} {
		var errOut bytes.Buffer
		if code := newApp(nil, &errOut, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
	}
	a := newApp(nil, io.Discard, io.Discard)
	served, err := a.bucketsToServe(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	all, err := served.folder.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "photos" {
		t.Errorf("%+v, %v", all, err)
	}
	for _, clean := range a.cleanup {
		clean()
	}
}
