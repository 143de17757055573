package zarr

import (
	"strings"
	"testing"
)

// BenchmarkParseJSON reads the metadata of a hierarchy.
func BenchmarkParseJSON(b *testing.B) {
	text := `{"zarr_consolidated_format":1,"metadata":{` + strings.Repeat(`"group/array/.zarray":{"chunks":[100,100],"compressor":{"blocksize":0,"clevel":5,"cname":"lz4","id":"blosc","shuffle":1},"dtype":"<f8","fill_value":NaN,"filters":null,"order":"C","shape":[10000,20000],"zarr_format":2},`, 500) +
		strings.Repeat(`"group/array/.zattrs":{"_ARRAY_DIMENSIONS":["time","x"],"description":"Voltage, in \u00b5V \"raw\"","scale":-1.5e-7},`, 500) + `".zgroup":{"zarr_format":2}}}`
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		room := int64(1 << 30)
		if _, err := parseJSON([]byte(text), &room); err != nil {
			b.Fatal(err)
		}
	}
}
