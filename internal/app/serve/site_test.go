package serve_test

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
)

// sourceOf returns a source for an archive in a store.
func sourceOf(st store.Store, called string, opens *atomic.Int64) serve.Source {
	return serve.Source{Name: called, Address: "mem:" + called, ModTime: kept, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		if opens != nil {
			opens.Add(1)
		}
		a, err := holdall.Open(ctx, "x", holdall.OpenOptions{Store: st, View: view, Formats: []*format.Format{caf.Format, tiny.Format}})
		return a, "v1", err
	}}
}

// siteOf serves sources, with further options for a set.
func siteOf(t *testing.T, o serve.SiteOptions, so serve.SetOptions, sources ...serve.Source) (*serve.Site, *serve.Set, string, *testkit.Text) {
	t.Helper()
	log := &testkit.Text{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	so.Log = o.Log
	set := serve.NewSet(so)
	t.Cleanup(set.Close)
	for _, src := range sources {
		set.Add(src)
	}
	s := serve.NewSite(set, o)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, set, srv.URL, log
}

func TestSiteRoutes(t *testing.T) {
	_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "one.caf", nil), sourceOf(packed(t, tiny.Format), "a b:c", nil), sourceOf(packed(t, tiny.Format), "one.caf", nil))
	for path, want := range map[string]string{
		"/f/one.caf/hello.txt": "hello, world", "/f/a%20b:c/raw%ff%fe": "no UTF-8", "/f/one.caf-2/dir/sub/x.json": "{}", "/healthz": "ok\n",
	} {
		if answer, body := get(t, url+path); answer.StatusCode != 200 || body != want {
			t.Errorf("%s: %s, %q", path, answer.Status, body)
		}
	}
	for path, want := range map[string]string{"/f/one.caf": "./one.caf/", "/f/a%20b:c": "./a%20b%3Ac/", "/f/one.caf/dir": "./dir/", "/f": "./f/"} {
		if answer, _ := get(t, url+path, "Accept", "text/html"); answer.StatusCode != 302 || answer.Header.Get("Location") != want {
			t.Errorf("%s: %s to %s", path, answer.Status, answer.Header.Get("Location"))
		}
	}
	for path, code := range map[string]int{
		"/": 200, "/f/": 200, "/f/one.caf/": 200, "/f/other/": 404, "/f/other/x": 404, "//": 404, "/f//": 404, "/f/one.caf/nothing": 404, "/nothing": 404,
		"/z/one.caf/": 404, "/zip/": 404, "/zip/one.caf/nothing/": 404, "/zip/one.caf/hello.txt": 404, "/metrics/x": 404, "/ui/": 404, "/api/x": 404, "/openapi.yaml": 200,
		"/?format=x": 400, "/f/one.caf/?limit=0": 400, "/f/one.caf/?limit=10001": 400, "/f/one.caf/?after=%25": 400, "/f/one.caf/?format=xml": 400, "/f/one.caf/?after=": 400, "/f/one.caf/?a;b": 400,
	} {
		if answer, body := get(t, url+path); answer.StatusCode != code || code >= 400 && !strings.HasPrefix(body, fmt.Sprint(code)) {
			t.Errorf("%s: %s, %q", path, answer.Status, body)
		}
	}
	if _, page := get(t, url+"/"); !strings.Contains(page, `<a href="f/a b:c/">a b:c/</a>`) {
		t.Error(page)
	}
	if _, page := get(t, url+"/f/"); !strings.Contains(page, `<a href="a b%3Ac/">a b:c/</a>`) {
		t.Error(page)
	}
	// Every response, from whichever handler, forbids pages everything.
	for _, path := range []string{"/", "/f/one.caf/", "/f/one.caf/hello.txt", "/f/one.caf/page.html", "/healthz", "/metrics", "/nothing", "/zip/one.caf/", "/f/one.caf/?limit=x"} {
		answer, _ := get(t, url+path)
		head := answer.Header
		if csp := head.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "script") {
			t.Errorf("%s: %s", path, csp)
		}
		if head.Get("X-Content-Type-Options") != "nosniff" || head.Get("Cross-Origin-Resource-Policy") != "same-origin" || head.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, head)
		}
	}
	if answer, _, err := ask(t, "POST", url+"/f/one.caf/hello.txt"); err != nil || answer.StatusCode != 405 {
		t.Error(answer, err)
	}
	r, err := http.Post(url+"/f/one.caf/hello.txt", "text/plain", strings.NewReader("x"))
	if err != nil || r.StatusCode != 400 {
		t.Error(r, err)
	}
	if log.String() != "" {
		t.Error(log)
	}
}

