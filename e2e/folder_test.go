package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func project(t *testing.T) string {
	return written(t, "project.tar", func(add func(string, []byte)) {
		add("README.md", []byte("# Of this\n\nSee [the notes](notes(1).md) <script>document.title = 'no'</script>\n"))
		add("notes(1).md", []byte("notes"))
		add("broken.png", []byte("\x89PNG\r\n\x1a\nnot one"))
		for i := range 30 {
			add(fmt.Sprintf("small/f%02d", i), noise(100))
		}
		add("large/data.bin", noise(9000))
		for i := range 125 {
			add(fmt.Sprintf("rows/row-%03d", i), noise(i))
		}
	})
}

// A folder says how much is in it, and what it is. Nothing in it is executed.
func TestAFolderIsShownWithWhatItHas(t *testing.T) {
	b := open(t, served(t, project(t)))
	for _, way := range []struct {
		scheme string
		w, h   int64
	}{{"light", 1440, 900}, {"dark", 1440, 900}, {"dark", 390, 844}, {"light", 390, 844}} {
		b.media(way.scheme)
		b.size(way.w, way.h)
		b.visit("")
		b.wait("document.querySelector('.files .sum').innerText.includes('159 files in all')")
		b.wait("document.querySelector('.face .markdown h3')?.innerText === 'Of this'")
		b.shot(fmt.Sprintf("folder-%d-%s", way.w, way.scheme))
		b.accessible("a folder")
	}
	b.size(1280, 800)
	if got := b.text("document.title + document.querySelectorAll('.face script').length + document.querySelector('.face .markdown a').getAttribute('href')"); got != "project.tar · holdall0#/project.tar/notes(1).md" {
		t.Errorf("the page of the folder is %q", got)
	}
	rows := b.text("[...document.querySelectorAll('#grid .row:not([hidden])')].slice(0, 3).map(r => [...r.children].map(c => c.innerText.trim()).join(' ') + ' ' + (r.querySelector('.share i').offsetWidth > r.querySelector('.share').offsetWidth / 3)).join('|')")
	if want := "large 1 8.79 KiB  true|rows 125 7.57 KiB  true|small 30 2.93 KiB  false"; rows != want {
		t.Errorf("the rows are %q, expected %q", rows, want)
	}
	// A column that has nothing in it is not there.
	if shown := b.text("getComputedStyle(document.querySelector('#grid .head .files')).display"); shown == "none" {
		t.Error("the column of files is hidden")
	}
	b.visit("#/project.tar/rows")
	b.wait("document.getElementById('row-0')?.innerText.includes('row-000') && getComputedStyle(document.querySelector('#grid .head .files')).display === 'none'")
	b.visit("#/project.tar")
	b.wait("document.querySelector('.face .markdown')")
	// The list has a frame once a key is pressed.
	frame := "getComputedStyle(document.getElementById('grid')).outlineStyle + getComputedStyle(document.querySelector('#grid .row[aria-selected=true]')).outlineStyle"
	b.down(1)
	b.run("document.body.classList.remove('keyed')")
	if got := b.text("document.activeElement.id + ' ' + " + frame); got != "grid nonenone" {
		t.Errorf("at first the list has the frame %q", got)
	}
	b.down(1)
	b.wait(frame + " === 'nonesolid'")
	b.key(kb.Tab)
	b.wait("document.activeElement.closest('.face')")
}

func TestWhatIsShownCanBeCopied(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("")
	b.run("navigator.clipboard.writeText = async s => { window.copied = s; }")
	path := eval[string](b, "(async () => (await (await fetch('api/ls?a=album.caf')).json()).items.find(r => !r.k).n)()")
	b.visit("#/album.caf/" + path)
	for name, want := range map[string]string{"Path": path, "Link": b.text("location.href"), "Digest": "blake3:"} {
		b.run("document.querySelector('[data-copy=" + name + "]').focus()")
		b.key(kb.Enter)
		b.wait("document.querySelector('[data-copy=" + name + "]').innerText === 'Copied' && document.getElementById('status').innerText.includes('was copied')")
		if got := b.text("window.copied"); got != want && !(name == "Digest" && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q was copied, expected %q", name, got, want)
		}
	}
	b.accessible("what can be copied")
}

