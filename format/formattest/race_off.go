//go:build !race

package formattest

const thinned = 1