func TestDownloadsHaveASafeName(t *testing.T) {
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "x", nil))
	for name, want := range map[string]string{
		"hello.txt": `attachment; filename="hello.txt"`, "dir/a b?#%.txt": `attachment; filename="a b_#_.txt"; filename*=UTF-8''a%20b%3F%23%25.txt`,
		"raw\xff\xfe": `attachment; filename="raw__"; filename*=UTF-8''raw_`, "nul\x00": `attachment; filename="nul_"; filename*=UTF-8''nul%00`,
		"<i>&\"": `attachment; filename="_i_&_"; filename*=UTF-8''%3Ci%3E%26%22`,
	} {
		answer, _ := get(t, url+"/f/x/"+escape(name)+"?download")
		if got := answer.Header.Get("Content-Disposition"); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	if answer, _ := get(t, url+"/f/x/hello.txt"); answer.Header.Get("Content-Disposition") != "" {
		t.Error(answer.Header)
	}
}

func TestFoldersComeInPages(t *testing.T) {
	_, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, tiny.Format, holdall.Entry{Name: "dir", Kind: format.Dir}, holdall.Entry{Name: "dir-a", Kind: format.File}), "x", nil))
	type list struct {
		Entries []struct{ Name, Kind string }
		Next    string
	}
	read := func(query string) (l list) {
		t.Helper()
		answer, body := get(t, url+"/f/x/?format=json"+query)
		if err := json.Unmarshal([]byte(body), &l); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s, %v\n%s", answer.Status, err, body)
		}
		return l
	}
	all := read("")
	if all.Next != "" || len(all.Entries) < 10 {
		t.Fatalf("%+v", all)
	}
	for limit := 1; limit <= len(all.Entries); limit++ {
		var got []struct{ Name, Kind string }
		after := ""
		for {
			l := read(fmt.Sprintf("&limit=%d%s", limit, after))
			got = append(got, l.Entries...)
			if len(l.Entries) > limit || len(l.Entries) == 0 {
				t.Fatalf("%d entries of %d", len(l.Entries), limit)
			}
			if l.Next == "" {
				break
			}
			after = "&after=" + l.Next
		}
		if !slices.Equal(got, all.Entries) {
			t.Errorf("by %d: %v, want %v", limit, got, all.Entries)
		}
	}
	if _, page := get(t, url+"/f/x/?limit=3"); !strings.Contains(page, `<a rel="next" href="?format=html&amp;limit=3&amp;after=`) {
		t.Error(page)
	}
}

