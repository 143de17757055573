// Package segment decodes and builds the contents of Apache Oak segments: the record tables, and
// the values, lists, maps, templates and nodes in records. It does not read files, tars or the
// journal. Segments come from a [Source].
//
// A segment is at most 256 KiB. A data segment begins with a header, a table of the segments that
// its records refer to, and a table of its records:
//
//	0      "0aK", version 12 or 13
//	4      13: compacted in bit 31, full generation below it
//	10     generation
//	14     R, references
//	18     N, records
//	32     R × segment id (16)
//	…      N × number (4), type (1), offset (4)
//	…      zeros, then records, the last written first
//
// All numbers are big endian. An offset is relative to the start of a segment of full size that
// ends where this one ends. Lengths of records are not stored. A bulk segment contains only
// bytes.
//
// Decoding is lazy: nothing is decoded before it is requested, and memory is allocated only for
// bytes that exist. The types of records are taken as correct: a node with the type of a value is
// damage, although the reference would read it.
package segment
