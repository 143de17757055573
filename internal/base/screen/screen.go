// Package screen measures and shortens texts in columns of a terminal.
package screen

import (
	"unicode"

	"golang.org/x/text/width"
)

// Width returns how many columns a text takes. Characters of East Asia and emoji take two, and
// characters that combine with the one before take none.
func Width(s string) (n int) {
	for _, r := range s {
		n += of(r)
	}
	return n
}

func of(r rune) int {
	if r < 0x300 {
		return 1
	}
	switch k := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case k == width.EastAsianWide, k == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Shorten removes the middle of a text that takes more than that many columns, because names often
// differ at their ends.
func Shorten(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	if columns < 3 {
		return "…"
	}
	r := []rune(s)
	last := (columns - 1) / 2
	first := columns - 1 - last
	head, tail := 0, len(r)
	for ; head < len(r) && of(r[head]) <= first; head++ {
		first -= of(r[head])
	}
	for ; tail > head && of(r[tail-1]) <= last; tail-- {
		last -= of(r[tail-1])
	}
	for tail < len(r) && of(r[tail]) == 0 { // what it combines with is left out
		tail++
	}
	return string(r[:head]) + "…" + string(r[tail:])
}
