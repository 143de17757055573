package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdall/holdall/internal/testkit"
)

func sortedKeys(m map[string][]byte) []string { return slices.Sorted(maps.Keys(m)) }

func TestArchivesAreListedAndOpened(t *testing.T) {
	chromium(t)
	sound := albumFile(t, "album.caf")
	srv := served(t, sound, "../format/lindi/testdata/p07_from_hdf5.lindi.tar", "../format/rvn/testdata/basic.rvn")
	b := open(t, srv)
	b.visit("")
	b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 3")
	b.accessible("list of archives")
	b.shot("archives-1280-light")
	if got := b.text("document.querySelector('.archives tbody tr td.format').innerText"); got != "caf" {
		t.Errorf("the first archive's format is told as %q", got)
	}
	b.key(kb.Enter) // the first has the focus
	b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1'")
	b.wait("document.body.dataset.survey === 'complete'")
	b.shot("files-1280-light")
	b.accessible("files")
	// The browser's own way back.
	b.run("history.back()")
	b.wait("document.querySelector('.archives')")
	// By size, the largest first; what is damaged is found by a check of all.
	b.click(".archives th.stored button")
	b.wait("document.body.dataset.sorted === 'stored-desc' && document.querySelector('.archives tbody tr td.format').innerText !== ''")
	b.wait("(n => n.length === 3 && n.every((x, i) => !i || n[i - 1] >= x))([...document.querySelectorAll('.archives td.stored')].map(x => parseFloat(x.innerText) * (x.innerText.includes('MiB') ? 1024 : 1)))")
	b.click("#check-all")
	b.wait("document.body.dataset.checked === 'all' && document.querySelectorAll('.archives [data-health=good]').length === 2 && document.querySelector('.archives [data-health=unproven]').innerText === 'unproven'")
	b.accessible("archives that were checked")
	b.shot("archives-checked-1280-light")
	b.wait("document.querySelector('.archives')")
	b.size(360, 740)
	b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 3")
	b.shot("archives-360-light")
}

func TestFilesAreFoundByKeysAlone(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("") // a single archive is opened at once
	b.wait("document.body.dataset.tab === 'list' && document.body.dataset.ready === '1'")
	if got := b.text("document.activeElement.id"); got != "grid" {
		t.Fatalf("the focus is at %q, expected the list", got)
	}
	b.key(kb.End)
	b.wait("document.body.dataset.sel === 'empty'")
	b.key(kb.Home)
	b.wait("document.body.dataset.sel === 'data'")
	b.down(2)
	b.key(kb.Enter)
	b.wait("document.body.dataset.path === 'logs' && document.body.dataset.ready === '1'")
	b.down(1)
	b.wait("document.body.dataset.sel === 'logs/long.log'")
	b.key(kb.Enter)
	b.wait("document.body.dataset.preview === 'text'")
	b.key(kb.Escape)
	b.wait("document.body.dataset.path === 'logs' && document.body.dataset.preview === ''")
	b.key(kb.Backspace)
	b.wait("document.body.dataset.path === '' && document.body.dataset.sel === 'logs'")
	// By size, the largest first: folders before files.
	b.key("2")
	b.wait("location.hash.includes('sort=size-desc') && document.body.dataset.ready === '1'")
	b.wait("document.getElementById('row-0')?.querySelector('.word').textContent === 'logs'")
	b.find("tree JSON")
	b.wait("document.body.dataset.search === 'tree JSON' && document.body.dataset.sel === 'data/tree.json'")
	b.shot("search-1280-light")
	b.accessible("search")
	b.key(kb.Enter)
	b.wait("document.activeElement.id === 'grid'")
	b.key(kb.Enter)
	b.wait("document.body.dataset.preview === 'json'")
	b.key("?")
	b.wait("document.getElementById('keys').open")
	b.accessible("keys")
	b.shot("keys-1280-light")
	b.key(kb.Escape)
	b.wait("!document.getElementById('keys').open")
	b.key("m")
	b.wait("document.body.dataset.tab === 'map' && document.body.dataset.ready === '1'")
	b.find("img_0042") // leads to the list, and nothing of what is typed is lost
	b.wait("document.body.dataset.search === 'img_0042' && document.body.dataset.sel === 'pictures/2026/raw/IMG_0042.dng'")
	b.key(kb.Escape)
	b.wait("document.getElementById('q').value === '' && document.activeElement.id === 'grid'")
	for key, tab := range map[string]string{"m": "map", "t": "treemap", "v": "verify", "i": "about", "l": "list"} {
		b.key(key)
		b.wait("document.body.dataset.tab === '" + tab + "' && document.body.dataset.ready === '1'")
	}
}