// All rows are printed, and not only those that can be seen.
func TestAListIsPrinted(t *testing.T) {
	b := open(t, served(t, project(t)))
	b.visit("#/project.tar/rows")
	b.wait("document.querySelectorAll('#grid .row:not([hidden])').length > 5")
	if _, err := chromedp.Call(b.ctx, page.PrintToPDF, page.PrintToPDFParams{PageRanges: "3"}); err != nil {
		t.Errorf("125 rows have no third page: %v", err)
	}
	b.run("dispatchEvent(new Event('beforeprint'))")
	if got := b.text("document.querySelectorAll('.printed .row').length + document.querySelector('.printed').lastChild.innerText"); !strings.HasPrefix(got, "125row-124") {
		t.Errorf("printed is %q", got)
	}
	b.run("dispatchEvent(new Event('afterprint'))")
	b.wait("!document.querySelector('.printed')")
	// If a list is longer, Ctrl+P loads the rows that fit on paper. The last line says how many are left out.
	b = open(t, served(t, written(t, "many.tar", func(add func(string, []byte)) {
		for i := range 4000 {
			add(fmt.Sprintf("f%04d", i), nil)
		}
	})))
	b.visit("#/many.tar")
	b.run("window.print = () => { dispatchEvent(new Event('beforeprint')); }; document.dispatchEvent(new KeyboardEvent('keydown', {key: 'p', ctrlKey: true, bubbles: true}))")
	b.wait("document.querySelectorAll('.printed .row').length === 3000 && document.querySelector('.printed .hint').textContent === '1,000 more rows are not printed.'")
}

func TestMapsNameAndSeparateManyFiles(t *testing.T) {
	b := open(t, served(t, written(t, "many.tar", func(add func(string, []byte)) {
		for i := range 800 {
			add(fmt.Sprintf("f%03d/x", i), noise(1000+i))
		}
	})))
	b.size(1440, 900)
	b.visit("#/many.tar?tab=treemap")
	b.wait("+document.body.dataset.labels > 300")
	// On the map, each file can be seen where it begins: neighbours have different shades.
	b.visit("#/many.tar?tab=map")
	b.wait("document.body.dataset.map")
	turns := eval[int](b, `(async () => {
		const b = await (await fetch('api/map?a=many.tar&cells=20000')).arrayBuffer(), n = new DataView(b).getUint32(0, true), c = new Uint8Array(b, 4 + n);
		let turns = 0, was;
		for (let i = 0; i < c.length; i += 8) if (c[i] === 0) { if (was !== undefined && (c[i + 2] & 1) !== was) turns++; was = c[i + 2] & 1; }
		return turns;
	})()`)
	if turns != 799 {
		t.Errorf("the shade turns %d times among 800 files", turns)
	}
}

// An image that cannot be drawn says whether its content is as it was packed.
func TestABrokenImageSaysWhy(t *testing.T) {
	b := open(t, served(t, project(t)))
	b.visit("#/project.tar/broken.png")
	b.wait("document.querySelector('#detail .fault')?.innerText.includes('Nothing proves its content')")
	b = open(t, started(t, damaged(t, albumFile(t, "album.caf"), album()["pictures/sunset.png"]))) // it logs what is damaged
	b.expect("sunset.png")
	b.visit("#/damaged.caf/pictures/sunset.png")
	b.wait("document.querySelector('#detail .fault')?.innerText.includes('damaged') && document.querySelector('#detail .alarm .bad')?.innerText.includes('keep-damaged')")
	if said := b.text("document.querySelector('#detail .fault').innerText"); strings.Contains(said, "browser") {
		t.Errorf("of a damaged image it says %q", said)
	}
	b.shot("image-damaged")
}
