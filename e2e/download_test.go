package e2e

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	protocol "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// keeps has the browser keep what is downloaded in a folder.
func (b *tab) keeps() string {
	b.t.Helper()
	dir := b.t.TempDir()
	if _, err := chromedp.CallBrowser(b.ctx, protocol.SetDownloadBehavior, protocol.SetDownloadBehaviorParams{Behavior: protocol.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir}); err != nil {
		b.t.Fatal(err)
	}
	return dir
}

// kept waits for a download.
func (b *tab) kept(dir, name string) []byte {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(content) > 0 {
			return content
		}
		if time.Now().After(deadline) {
			all, _ := filepath.Glob(filepath.Join(dir, "*"))
			b.t.Fatalf("%s was never kept, but %q", name, all)
		}
	}
}

func TestFilesAndFoldersAreDownloaded(t *testing.T) {
	const token = "a-token-of-some-length"
	b := open(t, served(t, "--token", token, albumFile(t, "album.caf")))
	dir := b.keeps()
	b.expect("401")
	b.do(chromedp.Navigate(b.url + "/"))
	b.wait("document.body.innerText.includes('token required')")
	b.do(chromedp.Navigate(b.url + "/?token=" + token))
	b.wait("document.body.dataset.ready === '1'")
	if at := b.text("location.href"); strings.Contains(at, "token") {
		t.Errorf("the token stays in the address: %s", at)
	}
	files := album()
	b.visit("#/album.caf/data/tree.json")
	b.wait("document.body.dataset.preview === 'json'")
	b.click("#download")
	if got := b.kept(dir, "tree.json"); !bytes.Equal(got, files["data/tree.json"]) {
		t.Errorf("tree.json is kept as %d bytes, expected %d", len(got), len(files["data/tree.json"]))
	}
	b.visit("#/album.caf/" + escaped("odd/a b?#%.txt")) // signs that mean something in addresses
	b.wait("document.body.dataset.preview === 'text'")
	b.key("d")
	if got := b.kept(dir, "a b_#%.txt"); !bytes.Equal(got, files["odd/a b?#%.txt"]) {
		t.Errorf("it is kept as %q", got)
	}
	b.visit("#/album.caf/pictures")
	b.wait("document.querySelector('a[href*=\"zip/\"]')")
	b.click("a[href*=\"zip/\"]")
	content := b.kept(dir, "pictures.zip")
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		name := strings.TrimPrefix(f.Name, "pictures/")
		if err != nil || !bytes.Equal(got, files["pictures/"+name]) {
			t.Errorf("%s in the zip: %v, %d bytes, expected %d", f.Name, err, len(got), len(files["pictures/"+name]))
		}
		found++
	}
	if found != 302 {
		t.Errorf("the zip has %d files, expected 302", found)
	}
	// What is chosen is one zip.
	b.visit("#/album.caf")
	b.wait("document.body.dataset.path === '' && document.querySelector('#grid .row .word')?.textContent === 'data'")
	b.run("document.getElementById('grid').focus()")
	b.key(kb.Home)
	b.key(" ")
	b.down(1)
	b.key(" ")
	b.wait("document.body.dataset.picked === '2' && document.getElementById('zip').innerText.includes('2')")
	b.shot("chosen-1280-light")
	b.accessible("chosen entries")
	b.click("#zip")
	content = b.kept(dir, "album.caf.zip")
	if z, err = zip.NewReader(bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, strings.TrimPrefix(f.Name, "album.caf/"))
		}
	}
	slices.Sort(names)
	if want := []string{"data/broken.json", "data/random.bin", "data/table.csv", "data/tree.json", "docs/guide.md"}; !slices.Equal(names, want) {
		t.Errorf("the zip has %q, expected %q", names, want)
	}
}
