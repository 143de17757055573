// Package zarr lets clients of Zarr read what is served, by HTTP and as buckets: zarr 2.18 and 3.1
// with s3fs, xarray, and pynwb by way of LINDI's reference. It is tests only; nothing can be imported from here.
package zarr
