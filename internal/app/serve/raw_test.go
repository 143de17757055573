package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

// stored is the header of a client that wants archives as they are stored.
var stored = []string{"Accept", storekit.StoredType + ", */*"}

func TestStoredArchiveIsServedAsByAnObjectStore(t *testing.T) {
	m := packed(t, caf.Format)
	want := string(m.Get("x"))
	_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(m, "one.caf", nil))
	url += "/raw/one.caf"
	answer, body := get(t, url)
	etag, n := answer.Header.Get("ETag"), len(want)
	if answer.StatusCode != 200 || body != want || !strings.HasPrefix(etag, `"`) || answer.Header.Get("Accept-Ranges") != "bytes" || answer.Header.Get("Last-Modified") == "" || answer.Header.Get("Vary") != "Accept" {
		t.Errorf("%s, %d bytes, %v", answer.Status, len(body), answer.Header)
	}
	if answer, body, err := ask(t, "HEAD", url); err != nil || answer.ContentLength != int64(n) || body != "" || answer.Header.Get("ETag") != etag {
		t.Error(answer, body, err)
	}
	for _, c := range []struct {
		headers []string
		code    int
		body    string
	}{
		{[]string{"Range", "bytes=3-9"}, 206, want[3:10]},
		{[]string{"Range", "bytes=-9"}, 206, want[n-9:]},
		{[]string{"Range", "bytes=-9999999999"}, 206, want},
		{[]string{"Range", "bytes=9-"}, 206, want[9:]},
		{[]string{"Range", fmt.Sprintf("bytes=%d-", n)}, 416, ""},
		{[]string{"If-None-Match", etag}, 304, ""},
		{[]string{"If-Match", `"other"`}, 412, ""},
		{[]string{"Range", "bytes=3-9", "If-Match", etag}, 206, want[3:10]},
		{[]string{"Range", "bytes=3-9", "If-Range", etag}, 206, want[3:10]},
		{[]string{"Range", "bytes=3-9", "If-Range", `"other"`}, 200, want},
	} {
		answer, body := get(t, url, c.headers...)
		if answer.StatusCode != c.code || c.code < 300 && body != c.body || c.code == 206 && answer.Header.Get("ETag") != etag {
			t.Errorf("%q: %s, %d bytes, %v", c.headers, answer.Status, len(body), answer.Header)
		}
	}
	if answer, body := get(t, url, "Range", "bytes=0-1,5-6"); answer.StatusCode != 206 || !strings.Contains(body, want[5:7]) || !strings.HasPrefix(answer.Header.Get("Content-Type"), "multipart/byteranges") {
		t.Error(answer.Status, body)
	}
	if answer, _, err := ask(t, "POST", url); err != nil || answer.StatusCode != 405 {
		t.Error(answer, err)
	}
	if log.String() != "" {
		t.Error(log)
	}
}

// Nothing of the store is served but the archive and what belongs to it by its name.
func TestOnlyWhatBelongsToAnArchiveIsServedAsStored(t *testing.T) {
	m := packed(t, caf.Format)
	for _, name := range []string{"x.holdall", "x.minisig", "x.holdall.bak", "y", "y.holdall", "x/below", "z.parity", "secret"} {
		m.Put(name, []byte("this is "+name))
	}
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(m, "one.caf", nil), sourceOf(m, "one.caf", nil))
	for path, want := range map[string]string{
		"one.caf": string(m.Get("x")), "one.caf/": string(m.Get("x")), "one.caf.holdall": "this is x.holdall", "one.caf.minisig": "this is x.minisig",
		"one.caf-2": string(m.Get("x")), "one.caf-2.holdall": "this is x.holdall",
		"": "404", "x": "404", "y": "404", "x.holdall": "404", "one.caf.parity": "404", "one.caf.holdall.bak": "404", "one.caf/below": "404",
		"one.caf/..": "404", "one.caf/%2e%2e/y": "404", "one.caf/%2e%2e%2fy": "404", "%2e%2e/secret": "404", "one.caf//y": "404", "one.caf%00": "404", "secret": "404",
		"one.y": "404", "one.caf.holdall/x": "404",
	} {
		for _, headers := range [][]string{nil, stored} {
			answer, body := get(t, url+"/raw/"+path, headers...)
			if want == "404" && answer.StatusCode != 404 || want != "404" && (answer.StatusCode != 200 || body != want) {
				t.Errorf("%q: %s, %.100q", path, answer.Status, body)
			}
		}
	}
}

