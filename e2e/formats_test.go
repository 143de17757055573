package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func TestAPackageSaysWhatItIs(t *testing.T) {
	chromium(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.MkdirAll(filepath.Join(in, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"in/bin/tool": "#!/bin/sh\n", "meta.ucl": `namebase = "zlib"
subpackage = "complete"
variant = "std"
version = "1.3.1"
comment = "a library <b>of compression</b>"
www = "https://example.org"
maintainer = "someone@example.org"
prefix = "/usr/local"
desc = "Several lines\nof description"
licenses = [ "ZLIB", "MIT" ]
deps { "fribidi~primary~std" = "1.0.12", "<i>odd</i>" = "2" }
scripts { post-install = [ { code = "ldconfig <script>alert(1)</script>", args = "lib/libz.so" } ], pre-deinstall = [ { code = "echo bye" } ] }
messages = [ { type = "install", message = "Read <b>this</b>." } ]
`} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "pack", "-f", "rvn", "--metadata", filepath.Join(dir, "meta.ucl"), "--abi", "linux:6:x86-64", "-o", filepath.Join(dir, "zlib.rvn"), in)
	b := open(t, served(t, filepath.Join(dir, "zlib.rvn")))
	b.visit("") // which leads to what the package is
	for _, what := range []string{"zlib", "1.3.1", "linux:6:x86-64", "/usr/local", "a library <b>of compression</b>", "https://example.org", "ZLIB, MIT", "fribidi~primary~std", "<i>odd</i>", "1.0.12", "post-install", "ldconfig <script>alert(1)</script>", "for lib/libz.so", "echo bye", "Read <b>this</b>.", "Several lines"} {
		b.wait("document.querySelector('.about').innerText.includes(" + quote(what) + ")")
	}
	b.everywhere("package")
	b.run("[...document.querySelectorAll('.about a')].find(a => a.innerText === 'See them').click()")
	b.wait("document.body.dataset.tab === 'list' && +document.body.dataset.total > 0")
	b.visit("#/zlib.rvn?view=meta")
	b.wait("+document.body.dataset.total > 0")
	b.visit("#/zlib.rvn/metadata.json?view=meta")
	b.wait("document.body.dataset.preview === 'json' && document.querySelector('.json').innerText.includes('1.3.1')")
}

// A package whose metadata is damaged says so, and what is in it is shown.
func TestADamagedPackageSaysSo(t *testing.T) {
	content := testkit.Read(t, "../format/rvn/testdata/with-meta.rvn")
	content[90] ^= 0x10 // of the metadata, which follows the header
	path := filepath.Join(t.TempDir(), "damaged.rvn")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, started(t, path))
	b.expect("Failed to load resource")
	b.visit("#/damaged.rvn?tab=about")
	b.wait("document.querySelector('.about .fault')?.innerText.includes('Damaged: the metadata cannot be decoded')")
	b.everywhere("package-damaged")
	b.visit("#/damaged.rvn")
	b.wait("+document.body.dataset.total > 0")
}

func TestNodesHavePropertiesAndRevisions(t *testing.T) {
	b := open(t, served(t, filepath.Join(testkit.Unpacked(t, "../internal/oak/testdata/types.tar.gz"), "segmentstore")))
	b.visit("#/segmentstore/types/all")
	b.wait("document.body.dataset.preview === 'node' && document.querySelectorAll('.props tbody tr').length > 3")
	rows := b.text("[...document.querySelectorAll('.props tbody tr')].map(r => [...r.children].map(c => c.innerText).join('|')).join('\\n')")
	for _, want := range []string{"|Long|", "|Name|", "|Boolean|", "|String[]|"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no property is %s: %s", want, rows)
		}
	}
	b.shot("node-1280-light")
	b.accessible("node")
	b.run("document.querySelector('[data-mode=history]').click()")
	b.wait("document.body.dataset.preview === 'history' && document.querySelectorAll('.steps li').length > 0")
	if step := b.text("document.querySelector('.steps').innerText"); !strings.Contains(step, "changed property") {
		t.Errorf("the revisions are told as %q", step)
	}
	b.shot("history-1280-light")
	b.accessible("revisions")
	b.visit("#/segmentstore?tab=map")
	b.wait("document.body.dataset.map")
	// On a narrow screen the children are seen, and the properties on demand.
	b.size(390, 844)
	b.visit("#/segmentstore/types")
	b.wait("document.getElementById('detail').hidden && document.querySelector('#grid .row .word')?.textContent === 'all'")
	b.shot("node-390-light")
	b.accessible("a node on a narrow screen")
	b.click("#folder-about")
	b.wait("document.body.dataset.preview === 'node'")
	b.key(kb.Escape)
	b.wait("document.getElementById('detail').hidden")
}

