package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/internal/testkit"
)

// files is a server of files like any other, which counts what is asked of it.
type files struct {
	*httptest.Server
	far   time.Duration // how far away it is
	mu    sync.Mutex
	asked map[string]int
	sent  map[string]int64
}

func fileServer(t *testing.T, dir string) *files {
	f := &files{asked: map[string]int{}, sent: map[string]int64{}}
	h := http.FileServer(http.Dir(dir))
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(f.far)
		c := &counted{ResponseWriter: w}
		h.ServeHTTP(c, r)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[r.URL.Path]++
		f.sent[r.URL.Path] += c.n
	}))
	t.Cleanup(f.Close)
	return f
}

// since returns what was asked of the server since it was called last: for the page itself, and for what it shows.
func (f *files) since() (own, data traffic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, n := range f.asked {
		to := &data
		if !strings.HasPrefix(name, "/many.tar") {
			to = &own
		}
		to.requests, to.bytes = to.requests+n, to.bytes+f.sent[name]
	}
	clear(f.asked)
	clear(f.sent)
	return own, data
}

type traffic struct {
	requests int
	bytes    int64
}

type counted struct {
	http.ResponseWriter
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

// site is a page without a server of ours, with its archive.
func site(t *testing.T, archive string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "site")
	run(t, "browse", "--static", dir, archive)
	info, err := os.Stat(archive)
	if to := filepath.Join(dir, filepath.Base(archive)); err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(archive))
	} else if err == nil {
		var b []byte
		if b, err = os.ReadFile(archive); err == nil {
			err = os.WriteFile(to, b, 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAnArchiveIsLookedIntoWithoutAServerOfOurs(t *testing.T) {
	chromium(t)
	dir := site(t, albumFile(t, "album.caf"))
	srv := fileServer(t, dir)
	b := open(t, &server{url: srv.URL})
	b.visit("")
	b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1' && document.querySelector('#grid .row .word')?.textContent === 'data'")
	if n, sent := srv.asked["/album.caf.holdall"], srv.sent["/album.caf.holdall"]; n > 4 || sent > 128<<10 {
		t.Errorf("the first rows take %d requests and %d bytes of the index", n, sent)
	}
	b.shot("static-1280-light")
	b.accessible("a page without a server")
	for _, c := range []struct{ path, mode, says string }{
		{"logs/short.txt", "text", "document.querySelector('.text').dataset.lines === '3'"},
		{"data/tree.json", "json", "document.querySelector('.json').innerText.includes('a survey')"},
		{"data/random.bin", "hex", "document.querySelector('.hex').dataset.rows === '37500'"},
		{"pictures/sunset.png", "image", "document.querySelector('.picture').naturalWidth === 320"},
		{"odd/naïve été.txt", "text", "document.querySelector('.text').innerText.includes('accents')"},
		{"logs/long.log", "text", "+document.querySelector('.text').dataset.lines > 500"},
	} {
		b.run("document.body.dataset.preview = ''")
		b.visit("#/album.caf/" + escaped(c.path))
		b.wait("document.body.dataset.preview === '" + c.mode + "'")
		b.wait(c.says)
	}
	kept := b.keeps()
	b.visit("#/album.caf/data/tree.json")
	b.wait("document.body.dataset.preview === 'json'")
	b.click("#download")
	if got := b.kept(kept, "tree.json"); !bytes.Equal(got, album()["data/tree.json"]) {
		t.Errorf("tree.json is kept as %d bytes", len(got))
	}
	b.find("img_0042")
	b.wait("document.body.dataset.search === 'img_0042' && document.body.dataset.sel === 'pictures/2026/raw/IMG_0042.dng'")
	b.visit("#/album.caf?q=img&kind=pictures&sort=size-desc")
	b.shows("300 found", 300, "pictures/2026/raw/IMG_0243.dng")
	b.wait("document.getElementById('regexp').hidden && document.getElementById('zip').hidden")
	b.visit("#/album.caf?q=x&match=regexp")
	b.wait("document.querySelector('.files .empty [role=alert]')?.innerText.includes('holdall browse')")
	b.visit("#/album.caf?tab=about")
	b.wait("document.querySelector('.about').innerText.includes('album.caf.holdall')")
	b.visit("#/album.caf?sort=size-desc")
	b.wait("document.querySelector('#grid .row .word')?.textContent === 'logs' && document.querySelector('#grid .row .size').textContent === '1.96 MiB'")
	b.visit("#/album.caf?tab=treemap")
	b.wait("+document.body.dataset.boxes > 20 && document.querySelector('.told').innerText.includes('617 files')")
	b.shot("static-treemap-1280-light")
	b.accessible("a treemap without a server")
	b.visit("#/album.caf?tab=map")
	b.wait("document.body.dataset.map")
	b.run("const s = document.querySelector('.mapped select'); s.value = 'kind'; s.dispatchEvent(new Event('change'))")
	b.wait("document.querySelector('.legend').innerText.includes('pictures')")
	c := b.rect(".map")
	b.hover(c.X+c.W/2, c.Y+c.H/2)
	b.wait("document.body.dataset.over")
	b.shot("static-map-1280-light")
	b.accessible("a byte map without a server")
	if asked := srv.asked["/album.caf.regions.json"]; asked != 1 {
		t.Errorf("what is in the archive besides contents is asked for %d times", asked)
	}
	b.size(390, 844)
	b.visit("#/album.caf/pictures")
	b.wait("document.body.dataset.ready === '1'")
	b.shot("static-390-light")
	b.accessible("a narrow page without a server")
}

// The page itself is one compressed file, which servers send in different ways, and index.html, which says what may be in it.
func TestAPageComesFromAnyServerButOnlyAsItWasWritten(t *testing.T) {
	chromium(t)
	dir := site(t, albumFile(t, "album.caf"))
	names, err := filepath.Glob(filepath.Join(dir, "holdall-*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q: %v", names, err)
	}
	stored, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	edited := func(from, to string) []byte { return bytes.Replace(text, []byte(from), []byte(to), 1) }
	const other = "it is not the file that this page was written with"
	for _, c := range []struct {
		what     string
		coding   string
		body     []byte
		old      bool
		says     string
		expected string
	}{
		{what: "as it is stored", body: stored},
		{what: "with its coding", coding: "gzip", body: stored},
		{what: "decompressed", body: text},
		{what: "decompressed, to an old browser", body: text, old: true},
		{what: "as it is stored, to an old browser", body: stored, old: true, says: "it needs a newer browser"},
		{what: "with another script", body: edited("page.show()", "page.show(1)"), says: other, expected: "Content Security Policy"},
		{what: "with another style", body: edited("margin:", "padding:"), says: other, expected: "Content Security Policy"},
		{what: "with one more statement", body: edited("'use strict'", "alert(1);'use strict'"), says: other, expected: "Content Security Policy"},
		{what: "in part", body: stored[:len(stored)/2], says: "was not loaded"},
		{what: "not at all", says: "status 404", expected: "404"},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := http.StripPrefix("/a/b", http.FileServer(http.Dir(dir)))
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, ".bin") {
					h.ServeHTTP(w, r)
				} else if c.body == nil {
					http.NotFound(w, r)
				} else {
					w.Header().Set("Content-Type", "application/octet-stream")
					if c.coding != "" {
						w.Header().Set("Content-Encoding", c.coding)
					}
					w.Write(c.body)
				}
			}))
			t.Cleanup(srv.Close)
			b := open(t, &server{url: srv.URL})
			if c.expected != "" {
				b.expect(c.expected)
			}
			if c.old {
				if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "delete self.DecompressionStream"}); err != nil {
					t.Fatal(err)
				}
			}
			b.do(chromedp.Navigate(b.url + "/a/b/#/album.caf"))
			if c.says != "" {
				b.wait("document.body.innerText.includes(" + quote(c.says) + ") && !document.documentElement.hidden && !document.querySelector('#grid')")
				return
			}
			b.wait("document.querySelector('#grid .row .word')?.textContent === 'data'")
			for _, tab := range []string{"compare", "verify"} {
				b.run("document.querySelector('main').replaceChildren(); location.hash = '#/album.caf?tab=" + tab + "'")
				b.wait("document.querySelector('main').innerText.includes('not available on this page')")
			}
		})
	}
}

