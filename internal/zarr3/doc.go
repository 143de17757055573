// Package zarr3 is a view of Zarr version 3 over a view of keys of version 2, whatever the format that has
// those. Chunks stay where they are; zarr.json is made of .zgroup, .zarray and .zattrs.
//
// It is for formats that have a view of such keys. What is translated how is in package zarr.
package zarr3
