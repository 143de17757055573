package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

var (
	kept = time.Date(2024, 2, 29, 12, 30, 45, 0, time.UTC)
	// long is longer than the content that is verified in memory.
	long = strings.Repeat("0123456789abcdef", 200_000)
)

var contents = map[string]string{
	"hello.txt": "hello, world", "empty": "", "long.bin": long, "dir/a b?#%.txt": "odd", "dir/sub/x.json": "{}",
	"a:b/c": "colon", "page.html": "<script>alert(1)</script>", "raw\xff\xfe": "no UTF-8", "nul\x00": "nul", "<i>&\"": "markup",
	"both": "a file", "both/below": "and below it", "LOUD.PNG": "png",
}

// packed writes contents and further entries into an archive in memory.
func packed(t *testing.T, f *format.Format, more ...holdall.Entry) *storetest.Mem {
	t.Helper()
	m := &storetest.Mem{}
	w, err := f.Create(t.Context(), m, "x", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	entries := slices.Clone(more)
	for name := range contents {
		entries = append(entries, holdall.Entry{Name: name, ModTime: kept})
	}
	slices.SortFunc(entries, func(a, b holdall.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		e.Size = int64(len(contents[e.Name]))
		if err := w.Add(t.Context(), e, strings.NewReader(contents[e.Name])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t *testing.T, st store.Store, name string) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: st, Formats: []*format.Format{caf.Format, tiny.Format}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// site is a server of one archive.
type site struct {
	url string
	log *testkit.Text
}

// options are the options of a served archive and of its site.
type options struct {
	Version string
	CORS    []string
}

func serving(t *testing.T, a *holdall.Archive, o options) site {
	t.Helper()
	_, _, url, log := siteOf(t, serve.SiteOptions{CORS: o.CORS}, serve.SetOptions{}, serve.Source{
		Name: "x", Open: func(context.Context, string) (*holdall.Archive, string, error) { return a, o.Version, nil },
	})
	return site{url + "/f/x", log}
}

// ask sends a request; headers are KEY, VALUE, ….
func ask(t *testing.T, method, url string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer, string(b), err
}

func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	answer, body, err := ask(t, "GET", url, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

// escape writes every byte of a name except slashes as %XX.
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c == '/' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

func TestEveryFileIsServedWhateverItsName(t *testing.T) {
	for _, f := range []*format.Format{caf.Format, tiny.Format} {
		s := serving(t, open(t, packed(t, f), "x"), options{})
		for name, want := range contents {
			answer, body := get(t, s.url+"/"+escape(name), "Accept-Encoding", "gzip")
			if answer.StatusCode != 200 || body != want || answer.ContentLength != int64(len(want)) {
				t.Errorf("%s: %q: %s, %d bytes of %d", f.Name, name, answer.Status, len(body), len(want))
			}
			head := answer.Header
			if head.Get("Content-Encoding") != "" || head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Accept-Ranges") != "bytes" {
				t.Errorf("%s: %q: %v", f.Name, name, head)
			}
			heads, none, err := ask(t, "HEAD", s.url+"/"+escape(name))
			if err != nil || none != "" || heads.StatusCode != 200 {
				t.Fatalf("HEAD %q: %v, %q", name, err, none)
			}
			for _, key := range []string{"Content-Length", "Content-Type", "Etag", "Last-Modified", "Accept-Ranges"} {
				if heads.Header.Get(key) != head.Get(key) {
					t.Errorf("%q: HEAD says %s: %q, GET %q", name, key, heads.Header.Get(key), head.Get(key))
				}
			}
		}
		if s.log.String() != "" {
			t.Error(s.log)
		}
	}
}

func TestContentTypeIsThatOfTheNameOrOfText(t *testing.T) {
	s := serving(t, open(t, packed(t, caf.Format), "x"), options{})
	for name, want := range map[string]string{
		"hello.txt": "text/plain; charset=utf-8", "dir/sub/x.json": "application/json", "LOUD.PNG": "image/png",
		"page.html": "text/html; charset=utf-8", "empty": "application/octet-stream", "both/below": "text/plain; charset=utf-8", "long.bin": "application/octet-stream",
	} {
		answer, _ := get(t, s.url+"/"+name)
		if got := answer.Header.Get("Content-Type"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		sandboxed := strings.HasPrefix(answer.Header.Get("Content-Security-Policy"), "sandbox")
		if sandboxed != (name == "page.html") {
			t.Errorf("%s: sandboxed is %v", name, sandboxed)
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	more := []holdall.Entry{{Name: "pipe", Kind: format.Fifo}, {Name: "out", Kind: format.Symlink, Link: "../../etc/passwd"},
		{Name: "root", Kind: format.Symlink, Link: "/hello.txt"}, {Name: "loop", Kind: format.Symlink, Link: "loop"}}
	s := serving(t, open(t, packed(t, tiny.Format, more...), "x"), options{})
	for _, path := range []string{
		"/nothing", "/dir/nothing", "/nothing/", "/hello.txt/", "/hello.txt/x", "/dir//sub", "/dir/./sub/x.json", "/dir/../hello.txt",
		"/..", "/%2e%2e/hello.txt", "/../../etc/passwd", "/dir/%2e%2e/hello.txt", "/.", "/pipe", "/out", "/root", "/loop", "/loop/x", "/hello.txt%00", "/raw%ff",
	} {
		r, err := http.NewRequest("GET", s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = strings.TrimPrefix(s.url, "http:") + path // unchanged, not cleaned
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 404 {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "LOCK"} {
		for _, path := range []string{"/", "/hello.txt", "/nothing"} {
			answer, _, err := ask(t, method, s.url+path)
			if err != nil || answer.StatusCode != 405 || answer.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %v, %v", method, path, answer.Status, err)
			}
		}
	}
	if s.log.String() != "" {
		t.Errorf("it is not our fault, but it is logged: %s", s.log)
	}
}

func TestLinksAreFollowedWithinTheArchive(t *testing.T) {
	more := []holdall.Entry{
		{Name: "dir", Kind: format.Dir, ModTime: kept}, {Name: "vacant", Kind: format.Dir},
		{Name: "to-file.html", Kind: format.Symlink, Link: "hello.txt"}, {Name: "hard", Kind: format.HardLink, Link: "dir/sub/x.json"},
		{Name: "to-dir", Kind: format.Symlink, Link: "dir"}, {Name: "up/and", Kind: format.Symlink, Link: "../to-dir/sub"}, {Name: "here", Kind: format.Symlink, Link: "."},
	}
	s := serving(t, open(t, packed(t, tiny.Format, more...), "x"), options{})
	for path, want := range map[string]string{
		"/to-file.html": "hello, world", "/hard": "{}", "/to-dir/sub/x.json": "{}", "/up/and/x.json": "{}", "/here/hello.txt": "hello, world",
	} {
		if answer, body := get(t, s.url+path); answer.StatusCode != 200 || body != want {
			t.Errorf("%s: %s, %q", path, answer.Status, body)
		}
	}
	if answer, _ := get(t, s.url+"/to-file.html"); answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("the type is not that of what the link leads to: %v", answer.Header)
	}
	for _, path := range []string{"/up/and/", "/to-dir/sub/"} {
		if answer, body := get(t, s.url+path+"?format=json"); answer.StatusCode != 200 || !strings.Contains(body, `"x.json"`) {
			t.Errorf("%s: %s, %s", path, answer.Status, body)
		}
	}
	if answer, body := get(t, s.url+"/vacant/?format=json"); answer.StatusCode != 200 || !strings.Contains(body, `"entries":[`+"\n]") {
		t.Errorf("empty folder: %s, %s", answer.Status, body)
	}
}

func TestFoldersAreListed(t *testing.T) {
	more := []holdall.Entry{{Name: "pipe", Kind: format.Fifo}, {Name: "../evil", Kind: format.File}, {Name: "link", Kind: format.Symlink, Link: "<x>"}}
	s := serving(t, open(t, packed(t, tiny.Format, more...), "x"), options{})
	answer, page := get(t, s.url+"/", "Accept", "text/html,*/*")
	if answer.Header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasPrefix(answer.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src") {
		t.Error(answer.Header)
	}
	for _, want := range []string{
		`<a href="hello.txt">hello.txt</a><td>12<td>2024-02-29 12:30:45`, `<a href="dir/">dir/</a>`, `<a href="a%3Ab/">a:b/</a>`,
		`<a href="raw%FF%FE">raw\xff\xfe</a>`, `<a href="%3Ci%3E%26%22">&lt;i&gt;&amp;&#34;</a>`, `<td>pipe<td>`, `<td>../evil<td>`,
		`<a href="link">link → &lt;x&gt;</a>`, `<a href="nul%00">nul\x00</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	if _, page := get(t, s.url+"/dir/"); !strings.Contains(page, `<a href="../">../</a>`) || !strings.Contains(page, `<a href="a b%3F%23%25.txt">a b?#%.txt</a>`) {
		t.Error(page)
	}
	// Each link leads to the entry that it names.
	for _, name := range []string{"hello.txt", "raw%FF%FE", "a%3Ab/c", "%3Ci%3E%26%22", "dir/a b%3F%23%25.txt"} {
		base, _ := url.Parse(s.url + "/")
		ref, err := base.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if answer, _ := get(t, ref.String()); answer.StatusCode != 200 {
			t.Errorf("%s: %s", name, answer.Status)
		}
	}
	for _, how := range [][]string{{"", "Accept", "application/json"}, {"?format=json", "Accept", "text/html"}} {
		answer, body := get(t, s.url+"/"+how[0], how[1:]...)
		var got struct {
			Path    string
			Entries []struct {
				Name, Kind string
				NameHex    string `json:"name_hex"`
				Size       *int64
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || answer.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%v\n%s", err, body)
		}
		found := map[string]string{}
		for _, e := range got.Entries {
			found[e.Name] = e.Kind
			if e.Size != nil {
				found[e.Name] += fmt.Sprint(" ", *e.Size)
			}
			found[e.Name] += e.NameHex
		}
		for name, want := range map[string]string{"hello.txt": "file 12", "dir": "dir", `raw\xff\xfe`: "file 8726177fffe", "pipe": "fifo", "link": "symlink", "../evil": "file 0"} {
			if found[name] != want {
				t.Errorf("%s is %q, want %q", name, found[name], want)
			}
		}
	}
	for path, want := range map[string]string{"/dir": "./dir/", "/dir?format=json": "./dir/?format=json", "/dir/sub": "./sub/", "/a:b": "./a%3Ab/"} {
		if answer, _ := get(t, s.url+path, "Accept", "text/html,*/*"); answer.StatusCode != 302 || answer.Header.Get("Location") != want {
			t.Errorf("%s: %s to %s", path, answer.Status, answer.Header.Get("Location"))
		}
		if answer, body := get(t, s.url+path); answer.StatusCode != 200 || !strings.Contains(path, "format=") && !strings.Contains(body, `<base href="`+want+`">`) {
			t.Errorf("%s: %s\n%s", path, answer.Status, body)
		}
	}
	if answer, body, err := ask(t, "HEAD", s.url+"/"); err != nil || answer.StatusCode != 200 || body != "" {
		t.Error(answer, err)
	}
	// A file with entries below it is both a file and a folder.
	if answer, body := get(t, s.url+"/both"); answer.StatusCode != 200 || body != "a file" {
		t.Error(answer.Status, body)
	}
	if _, body := get(t, s.url+"/both/?format=json"); !strings.Contains(body, `"below"`) {
		t.Error(body)
	}
}

func TestOtherSitesMayReadIfAsked(t *testing.T) {
	a := open(t, packed(t, caf.Format), "x")
	shut, wide := serving(t, a, options{}), serving(t, a, options{CORS: []string{"*"}})
	for _, path := range []string{"/", "/hello.txt", "/nothing"} {
		if answer, _ := get(t, shut.url+path, "Origin", "https://example.org"); answer.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, answer.Header)
		}
		answer, _ := get(t, wide.url+path, "Origin", "https://example.org")
		if answer.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(answer.Header.Get("Access-Control-Expose-Headers"), "Content-Range") {
			t.Errorf("%s: %v", path, answer.Header)
		}
		answer, _, err := ask(t, "OPTIONS", wide.url+path, "Origin", "https://example.org", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "range")
		if err != nil || answer.StatusCode != 204 || answer.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" ||
			!strings.Contains(answer.Header.Get("Access-Control-Allow-Headers"), "Range") {
			t.Errorf("%s: %v, %v", path, answer, err)
		}
	}
}

func TestOnlyThisMachineByItsOwnName(t *testing.T) {
	site, _, _, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "x", nil))
	h := serve.LocalOnly(site)
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "127.0.0.1": true, "127.0.0.1:8080": true, "[::1]": true, "[::1]:8080": true,
		"evil.example": false, "evil.example:8080": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "10.0.0.1": false,
		"0.0.0.0": false, "": false, "[::]:8080": false, "[fe80::1]": false,
	} {
		r := httptest.NewRequest("GET", "/f/x/hello.txt", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want := http.StatusForbidden
		if ok {
			want = http.StatusOK
		}
		if w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
}

// TestManyClients has many concurrent clients of one remote archive.
func TestManyClients(t *testing.T) {
	s := serving(t, open(t, packed(t, caf.Format), "x"), options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for name, want := range contents {
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/"+escape(name), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 1 && len(want) > 3 {
					r.Header.Set("Range", "bytes=1-2")
					want = want[1:3]
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || string(body) != want {
					t.Errorf("%q: %d bytes, want %d; %v", name, len(body), len(want), err)
				}
			}
		})
	}
	wg.Wait()
}