// A page does not show damaged content, and does not read an archive that has been replaced.
func TestAPageWithoutAServerProvesWhatItShows(t *testing.T) {
	chromium(t)
	files := album()
	dir := site(t, albumFile(t, "album.caf"))
	at := filepath.Join(dir, "album.caf")
	content, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(content, files["data/random.bin"])
	content[i+150_000] ^= 1
	if err := os.WriteFile(at, content, 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, &server{url: fileServer(t, dir).URL})
	b.visit("#/album.caf/data/random.bin")
	b.wait("document.body.dataset.preview === 'failed' && document.body.dataset.harm === 'bad'")
	if said := b.text("document.querySelector('#detail').innerText"); !strings.Contains(said, "damaged from byte 0 on") {
		t.Errorf("a damaged file says %q", said)
	}
	b.visit("#/album.caf/logs/short.txt")
	b.wait("document.body.dataset.preview === 'text'")
	if err := os.WriteFile(at, append(content, 0), 0o644); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(b.url + "/?again#/album.caf/logs/short.txt"))
	b.ready()
	b.wait("document.body.dataset.preview === 'failed' && document.querySelector('#detail').innerText.includes('does not match its index')")
}

// An archive and its index may be moved: they have other times then, and maybe another version. An archive of another
// length, beginning or end is another one.
func TestAPageWithoutAServerIsMoved(t *testing.T) {
	chromium(t)
	in := filepath.Join(t.TempDir(), "in")
	err := os.Mkdir(in, 0o755)
	for name, content := range map[string][]byte{"a.txt": []byte("the first\n"), "noise.bin": noise(3 << 20)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(in, name), content, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d.caf", "d.tar", "d.zip", "d.rvn", "d.lindi.tar", "d.bundle", "short.caf"} {
		t.Run(name, func(t *testing.T) {
			archive := filepath.Join(t.TempDir(), name)
			run(t, "pack", "-o", archive, in+map[bool]string{true: "/a.txt", false: "/."}[name == "short.caf"])
			dir := site(t, archive)
			var objects []string
			if err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					objects = append(objects, path)
					err = os.Chtimes(path, time.Time{}, time.Now().Add(-100*time.Hour))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			shows := func(what string) { // a new server, because the browser keeps what others have sent
				t.Helper()
				b := open(t, &server{url: fileServer(t, dir).URL})
				b.visit("#/" + name + "/a.txt")
				b.wait("document.body.dataset.preview && document.querySelector('#detail').innerText.includes(" + quote(what) + ")")
			}
			shows("the first")
			for _, at := range objects {
				content, err := os.ReadFile(at)
				if err != nil {
					t.Fatal(err)
				}
				others := [][]byte{append(bytes.Clone(content), 0)}
				if len(objects) == 1 {
					first, last := bytes.Clone(content), bytes.Clone(content)
					first[1] ^= 1
					last[len(last)-1] ^= 1
					others = append(others, first, last)
				}
				for _, other := range others {
					if err := os.WriteFile(at, other, 0o644); err != nil {
						t.Fatal(err)
					}
					if len(objects) == 1 {
						shows("does not match its index")
					}
				}
			}
			if len(objects) > 1 {
				shows("does not match its index")
			}
		})
	}
}