// late makes answers come late, those of folders later than others. asked is how many are awaited.
const late = `window.asked = 0;
let seed = %d;
const real = fetch, random = () => (seed = (seed * 48271) %% 0x7fffffff) / 0x7fffffff;
window.fetch = async (u, o) => {
	window.asked++;
	try {
		const answer = await real(u, o);
		await new Promise(f => setTimeout(f, u.includes('api/ls') ? 100 + 200 * random() : 60 * random()));
		return answer;
	} finally { window.asked--; }
};`

// The list shows what is asked for last, whichever answer comes last.
func TestAnOldAnswerNeverWins(t *testing.T) {
	b := open(t, served(t, written(t, "many.caf", func(add func(string, []byte)) {
		for i := range 2000 {
			add(fmt.Sprintf("dir%d/item-%04d.txt", i%4, i), []byte("x"))
		}
	})))
	b.visit("#/")
	seed := testkit.Rand(t).IntN(1<<30) + 1
	t.Logf("delays by the seed %d", seed)
	b.run(fmt.Sprintf(late, seed))
	shown := func(what, place, told, empty string, rows int) {
		t.Helper()
		b.wait("window.asked === 0 && (document.querySelector('.files .what').innerText === " + quote(told) + " || " + quote(told) + " === '')")
		eval[chromedp.Void](b, "new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f))).then(() => {})")
		state := b.text(`[document.getElementById('grid').getAttribute('aria-rowcount') - 1, document.querySelectorAll('#grid .row.waiting:not([hidden])').length, document.querySelector('.files .empty').hidden, document.querySelector('.files .empty').innerText].join()`)
		if want := fmt.Sprintf("%d,0,%v,%s", rows, empty == "", empty); !strings.HasPrefix(state, want) {
			t.Errorf("%s, %s: rows, waiting rows, not empty, text: %q, expected %q", what, place, state, want)
		}
	}
	for range 5 {
		b.visit("#/many.caf?q=item-01")
		shown("a search in the address", "the first", "100 found", "", 100)
		b.visit("#/many.caf?q=item-001")
		shown("a search in the address", "the next", "10 found", "", 10)
		b.visit("#/")
		b.visit("#/many.caf?q=nothing-like-this")
		shown("a search without results", "the first", "0 found", "No names match", 0)
		b.visit("#/")
	}
	// What was typed just before another folder was opened is not searched for in that.
	b.visit("#/many.caf")
	b.run("const q = document.getElementById('q'); q.focus(); q.value = 'item-01'; q.dispatchEvent(new Event('input')); document.getElementById('grid').focus(); location.hash = '#/many.caf/dir1'")
	b.wait("document.body.dataset.path === 'dir1' && document.body.dataset.ready === '1'")
	shown("a folder", "after typing", "500 files", "", 500)
	// A search that is cleared at once leaves the folder.
	b.run("const q = document.getElementById('q'); q.value = 'item-01'; q.dispatchEvent(new Event('input')); setTimeout(() => { q.value = ''; q.dispatchEvent(new Event('input')); window.cleared = true; }, 100)")
	b.wait("window.cleared && !location.hash.includes('q=')") // what is typed is searched for after a moment
	shown("a folder", "after a search that was cleared", "500 files", "", 500)
}

// A page that says what is wrong searches the archive, if there is one.
func TestASearchLeadsOutOfAnError(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.expect("404")
	b.visit("#/album.caf/no/such")
	b.wait("document.querySelector('#main [role=alert]')")
	b.find("img_0042")
	b.wait("document.body.dataset.search === 'img_0042' && document.body.dataset.sel === 'pictures/2026/raw/IMG_0042.dng'")
}

