// Package tar reads and writes tar archives, plain or compressed with zstd or gzip, so that other
// formats can be converted from and to tar. Archives compressed with bzip2, xz, lz4, lzip, lzma and
// compress are read only. Its [Format] is used by package holdall; programs open archives there. It is not a format
// to pack into, because a tar has no index.
//
//	512 bytes   header: name, mode, size, …   ┐ for each entry, with further
//	…           content, padded to 512 bytes  ┘ headers before it if it needs them
//	1024 bytes  zeros
//
// Opening a tar requires reading all headers. In a plain tar this skips the contents, and a file
// can then be read directly; the holes of sparse files are known. A compressed tar is decoded
// once to open it. A file is decoded from the beginning of its zstd frame or gzip member.
// Parallel compressors write many of these, others a single one. Such an archive is better
// converted, or indexed: an index has points within gzip members where decoding can start.
//
// If a header is damaged, reading continues at the next block that is a header, as in GNU tar.
// Abilities.Doubt returns the first damaged header, and verify reports all. A hard link to its
// own name is how GNU tar stores a file that was named twice; it represents the previous entry of
// that name.
//
// Content in a frame whose checksum is wrong, or that cannot be decoded to its end, is not read
// without a wish, since it may be wrong; of a frame that ends too early, that is its end only.
//
// Repair omits what is not a member, and shortens the last file of a truncated tar. A compressed
// tar is compressed again from what can be decoded before the damage and, with several frames of
// zstd, after it. Files in a damaged frame get other names, since the new checksum proves nothing.
package tar
