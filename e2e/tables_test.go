package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// looks takes pictures of a page, wide and narrow, light and dark, and checks each. On a narrow
// screen open is run to show what is beside the list.
func (b *tab) looks(name, open string) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.media(theme)
		b.wait("document.documentElement.dataset.theme === " + quote(theme))
		b.size(1440, 900)
		b.wait("innerWidth === 1440 && document.querySelector('#detail:not([hidden])')")
		b.frame()
		b.shot(name + "-1440-" + theme)
		b.accessible(name + " " + theme)
		b.size(390, 844)
		b.wait("innerWidth === 390")
		if open != "" && eval[bool](b, "document.getElementById('detail').hidden") {
			b.click(open)
		}
		b.wait("document.querySelector('#detail:not([hidden])') && document.documentElement.scrollWidth <= 390")
		b.frame()
		b.shot(name + "-390-" + theme)
		b.accessible(name + " narrow " + theme)
	}
	b.media("light")
	b.size(1280, 800)
	b.wait("innerWidth === 1280")
	b.frame()
}

// frame waits until the page has drawn what it was told.
func (b *tab) frame() {
	b.t.Helper()
	b.run("window.drawn = false; requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = true; }))")
	b.wait("window.drawn")
}

// ink is how many colours a picture has.
const ink = `(c => { const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer), n = new Set(d); return n.size; })(document.querySelector('.plot'))`

func row(i string) string {
	return "[...document.querySelectorAll('.dynamic .row')].filter(r => !r.hidden && r.getAttribute('aria-rowindex') === '" + i + "').map(r => [...r.children].map(c => c.innerText).join('|')).join()"
}

