//go:build !race

package databundle

const raced = false