// TestFoldersAsZip checks that a zip has everything below a folder, and that
// other programs can read it.
func TestFoldersAsZip(t *testing.T) {
	more := []holdall.Entry{
		{Name: "dir", Kind: format.Dir, ModTime: kept, Mode: 0o750, HasMode: true}, {Name: "dir/vacant", Kind: format.Dir}, {Name: "dir/link", Kind: format.Symlink, Link: "../hello.txt"},
		{Name: "dir/ünï", Kind: format.File, ModTime: kept}, {Name: "hard", Kind: format.HardLink, Link: "hello.txt"}, {Name: "../evil", Kind: format.File}, {Name: "pipe", Kind: format.Fifo},
	}
	_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(packed(t, tiny.Format, more...), "x", nil))
	answer, body := get(t, url+"/zip/x/")
	if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != "application/zip" || answer.Header.Get("Content-Disposition") != `attachment; filename="x.zip"` {
		t.Fatal(answer.Status, answer.Header)
	}
	z, err := zip.NewReader(strings.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatalf("%q: %v", f.Name, err)
		}
		b, err := io.ReadAll(r) // compares the sum
		if err != nil {
			t.Fatalf("%q: %v", f.Name, err)
		}
		found[f.Name] = string(b)
		if f.Name == "dir/" && (f.Mode() != fs.ModeDir|0o750 || !f.Modified.Equal(kept)) || f.Name == "dir/link" && f.Mode()&fs.ModeSymlink == 0 || f.Name == "hello.txt" && !f.Modified.Equal(kept) {
			t.Errorf("%s: %v, %v", f.Name, f.Mode(), f.Modified)
		}
		if f.Method != zip.Store || f.NonUTF8 != (strings.HasPrefix(f.Name, "raw")) && !strings.Contains(f.Name, "ü") && strings.HasPrefix(f.Name, "raw") {
			t.Errorf("%q: method %d, %v", f.Name, f.Method, f.NonUTF8)
		}
	}
	for name, want := range contents {
		if got, ok := found[name]; !ok || got != want {
			t.Errorf("%q: %d bytes, want %d", name, len(got), len(want))
		}
	}
	for name, want := range map[string]string{"dir/": "", "dir/vacant/": "", "dir/link": "../hello.txt", "dir/ünï": "", "hard": "hello, world"} {
		if got, ok := found[name]; !ok || got != want {
			t.Errorf("%q: %q, %v", name, got, ok)
		}
	}
	if _, ok := found["../evil"]; ok || !strings.HasPrefix(z.Comment, "left out") {
		t.Errorf("a name that leads out; %q", z.Comment)
	}
	_, body = get(t, url+"/zip/x/dir/")
	if z, err = zip.NewReader(strings.NewReader(body), int64(len(body))); err != nil || len(z.File) != 5 {
		t.Fatal(err, len(z.File))
	}
	for _, f := range z.File {
		if strings.HasPrefix(f.Name, "dir") {
			t.Error(f.Name)
		}
	}
	if answer, body, err := ask(t, "HEAD", url+"/zip/x/"); err != nil || answer.StatusCode != 200 || body != "" {
		t.Error(answer, err)
	}
	if log.String() != "" {
		t.Error(log)
	}
}

func TestAZipOfWhatIsDamagedBreaksOff(t *testing.T) {
	for _, name := range []string{"hello.txt", "long.bin"} {
		_, _, url, log := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, sourceOf(damaged(t, name), "x", nil))
		answer, body, err := ask(t, "GET", url+"/zip/x/")
		if err == nil {
			t.Errorf("%s: %s, it looks whole", name, answer.Status)
		}
		if _, zerr := zip.NewReader(strings.NewReader(body), int64(len(body))); zerr == nil {
			t.Errorf("%s: it has a directory", name)
		}
		if !strings.Contains(log.String(), "content is damaged") {
			t.Errorf("%s: logged: %s", name, log)
		}
	}
}

func TestATokenIsNeeded(t *testing.T) {
	const token = "correct horse-battery"
	_, _, at, _ := siteOf(t, serve.SiteOptions{Token: token, CORS: []string{"https://a.example"}}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "x", nil))
	for _, headers := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic " + token}, {"Cookie", "holdall-serve=" + token}, {"Cookie", "holdall-serve="}} {
		for _, path := range []string{"/", "/f/x/hello.txt", "/metrics", "/zip/x/", "/openapi.yaml", "/nothing", "/f/x/?token=wrong", "/?token="} {
			if answer, body := get(t, at+path, headers...); answer.StatusCode != 401 || answer.Header.Get("WWW-Authenticate") == "" || strings.Contains(body, "hello") {
				t.Errorf("%v %s: %s", headers, path, answer.Status)
			}
		}
	}
	if answer, body := get(t, at+"/f/x/hello.txt", "Authorization", "bearer "+token); answer.StatusCode != 200 || body != "hello, world" {
		t.Error(answer.Status)
	}
	if answer, _ := get(t, at+"/healthz"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	answer, _ := get(t, at+"/f/x/?limit=1&token="+url.QueryEscape(token))
	cookies := answer.Cookies()
	if answer.StatusCode != 302 || answer.Header.Get("Location") != "./?limit=1" || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, token) {
		t.Fatal(answer.Status, answer.Header)
	}
	if answer, _ := get(t, at+"/f/x/", "Cookie", cookies[0].Name+"="+cookies[0].Value); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	if answer, _, err := ask(t, "OPTIONS", at+"/f/x/hello.txt", "Origin", "https://a.example"); err != nil || answer.StatusCode != 204 || answer.Header.Get("Access-Control-Allow-Origin") != "https://a.example" {
		t.Error(answer, err)
	}
	if answer, _ := get(t, at+"/healthz", "Origin", "https://b.example"); answer.Header.Get("Access-Control-Allow-Origin") != "" || !slices.Contains(answer.Header.Values("Vary"), "Origin") {
		t.Error(answer.Header)
	}
}

