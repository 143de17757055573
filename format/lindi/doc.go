// Package lindi reads, checks, repairs, writes and changes LINDI archives: Zarr hierarchies of
// neuroscience, as a tar with an index, as a JSON text of references, or as a folder. Its
// [Format] is used by package holdall; programs open archives there.
//
// A LINDI tar is an uncompressed ustar file in which everything is found from the front:
//
//	0       header of .tar_entry.json
//	512     {"index": {"o": …, "d": …, "s": …}}, 1024 bytes with padding
//	1536    header                       ┐
//	        .tar_index.json: a row for   │ at the place in the entry, which is
//	        each member: name, header,   │ here as long as it has not
//	        content, size; and padding   ┘ outgrown its place
//	        header, lindi.json, padding  ─ at the place in the index
//	        header, blobs/a/0.0          ┐
//	        header, .trash/…             │ members in any order
//	        …                            ┘
//	        1024 zero bytes
//
// lindi.json is a reference file system: the keys of a Zarr v2 hierarchy, each with its content
// or with a reference [where, offset, length]. "./NAME" is a member; anything else is an address
// or a path outside the archive.
//
// The code: text.go parses JSON like Python, index.go and rfs.go parse the two texts, layout.go
// has tar headers, and scan.go finds members without an index. archive.go combines these, and
// reader.go and keys.go are the two views. writer.go decides what becomes a member, runs.go joins
// short contents, and tarwriter.go and sinks.go write. verify.go, repair.go and amend.go do what
// their names say. docs/lindi.md describes the reference and the differences.
package lindi