func TestTablesAreShown(t *testing.T) {
	b := open(t, served(t, hdf5File(t, "../internal/app/explore/testdata/tables.nwb")))
	// A million rows: what is seen is asked for.
	b.visit("#/tables.nwb/intervals/trials")
	b.wait("document.body.dataset.preview === 'rows' && " + row("2") + " === '0|0|0.1|left|0'")
	b.wait("document.querySelector('.about-table').innerText.includes('1,000,000 rows, 4 columns') && document.querySelector('.dynamic .head').children[3].title.includes('left or right')")
	if n := eval[int](b, "document.querySelectorAll('.dynamic .row').length"); n > 60 {
		t.Errorf("%d rows exist for a screen", n)
	}
	// A damaged chunk is reported in the cells, and above them.
	b.wait("document.querySelector('.about-table').innerText.includes('cannot be shown') === false")
	b.run("(i => { i.value = 103; i.dispatchEvent(new Event('change')); })(document.getElementById('row-number'))")
	b.wait("document.querySelectorAll('.dynamic .row .fault').length > 5 && document.querySelector('.dynamic .row .fault').title.includes('score/1')")
	b.wait("document.querySelector('.about-table').innerText.includes('100 cells in the rows read so far cannot be shown')")
	b.wait("document.querySelector('.whole').innerText.includes('Row 103, id 102') && document.querySelector('.whole .fault').innerText.includes('score/1')")
	b.looks("table-damaged", "#folder-about")
	b.click(".whole .close")
	b.wait("document.querySelector('.whole').hidden && !document.querySelector('.dynamic .chosen')")
	b.run("document.querySelector('.dynamic').focus()")
	b.key(kb.End)
	b.wait(row("1000001") + " === '999999|12499.75|0|right|0'")
	b.shot("table-end-1280-light")
	// Units: lists, words of numbers, rows of a second table.
	b.visit("#/tables.nwb/units")
	b.wait("document.body.dataset.preview === 'raster'")
	b.click("[data-mode=rows]")
	b.wait("document.body.dataset.preview === 'rows' && " + row("2") + " !== ''")
	if got := b.text(row("3")); !strings.HasPrefix(got, "101|") || !strings.Contains(got, "|multi|1, 1|") || !strings.Contains(got, "… 32 in all") {
		t.Errorf("a unit is %q", got)
	}
	b.run("document.querySelectorAll('.dynamic .row')[2].click()")
	b.wait("document.querySelector('.whole dl').innerText.includes('waveform_mean') && document.querySelector('.dynamic .chosen')")
	b.looks("units-table", "#folder-about")
	// Electrodes: text is text, and a reference leads where it says.
	b.visit("#/tables.nwb/general/extracellular_ephys/electrodes")
	b.wait("document.body.dataset.preview === 'rows' && " + row("3") + ".includes('CA3, <b>deep</b>') && " + row("3") + " === '1|0|20.1|CA3, <b>deep</b>|/general/extracellular_ephys/shank|true'")
	b.run("document.querySelector('.dynamic .row a').click()")
	b.wait("document.body.dataset.path === 'general/extracellular_ephys/shank' && document.body.dataset.preview === 'attributes'")
	b.wait("document.querySelector('.attributes').innerText.includes('ElectrodeGroup') && document.querySelector('.attributes').innerText.includes('CA1')")
	b.looks("attributes", "#folder-about")
	// A list of what refers has links.
	b.visit("#/tables.nwb/intervals/epochs")
	b.wait("document.body.dataset.preview === 'rows' && " + row("2") + " === '0|0|(0, 5, /acquisition/movie), (5, 9, /acquisition/colour)'")
	b.run("document.querySelectorAll('.dynamic .row a')[1].click()")
	b.wait("document.body.dataset.path === 'acquisition/colour'")
	// The view of groups and datasets has the same pictures.
	b.visit("#/tables.nwb/general/extracellular_ephys/electrodes?view=objects")
	b.wait("document.body.dataset.preview === 'rows' && " + row("3") + ".includes('CA3')")
	b.run("document.querySelector('.dynamic .row a').click()")
	b.wait("location.hash.includes('view=objects') && document.body.dataset.preview === 'attributes'")
	b.visit("#/tables.nwb/units/waveform_mean?view=objects")
	b.wait("document.body.dataset.preview === 'array' && document.body.dataset.plot === 'image 40×32'")
	b.shot("objects-array-1280-light")
	b.visit("#/tables.nwb/units?view=objects")
	b.wait("document.body.dataset.preview === 'raster'")
	b.visit("#/tables.nwb/units/spike_times?view=zarr3")
	b.wait("document.body.dataset.preview === 'array' && document.body.dataset.plot?.startsWith('range')")
}

func TestSpikesAreDrawn(t *testing.T) {
	b := open(t, served(t, hdf5File(t, "../internal/app/explore/testdata/tables.nwb")))
	b.visit("#/tables.nwb/units")
	b.wait("document.body.dataset.preview === 'raster' && document.body.dataset.raster?.startsWith('0 40 ')")
	all := eval[int](b, "+document.body.dataset.raster.split(' ')[2]")
	said := b.text("document.querySelector('.raster + .hint').innerText")
	if all < 1000 || !strings.Contains(said, "40 units with") || !strings.Contains(said, " s to 59.") {
		t.Errorf("%d spikes are told as %q", all, said)
	}
	if n := eval[int](b, ink); n < 3 {
		t.Errorf("the raster has %d colours", n)
	}
	b.looks("raster", "#folder-about")
	b.wait("document.body.dataset.raster === '0 40 " + strconv.Itoa(all) + "'")
	r := b.rect(".raster")
	b.hover(r.X+r.W/2, r.Y+r.H/2)
	b.wait("document.querySelector('.raster').title.startsWith('unit ')")
	b.wheel(r.X+r.W/2, r.Y+r.H/2, -300)
	b.wait("+document.body.dataset.raster.split(' ')[2] < " + strconv.Itoa(all))
	some := eval[int](b, "+document.body.dataset.raster.split(' ')[2]")
	b.run("document.querySelector('.raster').focus()")
	b.key("+")
	b.wait("+document.body.dataset.raster.split(' ')[2] < " + strconv.Itoa(some))
	b.key(kb.ArrowRight)
	b.wait("!document.querySelector('.raster + .hint').innerText.includes(' from 0')")
	b.key("0")
	b.wait("+document.body.dataset.raster.split(' ')[2] === " + strconv.Itoa(all))
	// A zoom while a response is under way is not undone by it.
	b.run(`(ask => { window.fetch = async (...a) => {
		const r = await ask(...a);
		window.fetch = ask;
		document.querySelector('.raster').dispatchEvent(new KeyboardEvent('keydown', { key: '+' }));
		return r;
	}; })(window.fetch)`)
	b.key("0")
	b.wait("+document.body.dataset.raster.split(' ')[2] < " + strconv.Itoa(all))
}