// oakStore is a store out of the tests of Oak.
func oakStore(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(testkit.Unpacked(t, "../internal/oak/testdata/"+name+".tar.gz"), "segmentstore")
}

// everywhere looks at a page as it is on a wide and on a narrow screen, by day and by night.
func (b *tab) everywhere(name string) {
	b.t.Helper()
	for _, width := range []int64{1440, 390} {
		b.size(width, 844)
		for _, scheme := range []string{"light", "dark"} {
			b.media(scheme)
			b.wait("(c => !c || c.offsetWidth === c.parentElement.clientWidth)(document.querySelector('.stage .map'))")
			b.wait(tilesShown)
			b.wait("document.documentElement.dataset.theme === " + quote(scheme) + " && document.documentElement.scrollWidth <= " + fmt.Sprint(width))
			b.shot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			b.accessible(fmt.Sprintf("%s, %d pixels, %s", name, width, scheme))
		}
	}
	b.size(1280, 800)
	b.media("light")
}

// tilesShown is when all pictures that are in view are there.
const tilesShown = "![...document.querySelectorAll('.tile:not([hidden])')].some(t => !t.dataset.picture)"

func TestRevisionsAreComparedSideBySide(t *testing.T) {
	chromium(t)
	store := oakStore(t, "types")
	run(t, "oak", "set", store, "types/all", "long", "17")
	run(t, "oak", "set", store, "types/all", "jcr:title", "<img src=x onerror=alert(1)> new")
	run(t, "oak", "set", "--multiple", store, "types/multi", "tags", "a", "b")
	run(t, "oak", "rm", store, "types/chain")
	b := open(t, served(t, store))
	b.visit("#/segmentstore?tab=compare")
	b.wait("document.body.dataset.compared.includes('..') && document.querySelectorAll('#before option').length > 5")
	// It begins with the newest one and the one before.
	b.wait("document.querySelector('#after').selectedIndex === 0 && document.querySelector('#before').selectedIndex === 1")
	b.run("document.querySelector('details[data-path=types] summary').click()")
	b.wait("[...document.querySelectorAll('.differs .leaf')].map(x => x.innerText).join() === '−chain removed'")
	// Back to before all four.
	b.run("const s = document.querySelector('#before'); s.selectedIndex = 4; s.dispatchEvent(new Event('change'))")
	b.wait("document.body.dataset.compared.startsWith(document.querySelector('#before').options[4].value)")
	if q := b.text("location.hash"); !strings.Contains(q, "tab=compare") || !strings.Contains(q, "before=") {
		t.Errorf("the address is %s", q)
	}
	b.run("document.querySelector('details[data-path=types] summary').click()")
	b.wait("document.querySelectorAll('details[data-path^=\"types/\"]').length === 2")
	b.run("for (const d of document.querySelectorAll('details[data-path^=\"types/\"]')) d.open = true")
	b.wait("document.querySelectorAll('.sides').length === 2")
	rows := b.text("[...document.querySelectorAll('.sides tbody tr')].map(r => [...r.children].map(c => c.textContent).join('|')).join('\\n')")
	for _, want := range []string{"+jcr:title added||String <img src=x onerror=alert(1)> new", "+tags added||String[] a\nb", "~long changed|", "|Long 17"} {
		if !strings.Contains(rows, want) {
			t.Errorf("no row is %q: %s", want, rows)
		}
	}
	b.everywhere("compare")
	// A folder by itself, and one in which nothing differs.
	b.run("[...document.querySelectorAll('#tree .word')].find(w => w.textContent === 'types').click()")
	b.wait("document.body.dataset.path === 'types' && document.body.dataset.tab === 'compare' && document.querySelectorAll('.differs details').length === 2")
	b.visit("#/segmentstore/types/names?tab=compare")
	b.wait("document.querySelector('.differs').innerText === 'No differences here.'")
	// What a step of a node's revisions did leads here.
	b.visit("#/segmentstore/types/all")
	b.wait("document.body.dataset.preview === 'node'")
	b.run("document.querySelector('[data-mode=history]').click()")
	b.wait("document.querySelectorAll('.steps a').length > 1")
	b.run("document.querySelectorAll('.steps a')[1].click()")
	b.wait("document.body.dataset.tab === 'compare' && document.querySelector('.sides tbody')?.innerText.includes('17')")
	// A page of changes says whether there are more.
	for offset, want := range []string{"1 true", "1 true", "1 false"} {
		page := fmt.Sprintf("fetch('api/changes?a=segmentstore&path=types&limit=1&offset=%d&from=' + encodeURIComponent(document.querySelector('#before').options[4].value) + '&to=head').then(r => r.json()).then(r => r.changes.length + ' ' + r.more)", offset)
		if got := eval[string](b, page); got != want {
			t.Errorf("change %d: %q, expected %q", offset, got, want)
		}
	}
	b.expect("400")
	b.visit("#/segmentstore/types?tab=compare&before=yesterday")
	b.wait("document.querySelector('.differs .fault')?.innerText.includes('expected revisions of this archive')")
}