// Contents that are compressed are decoded in the browser. What it cannot decode it says by name.
func TestCompressedContentsAreShownWithoutAServer(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.MkdirAll(in, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"long.txt":  []byte(strings.Repeat("a line that is met again and again\n", 3000)),
		"short.txt": []byte("abcabcabc"), "noise.bin": noise(70_000), "half.bin": append(noise(30_000), make([]byte, 50_000)...),
		"words.json": []byte(strings.Repeat(`{"a":[1,2,3],"b":"`+fmt.Sprintf("%x", noise(40))+`"}`+"\n", 40)),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(in, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed := func(name string, flags ...string) string {
		out := filepath.Join(dir, name)
		run(t, append(append([]string{"pack", "-o", out}, flags...), in+"/.")...)
		return out
	}
	gz := filepath.Join(dir, "one.tar.gz") // a stream of one member, as others write it
	if out, err := exec.Command("tar", "-C", in, "-czf", gz, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, archive := range []string{
		packed("x.zip"), packed("x.tar.zst"), packed("x.tar.gz"), gz, packed("x.lindi.tar"), packed("x.rvn"),
		packed("zlib.bundle", "--compression", "zlib"), packed("snappy.bundle", "--compression", "snappy"), packed("zstd.bundle", "--compression", "zstd"), packed("none.bundle", "--compression", "none"),
	} {
		name := filepath.Base(archive)
		t.Run(name, func(t *testing.T) {
			b := open(t, &server{url: fileServer(t, site(t, archive)).URL})
			for file, content := range files {
				kept := b.keeps()
				b.visit("#/" + name + "/" + file)
				b.wait("document.body.dataset.preview && document.body.dataset.preview !== 'loading' && document.querySelector('#detail h2').textContent === " + quote(file))
				b.click("#download")
				if got := b.kept(kept, file); !bytes.Equal(got, content) {
					t.Errorf("%s is kept as %d bytes, expected %d", file, len(got), len(content))
				}
			}
		})
	}
	// An archive that is a folder is in one file with all its objects.
	run(t, "browse", "--single", filepath.Join(dir, "bundle.html"), filepath.Join(dir, "snappy.bundle"))
	one := open(t, &server{url: "file://" + dir})
	one.do(chromedp.Navigate(one.url + "/bundle.html#/snappy.bundle/long.txt"))
	one.wait("document.body.dataset.preview === 'text' && document.querySelector('.text .words')?.innerText.startsWith('a line that')")
	bz := filepath.Join(dir, "x.tar.bz2")
	if out, err := exec.Command("tar", "-C", in, "-cjf", bz, ".").CombinedOutput(); err != nil {
		t.Skipf("no bzip2: %v: %s", err, out)
	}
	b := open(t, &server{url: fileServer(t, site(t, bz)).URL})
	b.visit("#/x.tar.bz2/long.txt")
	b.wait("document.body.dataset.preview === 'failed' && document.querySelector('#detail').innerText.includes('content compressed with bzip2 cannot be read in a browser')")
}

// The page of a catalogue reads its archives where they lie beside it, and shows only what has a digest.
func TestACatalogueIsLookedIntoWithoutAServer(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	long := noise(3 << 20)
	for name, content := range map[string][]byte{
		"one/2026/a.txt": []byte("the first\n"), "one/2026/long.bin": long, "two/plain.txt": []byte("without a digest\n"),
		"three/packed.txt": []byte(strings.Repeat("packed ", 1000)), "far/away.txt": []byte("in another folder\n"),
	} {
		at := filepath.Join(dir, "in", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	shop := filepath.Join(dir, "shop")
	if err := errors.Join(os.MkdirAll(filepath.Join(shop, "more"), 0o755), os.Mkdir(filepath.Join(dir, "elsewhere"), 0o755)); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(shop, "x.catalog")
	run(t, "catalog", "init", "--catalog", db)
	for from, to := range map[string]string{"one": "shop/one é.caf", "two": "shop/more/two.tar", "three": "shop/more/three.bundle", "far": "elsewhere/far.caf"} {
		run(t, "pack", "-q", "-o", filepath.Join(dir, to), filepath.Join(dir, "in", from)+"/.")
		run(t, "catalog", "add", "--catalog", db, filepath.Join(dir, to))
	}
	run(t, "browse", "--static", shop, db)
	index, err := os.ReadFile(db + ".holdall")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(index, []byte("elsewhere")) || bytes.Contains(index, []byte(dir)) {
		t.Errorf("the index tells where other archives are: %q", index)
	}
	srv := fileServer(t, shop)
	b := open(t, &server{url: srv.URL})
	b.visit("")
	b.wait("document.querySelector('#grid .row .word')?.textContent === '2026' && document.querySelector('#crumbs').innerText.includes('x.catalog')")
	b.shot("static-catalogue-1280-light")
	shows := func(path, says string) {
		t.Helper()
		b.run("document.body.dataset.preview = ''")
		b.visit("#/x.catalog/" + path)
		b.wait("document.querySelector('#detail').innerText.includes(" + quote(says) + ")")
	}
	shows("2026/a.txt", "the first")
	for _, path := range []string{"plain.txt", "packed.txt"} { // both are read, but nothing proves them
		shows(path, "the catalogue has no digest of it")
	}
	shows("away.txt", "the index does not record where its content is stored")
	kept := b.keeps()
	b.visit("#/x.catalog/2026/long.bin")
	b.wait("document.body.dataset.preview === 'hex'")
	b.click("#download")
	if got := b.kept(kept, "long.bin"); !bytes.Equal(got, long) {
		t.Errorf("long.bin is kept as %d bytes", len(got))
	}
	b.find("2026/l")
	b.wait("document.body.dataset.search === '2026/l' && document.querySelector('#grid .row .word').title === '2026/long.bin'")
	at := filepath.Join(shop, "one é.caf")
	content, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, long)+2<<20] ^= 1
	if err := os.WriteFile(at, content, 0o644); err != nil {
		t.Fatal(err)
	}
	b = open(t, &server{url: fileServer(t, shop).URL})
	shows = func(path, says string) {
		t.Helper()
		b.visit("#/x.catalog/" + path)
		b.wait("document.querySelector('#detail').innerText.includes(" + quote(says) + ")")
	}
	shows("2026/a.txt", "the first")
	shows("2026/long.bin", "its content is damaged")
}

// What a page asks of a server 20 ms away, that gives files as any other does. HOLDALL_LONG makes
// it a million entries.
func TestManyEntriesWithoutAServer(t *testing.T) {
	chromium(t)
	n := 40_000
	if os.Getenv(testkit.LongVar) != "" {
		n = 1_000_000
	}
	began := time.Now()
	name := func(i int) string { return fmt.Sprintf("part-%02d/set-%04d/img_%07d.bin", i/(n/20)+1, i/500, i) }
	content := noise(1500)
	at := written(t, "many.tar", func(add func(string, []byte)) {
		for i := range n {
			add(name(i), content[:i*31%1500])
		}
		add("zz-damaged.bin", []byte("a content that will be damaged"))
		add("zz-end.bin", noise(8<<10)) // an archive with another end is another one
	})
	dir := site(t, at)
	to := filepath.Join(dir, "many.tar")
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("a content that will"))] ^= 1
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries made in %.1f s", n, time.Since(began).Seconds())
	srv := fileServer(t, dir)
	srv.far = 20 * time.Millisecond
	tab := open(t, &server{url: srv.URL})
	// took says what was asked until the page is as it should be.
	took := func(what, so string, most int, mostBytes int64) {
		t.Helper()
		began := time.Now()
		tab.wait(so)
		after := time.Since(began)
		own, data := srv.since()
		t.Logf("%s: after %d ms, %d requests, %d bytes; of the page itself %d, %d bytes", what, after.Milliseconds(), data.requests, data.bytes, own.requests, own.bytes)
		if data.requests > most || data.bytes > mostBytes || own.requests > 3 || own.bytes > 90_000 {
			t.Errorf("%s takes %v, expected up to %d requests and %d bytes; of the page itself %v, expected up to 3 and 90000", what, data, most, mostBytes, own)
		}
	}
	began = time.Now()
	tab.do(chromedp.Navigate(tab.url + "/"))
	took("the first rows", "document.querySelector('#grid .row .word')?.textContent === 'part-01'", 4, 64<<10)
	t.Logf("the first rows are there %d ms after the page was asked for", time.Since(began).Milliseconds())
	tab.ready()
	tab.run("document.body.dataset.ready = ''; location.hash = '#/many.tar/part-07'")
	took("a folder", "document.body.dataset.ready === '1' && document.querySelector('#grid .row .word')?.textContent.startsWith('set-')", 4, 64<<10)
	i := n / 2
	tab.find(strings.TrimSuffix(name(i), "00.bin"))
	took("a search by prefix", "document.body.dataset.search && document.querySelector('.what').innerText === '100 names begin with this' && document.querySelector('#grid .row .word').title === "+quote(name(i)), 6, 256<<10)
	tab.shot("static-many-search-1280-light")
	tab.accessible("a search in many entries")
	tab.click("#everywhere")
	took("a search in all names", "document.querySelector('.what').innerText === '100 found'", 1+n/50_000+8, int64(n)*16)
	tab.run("document.body.dataset.ready = ''; location.hash = " + quote("#/many.tar/"+name(i+7)))
	took("a file", "document.body.dataset.preview === 'hex'", 12, 256<<10)
	tab.run("location.hash = '#/many.tar/zz-damaged.bin'")
	took("a damaged file", "document.body.dataset.preview === 'failed' && document.body.dataset.harm === 'bad'", 8, 256<<10)
	tab.run("location.hash = '#/many.tar?tab=treemap'")
	took("the treemap", "+document.body.dataset.boxes >= 20", 1+n/50_000+8, int64(n)*16)
	tab.shot("static-many-treemap-1280-light")
}

// One file has the page and the archive in it, and opens from a disk.
func TestAPageWithItsArchiveOpensFromADisk(t *testing.T) {
	chromium(t)
	files := album()
	at := albumFile(t, "album.caf")
	dir := t.TempDir()
	file := filepath.Join(dir, "album.html")
	run(t, "browse", "--single", file, at)
	b := open(t, &server{url: "file://" + dir})
	b.do(chromedp.Navigate(b.url + "/album.html"))
	b.ready()
	b.wait("document.body.dataset.tab === 'list' && document.querySelector('#grid .row .word')?.textContent === 'data'")
	b.shot("single-1280-light")
	b.accessible("a page with its archive")
	for _, c := range []struct{ path, mode, says string }{
		{"logs/short.txt", "text", "document.querySelector('.text').dataset.lines === '3'"},
		{"data/tree.json", "json", "document.querySelector('.json').innerText.includes('a survey')"},
		{"data/random.bin", "hex", "document.querySelector('.hex').dataset.rows === '37500'"},
		{"pictures/sunset.png", "image", "document.querySelector('.picture').naturalWidth === 320"},
		{"odd/naïve été.txt", "text", "document.querySelector('.text').innerText.includes('accents')"},
	} {
		b.run("document.body.dataset.preview = ''")
		b.visit("#/album.caf/" + escaped(c.path))
		b.wait("document.body.dataset.preview === '" + c.mode + "'")
		b.wait(c.says)
	}
	b.shot("single-file-1280-light")
	kept := b.keeps()
	b.visit("#/album.caf/pictures/sunset.png")
	b.wait("document.body.dataset.preview === 'image'")
	b.click("#download")
	if got := b.kept(kept, "sunset.png"); !bytes.Equal(got, files["pictures/sunset.png"]) {
		t.Errorf("sunset.png is kept as %d bytes", len(got))
	}
	b.find("img_0042")
	b.wait("document.body.dataset.search === 'img_0042' && document.body.dataset.sel === 'pictures/2026/raw/IMG_0042.dng'")
	b.media("dark")
	b.visit("#/album.caf?tab=treemap")
	b.wait("+document.body.dataset.boxes > 20")
	b.visit("#/album.caf?tab=map")
	b.wait("document.body.dataset.map")
	b.shot("single-map-1280-dark")
	b.size(390, 844)
	b.visit("#/album.caf?tab=treemap")
	b.wait("document.body.dataset.ready === '1' && +document.body.dataset.boxes > 20")
	b.shot("single-treemap-390-dark")
	b.accessible("a narrow treemap with its archive")
	b.visit("#/album.caf")
	b.wait("document.querySelector('#grid .row .word')?.textContent === 'data'")
	b.shot("single-390-dark")
	b.accessible("a narrow page with its archive")
	if asked := b.text("performance.getEntriesByType('resource').map(r => r.name).filter(u => !/^(data|blob):/.test(u))"); asked != "" {
		t.Errorf("it asks for %s", asked)
	}

	// What is damaged in it is not shown.
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(archive, files["data/random.bin"])
	held := base64.StdEncoding.EncodeToString(archive)
	archive[i+150_000] ^= 1
	if damaged := bytes.Replace(content, []byte(held), []byte(base64.StdEncoding.EncodeToString(archive)), 1); bytes.Equal(damaged, content) {
		t.Fatal("the page does not have the archive in it")
	} else if err := os.WriteFile(file, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(b.url + "/album.html?damaged#/album.caf/data/random.bin"))
	b.wait("document.body.dataset.preview === 'failed' && document.body.dataset.harm === 'bad'")
	if said := b.text("document.querySelector('#detail').innerText"); !strings.Contains(said, "damaged from byte 0 on") {
		t.Errorf("a damaged file says %q", said)
	}
	b.shot("single-damaged-390-dark")
	b.visit("#/album.caf/logs/short.txt")
	b.wait("document.body.dataset.preview === 'text'")
}

// The browser's BLAKE3 is that of the reference, for lengths around every border of its tree.
func TestTheBrowserComputesBLAKE3(t *testing.T) {
	chromium(t)
	b := open(t, &server{url: fileServer(t, site(t, albumFile(t, "album.caf"))).URL})
	b.visit("")
	lengths := []int{0, 1, 3, 63, 64, 65, 1023, 1024, 1025, 2048, 2049, 3 << 10, 5000, 8 << 10, 31 << 10, 100_000, 256<<10 - 1, 256 << 10, 256<<10 + 1}
	given, err := json.Marshal(lengths)
	if err != nil {
		t.Fatal(err)
	}
	found := eval[[]string](b, string(given)+`.map(n => [...of_blake3.blake3(Uint8Array.from({ length: n }, (_, i) => i % 251))].map(x => x.toString(16).padStart(2, '0')).join(''))`)
	for i, n := range lengths {
		content := make([]byte, n)
		for k := range content {
			content[k] = byte(k % 251)
		}
		if want := fmt.Sprintf("%x", blake3.Sum256(content)); found[i] != want {
			t.Errorf("of %d bytes: %s, expected %s", n, found[i], want)
		}
	}
	t.Logf("BLAKE3 in this browser: %d MiB/s", eval[int](b, `(() => { const b = new Uint8Array(256 << 10); let began; for (let i = 0; i < 320; i++) { if (i === 64) began = performance.now(); of_blake3.blake3(b); } return Math.round(64 / (performance.now() - began) * 1000); })()`))
}

// A treemap and a byte map that the page makes are those that a server makes.
func TestMapsWithoutAServerAreThoseOfAServer(t *testing.T) {
	chromium(t)
	for _, name := range []string{"album.caf", "album.tar", "album.zip"} {
		t.Run(name, func(t *testing.T) {
			at := albumFile(t, name)
			srv := served(t, at)
			b := open(t, &server{url: fileServer(t, site(t, at)).URL})
			b.visit("")
			type box struct {
				N     string
				Dir   bool
				S, C  int64
				Z     float64
				H     int
				Boxes []*box
				Rest  *box
			}
			type boxes struct {
				Box   *box
				Holds map[string]int64
			}
			var order func(*box)
			order = func(x *box) {
				if x.S == 0 {
					x.H = 0 // nothing is mostly anything
				}
				x.Z = float64(int64(x.Z/64)) * 64 // a share of a record is rounded, file by file or once
				slices.SortFunc(x.Boxes, func(a, b *box) int { return strings.Compare(a.N, b.N) })
				for _, y := range x.Boxes {
					order(y)
				}
				if x.Rest != nil {
					order(x.Rest)
				}
			}
			for _, by := range []string{"size", "count", "stored"} {
				for _, path := range []string{"", "pictures", "odd", "nothing"} {
					var want, found boxes
					get(t, srv.url+"/api/treemap?a="+name+"&path="+path+"&by="+by, &want)
					answer(b, `json('treemap', {path: `+quote(path)+`, by: `+quote(by)+`})`, &found)
					for _, x := range []boxes{want, found} {
						order(x.Box)
						x.Box.N = path // the root has none
					}
					if want, found := indent(t, want), indent(t, found); want != found {
						t.Fatalf("the treemap of %q by %s %s", path, by, differs(found, want))
					}
				}
			}
			for _, by := range []string{"use", "kind", "packing", "sharing", "age"} {
				for _, part := range [][3]int{{0, 0, 1000}, {1000, 90_000, 700}, {4096, 4396, 300}, {0, 0, 1}} {
					q, js := fmt.Sprintf("by=%s&cells=%d", by, part[2]), fmt.Sprintf("by: %q, cells: %d", by, part[2])
					if part[1] > 0 {
						q, js = q+fmt.Sprintf("&from=%d&to=%d", part[0], part[1]), js+fmt.Sprintf(", from: %d, to: %d", part[0], part[1])
					}
					want, wantCells := mapAnswer(t, fetched(t, srv.url+"/api/map?a="+name+"&"+q))
					var raw []byte
					answer(b, `raw('map', {`+js+`}).then(async r => btoa(Array.from(new Uint8Array(await r.arrayBuffer()), c => String.fromCharCode(c)).join('')))`, &raw)
					found, cells := mapAnswer(t, raw)
					if want != found {
						t.Fatalf("the map by %s %s", js, differs(found, want))
					}
					for i := 0; i < len(wantCells); i += 8 {
						w, f := wantCells[i:i+8], cells[i:i+8]
						if d := int(w[1]) - int(f[1]); !bytes.Equal(w[:1], f[:1]) || d < -1 || d > 1 || !bytes.Equal(w[2:], f[2:]) {
							t.Fatalf("cell %d of the map by %s is %v, expected %v", i/8, js, f, w)
						}
					}
				}
			}
			type spans struct {
				Count int
				Spans json.RawMessage
			}
			for _, part := range [][2]int{{0, 5000}, {100_000, 100_001}, {0, 3_000_000}} {
				var want, found spans
				get(t, fmt.Sprintf("%s/api/map/at?a=%s&from=%d&to=%d&limit=50", srv.url, name, part[0], part[1]), &want)
				answer(b, fmt.Sprintf("json('map/at', {from: %d, to: %d, limit: 50})", part[0], part[1]), &found)
				type span struct {
					Use, Name    string
					Entry        bool
					At, Len, Off int64
					Files        int
				}
				var w, f []span
				if err := errors.Join(json.Unmarshal(want.Spans, &w), json.Unmarshal(found.Spans, &f)); err != nil {
					t.Fatal(err)
				}
				if want.Count != found.Count || !slices.Equal(w, f) {
					t.Fatalf("at %v lie %d: %v\nexpected %d: %v", part, found.Count, f, want.Count, w)
				}
			}
			var want, found struct{ Spans [][2]int64 }
			get(t, srv.url+"/api/map/of?a="+name+"&path=pictures/sunset.png", &want)
			answer(b, "json('map/of', {path: 'pictures/sunset.png'})", &found)
			if len(want.Spans) == 0 || !slices.Equal(want.Spans, found.Spans) {
				t.Errorf("it lies at %v, expected %v", found.Spans, want.Spans)
			}
		})
	}
}

// answer asks a page without a server what it would ask one.
func answer(b *tab, js string, v any) {
	b.t.Helper()
	text := eval[string](b, "(async () => JSON.stringify(await of_base.ask."+js+"))()")
	if err := json.Unmarshal([]byte(text), v); err != nil {
		b.t.Fatalf("%s: %v: %s", js, err, text)
	}
}

func fetched(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v %s", url, r.StatusCode, err, b)
	}
	return b
}

