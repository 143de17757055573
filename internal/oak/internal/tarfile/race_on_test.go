//go:build race

package tarfile

// raced makes tests shorter where each takes ten times as long.
const raced = true