// TestRequestsInFlightAreLimited checks that clients beyond the limit are told
// to retry later, and that the requests within it are not delayed.
func TestRequestsInFlightAreLimited(t *testing.T) {
	held, release := make(chan bool), make(chan bool)
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held <- true
		<-release
	})
	site, _, url, _ := siteOf(t, serve.SiteOptions{Page: page, MaxRequests: 2}, serve.SetOptions{}, sourceOf(packed(t, caf.Format), "x", nil))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			r, err := http.Get(url + "/api/wait")
			if err != nil || r.StatusCode != 200 {
				t.Error(err)
			}
		})
		<-held
	}
	if answer, _ := get(t, url+"/f/x/hello.txt"); answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
		t.Error(answer.Status)
	}
	s3 := httptest.NewServer(serve.NewS3(site, serve.S3Options{}))
	defer s3.Close()
	if answer, body := get(t, s3.URL+"/x/hello.txt"); answer.StatusCode != 503 || !strings.Contains(body, "<Code>SlowDown</Code>") {
		t.Error(answer.Status)
	}
	if answer, _ := get(t, url+"/healthz"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	close(release)
	wg.Wait()
	if answer, _ := get(t, url+"/f/x/hello.txt"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	if _, text := get(t, url+"/metrics"); !strings.Contains(text, "holdall_http_requests_refused_total 2\n") || !strings.Contains(text, `holdall_http_requests_total{route="f",code="503"} 1`) ||
		!strings.Contains(text, `holdall_http_requests_total{route="f",code="200"} 1`) || !strings.Contains(text, "holdall_archives_open 1\n") {
		t.Error(text)
	}
}

// endless is an archive with one file of a gibibyte of zeros.
type endless struct{}

func (endless) Can() store.Abilities { return store.Abilities{Near: true} }
func (endless) Open(context.Context, string) (store.Object, error) {
	return nothing{}, nil
}

type nothing struct{}

func (nothing) Can() store.ObjectAbilities               { return store.ObjectAbilities{} }
func (nothing) Info(context.Context) (store.Info, error) { return store.Info{Size: 1 << 30}, nil }
func (nothing) ReadAt(_ context.Context, p []byte, _ int64) error {
	clear(p)
	return nil
}
func (nothing) Close() error { return nil }

// pipes is a listener of connections in memory, which run on a test's clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// dial sends a request for a path.
func (p pipes) dial(path string, header ...string) net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	go fmt.Fprintf(ours, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, strings.Join(header, "\r\n"))
	return ours
}

// counted is many files of a size, which counts how many were asked for.
type counted struct {
	size int64
	seen *atomic.Int64
}

func (counted) Len() int          { return 100_000 }
func (counted) Name(i int) string { return fmt.Sprintf("d/%07d", i) }
func (c counted) Entry(i int) format.Entry {
	c.seen.Add(1)
	return format.Entry{Name: c.Name(i), Size: c.size}
}

