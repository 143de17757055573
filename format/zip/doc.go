// Package zip reads and writes zip archives, so that other formats can be converted
// from and to what everybody has.
//
// It is registered by package format/all; programs that only want archives need
// package holdall. It is no sixth format to pack into, though it has an index: each
// file is compressed by itself, and what its index says is said again in front of
// each file, where nobody can find it without reading there. For servers there is a
// [Stream].
//
//	"PK\3\4"  name, sizes, crc32 ┐ for each entry; sizes may stand behind the
//	…         content            ┘ content instead ("PK\7\8")
//	"PK\1\2"  the same, permissions, where the entry begins: the central directory
//	"PK\5\6"  where the directory begins; of long archives also "PK\6\6", "PK\6\7"
//
// All numbers are little-endian. What is too long for its field is FFFF or FFFFFFFF
// there, and stands in an extra field or in "PK\6\6".
package zip
