package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdall/holdall/internal/testkit"
)

// items writes an archive of n small files in four folders: item-000000.txt and so on.
func items(t *testing.T, n int) string {
	return written(t, "many.tar", func(add func(string, []byte)) {
		for i := range n {
			add(fmt.Sprintf("dir%d/item-%06d.%s", i%4, i, []string{"txt", "png"}[i%2]), []byte("0123456789")[:i%10])
		}
	})
}

// shows waits until the list has so many rows and its first one is that, and all that can be seen are there.
func (b *tab) shows(what string, rows int, first string) {
	b.t.Helper()
	b.wait(showing(what, rows, first))
}

func showing(what string, rows int, first string) string {
	return fmt.Sprintf(`document.querySelector('.files .what')?.innerText === %s && +document.getElementById('grid').getAttribute('aria-rowcount') === %d
		&& !document.querySelector('#grid .row.waiting:not([hidden])') && (%d === 0 || document.getElementById('row-0')?.querySelector('.word').title === %s)`, quote(what), rows+1, rows, quote(first))
}

// frame ends when the page was drawn again.
const frame = "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f))).then(() => {})"

// All results can be reached, in any order, and are downloaded as one zip.
func TestASearchHasAnyNumberOfResults(t *testing.T) {
	const n = 45_739
	b := open(t, served(t, items(t, n)))
	b.visit("#/many.tar?q=item")
	b.shows("45,739 found", n, "dir0/item-000000.txt")
	b.key(kb.End)
	b.wait("document.body.dataset.sel === 'dir3/item-045735.png'")
	b.wait("[...document.querySelectorAll('#grid .row')].some(r => !r.hidden && r.querySelector('.word').title === 'dir3/item-045735.png')")
	b.shot("results-end-1280-light")
	b.click("#grid .head .size button") // the largest first
	b.shows("45,739 found", n, "dir1/item-000009.png")
	b.wait("location.hash.includes('q=item') && location.hash.includes('sort=size-desc')")
	b.run("document.getElementById('grid').focus()")
	b.key(kb.Home)
	b.key(kb.Enter)
	b.wait("document.body.dataset.path === 'dir1/item-000009.png' && document.body.dataset.preview")
	b.run("history.back()")
	b.shows("45,739 found", n, "dir1/item-000009.png")
}

func TestResultsAreFilteredAndDownloaded(t *testing.T) {
	b := open(t, served(t, items(t, 2000)))
	b.visit("#/many.tar")
	b.find("item-0001")
	b.shows("100 found", 100, "dir0/item-000100.txt")
	b.run("const k = document.querySelector('.filters select'); k.value = 'pictures'; k.dispatchEvent(new Event('change'))")
	b.shows("50 found", 50, "dir1/item-000101.png")
	b.run("const m = document.querySelector('.filters input'); m.value = '9 B'; m.dispatchEvent(new Event('change'))")
	b.shows("10 found", 10, "dir1/item-000109.png")
	b.wait("location.hash === '#/many.tar?q=item-0001&kind=pictures&min=9'")
	b.accessible("results with filters")
	zipped := func() (names []string) {
		t.Helper()
		answer, err := http.Get(b.url + "/" + b.text("document.getElementById('zip').getAttribute('href')"))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var all bytes.Buffer
		if _, err := all.ReadFrom(answer.Body); err != nil {
			t.Fatal(err)
		}
		z, err := zip.NewReader(bytes.NewReader(all.Bytes()), int64(all.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			names = append(names, f.Name)
		}
		return names
	}
	if names := zipped(); len(names) != 10 || names[0] != "dir1/item-000109.png" {
		t.Errorf("the zip of all results has %q", names)
	}
	b.run("document.getElementById('grid').focus()")
	b.key(" ")
	b.down(1)
	b.key(" ")
	b.wait("document.getElementById('zip').innerText === 'Download 2 as zip'")
	if names := zipped(); len(names) != 2 {
		t.Errorf("the zip of two results has %q", names)
	}
	// The text can be a regular expression. If it is wrong, the page says why, and stays.
	b.click("#unfilter")
	b.click("#regexp")
	b.wait("location.hash.includes('match=regexp')")
	b.find("item-00000[1-3]")
	b.shows("3 found", 3, "dir1/item-000001.png")
	b.expect("400")
	b.find("item-(")
	b.wait("document.querySelector('.files .empty [role=alert]')?.innerText.includes('regular expression')")
	b.accessible("an expression that is wrong")
	b.find("no-such-name$")
	b.shows("0 found", 0, "")
	b.wait("document.querySelector('.files .empty').innerText === 'No names match “no-such-name$”.'")
	b.key(kb.Escape)
	b.shows("4 folders", 4, "dir0")
	// Filters alone are a search, too.
	b.visit("#/many.tar?kind=pictures&max=1")
	b.shows("200 found", 200, "dir1/item-000001.png")
	b.key(kb.Escape)
	b.shows("4 folders", 4, "dir0")
}

// slow is a proxy whose answers come after random delays, by a seed. asked is how many are awaited.
func slow(t *testing.T, srv *server, most time.Duration) (front *server, asked *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(srv.url)
	if err != nil {
		t.Fatal(err)
	}
	random := testkit.Rand(t)
	delays := make(chan time.Duration)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case delays <- time.Duration(random.Int64N(int64(most))):
			case <-done:
				return
			}
		}
	}()
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // the page has gone on
	asked = new(atomic.Int64)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			asked.Add(1)
			defer asked.Add(-1)
			select {
			case <-time.After(<-delays):
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		late.CloseClientConnections()
		late.Close()
		close(done)
	})
	return &server{url: late.URL}, asked
}

