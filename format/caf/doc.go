// Package caf reads and writes Chunk Archive Format files.
//
// It is one of holdall's formats, for package holdall to use; programs open
// archives there. A CAF file is the files' bytes end to end, then a JSON index,
// then four bytes saying how long the index is:
//
//	| content … | {"format_version":"1.0","files":{…}} | index length, uint32 LE |
//	0           D                                       F-4                     F
//
// and a row of the index is
//
//	"NAME":{"start_byte":S,"end_byte":E}
//
// There is no magic number, no checksum, no directory, no mode and no time.
// What the specification leaves open is settled as follows.
//
//   - end_byte is exclusive, as every known writer has it. The specification's
//     own example is inclusive, and people followed it: an archive whose rows
//     tile the data only that way is read so, one where it cannot be known is
//     listed but not read (ends.go).
//   - Trailing commas, which that example has too, are accepted. Everything
//     else must be strict JSON (scan.go).
//   - The order of rows means nothing: the reference sorts them by name, others
//     by insertion. Stored order is by start_byte.
//   - Of several rows of one name the last counts, as in both known readers;
//     the others are reported, their bytes are shown as trash.
//   - Names are any strings. Names that could leave a directory are listed and
//     can be read, but are not extracted.
//
// Our writer adds "blake3" to every row, "object" to those of objects of buckets
// (object.go) and "writer" at the top; the reference ignores them. Fields that we do not know are kept when an archive is
// rewritten.
package caf
