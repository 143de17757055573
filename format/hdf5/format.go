package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdall/holdall/format"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/store"
)

// Views of a file.
const (
	zarrView    = "zarr"    // keys of Zarr, version 2
	zarr3View   = "zarr3"   // the same keys in version 3
	objectsView = "objects" // groups, datasets and attributes
)

var views = []string{zarrView, zarr3View, objectsView}

// Parameters.
const (
	linkArrays  = "link-arrays"  // number of chunks from which an array is a link to the file
	linkAddress = "link-address" // address of the file in such links
)

// Format is the HDF5 format.
var Format = &format.Format{
	Name:       "hdf5",
	Title:      "HDF5",
	Extensions: []string{".h5", ".hdf5", ".nwb", ".he5", ".nc", ".h5ad"},
	Views:      views,
	Params: []format.Param{{
		Name: linkArrays, For: format.ToOpen, Kind: format.ParamNumber, Most: 1 << 40,
		Help: "show arrays with more chunks than this as links to the file; references link arrays of more than 1000 chunks, with 0 none",
	}, {Name: linkAddress, Flag: "-", For: format.ToOpen}},
	WantsManifest: true,
	Joined:        func(map[string]string) func(a, b format.Entry) int { return order },
	Detect:        detect,
	Open:          open,
	FromZarr:      fromZarr,
	Verify:        verify,
}

func detect(p format.Probe) format.Match {
	if p.Size >= 0 && h5.HasSignature(p.Head) {
		return format.Certain
	}
	return format.No
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ format.Reader, err error) {
	view := cmp.Or(o.View, zarrView)
	if !slices.Contains(views, view) {
		return nil, fmt.Errorf("hdf5 has no view %q: %w", o.View, errors.ErrUnsupported)
	}
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	links, _ := strconv.ParseInt(o.Param[linkArrays], 10, 64)
	links = max(links, 0)
	if err := a.load(ctx, links); err != nil {
		return nil, err
	}
	if view == objectsView {
		return newObjects(ctx, a)
	}
	a.address = cmp.Or(o.Param[linkAddress], a.address)
	k, err := newKeys(ctx, a, links)
	if err != nil || view == zarrView {
		return k, err
	}
	return zarr3.New(k, st, "hdf5", name), nil
}
