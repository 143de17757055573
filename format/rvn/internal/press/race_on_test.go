//go:build race

package press

// most is how long inputs are under the race detector, which makes each ten times
// slower and has nothing to find here: an encoder belongs to one goroutine.
const most = 100 << 10
