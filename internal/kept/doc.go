// Package kept is an index of an archive in a file of its own, of which little has to
// be read to find one name among millions.
//
// [Find] looks for one, [Reader] stands in the place of a format's reader, and a
// [Folder] keeps those of archives that took long to open. Formats know nothing of
// it. An index is a cache: [Head.Bound] is compared with the archive first, and the
// archive is asked where the index is damaged.
//
//	"holdall index 2\n"
//	table                names, sizes and places once more, to be mapped
//	pages of rows        entries, in the order of directory and name
//	pages of order       which row comes first, second, … in the archive
//	                     or, where that order is scattered, all rows in it once more
//	pages of digests     of pieces of contents, 32 bytes each
//	points               where long compressed runs can be decoded from
//	nodes                where the pages are, and the first key of each
//	root                 JSON: what archive it is of, and where the topmost nodes are
//	head of the table    JSON: where it has what
//	32 bytes             where the root is, and "holdall2"
//
// A page is compressed with zstd; whoever leads to it has its length before and after
// that, and its CRC-32C. The bytes are described in docs/index.md.
package kept