// samples is a folder of samples of a dataset: each has a picture and a description.
func samples(t *testing.T, n int) (dir string, first []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "birds")
	for i := range n {
		img := image.NewRGBA(image.Rect(0, 0, 96+i%3*32, 96))
		for y := range 96 {
			for x := range img.Rect.Dx() {
				img.Set(x, y, color.RGBA{uint8(x*2 + i*5), uint8(y * 2), uint8(i * 11), 255})
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = b.Bytes()
		}
		for ext, content := range map[string][]byte{"png": b.Bytes(), "json": []byte(`{"species":"heron"}`), "caption.txt": []byte("a heron\n")} {
			name := filepath.Join(dir, "train", fmt.Sprintf("%04d.%s", i, ext))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, first
}

func TestSamplesAreSeenAsPictures(t *testing.T) {
	chromium(t)
	dir, _ := samples(t, 300)
	bundle := filepath.Join(t.TempDir(), "birds.bundle")
	run(t, "pack", "-f", "databundle", "--shards", "3", "-o", bundle, dir)
	b := open(t, served(t, bundle))
	b.visit("#/birds.bundle")
	b.wait("document.querySelector('#pictures').hidden") // there are folders only
	b.visit("#/birds.bundle/train")
	b.wait("document.body.dataset.total === '900' && !document.querySelector('#pictures').hidden")
	b.click("#pictures")
	b.wait("document.body.dataset.total === '300' && document.querySelector('.what').innerText === '300 pictures in 900 files'")
	b.wait("document.querySelectorAll('.tile[data-picture=shown]').length > 8 && !document.querySelector('.tile[data-picture=failed]')")
	if said := b.text("document.querySelector('.tile').innerText.replace(/\\s+/g, ' ')"); !strings.HasPrefix(said, "0000.png ") || !strings.HasSuffix(said, " · caption.txt · json") {
		t.Errorf("the first sample is told as %q", said)
	}
	b.everywhere("samples")
	// Few are read, wherever one goes.
	b.run("document.querySelector('#grid').focus()")
	b.key(kb.End)
	b.wait("document.body.dataset.sel === 'train/0299.png' && [...document.querySelectorAll('.tile[data-picture=shown]')].some(t => t.innerText.includes('0299'))")
	if n := eval[int](b, "performance.getEntriesByType('resource').filter(r => r.name.includes('/f/')).length"); n > 200 {
		t.Errorf("%d pictures were read of 300", n)
	}
	b.key(kb.ArrowUp + kb.ArrowLeft)
	b.wait("document.body.dataset.sel !== 'train/0299.png'")
	b.key(kb.End)
	b.wait("document.body.dataset.sel === 'train/0299.png'")
	b.key(kb.Enter)
	b.wait("document.body.dataset.preview === 'image' && document.querySelectorAll('.tile').length > 4")
	// The one that is opened stays in view.
	b.wait("(t => t && t.dataset.picture === 'shown' && t.getBoundingClientRect().bottom <= innerHeight)([...document.querySelectorAll('.tile[aria-selected=true]')].find(t => t.innerText.includes('0299')))")
	b.shot("samples-preview-1280-light")
	b.accessible("samples with one opened")
	b.key(kb.Escape)
	// What belongs to a sample is a click away.
	b.wait("document.body.dataset.path === 'train' && document.body.dataset.ready === '1' && document.querySelector('.tile a')")
	b.run("document.querySelector('.tile a').click()")
	b.wait("document.body.dataset.preview === 'text' && document.body.dataset.path.endsWith('.caption.txt')")
	// A search lists what it finds, and ends where it was.
	b.find("0042")
	b.wait("document.body.dataset.search === '0042' && document.body.dataset.tiled === '' && document.querySelectorAll('#grid .row:not([hidden])').length === 3")
	b.key(kb.Escape)
	b.wait("document.body.dataset.tiled === 'true' && document.body.dataset.total === '300'")
	b.click("#pictures")
	b.wait("document.body.dataset.total === '900' && document.body.dataset.tiled === ''")
}

func TestADamagedSampleIsSeen(t *testing.T) {
	chromium(t)
	dir, first := samples(t, 12)
	bundle := filepath.Join(t.TempDir(), "birds.bundle")
	run(t, "pack", "-f", "databundle", "--compression", "none", "-o", bundle, dir)
	shard := filepath.Join(bundle, "shard-00000000")
	content, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, first)
	if at < 0 {
		t.Fatal("the picture is not there as it is")
	}
	content[at+len(first)/2] ^= 0x40
	if err := os.WriteFile(shard, content, 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, started(t, bundle))
	b.expect("Failed to load resource")
	b.visit("#/birds.bundle/train?show=pictures")
	b.wait("document.querySelectorAll('.tile[data-picture=failed]').length === 1 && document.querySelectorAll('.tile[data-picture=shown]').length === 11")
	b.wait("document.querySelector('.tile').innerText.includes('cannot be shown')")
	b.visit("#/birds.bundle?tab=verify")
	b.click("#check-full")
	b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health === 'damaged'")
	b.visit("#/birds.bundle/train?show=pictures")
	b.wait("document.querySelector('.tile[data-health=damaged]')?.innerText.includes('0000.png') && document.body.dataset.alarm.includes('bad')")
	b.everywhere("samples-damaged")
}

func TestATreemapShowsWhatNodesTake(t *testing.T) {
	b := open(t, served(t, oakStore(t, "types")))
	b.visit("#/segmentstore?tab=treemap")
	b.wait("+document.body.dataset.boxes > 3")
	b.run("(s => { s.value = 'stored'; s.dispatchEvent(new Event('change')) })(document.querySelector('.treemapped select'))")
	b.wait("document.querySelector('#map-told').innerText.includes('nodes; shared content counts once, for its first node')")
	b.wait("[...document.querySelectorAll('.legend button')].map(x => x.innerText.replace(/ [0-9].*/, '')).sort().join() === 'binaries,nodes and texts'")
	b.everywhere("oak-sizes")
	b.visit("#/segmentstore/types?tab=treemap")
	b.wait("document.body.dataset.path === 'types' && +document.body.dataset.boxes > 5")
	// The sum is that of the command.
	told := eval[string](b, "fetch('api/treemap?a=segmentstore&by=stored&path=types').then(r => r.json()).then(r => r.box.z + ' ' + r.box.c)")
	out, err := holdallCommand(t, "oak", "sizes", "--json", "--depth", "0", oakStore(t, "types"), "/types").Output()
	if err != nil {
		t.Fatal(err)
	}
	var sum struct{ Nodes, Records, Binaries int64 }
	if err := json.Unmarshal(out, &sum); err != nil || told != fmt.Sprint(sum.Records+sum.Binaries, sum.Nodes) {
		t.Errorf("the page says %s, the command %s, %v", told, out, err)
	}
}

func TestLostRevisionsAreNotCompared(t *testing.T) {
	b := open(t, served(t, oakStore(t, "gc-online")))
	b.visit("#/segmentstore?tab=compare")
	b.wait("document.body.dataset.compared.includes('..')")
	b.wait("document.querySelector('.compare .told').innerText.includes('can no longer be read') && [...document.querySelectorAll('#before option')].some(o => o.disabled && o.textContent.includes('(lost)'))")
	b.everywhere("compare-lost")
}

func TestDamageIsSeenBetweenRevisions(t *testing.T) {
	store := oakStore(t, "corrupt-segment-magic")
	tar := filepath.Join(store, "data00001a.tar")
	damaged := testkit.Read(t, tar)
	damaged[38913] ^= 5 // a single wrong bit is corrected
	if err := os.WriteFile(tar, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, started(t, store)) // it logs what is damaged
	b.visit("#/segmentstore?tab=compare")
	b.wait("document.body.dataset.compared.includes('..')")
	// Back to the oldest one that is there.
	b.run("const s = document.querySelector('#before'); s.selectedIndex = [...s.options].findLastIndex(o => !o.disabled && !o.textContent.includes('checkpoint')); s.dispatchEvent(new Event('change'))")
	b.wait("[...document.querySelectorAll('.differs .leaf')].some(x => x.innerText.includes('added')) && document.querySelector('.differs .fault')?.innerText.includes('checksum')")
	b.everywhere("compare-damaged")
	b.visit("#/segmentstore?tab=treemap")
	b.wait("+document.body.dataset.boxes > 0")
	b.run("(s => { s.value = 'stored'; s.dispatchEvent(new Event('change')) })(document.querySelector('.treemapped select'))")
	b.wait("document.querySelector('#map-told').innerText.includes('some is missing because of damage')")
}

func TestArraysAreDrawn(t *testing.T) {
	b := open(t, served(t, "../format/lindi/testdata/p07_from_hdf5.lindi.tar"))
	b.visit("#/p07_from_hdf5.lindi.tar?tab=about&view=zarr")
	b.wait("document.querySelectorAll('.props tbody tr').length > 5")
	b.shot("about-1280-light")
	b.accessible("about")
	colours := "(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)(document.querySelector('.plot'))"
	b.visit("#/p07_from_hdf5.lindi.tar/gz?view=zarr")
	b.wait("document.body.dataset.preview === 'array' && document.body.dataset.plot?.startsWith('range')")
	if n := eval[int](b, colours); n < 2 {
		t.Errorf("the line is drawn in %d colours", n)
	}
	b.shot("array-1280-light")
	r := b.rect(".plot")
	b.hover(r.X+r.W/2, r.Y+r.H/2)
	was := b.text("document.body.dataset.plot")
	b.wheel(r.X+r.W/2, r.Y+r.H/2, -200)
	b.wait("document.body.dataset.plot !== " + quote(was))
	b.visit("#/p07_from_hdf5.lindi.tar/chunked?view=zarr")
	b.wait("document.body.dataset.plot?.startsWith('image')")
	if n := eval[int](b, colours); n < 8 {
		t.Errorf("the image has %d colours", n)
	}
	b.shot("image-array-1280-light")
	b.accessible("array")
	b.visit("#/p07_from_hdf5.lindi.tar/names?view=zarr")
	b.wait("document.querySelector('.elements')")
	b.visit("#/p07_from_hdf5.lindi.tar/gz/.zarray?view=zarr")
	b.wait("document.body.dataset.preview === 'json'")
	b.visit("#/p07_from_hdf5.lindi.tar/lindi.json")
	b.wait("document.body.dataset.preview === 'json'")
}

// hdf5File unpacks a file of HDF5.
func hdf5File(t *testing.T, packed string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(packed))
	if err := os.WriteFile(path, testkit.Read(t, packed), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestARecordingIsShown(t *testing.T) {
	b := open(t, served(t, hdf5File(t, "../internal/app/explore/testdata/session.nwb")))
	b.visit("") // which leads to what the recording is about
	b.wait("document.body.dataset.tab === 'about' && document.body.dataset.ready === '1'")
	for _, what := range []string{"HDF5 (hdf5), superblock 3", "a session made up, <b>naïve ☃</b>", "Doe, Jane; Émile, Zoë", "m1, Mus musculus, sex F, age P90D", "probe, of silicon, by nobody", "1 time series", "1 table", "17 arrays", "elements of type sequence of string are not supported as Zarr"} {
		b.wait("document.querySelector('.about').innerText.includes(" + quote(what) + ")")
	}
	row := b.text("[...document.querySelectorAll('.props')[0].querySelectorAll('tbody td')].map(c => c.innerText).join('|')")
	if want := "acquisition/raw|TimeSeries|3,000 × 8|volts × 0.000001|1000 Hz|3 s, from 0.5 s"; row != want {
		t.Errorf("the row of the series is %q, expected %q", row, want)
	}
	b.shot("recording-1280-light")
	b.accessible("a recording")
	// On a narrow page nothing but tables reaches beyond its edge, and the view can be chosen.
	b.size(400, 800)
	b.wait("document.querySelector('#views').getBoundingClientRect().right <= 400 && document.documentElement.scrollWidth <= 400 && document.querySelector('.sheet').scrollWidth <= 400")
	b.shot("recording-400-light")
	b.accessible("a recording on a narrow page")
	b.size(1280, 800)
	// A table leads to a group, whose datasets and attributes are beside it, and no keys of Zarr.
	b.run("document.querySelector('.props a').click()")
	b.wait("document.body.dataset.path === 'acquisition/raw' && document.body.dataset.ready === '1'")
	b.wait("['data', 'starting_time', 'sum', 'data@unit'].every(name => [...document.querySelectorAll('#grid .word')].some(w => w.innerText === name))")
	b.wait("document.querySelector('.files .what').innerText === '9 datasets and attributes' && !document.body.innerText.includes('.zattrs')")
	b.visit("#/session.nwb/acquisition/raw/data?view=objects")
	b.wait("document.body.dataset.plot?.startsWith('image') && document.querySelector('#detail').innerText.includes('H5T_STD_I16LE')")
	b.wait("document.querySelector('#detail').innerText.includes('3,000 × 8') && document.querySelector('#detail .attributes').innerText.includes('volts')")
	if n := eval[int](b, "(c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)(document.querySelector('.plot'))"); n < 8 {
		t.Errorf("the waves are drawn in %d colours", n)
	}
	// Its channels are traces over seconds, in the unit that its elements are made of.
	b.wait("(t => t.includes('8 channels') && t.includes('V') && t.includes('3,000 samples'))(document.querySelector('.plot + .hint').innerText)")
	b.wait("document.querySelector('#detail .list').innerText.includes('1000 Hz, from 0.5 s')")
	b.shot("recording-array-1280-light")
	b.accessible("traces")
	b.key("+")
	b.run("document.querySelector('.plot').focus()")
	b.key("+")
	b.wait("document.querySelector('.plot + .hint').innerText.includes('2,100 samples')")
	b.visit("#/session.nwb/acquisition/raw/sum?view=objects")
	b.wait("document.body.dataset.plot?.startsWith('range')")
	b.visit("#/session.nwb/intervals/trials/stim")
	b.wait("document.querySelector('.elements')?.innerText.includes('ünï')")
	b.visit("#/session.nwb?tab=map")
	b.wait("document.body.dataset.map && document.querySelector('.legend').innerText.includes('contents') && document.querySelector('.legend').innerText.includes('index')")
	b.visit("#/session.nwb/acquisition/raw/data@unit?view=objects")
	b.wait("document.querySelector('#detail').innerText.includes('volts')")
	// As keys of Zarr, datasets are folders, and have the same time.
	b.visit("#/session.nwb/acquisition/raw/data?view=zarr")
	b.wait("['data', 'starting_time', 'sum'].every(name => [...document.querySelectorAll('#tree .word')].some(w => w.innerText === name))")
	b.wait("document.querySelector('#detail .list').innerText.includes('1000 Hz, from 0.5 s')")
}

func TestAnHDF5FileIsShown(t *testing.T) {
	b := open(t, served(t, hdf5File(t, "../hdf5/testdata/chunks_latest.h5")))
	b.visit("#/chunks_latest.h5?tab=about")
	b.wait("document.querySelectorAll('.props tbody tr').length === 20")
	if text := b.text("document.querySelector('.about').innerText"); strings.Contains(text, "The recording") || !strings.Contains(text, "1 group, 20 datasets") {
		t.Errorf("the page says %s", text)
	}
	b.visit("#/chunks_latest.h5")
	b.wait("document.querySelectorAll('#tree [role=treeitem]').length === 21")
	b.shot("hdf5-1280-light")
	b.accessible("a file of HDF5")
	b.visit("#/chunks_latest.h5/growing_gzip")
	b.wait("document.body.dataset.plot === 'image 80×6'")
	b.visit("#/chunks_latest.h5/sparse_growing") // two of its chunks were written, the rest is their fill value
	b.wait("document.body.dataset.plot?.startsWith('range') && document.querySelector('#detail').innerText.includes('-1 to 2; 100,000 elements')")
	b.visit("#/chunks_latest.h5/growing_gzip?view=zarr3")
	b.wait("[...document.querySelectorAll('#grid .word')].some(w => w.textContent === 'zarr.json')")
	b.visit("#/chunks_latest.h5?tab=verify")
	b.wait("document.body.dataset.check === 'none'")
	b.click("#check-full")
	b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health !== 'damaged'")
}

// What others packed is looked at in the same way.
func TestGuestsAreShown(t *testing.T) {
	chromium(t)
	tar := albumFile(t, "album.tar")
	dir := t.TempDir()
	args := []string{}
	for _, name := range []string{"album.zip", "album.tar.gz", "album.tar.zst"} {
		run(t, "convert", tar, filepath.Join(dir, name))
		args = append(args, filepath.Join(dir, name))
	}
	b := open(t, served(t, append(args, tar)...))
	b.visit("#/")
	b.wait("document.querySelectorAll('.archives tbody tr[data-state=complete]').length === 4")
	for _, name := range []string{"album.zip", "album.tar.gz", "album.tar.zst", "album.tar"} {
		b.visit("#/" + name + "/pictures/sunset.png")
		b.wait("document.body.dataset.preview === 'image' && document.querySelector('.picture').naturalWidth === 320")
		b.visit("#/" + name + "?tab=map")
		b.wait("document.body.dataset.tab === 'map' && document.body.dataset.map && document.querySelector('.legend').innerText.includes('contents')")
		b.visit("#/" + name + "?tab=verify")
		b.wait("document.body.dataset.check === 'none'")
		b.click("#check-full")
		b.wait("document.body.dataset.check === 'complete' && document.body.dataset.health !== 'damaged'")
		b.run("document.body.dataset.check = ''")
	}
}

// drag presses a button, moves and lets go.
func (b *tab) drag(fromX, fromY, toX, toY float64) {
	b.t.Helper()
	left := func(p *input.DispatchMouseEventParams) {
		p.Button, p.ClickCount, p.Buttons = input.MouseButtonLeft, 1, 1
	}
	b.hover(fromX, fromY)
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, fromX, fromY, left))
	for i := 1; i <= 5; i++ {
		f := float64(i) / 5
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, fromX+(toX-fromX)*f, fromY+(toY-fromY)*f, left))
	}
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, toX, toY, left))
}

