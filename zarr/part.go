package zarr

import (
	"strconv"
	"strings"
)

// A part is what a slice selects: along each axis count elements from from.
type part struct{ from, count []int64 }

// Slice returns a part of an array, by a text as NumPy has it: for each axis FROM:TO, of which either may be missing,
// or a number, which leaves the axis out. Axes that are not in the text are complete. A negative number counts from
// the end. Only the chunks of the part are read. It has no windows, samples and slices.
func (a *Array) Slice(text string) (*Array, error) {
	words := strings.Split(text, ",")
	if text == "" {
		words = nil
	}
	wrong := func(msg string, args ...any) (*Array, error) {
		return nil, &KeyError{a.name(), unsupported("slice %q: "+msg, append([]any{clip(text)}, args...)...)}
	}
	shape := a.Shape
	if a.Scalar {
		shape = nil
	}
	switch {
	case a.part != nil:
		return wrong("it is a slice already")
	case len(words) > len(shape):
		return wrong("it has %d axes, but the array has %d", len(words), len(shape))
	case len(shape) == 0:
		return a, nil
	}
	p, out := &part{}, *a
	out.part, out.Shape = p, []int64{}
	for i, n := range shape {
		from, to, one := int64(0), n, false
		if i < len(words) {
			first, last, ranged := strings.Cut(strings.TrimSpace(words[i]), ":")
			for _, bound := range []struct {
				text string
				to   *int64
			}{{first, &from}, {last, &to}} {
				word := strings.TrimSpace(bound.text)
				if word == "" && (ranged || bound.to == &to) {
					continue
				}
				v, err := strconv.ParseInt(word, 10, 64)
				if err != nil {
					return wrong("expected numbers as in 0:100,5,: but found %q", clip(words[i]))
				}
				if v < 0 {
					v += n
				}
				if *bound.to = v; ranged { // NumPy takes what there is
					*bound.to = max(0, min(v, n))
				}
			}
			if one = !ranged; one {
				if to = from + 1; from < 0 || from >= n {
					return wrong("axis %d has %d elements", i, n)
				}
			}
		}
		p.from, p.count = append(p.from, from), append(p.count, max(0, to-from))
		if !one {
			out.Shape = append(out.Shape, max(0, to-from))
		}
	}
	return &out, nil
}
