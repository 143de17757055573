// Package segment decodes and builds what is inside Apache Oak segments: the
// record tables, and the values, lists, maps, templates and nodes that the
// records hold.
//
// It is for package oak alone; it knows no files, no tar and no journal.
// Segments come from a [Source].
//
// A segment is at most 256 KiB. A data segment begins with a header, a table of
// the segments that its records refer to, and a table of its records:
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
// all big endian. An offset counts in a segment of full size whose end is this
// one's end. Lengths of records are not stored. A bulk segment is bytes and
// nothing else.
//
// Everything is lazy: nothing is decoded that was not asked for, and nothing is
// allocated for a size before it is known that the bytes are there. Types of
// records are believed: a node that is said to be a value is damage, although
// the reference would read it.
package segment