func TestContentsAreSearched(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("#/album.caf")
	b.wait("document.body.dataset.survey === 'complete'")
	b.click("#inside")
	b.wait("document.activeElement.id === 'q' && document.getElementById('inside').getAttribute('aria-pressed') === 'true'")
	b.do(chromedp.KeyEvent("A LONG log, with"))
	b.key(kb.Enter)
	b.wait("document.body.dataset.search === 'A LONG log, with' && document.body.dataset.sel === 'logs/long.log'")
	b.wait("document.querySelector('#grid .row .note').innerText.includes('line 1 of a long log') && document.querySelector('.what').innerText.startsWith('5 lines in 617 files')")
	b.shot("contents-1280-light")
	b.accessible("contents that were searched")
	b.key(kb.Escape)
	b.wait("document.getElementById('q').value === '' && document.querySelector('#grid .row .word').innerText === 'data'")
	b.find("markup in a name")
	b.key(kb.Enter)
	b.wait("document.body.dataset.search === 'markup in a name' && document.querySelector('.what').innerText.startsWith('1 line in 617 files')")
	b.size(390, 844)
	b.find("no content has this")
	b.key(kb.Enter)
	b.wait("document.body.dataset.search === 'no content has this' && document.querySelector('.files .empty').innerText.includes('No file contains')")
	b.accessible("searching contents on a narrow screen")
}

func TestEachKindIsPreviewed(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	for _, c := range []struct{ path, mode, says string }{
		{"logs/short.txt", "text", "document.querySelector('.text').dataset.lines === '3' && document.querySelector('.text .words')?.textContent === 'one'"},
		{"data/tree.json", "json", "document.querySelector('.json').innerText.includes('a survey')"},
		{"data/broken.json", "json", "document.querySelector('.area').innerText.includes('Not JSON')"},
		{"data/random.bin", "hex", "document.querySelector('.hex').dataset.rows === '37500'"},
		{"sounds/tone.wav", "audio", "Math.round(document.querySelector('audio').duration) === 2"},
		{"pictures/mark.svg", "image", "document.querySelector('.picture').naturalWidth === 80"},
		{"pages/page.html", "text", "document.querySelector('.text').innerText.includes('<script>')"},
		{"odd/<img src=x onerror=window.evil=1>.txt", "text", "document.querySelector('#detail h2').textContent.startsWith('<img')"},
		{"odd/a b?#%.txt", "text", "document.querySelector('.text').innerText.includes('signs')"},
		{"odd/naïve été.txt", "text", "document.querySelector('.text').innerText.includes('accents')"},
		{"empty", "text", "true"},
		{"docs/guide.md", "markdown", "(m => m.querySelector('h3').innerText === 'A guide' && m.querySelector('a').getAttribute('href') === '#/album.caf/data/tree.json' && !m.querySelector('[href^=http]') && m.querySelector('ol ul li').innerText === 'deeper' && m.querySelector('td + td').innerText === '<i>2</i>' && m.querySelector('img').complete && m.querySelector('pre').innerText.includes('<script>'))(document.querySelector('.markdown'))"},
		{"data/table.csv", "table", "(t => t.querySelectorAll('tbody tr').length === 2 && t.querySelector('tbody td').innerText === 'a, b' && t.innerText.includes('lines, \"quoted\"') && t.innerText.includes('<b>x</b>'))(document.querySelector('.cells'))"},
		{"src/main.go", "text", "[...document.querySelectorAll('.text .c-word')].some(w => w.innerText === 'func') && [...document.querySelectorAll('.text .c-string')].some(w => w.innerText.includes('<b>hello'))"},
		{"pictures/sunset.png", "image", "document.querySelector('.picture').naturalWidth === 320"},
	} {
		b.run("document.body.dataset.preview = ''")
		b.visit("#/album.caf/" + escaped(c.path))
		b.wait("document.body.dataset.preview === '" + c.mode + "'")
		b.wait(c.says)
	}
	b.shot("image-1280-light")
	b.accessible("image")
	for _, x := range []string{"docs/guide.md", "data/table.csv", "src/main.go"} {
		b.run("document.body.dataset.preview = ''")
		b.visit("#/album.caf/" + x)
		b.wait("['markdown', 'table', 'text'].includes(document.body.dataset.preview)")
		b.shot(filepath.Ext(x)[1:] + "-1280-light")
		b.accessible(x)
	}
	if eval[bool](b, "!!window.evil") {
		t.Error("something of the archive was executed")
	}
	// A long text is read piece by piece, and its lines keep their numbers.
	b.visit("#/album.caf/logs/long.log")
	b.wait("document.body.dataset.preview === 'text' && +document.querySelector('.text').dataset.lines > 500")
	b.shot("text-1280-light")
	b.accessible("text")
	if n := eval[int](b, "+document.querySelector('.text').dataset.lines"); n > 6000 {
		t.Errorf("%d lines were read for the first ones", n)
	}
	b.wait("(e => { e.scrollTop = e.scrollHeight; return e.dataset.lines === '30000' })(document.querySelector('.text'))")
	b.run("(e => { e.scrollTop = e.scrollHeight })(document.querySelector('.text'))")
	b.wait("[...document.querySelectorAll('.text .line')].some(l => !l.hidden && l.innerText.includes('line 30000 of') && l.innerText.trim().startsWith('30000'))")
	b.run("document.querySelector('.text').scrollTop = 0") // the beginning was forgotten
	b.wait("[...document.querySelectorAll('.text .line')].some(l => !l.hidden && l.innerText.includes('line 1 of'))")
	b.run("document.querySelector('[data-mode=hex]').click()")
	b.wait("document.body.dataset.preview === 'hex'")
	b.shot("hex-1280-light")
	b.media("dark")
	b.wait("document.documentElement.dataset.theme === 'dark'")
	b.shot("hex-1280-dark")
	b.accessible("bytes in the dark")
}

