package hdf5

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdall/holdall/format"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/zarr3"
	"github.com/holdall/holdall/store"
)

// Views of a file.
const (
	zarrView  = "zarr"  // keys of Zarr, version 2
	zarr3View = "zarr3" // the same as keys of version 3
)

// linkArrays says from how many chunks on an array is a link to the file.
const linkArrays = "link-arrays"

// Format is HDF5.
var Format = &format.Format{
	Name:       "hdf5",
	Title:      "HDF5",
	Extensions: []string{".h5", ".hdf5", ".nwb", ".he5"},
	Views:      []string{zarrView, zarr3View},
	Params: []format.Param{{
		Name: linkArrays, For: format.ToOpen, Kind: format.ParamNumber, Least: 1, Most: 1 << 40,
		Help: "show arrays of more chunks than this as links to the file, as LINDI does beyond 1000",
	}},
	Detect: detect,
	Open:   open,
	Verify: verify,
}

func detect(p format.Probe) format.Match {
	if p.Size >= 0 && h5.HasSignature(p.Head) {
		return format.Certain
	}
	return format.No
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ format.Reader, err error) {
	view := cmp.Or(o.View, zarrView)
	if view != zarrView && view != zarr3View {
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
	if err := a.load(ctx); err != nil {
		return nil, err
	}
	links, _ := strconv.ParseInt(o.Param[linkArrays], 10, 64)
	k, err := newKeys(ctx, a, links)
	if err != nil || view == zarrView {
		return k, err
	}
	return zarr3.New(k, st, "hdf5", name), nil
}
