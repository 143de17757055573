// Package arraycodec decodes what chunks of arrays are compressed with, as Zarr
// and HDF5 do. Nothing that a chunk says of its size is believed: whoever calls
// says how long it may get.
//
// It is for packages zarr and hdf5. What archives are compressed with is in
// package codec.
package arraycodec
