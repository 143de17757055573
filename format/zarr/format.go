// Package zarr writes Zarr hierarchies of version 3 into folders, of the keys of version 2. Nothing opens such a folder as
// this format: it is a folder like any other, and package zarr of this module reads the arrays in it.
package zarr

import (
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// Format is a folder with a Zarr hierarchy. It is only written.
var Format = &format.Format{
	Name:          "zarr",
	Title:         "Zarr",
	Extensions:    []string{".zarr"},
	WantsManifest: true,
	Joined:        func(map[string]string) func(a, b format.Entry) int { return order },
	FromZarr:      fromZarr,
}

// order has metadata before chunks, attributes first, and chunks of an array in C order.
func order(a, b format.Entry) int {
	if x, y := rank(a.Name), rank(b.Name); x != y {
		return x - y
	}
	return zarrkey.Compare(a.Name, b.Name)
}

func rank(name string) int {
	switch _, last := zarrkey.Split(name); {
	case last == ".zattrs":
		return 0
	case zarrkey.IsMeta(last):
		return 1
	}
	return 2
}