// TestAZipThatNobodyReadsTakesLittle checks how much is read ahead for clients that ask for a zip
// and read nothing, and how much memory they take.
func TestAZipThatNobodyReadsTakesLittle(t *testing.T) {
	testkit.Serial(t)
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools are empty after the second one
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	for size, most := range map[int64]int64{0: 1000, 100: 1000, 10_000: 50, 120_000: 4, 900_000: 4} {
		synctest.Test(t, func(t *testing.T) {
			var seen atomic.Int64
			log := slog.New(slog.DiscardHandler)
			set := serve.NewSet(serve.SetOptions{Log: log})
			defer set.Close()
			x := kit.NewIndex(counted{size, &seen})
			if _, err := x.Lookup(t.Context(), "d/0000001"); err != nil { // puts it in order
				t.Fatal(err)
			}
			set.Add(indexed("x", x))
			srv, l := &http.Server{Handler: serve.NewSite(set, serve.SiteOptions{Log: log})}, make(pipes)
			go srv.Serve(l)
			defer srv.Close()
			defer l.dial("/zip/x/").Close()
			synctest.Wait()
			seen.Store(0)
			const clients = 50
			before := held()
			for range clients {
				defer l.dial("/zip/x/").Close()
			}
			synctest.Wait()
			if n := (held() - before) / clients; n > 256<<10 {
				t.Errorf("of files of %d bytes, a client that reads nothing takes %d bytes of memory", size, n)
			}
			if n := seen.Load() / clients; n == 0 || n > most {
				t.Errorf("of files of %d bytes, %d are read for a client that reads nothing, expected at most %d", size, n, most)
			}
		})
	}
}

// TestSlowReaders checks that a slow client is served and delays no other, and
// that a client that reads nothing is dropped.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 400 * time.Millisecond
		log := slog.New(slog.DiscardHandler)
		set := serve.NewSet(serve.SetOptions{Log: log})
		defer set.Close()
		set.Add(indexed("x", kit.NewIndex(kit.Entries{{Name: "vast", Size: 1 << 30}})))
		srv, l := &http.Server{Handler: serve.NewSite(set, serve.SiteOptions{Log: log, Stall: stall})}, make(pipes)
		go srv.Serve(l)
		defer srv.Close()
		still, slow := l.dial("/f/x/vast"), l.dial("/f/x/vast")
		defer still.Close()
		defer slow.Close()
		buf := make([]byte, 1<<20)
		for range 40 {
			if _, err := io.ReadFull(slow, buf); err != nil {
				t.Fatal(err)
			}
			time.Sleep(stall / 8)
			other := l.dial("/f/x/vast", "Range: bytes=5-9\r\n")
			if answer, err := http.ReadResponse(bufio.NewReader(other), nil); err != nil || answer.StatusCode != 206 {
				t.Fatal(answer, err)
			}
			other.Close()
			if _, err := set.List(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n, _ := io.Copy(io.Discard, still); n != 0 {
			t.Errorf("who read nothing got %d bytes", n)
		}
	})
}

// indexed is an archive with the entries of an index, whose contents are
// zeros.
func indexed(name string, x *kit.Index) serve.Source {
	f := *tiny.Format
	f.Open = func(context.Context, store.Store, string, format.OpenOptions) (format.Reader, error) {
		return vast{x}, nil
	}
	return serve.Source{Name: name, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
		a, err := holdall.Open(ctx, "x", holdall.OpenOptions{Store: endless{}, Format: f.Name, Formats: []*format.Format{&f}})
		return a, "v", err
	}}
}

type vast struct{ *kit.Index }

func (vast) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		yield(format.Extent{Size: e.Size, Object: "x", Len: e.Size}, nil)
	}
}
func (vast) Regions(context.Context) iter.Seq2[format.Region, error] {
	return func(func(format.Region, error) bool) {}
}
func (vast) About(context.Context) (format.About, error) { return format.About{}, nil }
func (vast) Close() error                                { return nil }