func escaped(path string) string {
	r := strings.NewReplacer("%", "%25", "<", "%3C", ">", "%3E", " ", "%20", "?", "%3F", "#", "%23")
	return r.Replace(path)
}

func TestLinksLeadDeepAndBack(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("#/album.caf/pictures/2026/raw/IMG_0042.dng?sort=size-desc")
	b.wait("document.body.dataset.preview === 'hex'")
	if got := b.text("document.querySelector('#crumbs').innerText.replaceAll('\\n', '')"); got != "album.caf/pictures/2026/raw/IMG_0042.dng" {
		t.Errorf("crumbs say %q", got)
	}
	b.wait("document.querySelector('[role=treeitem][aria-selected]').innerText.trim() === 'raw'")
	b.click("#crumbs a:nth-of-type(2)")
	b.wait("document.body.dataset.path === 'pictures' && document.body.dataset.preview === ''")
	b.run("history.back()")
	b.wait("document.body.dataset.path.endsWith('IMG_0042.dng') && document.body.dataset.preview === 'hex'")
	b.run("history.forward()")
	b.wait("document.body.dataset.path === 'pictures'")
	b.expect("404")
	b.visit("#/album.caf/no/such/file")
	b.wait("document.querySelector('[role=alert]')?.innerText.includes('no entry with this name')")
	b.visit("#/no-such-archive")
	b.wait("document.querySelector('[role=alert]')?.innerText.includes('no entry with this name')")
	b.shot("missing-1280-light")
}

