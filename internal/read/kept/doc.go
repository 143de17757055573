// Package kept reads and writes sidecar indexes of archives. A name among millions is found by
// reading a small part of an index.
//
// [Find] finds an index of an archive, [Reader] takes the place of a format's reader, and a
// [Folder] has the indexes of archives that took long to open. Formats do not know about indexes.
// An index is a cache: [Head.Bound] is compared with the archive before it is used, and where the
// index is damaged, the archive is read instead.
//
//	"holdall index 3\n"
//	pages of digests     of pieces of contents, 32 bytes each
//	pages of rows        entries, in the order of directory and name
//	pages of order       which row comes first, second, … in the archive
//	points               where long compressed runs can be decoded from
//	nodes                where the pages are, and the first key of each
//	root                 JSON: the version of the archive, and where the topmost nodes are
//	32 bytes             where the root is, and "holdall3"
//
// Pages of rows are used as they are, on a disk and on a network. A reference to a page has its
// length and its CRC-32. docs/bytes/index.md describes the bytes.
package kept
