//go:build race

package databundle

// raced makes tests shorter where each takes ten times as long.
const raced = true
