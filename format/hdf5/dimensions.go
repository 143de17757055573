package hdf5

import (
	"path"
	"slices"
	"strconv"
	"strings"

	h5 "github.com/holdall/holdall/hdf5"
)

// Datasets of a file may be scales of dimensions, as netCDF has them. Then all arrays of the file have names of their
// dimensions, as xarray has them in Zarr: an attribute _ARRAY_DIMENSIONS. A dimension is called as its scale. In such a
// file what holds for netCDF holds for Zarr: a scalar has no dimensions, and an attribute of one element is no list.
type scales struct {
	names  map[int64]string  // by the address of the scale
	ids    map[int64]string  // by the number that netCDF gave it
	made   map[string][]axis // by group, of arrays without scales
	number int
}

type axis struct {
	name string
	size int64
}

// A dimension that has no values is a dataset, too, whose name begins so.
const onlyDimension = "This is a netCDF dimension but not a netCDF variable"

// findScales returns the scales of a file, or nil if it has none.
func (a *archive) findScales() *scales {
	s := &scales{names: map[int64]string{}, ids: map[int64]string{}, made: map[string][]axis{}}
	for _, o := range a.byAddr {
		if o.Kind != h5.Dataset || one(o, "CLASS") != "DIMENSION_SCALE" {
			continue
		}
		s.names[o.Addr] = path.Base(o.Path)
		if id, ok := one(o, "_Netcdf4Dimid").(int64); ok {
			s.ids[id] = s.names[o.Addr]
		}
	}
	if len(s.names) == 0 {
		return nil
	}
	return s
}

// one returns the value of an attribute of one element, or nil.
func one(o *h5.Object, name string) any {
	for _, v := range values(o, name) {
		return v
	}
	return nil
}

func values(o *h5.Object, name string) []any {
	for i := range o.Attributes {
		if at := &o.Attributes[i]; at.Name == name && at.Err == nil {
			return at.Values
		}
	}
	return nil
}

// isVariable reports whether a dataset has values.
func (s *scales) isVariable(o *h5.Object) bool {
	name, _ := one(o, "NAME").(string)
	return s == nil || s.names[o.Addr] == "" || !strings.HasPrefix(name, onlyDimension)
}

// of returns the names of the dimensions of a dataset.
func (s *scales) of(o *h5.Object) []string {
	names := make([]string, len(o.Space.Dims))
	own, lists, ids := s.names[o.Addr], values(o, "DIMENSION_LIST"), values(o, "_Netcdf4Coordinates")
	for i, n := range o.Space.Dims {
		switch {
		case own != "" && len(names) == 1:
			names[i] = own
		case i < len(lists):
			refs, _ := lists[i].([]any)
			for _, r := range refs {
				if to, ok := r.(h5.Ref); ok && names[i] == "" {
					names[i] = s.names[int64(to)]
				}
			}
		case own != "" && i < len(ids):
			id, _ := ids[i].(int64)
			names[i] = s.ids[id]
		}
		if names[i] == "" {
			names[i] = s.make(path.Dir(o.Path), n, names[:i])
		}
	}
	return names
}

// make returns a name for a dimension without a scale: that of another one of its size in the group, which the array
// does not have yet.
func (s *scales) make(group string, size int64, has []string) string {
	for _, x := range s.made[group] {
		if x.size == size && !slices.Contains(has, x.name) {
			return x.name
		}
	}
	x := axis{"phony_dim_" + strconv.Itoa(s.number), size}
	s.number++
	s.made[group] = append(s.made[group], x)
	return x.name
}

// says reports whether an attribute says only what names of dimensions say.
func (s *scales) says(o *h5.Object, name string) bool {
	switch name {
	case "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties":
		return s != nil
	case "CLASS", "NAME", "DIMENSION_LABELS":
		return s != nil && s.names[o.Addr] != ""
	}
	return false
}
