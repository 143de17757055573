package zarr_test

import (
	"context"
	"fmt"
	"os"
	"testing/fstest"

	"github.com/holdall/holdall/zarr"
)

func Example() {
	// Any fs.FS works, such as os.DirFS("data.zarr") or an archive's.
	fsys := fstest.MapFS{
		"units/times/.zarray": {Data: []byte(`{"zarr_format": 2, "shape": [2, 3], "chunks": [1, 3], "dtype": "<i2",
			"order": "C", "compressor": null, "filters": null, "fill_value": -1}`)},
		"units/times/0.0": {Data: []byte{1, 0, 2, 0, 0, 1}},
	}
	ctx := context.Background()
	a, err := zarr.Open(ctx, zarr.Files(fsys), "units/times")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Shape, a.DType, a.Codecs(), a.NumChunks())
	if err := a.WriteText(ctx, os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// [2 3] <i2 none 2
	// 1	2	256
	// -1	-1	-1
}
