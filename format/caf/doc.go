// Package caf reads, writes, checks and repairs Chunk Archive Format (CAF) archives. Its [Format]
// is used by package holdall; programs open archives there.
//
// A CAF file has the contents of the files end to end, then a JSON index, then four bytes with
// the length of the index:
//
//	| content … | {"format_version":"1.0","files":{…}} | index length, uint32 LE |
//	0           D                                       F-4                     F
//
// A row of the index is
//
//	"NAME":{"start_byte":S,"end_byte":E}
//
// There is no magic number, no checksum, and there are no directories, modes and times. This
// package interprets what the specification leaves open as follows.
//
//   - end_byte is exclusive, as all known writers write it. The example in the specification is
//     inclusive, and some archives follow it. If the rows cover the data without gaps only with
//     inclusive ends, the archive is read like that. If it cannot be determined, the archive is
//     listed but not read (ends.go).
//   - Trailing commas, which that example has too, are accepted. Everything else must be strict
//     JSON (scan.go).
//   - The order of rows has no meaning: the reference sorts them by name, other writers by
//     insertion. Stored order is by start_byte.
//   - If several rows have the same name, the last one counts, as in both known readers. The
//     others are reported, and their bytes are shown as trash.
//   - Names are arbitrary strings. Names that could leave a directory are listed and can be read,
//     but are not extracted.
//
// holdall's writer adds "blake3" to each row, "object" to rows of objects from buckets
// (object.go), and "writer" at the top. The reference ignores them. Unknown fields are kept when
// an archive is rewritten.
package caf
