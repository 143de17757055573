// Package zarr lets clients of Zarr read what is served: zarr 2.18 and 3.1, xarray, and pynwb
// by way of LINDI's reference. It is tests only; nothing can be imported from here.
package zarr
