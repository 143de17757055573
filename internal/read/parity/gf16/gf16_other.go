//go:build !amd64

package gf16

const useAffine, useNibbles = false, false

func inverse(x, y []byte, c *factor) { inverseSlow(x, y, c) }
func forward(x, y []byte, c *factor) { forwardSlow(x, y, c) }

func addInverse(x, y []byte, c *factor, sx, sy []byte) { addInverseSlow(x, y, c, sx, sy) }

func inverse4(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor) {
	inverse4Slow(to, n, from, stride, c1, c2, c3)
}

func addInverse4(sum []byte, n int, from []byte, c1, c2, c3 *factor) {
	addInverse4Slow(sum, n, from, c1, c2, c3)
}

func first4(to []byte, n int, from []byte, stride int, c1, c2, c3 *factor, sum []byte) {
	first4Slow(to, n, from, stride, c1, c2, c3, sum)
}
