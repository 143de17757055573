//go:build !amd64

package gf16

const useAffine, useNibbles, useWide = false, false, false

func inverse(x, y []byte, c *factor) { inverseSlow(x, y, c) }
func forward(x, y []byte, c *factor) { forwardSlow(x, y, c) }

func put(_, _, _ []byte, _ *[most]factor) bool { return false }

func layers(to []byte, n int, from []byte, stride, parts int, factors []factor, step int) {
	layersSlow(to, n, from, stride, parts, factors, step)
}

func addLayers(_ []byte, _ int, _ []byte, _ int, _ []factor, _ int) bool { return false }
