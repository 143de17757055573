package bytemap

import (
	"image"
	"image/color"
	"image/png"
	"io"
)

const (
	pngWidth   = 1024
	pngMargin  = 20
	pngStrip   = pngWidth - 2*pngMargin
	pngRow     = 24
	pngRowStep = pngRow + 4
	pngGapRows = 20 // between volumes
	pngRows    = 12
	pngLegend  = 26 // height of a line of the legend
	pngLetter  = 2
)

// Entries of the picture's palette after those of the uses.
const (
	pngGround = uint8(useCount) + iota
	pngInk
	pngDarker
	pngLighter
	pngColours
)

// PNG writes the map as a PNG picture to w. Its only text are the names of the uses, each with a
// bar that shows its share of the bytes.
func (m *Map) PNG(w io.Writer) error {
	l := newLayout(m, pngRows)
	height := 2*pngMargin + pngLegend*len(m.legend())
	for _, v := range l.shown {
		height += l.rows(v)*pngRowStep + pngGapRows
	}
	colours := make(color.Palette, pngColours)
	for u, s := range palette {
		colours[u] = rgb(s.light)
	}
	colours[pngGround] = rgb("#fbfbf9")
	colours[pngInk] = rgb("#24292f")
	colours[pngDarker] = rgb(darker.light)
	colours[pngLighter] = rgb(lighter.light)
	img := image.NewPaletted(image.Rect(0, 0, pngWidth, height), colours)
	paint(img, img.Rect, pngGround)
	y := pngMargin
	for _, v := range l.shown {
		l.paintVolume(img, v, y)
		y += l.rows(v)*pngRowStep + pngGapRows
	}
	for _, u := range m.legend() {
		const bar = 180 // x position of the bars
		paint(img, image.Rect(pngMargin, y, pngMargin+16, y+16), uint8(u))
		write(img, pngMargin+26, y+1, pngLetter, pngInk, u.String())
		part := float64(m.Totals[u].Bytes) / float64(max(1, m.size()))
		long := max(1, int(min(1, part)*(pngWidth-pngMargin-bar)))
		paint(img, image.Rect(bar, y+4, bar+long, y+12), uint8(u))
		y += pngLegend
	}
	return png.Encode(w, img)
}

func (l *layout) paintVolume(img *image.Paletted, v *VolumeMap, y int) {
	column := func(x, from, to int, c uint8) {
		paint(img, image.Rect(pngMargin+x, from, pngMargin+x+1, to), c)
	}
	marks := map[image.Point]int{} // positions and heights of overlaps
	for row := range l.rows(v) {
		top := y + row*pngRowStep
		for x, bytes := range l.columns(v, row, pngStrip, 1) {
			parts, overlap := v.mix(bytes[0], bytes[1]).shares()
			at, heights := top, levels(parts, pngRow)
			for _, u := range drawn {
				column(x, at, at+heights[u], uint8(u))
				at += heights[u]
			}
			if overlap > 0 {
				marks[image.Pt(x, top)] = max(6, int(overlap*pngRow))
			}
		}
	}
	pixel := func(n int64) int { return int(float64(n)/float64(l.rowSize)*pngStrip + 0.5) }
	for s := range l.exacts(v, l.rowSize/pngStrip*minSpan+1) {
		c := uint8(s.Use)
		switch s.shade {
		case darker:
			c = pngDarker
		case lighter:
			c = pngLighter
		}
		for p := range l.pieces(s) {
			top := y + p.row*pngRowStep
			paint(img, image.Rect(pngMargin+pixel(p.from), top, pngMargin+pixel(p.to), top+pngRow), c)
		}
	}
	for at, h := range marks {
		column(at.X, at.Y+pngRow-h, at.Y+pngRow, uint8(Overlap))
	}
}
