package bytemap

import (
	"math"
	"testing"
)

// What is seen of linear red, green and blue by those who lack one of the three
// receptors (Machado, Oliveira and Fernandes 2009, severity 1).
var sights = map[string][3][3]float64{
	"full":         {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// lab returns a colour as it is seen, in CIE L*a*b*, where distance is about
// how different two colours look.
func lab(hex string, sight [3][3]float64) [3]float64 {
	c := rgb(hex)
	var linear, seen [3]float64
	for i, v := range []uint8{c.R, c.G, c.B} {
		x := float64(v) / 255
		if x <= 0.04045 {
			linear[i] = x / 12.92
		} else {
			linear[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	for i, row := range sight {
		for j, f := range row {
			seen[i] += f * linear[j]
		}
		seen[i] = min(1, max(0, seen[i]))
	}
	f := func(x float64) float64 {
		if x > 0.008856 {
			return math.Cbrt(x)
		}
		return 7.787*x + 16.0/116
	}
	x := f((0.4124*seen[0] + 0.3576*seen[1] + 0.1805*seen[2]) / 0.95047)
	y := f(0.2126*seen[0] + 0.7152*seen[1] + 0.0722*seen[2])
	z := f((0.0193*seen[0] + 0.1192*seen[1] + 0.9505*seen[2]) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func TestPaletteCanBeToldApartByEveryone(t *testing.T) {
	const (
		different = 14 // clearly, side by side
		shade     = 5  // just, and less than between two uses
	)
	for name, sight := range sights {
		for ground, pick := range map[string]func(swatch) string{
			"light": func(s swatch) string { return s.light },
			"dark":  func(s swatch) string { return s.dark },
		} {
			apart := func(a, b swatch) float64 {
				p, q := lab(pick(a), sight), lab(pick(b), sight)
				return math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2])
			}
			for u := range palette {
				for v := range u {
					if d := apart(palette[u], palette[v]); d < different {
						t.Errorf("%s sight, %s ground: %s and %s are %.1f apart", name, ground, Use(u), Use(v), d)
					}
				}
			}
			for _, s := range []swatch{darker, lighter} {
				if d := apart(s, palette[Content]); d < shade {
					t.Errorf("%s sight, %s ground: shades of content are %.1f apart", name, ground, d)
				}
			}
		}
	}
}
