// Package tar reads and writes tar archives, plain or compressed with zstd, so
// that other formats can be converted from and to what everybody has.
//
// It is registered by package format/all; programs that only want archives need
// package holdall. It is no sixth format to pack into: a tar has no index.
//
//	512 bytes   header: name, mode, size, …   ┐ for each entry, with further
//	…           content, padded to 512 bytes  ┘ headers before it if it needs them
//	1024 bytes  zeros
//
// Opening one means to go through all its headers. From a plain tar that skips
// over the contents, and a file is then read where it lies; a compressed one is
// decoded once to be opened and, from the start, for what is read of it: better
// convert it.
package tar
