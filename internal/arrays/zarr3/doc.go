// Package zarr3 is a view of Zarr version 3 for formats that have a view of keys of version 2.
// Chunks stay where they are; zarr.json is made from .zgroup, .zarray and .zattrs. Package zarr
// has the translation.
package zarr3
