package bytemap

import "image"

// letterWidth and letterHeight are the size in pixels of a letter of the built-in font, which has
// only the letters in names of uses.
const (
	letterWidth  = 5
	letterHeight = 8
)

// letters has the rows of each letter, five bits a row.
var letters = map[rune][letterHeight]uint8{
	'a': {0, 0, 0b01110, 0b00001, 0b01111, 0b10001, 0b01111, 0},
	'c': {0, 0, 0b01110, 0b10001, 0b10000, 0b10001, 0b01110, 0},
	'd': {0b00001, 0b00001, 0b01111, 0b10001, 0b10001, 0b10001, 0b01111, 0},
	'e': {0, 0, 0b01110, 0b10001, 0b11111, 0b10000, 0b01110, 0},
	'g': {0, 0, 0b01111, 0b10001, 0b10001, 0b01111, 0b00001, 0b01110},
	'h': {0b10000, 0b10000, 0b11110, 0b10001, 0b10001, 0b10001, 0b10001, 0},
	'i': {0b00100, 0, 0b01100, 0b00100, 0b00100, 0b00100, 0b01110, 0},
	'j': {0b00010, 0, 0b00110, 0b00010, 0b00010, 0b00010, 0b10010, 0b01100},
	'k': {0b10000, 0b10000, 0b10010, 0b10100, 0b11000, 0b10100, 0b10010, 0},
	'l': {0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110, 0},
	'n': {0, 0, 0b11110, 0b10001, 0b10001, 0b10001, 0b10001, 0},
	'o': {0, 0, 0b01110, 0b10001, 0b10001, 0b10001, 0b01110, 0},
	'p': {0, 0, 0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000},
	'r': {0, 0, 0b10110, 0b11001, 0b10000, 0b10000, 0b10000, 0},
	's': {0, 0, 0b01111, 0b10000, 0b01110, 0b00001, 0b11110, 0},
	't': {0b00100, 0b00100, 0b01110, 0b00100, 0b00100, 0b00100, 0b00011, 0},
	'u': {0, 0, 0b10001, 0b10001, 0b10001, 0b10001, 0b01111, 0},
	'v': {0, 0, 0b10001, 0b10001, 0b10001, 0b01010, 0b00100, 0},
	'w': {0, 0, 0b10001, 0b10001, 0b10101, 0b10101, 0b01010, 0},
	'x': {0, 0, 0b10001, 0b01010, 0b00100, 0b01010, 0b10001, 0},
}

// write draws a word, with each pixel of the font as a square of size pixels. It returns the x
// position after the word.
func write(img *image.Paletted, x, y, size int, ink uint8, word string) int {
	for _, r := range word {
		for row, bits := range letters[r] {
			for col := range letterWidth {
				if bits>>(letterWidth-1-col)&1 == 1 {
					paint(img, image.Rect(x+col*size, y+row*size, x+(col+1)*size, y+(row+1)*size), ink)
				}
			}
		}
		x += (letterWidth + 1) * size
	}
	return x
}

func paint(img *image.Paletted, r image.Rectangle, c uint8) {
	r = r.Intersect(img.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row := img.Pix[img.PixOffset(r.Min.X, y):img.PixOffset(r.Max.X, y)]
		for i := range row {
			row[i] = c
		}
	}
}
