// Package hdf5 reads HDF5 files as archives: as a tree of objects, and as the keys of a
// Zarr hierarchy, which are the references that LINDI makes of such files.
//
// The file itself is read by package hdf5 at the top of the module.
package hdf5