func get(t *testing.T, url string, v any) {
	t.Helper()
	if err := json.Unmarshal(fetched(t, url), v); err != nil {
		t.Fatal(err)
	}
}

func indent(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// differs says where a text is not as expected.
func differs(found, want string) string {
	a, b := strings.Split(found, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("has in line %d\n%s\nexpected\n%s\nafter\n%s", i, a[i], b[i], strings.Join(a[max(0, i-12):i], "\n"))
		}
	}
	return fmt.Sprintf("has %d lines, expected %d", len(a), len(b))
}

// mapAnswer parses the response that describes a byte map.
func mapAnswer(t *testing.T, b []byte) (head string, cells []byte) {
	t.Helper()
	n := binary.LittleEndian.Uint32(b)
	var h struct {
		From, To, Size, Cells int64
		Totals                map[string]int64
		Class_totals          map[string]int64
		Classes               []string `json:",omitempty"`
		Uses                  []string
		Spans                 int
	}
	if err := json.Unmarshal(b[4:4+n], &h); err != nil {
		t.Fatal(err)
	}
	return indent(t, h), b[4+n:]
}

// A page that trusts a key shows only what that key has signed.
func TestAPageShowsWhatIsSigned(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	for _, name := range []string{"in", "forged"} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o755), os.WriteFile(filepath.Join(dir, name, "a.txt"), []byte(name+" text\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		run(t, "pack", "-q", "-o", filepath.Join(dir, name+".tar"), filepath.Join(dir, name))
	}
	key, archive, pages := filepath.Join(dir, "k"), filepath.Join(dir, "in.tar"), filepath.Join(dir, "page")
	run(t, "sign", "-q", "--new-key", key)
	run(t, "sign", "-q", archive, "--key", key)
	run(t, "browse", "-q", "--trusted", key+".pub", "--static", pages, archive)
	put := func(name string, from string) {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(pages, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	shows := func(what string) {
		t.Helper()
		b := open(t, &server{url: fileServer(t, pages).URL})
		b.visit("#/in.tar/a.txt")
		b.wait("document.body.innerText.includes(" + quote(what) + ")")
	}
	put("in.tar", archive)
	shows("in text")
	put("in.tar", filepath.Join(dir, "forged.tar"))
	shows("does not match its index")
	run(t, "index", "-q", "--chunk-digests", filepath.Join(dir, "forged.tar"))
	put("in.tar.holdall", filepath.Join(dir, "forged.tar.holdall"))
	shows("not the one that was signed")
	run(t, "sign", "-q", "--new-key", filepath.Join(dir, "other"))
	run(t, "sign", "-q", filepath.Join(dir, "forged.tar"), "--key", filepath.Join(dir, "other"))
	put("in.tar.minisig", filepath.Join(dir, "forged.tar.minisig"))
	shows("by another key")
}
