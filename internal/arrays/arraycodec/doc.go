// Package arraycodec decodes the compression of array chunks, for packages zarr and hdf5. It
// trusts no size in a chunk: the caller gives the largest size of the result. The compression of
// archives is in package codec.
package arraycodec
