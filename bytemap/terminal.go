package bytemap

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/screen"
)

const (
	terminalRows = 8
	terminalLeft = 10 // space for the offset of a row
	minTerminal  = 12 // minimum number of columns
)

// Terminal writes the map as lines of at most width columns to w. With colours, a character shows
// two adjacent places. Without colours, it is the letter of the use that takes most of its place.
// Every second entry that is long enough is lighter.
func (m *Map) Terminal(w io.Writer, width int, colour bool) error {
	d := &terminalDrawing{w: bufio.NewWriter(w), layout: newLayout(m, terminalRows), width: max(width, minTerminal), colour: colour}
	d.draw()
	return d.w.Flush()
}

type terminalDrawing struct {
	*layout
	w      *bufio.Writer
	width  int
	colour bool
}

func (d *terminalDrawing) line(s string) { d.w.WriteString(s + "\n") }

func (d *terminalDrawing) draw() {
	d.line(screen.Shorten(d.m.title(), d.width))
	d.legend()
	left := terminalLeft
	if d.width < 4*terminalLeft {
		left = 0
	}
	for _, v := range d.shown {
		d.line("")
		size := " " + human(v.Size)
		d.line(screen.Shorten(format.Escape(v.Name), d.width-len(size)) + size)
		for row, shades := range d.places(v, d.width-left) {
			if left > 0 {
				fmt.Fprintf(d.w, "%*s ", left-1, human(int64(row)*d.rowSize))
			}
			d.strip(shades)
		}
	}
	for _, note := range d.notes() {
		d.line("")
		d.line(screen.Shorten(note, d.width))
	}
}

func (d *terminalDrawing) legend() {
	used := 0
	for _, u := range d.m.legend() {
		text := screen.Shorten(fmt.Sprintf("%s %s", u, d.m.amount(u)), d.width-2)
		if n := 2 + screen.Width(text); used > 0 && used+2+n > d.width {
			d.line("")
			used = n
		} else {
			if used > 0 {
				d.w.WriteString("  ")
				used += 2
			}
			used += n
		}
		if d.colour {
			code, char := halves(palette[u], palette[u])
			fmt.Fprintf(d.w, "%s%c\x1b[0m ", code, char)
		} else {
			fmt.Fprintf(d.w, "%c ", palette[u].letter)
		}
		d.w.WriteString(text)
	}
	if used > 0 {
		d.line("")
	}
}

// places returns the look of each place in each row. A character has two places with colours, and
// one without.
func (d *terminalDrawing) places(v *VolumeMap, columns int) [][]swatch {
	if d.colour {
		columns *= 2
	}
	var rows [][]swatch
	for row := range d.rows(v) {
		var shades []swatch
		for _, bytes := range d.columns(v, row, columns, 1) {
			shades = append(shades, palette[v.mix(bytes[0], bytes[1]).most()])
		}
		rows = append(rows, shades)
	}
	place := float64(d.rowSize) / float64(columns)
	for s := range d.exacts(v, int64(place)+1) {
		for p := range d.pieces(s) {
			shades := rows[p.row]
			for i := int(float64(p.from)/place + 0.5); i < min(int(float64(p.to)/place+0.5), len(shades)); i++ {
				switch {
				case shades[i] == palette[Overlap]: // must remain visible
				case d.colour || s.shade != darker:
					shades[i] = s.shade
				default:
					shades[i] = palette[s.Use]
				}
			}
		}
	}
	return rows
}

// most returns the use that takes most of the place, or Overlap if there is any, because that is
// always an error.
func (m mix) most() Use {
	most := Content
	for u, n := range m {
		if n > m[most] || Use(u) == Overlap && n > 0 {
			most = Use(u)
		}
	}
	return most
}

func (d *terminalDrawing) strip(shades []swatch) {
	if !d.colour {
		var b strings.Builder
		for _, s := range shades {
			b.WriteRune(s.letter)
		}
		d.line(b.String())
		return
	}
	last := ""
	for i := 0; i < len(shades); i += 2 {
		pair := [2]swatch{shades[i], palette[Gap]}
		if i+1 < len(shades) {
			pair[1] = shades[i+1]
		}
		code, char := halves(pair[0], pair[1])
		if code != last {
			d.w.WriteString(code)
			last = code
		}
		d.w.WriteRune(char)
	}
	d.line("\x1b[0m")
}

// halves returns what shows two colours side by side. A gap has no colour, so that it looks empty
// on light and dark backgrounds.
func halves(left, right swatch) (code string, char rune) {
	none := palette[Gap]
	switch {
	case left == none && right == none:
		return fmt.Sprintf("\x1b[0;38;5;%dm", none.terminal), none.letter
	case left == none:
		return fmt.Sprintf("\x1b[0;38;5;%dm", right.terminal), '▐'
	case right == none:
		return fmt.Sprintf("\x1b[0;38;5;%dm", left.terminal), '▌'
	case left == right:
		return fmt.Sprintf("\x1b[0;38;5;%dm", left.terminal), '█'
	default:
		return fmt.Sprintf("\x1b[38;5;%d;48;5;%dm", left.terminal, right.terminal), '▌'
	}
}