// TestArchivesAreOpenedWhenAskedFor checks that archives are opened once for
// all requests, closed when they are not used, and opened again after a
// change. Broken ones are listed with their errors.
func TestArchivesAreOpenedWhenAskedFor(t *testing.T) {
	var opens atomic.Int64
	good := packed(t, caf.Format)
	broken := packed(t, caf.Format)
	b := broken.Get("x")
	broken.Put("x", b[:len(b)/2])
	mark := "1"
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("%d.caf", i))
	}
	var mu sync.Mutex
	_, set, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{MaxOpen: 2, Idle: 200 * time.Millisecond})
	set.AddFolder(serve.Folder{Every: time.Millisecond, List: func(context.Context) (all []serve.Source, err error) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range names {
			src := sourceOf(good, n, &opens)
			src.Mark = mark
			all = append(all, src)
		}
		return append(all, sourceOf(broken, "broken.caf", nil)), nil
	}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if r, err := http.Get(url + "/f/0.caf/hello.txt"); err != nil || r.StatusCode != 200 {
				t.Error(r, err)
			}
		})
	}
	wg.Wait()
	if n := opens.Load(); n != 1 {
		t.Errorf("opened %d times", n)
	}
	for range 2 {
		for _, n := range names {
			if answer, _ := get(t, url+"/f/"+n+"/hello.txt"); answer.StatusCode != 200 {
				t.Error(n, answer.Status)
			}
		}
	}
	if _, text := get(t, url+"/metrics"); !strings.Contains(text, "holdall_archives_open 2\n") {
		t.Error(text)
	}
	answer, body := get(t, url+"/f/broken.caf/")
	if answer.StatusCode != 500 || !strings.HasPrefix(body, "500: the archive cannot be opened: ") {
		t.Error(answer.Status, body)
	}
	if _, list := get(t, url+"/?format=json"); !strings.Contains(list, `"name":"broken.caf","kind":"dir","mtime":"2024-02-29T12:30:45Z","error":"`) || !strings.Contains(list, `"5.caf"`) {
		t.Error(list)
	}
	mu.Lock()
	names, mark = append(names, "new.caf"), "2"
	mu.Unlock()
	before := opens.Load()
	testkit.Until(t, "the folder is listed again", func() bool {
		answer, _ := get(t, url+"/f/new.caf/hello.txt")
		return answer.StatusCode == 200
	})
	if answer, _ := get(t, url+"/f/5.caf/hello.txt"); answer.StatusCode != 200 {
		t.Error(answer.Status)
	}
	if n := opens.Load() - before; n != 2 {
		t.Errorf("what is new and what changed was opened %d times", n)
	}
	a, err := set.Use(t.Context(), "5.caf", "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the others are closed", func() bool {
		_, text := get(t, url+"/metrics")
		return strings.Contains(text, "holdall_archives_open 1\n")
	})
	if _, err := a.Lookup(t.Context(), "hello.txt"); err != nil {
		t.Error(err)
	}
	a.Release()
	a.Release()
	if _, err := set.Use(t.Context(), "none", ""); !errors.Is(err, serve.ErrNoArchive) {
		t.Error(err)
	}
}

// million is a list of a million names that takes no memory.
type million struct{}

const lots = 1_000_000

func (million) Len() int          { return lots }
func (million) Name(i int) string { return fmt.Sprintf("d/%07d", i) }
func (m million) Entry(i int) format.Entry {
	return format.Entry{Name: m.Name(i), Size: int64(i)}
}

// TestAMillionInPages checks that pages of a million entries, and of keys,
// take the memory of one page.
func TestAMillionInPages(t *testing.T) {
	testkit.Long(t)
	x := kit.NewIndex(million{})
	if _, err := x.Lookup(t.Context(), "d/0000001"); err != nil { // puts it in order
		t.Fatal(err)
	}
	site, _, url, _ := siteOf(t, serve.SiteOptions{}, serve.SetOptions{}, indexed("x", x))
	s3 := httptest.NewServer(serve.NewS3(site, serve.S3Options{}))
	defer s3.Close()
	var most uint64
	look := func() {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse)
	}
	look()
	least := most
	n, after := 0, ""
	for range 8 {
		_, body := get(t, url+"/f/x/d/?format=json&limit=10000"+after)
		var l struct {
			Entries []struct{ Name string }
			Next    string
		}
		if err := json.Unmarshal([]byte(body), &l); err != nil {
			t.Fatal(err)
		}
		for _, e := range l.Entries {
			if e.Name != fmt.Sprintf("%07d", n) {
				t.Fatalf("%s, expected number %d", e.Name, n)
			}
			n++
		}
		after = "&after=" + l.Next
	}
	look()
	_, body := get(t, s3.URL+"/x?list-type=2&start-after=d/0999500")
	if !strings.Contains(body, "<KeyCount>499</KeyCount>") || !strings.Contains(body, "<IsTruncated>false</IsTruncated>") {
		t.Errorf("%.500s", body)
	}
	answer, err := http.Get(url + "/f/x/d/?format=json") // everything
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	io.CopyN(io.Discard, answer.Body, 10<<20)
	look()
	rest, err := io.Copy(io.Discard, answer.Body)
	if err != nil || rest < 20<<20 {
		t.Errorf("%d bytes, %v", rest, err)
	}
	if n != 80_000 || most-least > 24<<20 {
		t.Errorf("%d entries, %d KiB more", n, (most-least)>>10)
	}
}

