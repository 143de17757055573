package rvn

import (
	"testing"

	"github.com/holdall/holdall/format/formattest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// Run the reading half of the suite on archives of the reference.
func TestFixturesConform(t *testing.T) {
	for _, name := range []string{"basic", "empty-tree", "links", "edge262145", "ext-sections", "ext-skip-b3-end", "ext-multiframe-small"} {
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, Format, map[string][]byte{"x.rvn": fixture(t, name)}, "x.rvn")
		})
	}
}
