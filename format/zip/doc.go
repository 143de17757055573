// Package zip reads and writes zip archives, so that other formats can be converted from and to
// zip. Its [Format] is used by package holdall; programs open archives there. It is not a format
// to pack into: each file is compressed separately, and the place of its content is known only
// after reading the header before it. For servers there is a [Stream].
//
//	"PK\3\4"  name, sizes, crc32 ┐ for each entry; sizes may follow the
//	…         content            ┘ content instead ("PK\7\8")
//	"PK\1\2"  the same, permissions, where the entry begins: the central directory
//	"PK\5\6"  where the directory begins; of long archives also "PK\6\6", "PK\6\7"
//
// A split archive is cut anywhere; its parts are x.z01, x.z02, …, x.zip, and offsets are relative to the
// part that a row or an end record names.
//
// All numbers are little-endian. A value that is too large for its field is FFFF or FFFFFFFF
// there, and is in an extra field or in "PK\6\6".
package zip
