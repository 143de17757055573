// Package tar reads and writes tar archives, plain or compressed with zstd or gzip, so
// that other formats can be converted from and to what everybody has. Those of bzip2, xz
// and lz4 are read.
//
// It is registered by package format/all; programs that only want archives need
// package holdall. It is no sixth format to pack into: a tar has no index.
//
//	512 bytes   header: name, mode, size, …   ┐ for each entry, with further
//	…           content, padded to 512 bytes  ┘ headers before it if it needs them
//	1024 bytes  zeros
//
// Opening one means to go through all its headers. From a plain tar that skips
// over the contents, and a file is then read where it lies; of a sparse file the holes
// are known. A compressed one is decoded once to be opened. What is read of it is
// decoded from the beginning of the frame, or member, that holds it: parallel
// compressors make many, others one, and such an archive is better converted, or
// indexed: an index has points in members of gzip.
//
// If a header is damaged, reading goes on at the next block that is a header, as GNU's tar
// does. Abilities.Doubt tells of the first such header, and verify of all. A hard link to
// its own name is how GNU's tar writes a file that was named twice: it is the entry of
// that name before it. Repair leaves out what is no member, and shortens the last file of a
// tar that is cut off. A compressed tar is compressed anew, of what can be decoded before
// the damage and, of several frames of zstd, behind it.
package tar
