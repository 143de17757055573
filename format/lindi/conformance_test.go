package lindi

import (
	"testing"

	"github.com/holdall/holdall/format/formattest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// The suite's reading half on what the reference wrote.
func TestFixturesConform(t *testing.T) {
	for _, name := range []string{"p01_empty.lindi.tar", "p06_attrs_groups_links.lindi.tar", "p08_from_hdf5.lindi.json"} {
		t.Run(name, func(t *testing.T) {
			st := fixtureStore(t, name)
			formattest.RunArchive(t, Format, map[string][]byte{name: st.Get(name)}, name)
		})
	}
}
