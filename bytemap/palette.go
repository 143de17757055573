package bytemap

import "image/color"

// swatch is the colours of a use. Colours differ in hue and in lightness, so that people who see
// fewer hues can distinguish them; a test checks that.
type swatch struct {
	class       string // in an SVG
	light, dark string // #rrggbb, on a light and on a dark background
	terminal    uint8  // of the 256 colours of terminals
	letter      rune   // without colours
}

var palette = [useCount]swatch{
	Content:   {"u0", "#6c9fcd", "#5a8fc0", 68, '█'},
	Header:    {"u1", "#e6c84f", "#e0c24e", 179, 'H'},
	IndexData: {"u2", "#d9822b", "#d68233", 172, 'I'},
	Journal:   {"u3", "#1c856e", "#5fbd97", 29, 'J'},
	Padding:   {"u4", "#c8c2b7", "#87959c", 250, 'P'},
	Trash:     {"u5", "#8f4248", "#ac606e", 131, 'T'},
	Unknown:   {"u6", "#39414f", "#d5dade", 240, '?'},
	Gap:       {"u7", "#eeeeea", "#2b3036", 244, '·'},
	Overlap:   {"u8", "#c01f1f", "#eb504f", 160, '!'},
}

// Colours of entries that are wide enough to be distinguished from their neighbours.
var (
	darker  = swatch{"e0", "#4c86ba", "#4679a8", 67, '█'}
	lighter = swatch{"e1", "#90bbe1", "#76a9d6", 110, '▓'}
)

func rgb(hex string) color.RGBA {
	digit := func(c byte) uint8 {
		if c >= 'A' {
			return c&^0x20 - 'A' + 10
		}
		return c - '0'
	}
	part := func(i int) uint8 { return digit(hex[i])<<4 | digit(hex[i+1]) }
	return color.RGBA{part(1), part(3), part(5), 255}
}