func TestTimesAndFrames(t *testing.T) {
	b := open(t, served(t, hdf5File(t, "../internal/app/explore/testdata/tables.nwb")))
	// A series with timestamps is drawn over them, in its unit.
	b.visit("#/tables.nwb/processing/behavior/Position/path/data")
	b.wait("document.body.dataset.plot === 'image 400×2' && document.querySelector('.plot + .hint').innerText.includes('2 channels') && document.querySelector('.plot + .hint').innerText.includes('mm')")
	r := b.rect(".plot")
	b.hover(r.X+58+(r.W-68)/2, r.Y+r.H/2)
	b.wait("/^1[78]\\.[0-9]+ s, channel/.test(document.querySelector('.plot').title)") // half of 36 s, not half of the samples
	b.looks("timestamps", "#folder-about")
	// Its group shows the same.
	b.visit("#/tables.nwb/processing/behavior/Position/path")
	b.wait("document.body.dataset.preview === 'series' && document.querySelector('.plot + .hint')?.innerText.includes('2 channels')")
	b.visit("#/tables.nwb/processing/behavior/late/data")
	b.wait("document.querySelector('.plot + .hint')?.innerText.includes('not in order') && document.querySelector('.plot + .hint').innerText.includes('501 to 504 mV')")
	b.visit("#/tables.nwb/acquisition/movie/data")
	b.wait("document.body.dataset.plot?.startsWith('image') && document.querySelector('.axis').innerText.includes('frame') && document.querySelector('.plot + .hint').innerText.includes('at 3 s')")
	b.run("(i => { i.value = 6; i.dispatchEvent(new Event('input')); })(document.querySelector('.axis input'))")
	b.wait("document.querySelector('.plot + .hint').innerText.includes('at 6 s') && document.querySelector('.axis output').innerText === '6 of 0–11'")
	b.looks("frames", "#folder-about")
	// It plays up to the last frame, at the rate of the frames.
	b.run("(i => { i.value = 9; i.dispatchEvent(new Event('input')); })(document.querySelector('.axis input'))")
	b.click("#play")
	b.wait("document.querySelector('.plot + .hint').innerText.includes('at 8.5 s') && document.querySelector('.axis output').innerText === '11 of 0–11' && document.querySelector('#play').innerText === 'Play'")
	b.visit("#/tables.nwb/acquisition/colour/data")
	b.wait("document.body.dataset.plot?.startsWith('colours') && document.querySelector('.plot + .hint').innerText.includes('24 × 32 pixels; at 1 s')")
	pixel := "[...document.querySelector('.plot').getContext('2d').getImageData(Math.round(document.querySelector('.plot').width * 6 / 32), Math.round(document.querySelector('.plot').height / 2), 1, 1).data].join()"
	b.wait(pixel + " === '255,0,0,255'")
	b.run("(i => { i.value = 5; i.dispatchEvent(new Event('input')); })(document.querySelector('.axis input'))")
	b.wait("document.querySelector('.plot + .hint').innerText.includes('at 1.5 s') && " + pixel + " === '55,0,0,255'")
	b.looks("colours", "#folder-about")
	b.visit("#/tables.nwb/acquisition/pictures/flag")
	b.wait("document.body.dataset.plot === 'colours 24×32×3' && !document.querySelector('.axis') && document.querySelector('.attributes').innerText.includes('RGBImage')")
}