func TestTheMapNamesAndOpens(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.tar")))
	b.visit("#/album.tar?tab=map")
	b.wait("document.body.dataset.map")
	b.shot("map-1280-light")
	b.accessible("map")
	for _, what := range []string{"contents", "headers"} {
		if !eval[bool](b, "document.querySelector('.legend').innerText.includes('"+what+"')") {
			t.Errorf("the legend does not say %s: %s", what, b.text("document.querySelector('.legend').innerText"))
		}
	}
	// The reader chooses what the colours mean, and the legend shows one class only.
	for by, want := range map[string]string{"kind": "pictures", "age": "year", "packing": "stored uncompressed", "sharing": "one file", "proof": "checksum"} {
		b.run("(s => { s.value = '" + by + "'; s.dispatchEvent(new Event('change')) })(document.querySelector('.mapped select'))")
		b.wait("document.querySelector('.legend').innerText.includes('" + want + "')")
	}
	b.run("(s => { s.value = 'kind'; s.dispatchEvent(new Event('change')) })(document.querySelector('.mapped select'))")
	b.wait("document.querySelector('.legend').innerText.includes('pictures')")
	b.shot("map-kinds-1280-light")
	b.accessible("map by kind")
	b.run("[...document.querySelectorAll('.legend button')].find(x => x.innerText.includes('pictures')).click()")
	b.wait("document.querySelector('.legend [aria-pressed=true]').innerText.includes('pictures')")
	b.shot("map-pictures-1280-light")
	b.run("(s => { s.value = 'use'; s.dispatchEvent(new Event('change')) })(document.querySelector('.mapped select'))")
	b.wait("document.querySelector('.legend').innerText.includes('contents')")
	whole := b.text("document.body.dataset.map")
	c := b.rect(".map")
	b.wheel(c.X+c.W/2, c.Y+c.H/2, -240)
	b.wait("document.body.dataset.map !== '" + whole + "'")
	b.wait("location.hash.includes('from=')") // the address says where one is
	for range 3 {
		was := b.text("document.body.dataset.map")
		b.wheel(c.X+c.W/2, c.Y+40, -240)
		b.wait("document.body.dataset.map !== '" + was + "'")
	}
	b.hover(c.X+c.W/2, c.Y+44)
	b.wait("document.body.dataset.over && !document.querySelector('.tip').hidden")
	b.shot("map-zoomed-1280-light")
	// By keys: from cell to cell to one that is an entry's, and into it.
	b.key("0")
	b.wait("document.body.dataset.map === '" + whole + "'")
	b.visit("#/album.tar/data/tree.json?tab=map")
	b.wait("document.body.dataset.preview === 'json'")
	b.wait("document.body.dataset.map !== '" + whole + "'") // it goes to where the file lies
	b.shot("map-file-1280-light")
	b.run("document.querySelector('.map').focus()")
	b.key(strings.Repeat(kb.ArrowDown, 20))
	b.wait("document.body.dataset.over")
	b.key("+")
	b.key("0")
	b.wait("document.body.dataset.map === '" + whole + "'")
	// A click opens what is there: random.bin is long enough to be clicked at.
	b.visit("#/album.tar?tab=map")
	b.wait("document.body.dataset.path === ''")
	c = b.rect(".map")
	grid := eval[[]float64](b, "fetch('api/map/of?a=album.tar&path=data/random.bin').then(r => r.json()).then(r => [r.spans[0][0] + r.spans[0][1] / 2, +document.querySelector('.map').dataset.cols, +document.querySelector('.map').dataset.cells, +document.body.dataset.map.split('-')[1]])")
	cols := int(grid[1])
	cell := int(grid[0] / grid[3] * grid[2])
	x, y := c.X+float64(cell%cols*8)+3, c.Y+float64(cell/cols*8)+3
	b.hover(x, y)
	b.wait("document.body.dataset.over === 'data/random.bin'")
	b.do(chromedp.MouseClickXY(x, y))
	b.wait("document.body.dataset.path === 'data/random.bin' && document.body.dataset.preview === 'hex'")
	b.media("dark")
	b.shot("map-1280-dark")
	b.accessible("map in the dark")
}

