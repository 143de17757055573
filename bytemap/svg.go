package bytemap

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/screen"
)

// Sizes in pixels.
const (
	svgWidth   = 900
	svgMargin  = 16
	svgLeft    = 84 // space for the offset of a row
	svgStrip   = svgWidth - svgLeft - svgMargin
	svgRow     = 26
	svgRowStep = svgRow + 4
	svgHead    = 30 // height of a volume's heading
	svgColumn  = 2
	svgRows    = 8
	svgTip     = 12 // minimum width of a span with its own tooltip

	minSpan  = 3  // minimum width of a span that is drawn individually
	minText  = 56 // minimum width of a span with its name
	svgGlyph = 7  // width of a letter in most fonts
)

// SVG writes the map as a self-contained SVG picture to w, for light and dark backgrounds.
// Tooltips name what is under the pointer.
func (m *Map) SVG(w io.Writer) error {
	d := &svgDrawing{w: bufio.NewWriter(w), layout: newLayout(m, svgRows)}
	d.draw()
	return d.w.Flush() // returns earlier errors too
}

type svgDrawing struct {
	*layout
	w *bufio.Writer
	y int
}

func (d *svgDrawing) printf(f string, args ...any) { fmt.Fprintf(d.w, f, args...) }

func (d *svgDrawing) draw() {
	legend := d.legendRows()
	height := svgMargin + 24 + 20*len(legend) + 8
	for _, v := range d.shown {
		height += svgHead + d.rows(v)*svgRowStep + 10
	}
	notes := d.notes()
	height += 18*len(notes) + svgMargin - 8
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="byte map">`+"\n", svgWidth, height)
	d.style()
	d.printf(`<rect class="bg" width="%d" height="%d"/>`+"\n", svgWidth, height)
	d.y = svgMargin + 14
	d.printf(`<text class="h" x="%d" y="%d">%s</text>`+"\n", svgMargin, d.y, escaped(d.m.title()))
	d.y += 10
	for _, row := range legend {
		for _, e := range row {
			d.printf(`<rect class="%s" x="%d" y="%d" width="12" height="12" rx="2"/><text x="%d" y="%d">%s <tspan class="d">%s</tspan></text>`+"\n",
				palette[e.use].class, e.x, d.y+4, e.x+18, d.y+14, e.use, escaped(e.text))
		}
		d.y += 20
	}
	d.y += 8
	for _, v := range d.shown {
		d.volume(v)
	}
	for _, note := range notes {
		d.y += 18
		d.printf(`<text class="d" x="%d" y="%d">%s</text>`+"\n", svgMargin, d.y-6, escaped(note))
	}
	d.printf("</svg>\n")
}

// style defines each colour as a class, because not all viewers support CSS variables.
func (d *svgDrawing) style() {
	all := append(palette[:], darker, lighter)
	d.printf("<style>text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;fill:#24292f}.h{font-weight:600;font-size:13px}.d{fill:#6b737b}.o{font-size:10px;text-anchor:end}.n{font-size:11px;fill:#fff;pointer-events:none}.k{fill:#15181b}.bg{fill:#fbfbf9}.s{stroke:#6b737b;fill:none}.t{fill:none;pointer-events:all}")
	for _, s := range all {
		d.printf(".%s{fill:%s}", s.class, s.light)
	}
	d.printf("\n@media (prefers-color-scheme:dark){text{fill:#e4e7ea}.d{fill:#98a0a8}.n{fill:#fff}.k,.q{fill:#15181b}.bg{fill:#15181b}.s{stroke:#98a0a8}")
	for _, s := range all {
		d.printf(".%s{fill:%s}", s.class, s.dark)
	}
	d.printf("}</style>\n")
}

func (d *svgDrawing) volume(v *VolumeMap) {
	d.y += svgHead
	name := screen.Shorten(format.Escape(v.Name), 80)
	d.printf(`<text class="h" x="%d" y="%d">%s <tspan class="d" font-weight="400">%s</tspan></text>`+"\n", svgMargin, d.y-9, escaped(name), human(v.Size))
	d.scale()
	for row := range d.rows(v) {
		d.printf(`<text class="d o" x="%d" y="%d">%s</text>`+"\n", svgLeft-8, d.y+row*svgRowStep+svgRow/2+4, human(int64(row)*d.rowSize))
		d.cells(v, row)
		d.tips(v, row)
	}
	d.spans(v)
	for row := range d.rows(v) {
		d.overlaps(v, row)
	}
	d.y += d.rows(v)*svgRowStep + 10
}

// scale draws the length of a round number of bytes.
func (d *svgDrawing) scale() {
	n := int64(1)
	for n <= d.rowSize/16 {
		n *= 2
	}
	x := svgWidth - svgMargin - d.x(n)
	d.printf(`<path class="s" d="M%.1f %dv6m0-3H%dm0-3v6"/><text class="d o" x="%.1f" y="%d">%s</text>`+"\n",
		x, d.y-16, svgWidth-svgMargin, x-6, d.y-9, human(n))
}

func (d *svgDrawing) x(n int64) float64 {
	return float64(n) / float64(d.rowSize) * svgStrip
}

// cells stacks the uses of each column. It draws from the last use to the first, each from the
// top to where the next begins, so that each use of a row is a single path.
func (d *svgDrawing) cells(v *VolumeMap, row int) {
	var ends [][useCount]int // of the uses of each column, from the top
	for _, bytes := range d.columns(v, row, svgStrip, svgColumn) {
		parts, _ := v.mix(bytes[0], bytes[1]).shares()
		at, heights := 0, levels(parts, svgRow)
		for _, u := range drawn {
			at += heights[u]
			heights[u] = at
		}
		ends = append(ends, heights)
	}
	for i := len(drawn) - 1; i >= 0; i-- {
		u := drawn[i]
		seen := func(e [useCount]int) bool { return e[u] > 0 && (i == 0 || e[u] > e[drawn[i-1]]) }
		if !slices.ContainsFunc(ends, seen) {
			continue
		}
		d.printf(`<path class="%s" d="M%d %d`, palette[u].class, svgLeft, d.y+row*svgRowStep)
		for at, x := 0, 0; x < len(ends); {
			run := 1
			for x+run < len(ends) && ends[x+run][u] == ends[x][u] {
				run++
			}
			if by := ends[x][u] - at; by != 0 {
				d.printf("v%d", by)
			}
			d.printf("h%d", run*svgColumn)
			at, x = ends[x][u], x+run
		}
		d.printf("V%dz\"/>\n", d.y+row*svgRowStep)
	}
}

