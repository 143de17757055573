package hdf5_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/hdf5"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/zarr"
)

// Elements that are in other files are read if the archive may lead there: testdata/make.py.
func TestElementsInOtherFiles(t *testing.T) {
	for _, external := range [][]string{nil, {"none"}} {
		a, err := holdall.Open(t.Context(), "testdata/master.h5", holdall.OpenOptions{Formats: []*format.Format{hdf5.Format}, External: external})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for name, follows := range map[string]bool{"frames": true, "few": true, "run": true, "virtual": true, "texts": false, "group": false, "none": false, "away": false} {
			x, err := zarr.Open(t.Context(), a, name)
			var got bytes.Buffer
			if err == nil {
				err = x.WriteElements(t.Context(), &got)
			}
			if follows = follows && external == nil; (err == nil) != follows {
				t.Errorf("%s: %v, expected %v", name, err, follows)
				continue
			}
			for i := range got.Len() / 4 {
				want := uint32(i)
				if name == "virtual" && i >= 20*10*8 {
					want = 7
				}
				if v := binary.LittleEndian.Uint32(got.Bytes()[4*i:]); v != want {
					t.Fatalf("%s: element %d is %d", name, i, v)
				}
			}
			if n := x != nil && int64(got.Len()) != 4*x.Elements(); follows && n {
				t.Errorf("%s: %d bytes", name, got.Len())
			}
		}
	}
}
