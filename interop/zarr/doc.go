// Package zarr tests that Zarr clients read what holdall serves over HTTP and as buckets: zarr
// 2.18 and 3.1 with s3fs, xarray, and pynwb with LINDI's reference. It contains only tests.
package zarr
