// Package zarr reads arrays of Zarr hierarchies of versions 2 and 3, from any tree of files: a
// folder, or a view of an archive. It supports the codecs of numcodecs, Blosc included, shards,
// and the attributes in which LINDI stores links and references. [Node3] and [Root3] translate
// the metadata of version 2 into version 3.
//
// The package does not write hierarchies or compute with arrays. It returns elements as a NumPy
// file, as text, or as bytes.
//
//	a, err := zarr.Open(ctx, zarr.Files(os.DirFS("data.zarr")), "units/spike_times")
//	…
//	err = a.WriteNPY(ctx, w)
//
// # Damaged data
//
// The package is safe for untrusted data. Sizes are checked before memory is allocated, and
// Array.Limit bounds the rows of chunks in memory. If the value of a chunk is not what the
// metadata says, the error names its key. A missing chunk has the fill value.
//
// There is one exception: chunks of numbers without compressor and filters may be short, and are
// filled up with zeros. LINDI refers to contiguous HDF5 data in that way.
//
// # Text
//
// For an array of one dimension, WriteText writes one element a line. For other arrays, a line is
// the last dimension with its elements separated by tabs, and a blank line follows each plane.
//
//   - Floats have the shortest text that reads back as the same number, and may be NaN, Infinity
//     and -Infinity. Complex numbers look like 1+2j.
//   - Datetimes look like 2024-05-06T07:08:09, timedeltas like 90s.
//   - Raw bytes are hexadecimal.
//   - Strings are written unchanged. If a string begins with a quote or contains a control
//     character, it is written as a JSON string. Byte strings that are not UTF-8 are written as
//     {"base64":"…"}.
//   - Structured elements and those of object arrays are compact JSON, in which NaN and Infinity
//     may occur.
package zarr
