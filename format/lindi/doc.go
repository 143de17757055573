// Package lindi reads, checks, mends, writes and changes LINDI archives: Zarr
// hierarchies of neuroscience, as a tar with an index, as a JSON text of
// references, or as a folder.
//
// It is registered by package format/all; programs that only want archives need
// package holdall.
//
// A LINDI tar is an uncompressed ustar file in which everything is found from
// the front:
//
//	0       header of .tar_entry.json
//	512     {"index": {"o": …, "d": …, "s": …}}, 1024 bytes with padding
//	1536    header                       ┐
//	        .tar_index.json: a row for   │ wherever the entry says,
//	        each member: name, header,   │ here while it has not
//	        content, size; and padding   ┘ outgrown its place
//	        header, lindi.json, padding  ─ wherever the index says
//	        header, blobs/a/0.0          ┐
//	        header, .trash/…             │ members in any order
//	        …                            ┘
//	        1024 zero bytes
//
// lindi.json is a reference file system: keys of a Zarr v2 hierarchy, each with
// its content, or with a reference [where, offset, length]. "./NAME" is a member,
// anything else an address or a path outside.
//
// The code goes by these things: text.go is JSON as Python has it, index.go and
// rfs.go are the two texts, layout.go is tar headers, scan.go finds members
// without an index; archive.go puts them together, reader.go and keys.go are the
// two views; writer.go decides what becomes a member, runs.go joins what is short,
// tarwriter.go and sinks.go write; verify.go, repair.go and amend.go say what they do. What the reference
// does and where we differ is in docs/lindi.md.
package lindi
