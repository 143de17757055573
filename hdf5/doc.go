// Package hdf5 reads HDF5 files, by ranges: groups, datasets, their attributes, and
// where each chunk of an array lies.
//
// It is not for writing HDF5, nor for what one does with arrays: it gives elements as the
// file has them, or as Go values.
//
//	f, err := hdf5.Open(ctx, object)
//	…
//	for o, err := range f.Walk(ctx, hdf5.WalkOptions{Values: true}) {
//		…
//		fmt.Println(o.Path, o.Type, o.Space.Dims)
//	}
//
// # How it reads
//
// A file's structures are many and small, and one leads to the next. So Walk reads all
// objects of a level at once: each is read by a task of its own, and only when all tasks
// wait for bytes is anything read, near ones together, several requests at a time. Trees
// and arrays of chunks are read by levels in the same way, some hundred nodes at a time:
// an index of a hundred million chunks takes no more memory than one of thousands.
// Whatever is read of structures is kept for a while.
//
// # What is believed
//
// Nothing. Each size is compared with the file's before memory is taken for it,
// checksums are compared where the format has them, and what leads into itself ends. What
// is damaged, or not supported, costs that object: its Err names the structure, its place
// and what was expected, and all others are read. Wrong chunks cost themselves.
//
// # What is read
//
// Superblocks 0 to 3, after a user block, too; object headers 1 and 2; old and new
// groups with soft, hard and external links; attributes; all datatypes but the references
// of HDF5 1.12, of which the bytes are given; layouts 1 to 5 with all indexes of chunks;
// the filters deflate, shuffle, fletcher32, lzf, bzip2, blosc, lz4 and zstd.
//
// Named and refused are virtual datasets and those in other files, heaps that are filtered,
// and other filters.
package hdf5