// tips adds tooltips to the columns of a row: one for each run of columns with a single use, and
// one every few columns where uses are mixed.
func (d *svgDrawing) tips(v *VolumeMap, row int) {
	var (
		x, end   int
		from, to int64
		all      mix
		pure     Use
	)
	flush := func() {
		if end > x {
			d.printf(`<rect class="t" x="%d" y="%d" width="%d" height="%d"><title>%s</title></rect>`+"\n",
				svgLeft+x, d.y+row*svgRowStep, end-x, svgRow, escaped(all.describe(from, to)))
		}
	}
	for at, bytes := range d.columns(v, row, svgStrip, svgColumn) {
		m := v.mix(bytes[0], bytes[1])
		switch now := m.only(); {
		case end == x || at-x >= svgTip && (now != pure || now == mixed):
			flush()
			x, from, all, pure = at, bytes[0], mix{}, now
		case now != pure:
			pure = mixed
		}
		end, to = at+svgColumn, bytes[1]
		for u := range m {
			all[u] += m[u]
		}
	}
	flush()
}

// spans draws the spans that are wide enough to be visible.
func (d *svgDrawing) spans(v *VolumeMap) {
	for s := range d.exacts(v, d.rowSize/svgStrip*minSpan+1) {
		d.printf(`<g class="%s"><title>%s</title>`, s.shade.class, escaped(describe(s.Run)))
		var widest piece
		for p := range d.pieces(s) {
			d.printf(`<rect x="%.2f" y="%d" width="%.2f" height="%d"/>`, svgLeft+d.x(p.from), d.y+p.row*svgRowStep, d.x(p.to-p.from), svgRow)
			if p.to-p.from > widest.to-widest.from {
				widest = p
			}
		}
		if room := d.x(widest.to - widest.from); room >= minText {
			text := s.Use.String()
			if s.Label != "" {
				text = path.Base(format.Escape(s.Label))
			}
			ink := "n"
			switch {
			case s.Use == Header || s.Use == IndexData || s.Use == Padding || s.shade == lighter:
				ink = "n k"
			case s.Use == Unknown || s.Use == Journal || s.Use == Trash:
				ink = "n q" // dark on a dark background, where these colours are light
			}
			d.printf(`<text class="%s" x="%.2f" y="%d">%s</text>`, ink, svgLeft+d.x(widest.from)+5,
				d.y+widest.row*svgRowStep+svgRow/2+4, escaped(screen.Shorten(text, int((room-10)/svgGlyph))))
		}
		d.printf("</g>\n")
	}
}

// overlaps marks bytes that are covered several times, on top of everything else.
func (d *svgDrawing) overlaps(v *VolumeMap, row int) {
	var (
		x, end, high int
		from, to     int64
	)
	flush := func() {
		if high > 0 {
			d.printf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d"><title>overlap: bytes %s – %s</title></rect>`+"\n",
				palette[Overlap].class, svgLeft+x, d.y+row*svgRowStep+svgRow-high, end-x, high, counted(from), counted(to))
		}
	}
	for at, bytes := range d.columns(v, row, svgStrip, svgColumn) {
		now := 0
		if _, share := v.mix(bytes[0], bytes[1]).shares(); share > 0 {
			now = max(6, int(share*svgRow))
		}
		if now != high {
			flush()
			x, from, high = at, bytes[0], now
		}
		end, to = at+svgColumn, bytes[1]
	}
	flush()
}

type legendEntry struct {
	use  Use
	text string
	x    int
}

// legendRows arranges the entries of the legend in rows.
func (d *svgDrawing) legendRows() (rows [][]legendEntry) {
	x := svgWidth
	for _, u := range d.m.legend() {
		e := legendEntry{use: u, text: d.m.amount(u)}
		width := 18 + int(float64(utf8.RuneCountInString(e.text)+len(u.String()))*6.6) + 28
		if x+width > svgWidth {
			rows, x = append(rows, nil), svgMargin
		}
		e.x = x
		x += width
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
	}
	return rows
}
