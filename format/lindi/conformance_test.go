package lindi

import (
	"context"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/store"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// Run the reading half of the suite on archives of the reference.
func TestFixturesConform(t *testing.T) {
	for _, name := range []string{"p01_empty.lindi.tar", "p06_attrs_groups_links.lindi.tar", "p08_from_hdf5.lindi.json"} {
		t.Run(name, func(t *testing.T) {
			st := fixtureStore(t, name)
			formattest.RunArchive(t, Format, map[string][]byte{name: st.Get(name)}, name)
		})
	}
}

// The view of version 3 conforms as a reader.
func TestVersion3Conforms(t *testing.T) {
	f := *Format
	f.Views, f.Repair = nil, nil // which are about all of an archive
	in := func(o format.OpenOptions) format.OpenOptions {
		if o.View == "" {
			o.View = zarr3View
		}
		return o
	}
	f.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		return open(ctx, st, name, in(o))
	}
	f.Verify = func(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
		return verify(ctx, st, name, in(o), report)
	}
	const name = "p06_attrs_groups_links.lindi.tar"
	formattest.RunArchive(t, &f, map[string][]byte{name: fixtureStore(t, name).Get(name)}, name)
}