func TestTheMapIsDragged(t *testing.T) {
	b := open(t, served(t, albumFile(t, "album.caf")))
	b.visit("#/album.caf?tab=map")
	b.wait("document.body.dataset.map && document.querySelector('.strip')")
	size := eval[float64](b, "+document.body.dataset.map.split('-')[1]")
	c := b.rect(".map")
	b.drag(c.X+c.W*0.3, c.Y+c.H*0.25, c.X+c.W*0.6, c.Y+c.H*0.5)
	b.wait("+document.body.dataset.map.split('-')[0] > 0")
	at := eval[[]float64](b, "document.body.dataset.map.split('-').map(Number)")
	if at[0] < size*0.2 || at[0] > size*0.3 || at[1] < size*0.48 || at[1] > size*0.56 {
		t.Errorf("dragging from a quarter to a half leads to %.2f to %.2f of it", at[0]/size, at[1]/size)
	}
	b.shot("map-dragged-1280-light")
	s := b.rect(".strip")
	b.drag(s.X+s.W*0.4, s.Y+s.H/2, s.X+s.W*0.8, s.Y+s.H/2)
	b.wait(fmt.Sprintf("(([a, z]) => (a + z) / 2 > 0.78 * %f)(document.body.dataset.map.split('-').map(Number))", size))
	was := at[1] - at[0]
	at = eval[[]float64](b, "document.body.dataset.map.split('-').map(Number)")
	if mid := (at[0] + at[1]) / 2 / size; at[1]-at[0] != was || mid < 0.78 || mid > 0.82 {
		t.Errorf("dragging on the strip leads to %.3f, %f bytes of it, expected 0.8 and %f", mid, at[1]-at[0], was)
	}
	if q := b.text("location.hash"); strings.Contains(q, "album.caf/") {
		t.Errorf("something was opened: %s", q)
	}
}