func TestTheTreemapGoesDownAndUp(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("#/album.caf?tab=treemap")
	b.wait("+document.body.dataset.boxes > 12") // what is in folders is shown in their frames
	b.shot("treemap-1280-light")
	b.accessible("treemap")
	b.wait("document.activeElement.matches('canvas.map') && document.body.dataset.sel !== ''")
	first := b.text("document.body.dataset.sel")
	b.key(kb.Enter)
	b.wait("document.body.dataset.path === '" + first + "' && document.body.dataset.ready === '1' && document.body.dataset.sel.startsWith('" + first + "/')")
	b.key(kb.Backspace)
	b.wait("document.body.dataset.path === '' && document.body.dataset.sel === '" + first + "'")
	b.key(kb.ArrowRight)
	b.wait("document.body.dataset.sel !== '" + first + "'")
	// What a box is made of, it says; and the legend shows one kind alone.
	b.wait("document.querySelector('.legend').innerText.includes('pictures')")
	b.run("[...document.querySelectorAll('.legend button')].find(x => x.innerText.includes('pictures')).click()")
	b.wait("document.querySelector('.legend [aria-pressed=true]').innerText.includes('pictures')")
	b.shot("treemap-pictures-1280-light")
	for _, by := range []string{"stored", "count"} {
		b.run("(s => { s.value = '" + by + "'; s.dispatchEvent(new Event('change')) })(document.querySelector('.treemapped select'))")
		b.wait("document.body.dataset.ready === '1' && document.getElementById('status').innerText.includes('" + map[string]string{"stored": "iB", "count": "file"}[by] + "')")
	}
	b.media("dark")
	b.shot("treemap-1280-dark")
	b.accessible("treemap in the dark")
	b.size(390, 844)
	b.shot("treemap-390-dark")
}

func TestACheckListsProblemsAndMarksThem(t *testing.T) {
	chromium(t)
	sound := albumFile(t, "album.caf")
	bad := damaged(t, sound, album()["data/random.bin"])
	s := started(t, sound, bad) // it logs what is damaged
	t.Cleanup(func() { s.end(t) })
	b := open(t, s)
	b.expect("/f/damaged.caf/data/random.bin")
	b.visit("#/damaged.caf?tab=verify")
	b.wait("document.body.dataset.check === 'none'")
	b.key(kb.Enter) // the first button has the focus
	b.wait("document.body.dataset.check === 'complete'")
	b.wait("document.querySelectorAll('.problems li.error').length === 1")
	if !eval[bool](b, "document.querySelector('.problems li').innerText.includes('data/random.bin')") {
		t.Errorf("the problem is listed as %q", b.text("document.querySelector('.problems li').innerText"))
	}
	b.shot("check-1280-light")
	b.accessible("check")
	b.click(".problems .button")
	b.wait("document.body.dataset.tab === 'map' && document.body.dataset.map")
	b.wait("document.querySelector('.legend').innerText.includes('problems')")
	marked := eval[int](b, "fetch('api/map?a=damaged.caf&cells=2000').then(r => r.arrayBuffer()).then(b => { const n = new DataView(b).getUint32(0, true), c = new Uint8Array(b, 4 + n); let k = 0; for (let i = 2; i < c.length; i += 8) k += c[i] >> 1 & 1; return k; })")
	if marked == 0 {
		t.Error("no cell of the map is marked")
	}
	b.shot("check-map-1280-light")
	b.visit("#/")
	b.wait("document.querySelector('[data-health=damaged]')")
	b.visit("#/album.caf?tab=verify")
	b.wait("document.body.dataset.check === 'none'")
	b.click("#check-full")
	b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health === 'good'")
	b.media("dark")
	b.shot("check-1280-dark")
	b.accessible("check in the dark")
}

func TestAWarningIsCalledThat(t *testing.T) {
	b := open(t, served(t, "../format/caf/testdata/fixtures/v-dup-key.caf"))
	b.visit("#/v-dup-key.caf?tab=verify")
	b.click("#check-full")
	b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health === 'odd' && document.querySelector('.badge').innerText === 'warning'")
	b.visit("#/v-dup-key.caf")
	b.wait("document.querySelector('#grid .row[data-health=odd] .note')?.innerText === 'warning'")
}

