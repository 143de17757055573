package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

func TestACheckIsCancelled(t *testing.T) {
	chromium(t)
	path := written(t, "big.caf", func(add func(string, []byte)) {
		for _, name := range []string{"a", "b", "c", "d"} {
			add(name, noise(8<<20))
		}
	})
	// A web server that stops answering: what is read of it never comes.
	var mu sync.Mutex
	stops, asked, ended := false, make(chan struct{}, 1000), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		waits := stops
		mu.Unlock()
		if waits {
			asked <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-ended:
			}
			return
		}
		if r.URL.Path != "/big.caf" {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, path)
	}))
	t.Cleanup(func() { close(ended); web.CloseClientConnections(); web.Close() })
	b := open(t, served(t, web.URL+"/big.caf"))
	b.visit("#/big.caf?tab=verify")
	b.wait("document.body.dataset.survey === 'complete' && document.body.dataset.check === 'none'")
	mu.Lock()
	stops = true
	mu.Unlock()
	b.click("#check-full")
	<-asked
	b.wait("document.body.dataset.check === 'running' && !document.querySelector('#check-stop').hidden && document.querySelector('#check-full').hidden")
	b.wait("document.activeElement.id === 'check-stop'")
	b.shot("check-running-1280-light")
	b.accessible("a check that runs")
	b.visit("#/big.caf") // it goes on meanwhile
	b.wait("document.body.dataset.tab === 'list'")
	b.visit("#/big.caf?tab=verify")
	b.wait("document.body.dataset.check === 'running' && document.activeElement.id === 'check-stop'")
	b.key(kb.Enter)
	b.wait("document.body.dataset.check === 'cancelled' && document.querySelector('.told').innerText.startsWith('Cancelled after')")
	b.wait("!document.querySelector('#check-full').hidden && document.activeElement.id === 'check-full'")
	if h := b.text("document.body.dataset.health"); h != "unknown" {
		t.Errorf("it is said to be %s", h)
	}
	mu.Lock()
	stops = false
	mu.Unlock()
	b.key(kb.Enter)
	b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health === 'good'")
}

func TestAnArchiveIsReplacedWhileItIsLookedAt(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	at := filepath.Join(dir, "x.caf")
	put := func(file, content string) {
		t.Helper()
		path := written(t, "x.caf", func(add func(string, []byte)) { add(file, []byte(content)) })
		if err := os.Rename(path, at); err != nil {
			t.Fatal(err)
		}
	}
	put("old.txt", "what was there before")
	put2 := written(t, "other.caf", func(add func(string, []byte)) { add("a", []byte("b")) })
	if err := os.Rename(put2, filepath.Join(dir, "other.caf")); err != nil {
		t.Fatal(err)
	}
	b := open(t, served(t, dir))
	b.visit("#/x.caf")
	b.wait("document.getElementById('row-0')?.innerText.includes('old.txt')")
	put("new.txt", "what is there now, and longer")
	// The server looks at the folder again every two seconds: one asks as people do.
	for deadline := time.Now().Add(patience); !strings.Contains(b.text("document.getElementById('row-0')?.innerText"), "new.txt"); {
		if time.Now().After(deadline) {
			t.Fatal("the new one is never shown")
		}
		for key, tab := range map[string]string{"i": "about", "l": "list"} {
			b.key(key)
			b.wait("document.body.dataset.tab === '" + tab + "' && document.body.dataset.ready === '1'")
		}
		b.key("l")
		b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1'")
	}
	b.wait("document.body.dataset.news.includes('replaced')")
	b.shot("replaced-1280-light")
	b.visit("#/x.caf/new.txt")
	b.wait("document.body.dataset.preview === 'text' && document.querySelector('.text').innerText.includes('what is there now')")
}

func TestWhatCannotBeOpenedIsSaid(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "broken.caf"), []byte(strings.Repeat("no archive ", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{albumFile(t, "album.caf"), written(t, "empty.caf", func(func(string, []byte)) {})} {
		if err := os.Rename(p, filepath.Join(dir, filepath.Base(p))); err != nil {
			t.Fatal(err)
		}
	}
	s := served(t, dir)
	b := open(t, s)
	b.expect("422")
	b.visit("")
	b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 2 && document.querySelector('.archives [role=alert]')")
	b.shot("archives-broken-1280-light")
	b.accessible("a list with a broken archive")
	b.visit("#/broken.caf")
	b.wait("document.body.dataset.damage === '1' && document.body.dataset.plan === 'nothing'")
	b.shot("broken-1280-light")
	b.accessible("an archive that cannot be opened")
	for _, tab := range []string{"list", "map", "treemap", "verify", "about"} {
		b.visit("#/empty.caf?tab=" + tab)
		b.wait("document.body.dataset.tab === '" + tab + "' && document.body.dataset.ready === '1'")
		b.shot("empty-" + tab + "-1280-light")
		b.accessible("an empty archive, " + tab)
	}
	// A server that is gone.
	b.expect("ERR_CONNECTION_REFUSED")
	b.visit("#/album.caf")
	b.wait("document.body.dataset.survey === 'complete'")
	s.end(t)
	b.visit("#/album.caf/pictures")
	b.wait("document.querySelector('#main [role=alert]')?.innerText.includes('does not answer')")
	b.shot("gone-1280-light")
	b.accessible("a server that is gone")
	if b.text("document.getElementById('again').innerText") != "Try again" {
		t.Error("it cannot be tried again")
	}
}