// A catalogue opens on the buckets that its archives were packed from.
func TestACatalogueOpensOnItsBuckets(t *testing.T) {
	chromium(t)
	s3 := s3test.New("photos", "papers", "target")
	web := httptest.NewServer(s3)
	t.Cleanup(web.Close)
	s3test.Setenv(t, web.URL)
	for i := range 60 {
		s3.Put("photos", fmt.Sprintf("2026/%02d.txt", i), []byte(strings.Repeat("x", 1000+i)))
	}
	for i := range 7 {
		s3.Put("papers", fmt.Sprintf("a <b>/%d.txt", i), []byte("a paper"))
	}
	dir := t.TempDir()
	t.Setenv("HOLDALL_CATALOG", filepath.Join(dir, "packed.catalog"))
	t.Setenv("HOLDALL_QUEUE", filepath.Join(dir, "jobs.db"))
	run(t, "catalog", "init")
	for _, name := range []string{"photos", "papers"} {
		run(t, "fleet", "plan", "s3://"+name, "-o", "s3://target/"+name+".caf", "--chunk-size", "20kB")
	}
	s3.Rot("photos", "2026/07.txt", 10)
	if out, err := holdallCommand(t, "fleet", "work").CombinedOutput(); err != nil {
		t.Logf("%v: %s", err, out)
	}
	run(t, "catalog", "rm", "--files", "2026/01.txt", "2026/02.txt")
	b := open(t, served(t, "catalog:"))
	b.visit("")
	b.wait("document.body.dataset.tab === 'about' && document.querySelectorAll('.about table').length === 1")
	rows := func(i int) string {
		return b.text(fmt.Sprintf("[...document.querySelectorAll('.about table')[%d].querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.innerText).join('|')).join('\\n')", i))
	}
	if got := rows(0); !strings.HasPrefix(got, "s3://papers|1|7|") || !strings.Contains(got, "\ns3://photos|4|59|") {
		t.Errorf("the buckets are %s", got)
	}
	t.Log(rows(0))
	b.everywhere("catalogue")
	if foot := b.text("document.getElementById('status').innerText"); strings.Contains(foot, "stored") {
		t.Errorf("the foot of a catalogue, which stores no content, says %q", foot)
	}
	b.run("document.querySelector('.about table a').click()")
	b.wait("document.body.dataset.tab === 'list' && +document.body.dataset.total === 2")
}