// Of two hundred addresses, one after the other and some before the one before was shown, each shows its own rows.
func TestEachOfTwoHundredAddressesIsRight(t *testing.T) {
	front, asked := slow(t, served(t, items(t, 4000)), 40*time.Millisecond)
	b := open(t, front)
	b.expect("404")
	random := testkit.Rand(t)
	type place struct {
		hash, what, first string
		rows              int
	}
	pick := func() place {
		switch i, dir := random.IntN(40), random.IntN(4); random.IntN(6) {
		case 0:
			return place{fmt.Sprintf("#/many.tar/dir%d", dir), "1,000 files", fmt.Sprintf("item-%06d.%s", dir, []string{"txt", "png"}[dir%2]), 1000}
		case 1:
			return place{"#/many.tar", "4 folders", "dir0", 4}
		case 2:
			return place{fmt.Sprintf("#/many.tar?q=nothing-%d", i), "0 found", "", 0}
		case 3:
			return place{fmt.Sprintf("#/many.tar/dir%d?sort=name-desc", dir), "1,000 files", fmt.Sprintf("item-%06d.%s", 3996+dir, []string{"txt", "png"}[dir%2]), 1000}
		case 4:
			return place{fmt.Sprintf("#/many.tar/no/such-%d", i), "", "", -1}
		default:
			return place{fmt.Sprintf("#/many.tar/dir%d?q=item-00%02d", dir, i), "100 found", fmt.Sprintf("dir0/item-00%02d00.txt", i), 100}
		}
	}
	b.do(chromedp.Navigate(b.url + "/#/many.tar"))
	right := 0
	for range 200 {
		for range random.IntN(3) { // these are left before they are shown
			b.run("location.hash = " + quote(pick().hash))
		}
		p := pick()
		b.run("location.hash = " + quote(p.hash))
		so := "document.querySelector('#main [role=alert]') && document.body.dataset.ready === '1'"
		if p.rows >= 0 {
			so = "document.body.dataset.ready === '1' && document.querySelector('.files .empty').hidden === " + fmt.Sprint(p.rows > 0) + " && " + showing(p.what, p.rows, p.first)
		}
		b.wait(so)
		for asked.Load() > 0 { // an answer that is still on its way changes nothing
			eval[chromedp.Void](b, frame)
		}
		eval[chromedp.Void](b, frame)
		if !eval[bool](b, "!!("+so+")") {
			b.shot("late-answer")
			t.Errorf("%s: another answer has won: %.300s", p.hash, b.text("document.getElementById('main').innerText"))
			continue
		}
		right++
	}
	t.Logf("%d of 200 addresses were right", right)
}