func TestTLSCookiesStayWithIt(t *testing.T) {
	set := serve.NewSet(serve.SetOptions{})
	defer set.Close()
	srv := httptest.NewTLSServer(serve.NewSite(set, serve.SiteOptions{Token: "a-long-token", TLS: true}))
	defer srv.Close()
	c := srv.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := c.Get(srv.URL + "/?token=a-long-token")
	if err != nil || r.StatusCode != 302 || len(r.Cookies()) != 1 || !r.Cookies()[0].Secure {
		t.Fatal(r, err)
	}
}

// TestAnArchiveThatWasReplacedIsOpenedAgain checks that a replaced archive is
// noticed without a list, from its source's State.
func TestAnArchiveThatWasReplacedIsOpenedAgain(t *testing.T) {
	var state atomic.Value
	state.Store("one")
	var opens, asked atomic.Int64
	set := serve.NewSet(serve.SetOptions{})
	defer set.Close()
	src := sourceOf(packed(t, caf.Format), "x.caf", &opens)
	src.Every = time.Nanosecond
	src.State = func(context.Context) string { asked.Add(1); return state.Load().(string) }
	set.Add(src)
	use := func() *serve.Archive {
		t.Helper()
		a, err := set.Use(t.Context(), "x.caf", "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one := use()
	defer one.Release()
	use().Release()
	state.Store("") // unknown: the open archive stays
	use().Release()
	if opens.Load() != 1 || !one.Current(t.Context()) {
		t.Errorf("opened %d times, though nothing had changed", opens.Load())
	}
	state.Store("two")
	if one.Current(t.Context()) {
		t.Error("it has changed, and is said to be current")
	}
	two := use()
	defer two.Release()
	if opens.Load() != 2 || !two.Current(t.Context()) || two.Archive == one.Archive {
		t.Errorf("opened %d times", opens.Load())
	}
	src.Name, src.Every, src.Keep = "y.caf", time.Hour, true
	set.Add(src)
	before := asked.Load()
	for range 5 {
		a, err := set.Use(t.Context(), "y.caf", "")
		if err != nil {
			t.Fatal(err)
		}
		a.Release()
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("asked %d times in an hour", n)
	}
}

func TestWhatIsKeptStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens, idle atomic.Int64
		set := serve.NewSet(serve.SetOptions{MaxOpen: 1, Idle: 4 * time.Minute})
		defer set.Close()
		for _, name := range []string{"kept.caf", "other.caf", "kept.caf"} {
			if opens.Load() == 0 || name == "other.caf" {
				src := sourceOf(packed(t, caf.Format), name, &opens)
				src.Keep = name == "kept.caf"
				set.Add(src)
			}
			a, err := set.Use(t.Context(), name, "")
			if err != nil {
				t.Fatal(err)
			}
			a.WhenIdle(func() { idle.Add(1) })
			release := a.Hold()
			a.Release()
			time.Sleep(30 * time.Minute)
			before := idle.Load()
			release()
			release()
			if time.Sleep(30 * time.Minute); idle.Load() != before+1 {
				t.Errorf("%s: forgotten %d times while it was held, %d in all", name, before, idle.Load())
			}
		}
		if n := opens.Load(); n != 2 {
			t.Errorf("opened %d times, expected twice", n)
		}
	})
}