// A client that wants what is stored gets it at every address that people see.
func TestStoredArchiveIsAtTheAddressesOfLists(t *testing.T) {
	m := packed(t, tiny.Format)
	m.Put("x.holdall", []byte("index"))
	whole := string(m.Get("x"))
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("the page")) })
	_, _, url, _ := siteOf(t, serve.SiteOptions{Page: page}, serve.SetOptions{}, sourceOf(m, "a b.tiny", nil))
	for path, want := range map[string]string{
		"/": whole, "/a%20b.tiny": whole, "/f/a%20b.tiny": whole, "/f/a%20b.tiny/": whole, "/raw/a%20b.tiny": whole,
		"/f/a%20b.tiny.holdall": "index", "/a%20b.tiny.holdall": "index", "/f/a%20b.tiny/hello.txt": "hello, world", "/f/a%20b.tiny.parity": "404", "/nothing": "404", "/f/nothing": "404",
	} {
		answer, body := get(t, url+path, stored...)
		if want == "404" && answer.StatusCode != 404 || want != "404" && (answer.StatusCode != 200 || body != want) {
			t.Errorf("%q: %s, %.100q", path, answer.Status, body)
		}
	}
	for _, accept := range []string{"", "*/*", "application/octet-stream", "text/html"} {
		for path, part := range map[string]string{"/": "the page", "/f/a%20b.tiny/": "hello.txt", "/f/": "a b.tiny"} {
			if answer, body := get(t, url+path, "Accept", accept); answer.StatusCode != 200 || !strings.Contains(body, part) || body == whole {
				t.Errorf("%s, %q: %s, %.100q", path, accept, answer.Status, body)
			}
		}
	}
	_, _, url, _ = siteOf(t, serve.SiteOptions{Page: page}, serve.SetOptions{}, sourceOf(m, "one", nil), sourceOf(m, "two", nil))
	if _, body := get(t, url+"/", stored...); body != "the page" {
		t.Errorf("of two archives: %.100q", body)
	}
}

func TestStoredArchiveNeedsTheToken(t *testing.T) {
	_, _, url, _ := siteOf(t, serve.SiteOptions{Token: "a-long-token"}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "x", nil))
	for _, path := range []string{"/raw/x", "/f/x", "/x", "/", "/raw/x.holdall", "/raw/nothing"} {
		if answer, _ := get(t, url+path, stored...); answer.StatusCode != 401 {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	if answer, _ := get(t, url+"/raw/x", "Authorization", "Bearer a-long-token"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	for token, code := range map[string]int{"a-long-token": 200, "a-long-tokem": 401, "": 401} {
		for _, path := range []string{"/", "/x", "/f/x"} {
			if answer, _ := get(t, url+path+"?token="+token, stored...); answer.StatusCode != code || answer.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s with %q: %s", path, token, answer.Status)
			}
		}
	}
}

// An archive that changes is served in one version or not at all.
func TestStoredArchiveThatChanges(t *testing.T) {
	dir := t.TempDir()
	first, second := packed(t, caf.Format).Get("x"), packed(t, tiny.Format).Get("x")
	put := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "new"), content, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "x")); err != nil {
			t.Fatal(err)
		}
	}
	put(first)
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(local.New(dir), "x", nil))
	answer, body := get(t, url+"/raw/x")
	if body != string(first) {
		t.Fatal(answer.Status)
	}
	put(second)
	if answer, _ := get(t, url+"/raw/x", "Range", "bytes=0-3", "If-Match", answer.Header.Get("ETag")); answer.StatusCode != 412 {
		t.Errorf("the old version: %s", answer.Status)
	}
	if answer, body := get(t, url+"/raw/x"); answer.StatusCode != 200 || body != string(second) {
		t.Errorf("the new version: %s, %d bytes", answer.Status, len(body))
	}
}

// What is stored breaks off if it changes while it is sent.
func TestStoredArchiveThatChangesWhileItIsSent(t *testing.T) {
	for after, code := range map[int64]int{0: 503, 1: 0} {
		m := packed(t, tiny.Format)
		st, fail := shaky(t, near{m})
		_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(st, "x", nil))
		if answer, _ := get(t, url+"/f/x/hello.txt"); answer.StatusCode != 200 {
			t.Fatal(answer.Status)
		}
		fail(after, store.ErrChanged)
		answer, body, err := ask(t, "GET", url+"/raw/x")
		if code > 0 && (err != nil || answer.StatusCode != code) || code == 0 && err == nil {
			t.Errorf("after %d reads: %v, %v, %d bytes", after, answer, err, len(body))
		}
		if !strings.Contains(log.String(), store.ErrChanged.Error()) {
			t.Errorf("logged: %s", log)
		}
	}
}

// A folder has no object of its own.
func TestWhatHasNoStoredArchive(t *testing.T) {
	dir := t.TempDir()
	testkit.Tree(t, dir, map[string]string{"a.txt": "a"})
	folder := serve.Source{Name: "folder", Open: func(ctx context.Context, _ string) (*holdall.Archive, string, error) {
		a, err := holdall.Open(ctx, dir, holdall.OpenOptions{Format: "dir"})
		return a, "", err
	}}
	broken := serve.Source{Name: "broken", Open: func(context.Context, string) (*holdall.Archive, string, error) {
		return nil, "", fmt.Errorf("/secret/path: %w", format.ErrUnknown)
	}}
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, folder, broken)
	for path, code := range map[string]int{"/raw/folder": 404, "/raw/folder/a.txt": 404, "/f/folder/a.txt": 200, "/raw/broken": 500} {
		if answer, body := get(t, url+path, stored...); answer.StatusCode != code || strings.Contains(body, "secret") {
			t.Errorf("%s: %s, %s", path, answer.Status, body)
		}
	}
}
