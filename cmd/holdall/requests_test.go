package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What a verb asks a web server for, request by request. A line more is a round
// trip more for every user.
func TestWebRequests(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	for name, content := range map[string]string{"a/first": strings.Repeat("x", 100_000), "b/wanted": "wanted", "c/last": strings.Repeat("y", 100_000)} {
		p := filepath.Join(in, name)
		os.MkdirAll(filepath.Dir(p), 0o777)
		if err := os.WriteFile(p, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.String()
	}
	run("pack", "-o", filepath.Join(dir, "x.caf"), in)
	if err := os.Link(filepath.Join(dir, "x.caf"), filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var log []string
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		log = append(log, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Range")))
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"cat", web.URL + "/x.caf", "b/wanted"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=100000-100005"}},
		{[]string{"cat", "-f", "caf", web.URL + "/x", "b/wanted"}, []string{"GET /x bytes=-65536", "GET /x bytes=100000-100005"}},
		{[]string{"cat", web.URL + "/x", "b/wanted"}, []string{"GET /x bytes=-65536", "GET /x bytes=0-65535", "GET /x bytes=100000-100005"}},
		{[]string{"cat", "--range", "10-20", web.URL + "/x.caf", "a/first"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=10-19"}},
		{[]string{"ls", "-R", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536"}},
		{[]string{"info", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536"}},
		// All contents in one: neighbours are joined.
		{[]string{"verify", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=0-200005"}},
	} {
		log = nil
		run(tt.args...)
		slices.Sort(log)
		slices.Sort(tt.want)
		if !slices.Equal(log, tt.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", strings.Join(tt.args, " "), strings.Join(log, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}
