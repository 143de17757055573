// Package hdf5 reads HDF5 files by ranges: groups, datasets, attributes, and the places of the
// chunks of arrays. It returns elements as they are stored, or as Go values. It does not compute
// with arrays.
//
//	f, err := hdf5.Open(ctx, object)
//	…
//	for o, err := range f.Walk(ctx, hdf5.WalkOptions{Values: true}) {
//		…
//		fmt.Println(o.Path, o.Type, o.Space.Dims)
//	}
//
// # Reading
//
// A file has many small structures that refer to each other. If each request takes time, Walk reads
// many objects at the same time, each in a task of its own. When all tasks wait for bytes, it joins
// ranges that are close together and sends several requests at a time. With these, it reads what
// structures refer to that it finds by their signatures in the bytes that it has, and what lies
// beside those that lead to others. For a file of any size that is at most some 1.9 MB, and eight bytes
// for each byte of a structure that leads to others: a file that has them everywhere is read in a few
// large ranges, and one that has data between them is not. On a disk, it reads one structure after
// another.
//
// Trees and arrays of chunks are read by levels, several hundred nodes at a time, so an index of a
// hundred million chunks takes no more memory than one of thousands. Structures that were read are
// cached for a while.
//
// # Writing
//
// The package encodes the structures of a new file; the program decides where they are, and writes
// them and the elements. [EncodeSuperblock] is the beginning of the file. [Object.Encode] returns
// the header of a group or a dataset, with its links, attributes and index of chunks, for an
// address; its size does not depend on addresses, so those of objects that refer to each other can
// be chosen first. [EncodeHeap] returns what elements of variable length refer to. All have
// checksums where the format has them. HDF5 1.10 and later read such files.
//
// # Damaged files
//
// The package is safe for untrusted files. It compares each size with that of the file before it
// allocates memory. It compares checksums where the format has them. Structures that refer to
// themselves end. If an object is damaged or not supported, its Err names the structure, its
// offset and what was expected; all other objects are read. Damaged chunks are reported by
// themselves.
//
// # Supported features
//
//   - superblocks 0 to 3, also after a user block
//   - object headers 1 and 2
//   - old and new groups, with soft, hard and external links
//   - attributes
//   - all datatypes; of the references of HDF5 1.12 only the bytes are returned
//   - layouts 1 to 5 with all indexes of chunks
//   - the filters deflate, shuffle, fletcher32, szip, nbit, scaleoffset, lzf, bzip2, blosc, blosc2,
//     lz4, bitshuffle and zstd
//
// Elements of virtual datasets and of datasets in other files are read if File.Outside opens these.
// Virtual datasets without an end, filtered heaps and other filters are not supported. They are named
// in the error.
package hdf5
