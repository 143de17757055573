// Package zarr reads the arrays of Zarr hierarchies, of version 2 and 3, out of any tree
// of files: a folder, or an archive's view. It knows the codecs numcodecs
// writes, Blosc included, shards, and the marks LINDI leaves in attributes. [Node3] and
// [Root3] say of a hierarchy of version 2 what it is in version 3.
//
// It is not for writing Zarr, nor for the arithmetic one does
// with arrays: it hands their elements on as a NumPy file, as text, or as bytes.
//
//	a, err := zarr.Open(ctx, zarr.Files(os.DirFS("data.zarr")), "units/spike_times")
//	…
//	err = a.WriteNPY(ctx, w)
//
// # What is believed
//
// Nothing that a hierarchy says of sizes is believed before it has been checked
// against Array.Limit, which bounds the rows of chunks held at once. A chunk that
// is there but does not hold what .zarray promises is an error that names its
// key; a chunk that is not there holds the fill value, as Zarr has it. There is
// one exception: the number chunks of arrays without compressor and filters may
// be short, and are then filled up with zeros, because LINDI refers to contiguous
// HDF5 data that way.
//
// # Text
//
// WriteText writes one element a line for arrays of one dimension; else the last
// dimension is a line, its elements set apart by tabs, and a blank line ends each
// plane. Floats are as short as reads back the same, with NaN, Infinity and
// -Infinity; complex numbers look like 1+2j, moments like
// 2024-05-06T07:08:09, spans like 90s, raw bytes are hexadecimal. A string stands as it
// is unless it begins with a quote or holds a control character: then it is a
// JSON string. Byte strings that are not UTF-8 are {"base64":"…"}. Structured
// elements and those of object arrays are compact JSON, with NaN and Infinity
// bare where they occur.
package zarr
