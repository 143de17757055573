//go:build !race

package press

const most = 1 << 30
