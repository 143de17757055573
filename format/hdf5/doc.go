// Package hdf5 presents HDF5 files as archives: as a tree of objects, or as the keys of a Zarr
// hierarchy, which are the references that LINDI makes of such files. It also makes files of such
// keys. Its [Format] is used by package holdall; programs open archives there. Package hdf5 at the
// top of the module reads the file itself.
package hdf5