func TestVolumesAreToldOf(t *testing.T) {
	chromium(t)
	dir, first := samples(t, 200)
	bundle := filepath.Join(t.TempDir(), "birds.bundle")
	run(t, "pack", "-f", "databundle", "--compression", "none", "--shards", "2", "-o", bundle, dir)
	shard := filepath.Join(bundle, "shard-00000000")
	content, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, first)
	if at < 0 {
		t.Fatal("the picture is not there as it is")
	}
	content[at+len(first)/2] ^= 0x40
	if err := os.WriteFile(shard, content, 0o644); err != nil {
		t.Fatal(err)
	}
	b := open(t, started(t, bundle))
	b.visit("#/birds.bundle?tab=about")
	cells := func(i int) string {
		return b.text(fmt.Sprintf("[...document.querySelectorAll('.about table tbody tr')].filter(r => r.innerText.includes('shard-')).map(r => [...r.children].map(c => c.innerText)[%d]).join()", i))
	}
	b.wait("[...document.querySelectorAll('.about th')].map(x => x.innerText).join() === 'Kind,Files,Content,Volume,Size,Entries,Contents,Check,Errors'")
	kinds := b.text("[...document.querySelector('.about table').querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.innerText).join('|')).join()")
	if !strings.HasPrefix(kinds, "pictures|200|") || !strings.Contains(kinds, ",text|200|1.56 KiB") || !strings.Contains(kinds, ",data|200|3.71 KiB") {
		t.Errorf("what is in it: %s", kinds)
	}
	if said := cells(4); said != "not checked,not checked" {
		t.Errorf("the check says %s", said)
	}
	var n [2]int
	if _, err := fmt.Sscanf(cells(2), "%d,%d", &n[0], &n[1]); err != nil || n[0]+n[1] != 600 {
		t.Errorf("the shards have %s entries, %v", cells(2), err)
	}
	b.visit("#/birds.bundle?tab=verify")
	b.click("#check-full")
	b.wait("document.body.dataset.check === 'complete'")
	b.visit("#/birds.bundle?tab=about")
	b.wait("document.querySelector('.about .badge').dataset.health === 'damaged'")
	if said := cells(4) + " " + cells(5); said != "damaged,sound 1,0" {
		t.Errorf("the check says %s", said)
	}
	b.everywhere("shards-damaged")
}