func TestDamageIsSeenEverywhere(t *testing.T) {
	chromium(t)
	files := album()
	for i := range 3000 {
		files[fmt.Sprintf("data/many/%05d.txt", i)] = fmt.Appendf(nil, "%05d is a file of its own", i)
	}
	sound := written(t, "album.caf", func(add func(string, []byte)) {
		for _, n := range sortedKeys(files) {
			add(n, files[n])
		}
	})
	s := started(t, damaged(t, sound, files["data/many/02345.txt"])) // it logs what is damaged
	t.Cleanup(func() { s.end(t) })
	b := open(t, s)
	b.expect("data/many/02345.txt")
	b.visit("#/damaged.caf")
	b.wait("document.body.dataset.survey === 'complete'")
	if got := b.text("document.body.dataset.alarm"); got != "" {
		t.Errorf("before it is checked, the page is alarmed: %q", got)
	}
	// A check that runs while the list is looked at changes the list.
	b.visit("#/damaged.caf?tab=verify")
	b.wait("document.body.dataset.check === 'none'")
	b.key(kb.Enter)
	b.wait("document.body.dataset.check === 'complete' && document.querySelectorAll('.problems li.error').length === 1")
	b.visit("#/damaged.caf")
	b.wait("document.body.dataset.alarm === 'bad' && document.getElementById('alarm').innerText.includes('1 error')")
	b.wait("[...document.querySelectorAll('#grid .row')].some(r => r.dataset.health === 'inside' && r.innerText.includes('1 damaged inside'))")
	b.wait("document.querySelector('#tree .hurt')?.innerText.includes('data')")
	b.accessible("a damaged archive")
	b.shot("damage-list-1280-light")
	// The finding leads to its row, wherever that is in the list.
	b.visit("#/damaged.caf?tab=verify")
	b.wait("document.querySelectorAll('.problems li.error').length === 1")
	b.click(".problems .hint a")
	b.wait("document.body.dataset.tab === 'list' && document.body.dataset.sel === 'data/many/02345.txt'")
	b.wait("(r => r && r.dataset.health === 'damaged' && r.getBoundingClientRect().top > 0 && r.getBoundingClientRect().bottom < innerHeight)(document.querySelector('#grid .row[aria-selected=true]'))")
	b.wait("document.body.dataset.harm === 'bad' && document.querySelector('#detail .alarm').innerText.includes('Damaged')")
	b.shot("damage-preview-1280-light")
	b.media("dark")
	b.wait("document.documentElement.dataset.theme === 'dark'")
	b.accessible("a damaged file in the dark")
	b.shot("damage-preview-1280-dark")
	b.size(390, 844)
	b.shot("damage-preview-390-dark")
	b.media("light")
	b.find("02345")
	b.wait("document.querySelector('#grid.found .row')?.dataset.health === 'damaged'")
	b.visit("#/damaged.caf/data/many/02344.txt")
	b.wait("document.body.dataset.preview === 'text' && document.body.dataset.harm === ''")
}

func TestItFitsNarrowAndWideScreens(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	for _, s := range []struct {
		name string
		w, h int64
	}{{"360", 360, 740}, {"1920", 1920, 1080}} {
		for _, scheme := range []string{"light", "dark"} {
			b.size(s.w, s.h)
			b.media(scheme)
			for _, at := range []struct{ name, hash, ready string }{
				{"files", "#/album.caf/pictures", "document.body.dataset.survey === 'complete'"},
				{"text", "#/album.caf/logs/long.log", "document.body.dataset.preview === 'text'"},
				{"map", "#/album.caf?tab=map", "document.body.dataset.map"},
				{"treemap", "#/album.caf?tab=treemap", "+document.body.dataset.boxes > 4"},
				{"check", "#/album.caf?tab=verify", "document.body.dataset.check"},
			} {
				b.visit(at.hash)
				b.wait(at.ready)
				if over := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s at %s pixels sticks out by %d", at.name, s.name, over)
				}
				b.shot(at.name + "-" + s.name + "-" + scheme)
			}
		}
	}
	b.accessible("check at 1920")
	b.size(360, 740)
	b.visit("#/album.caf/logs/long.log")
	b.wait("document.body.dataset.preview === 'text'")
	b.accessible("text at 360")
	b.run("document.querySelector('.close').click()")
	b.wait("document.body.dataset.preview === ''")
	b.accessible("files at 360")
	// The toggle overrules the system, and is remembered.
	b.media("light")
	b.wait("document.documentElement.dataset.theme === 'light'")
	b.click("#theme")
	b.wait("document.documentElement.dataset.theme === 'dark' && localStorage.getItem('theme') === 'dark'")
	b.click("#theme")
	b.wait("document.documentElement.dataset.theme === 'light' && localStorage.getItem('theme') === null")
}
