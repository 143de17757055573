// Package rvn reads, checks, repairs and writes RVN archives, version 3: the packages of
// Ravenports. Its [Format] is used by package holdall; programs open archives there.
//
// An RVN archive is a header and three blocks, back to back:
//
//	0                 header, 64 bytes: counts, and lengths before ("comp") and
//	                  after ("flat") decompression
//	64                block 2, metadata: UCL text           ┐ each nothing, or
//	+ meta_comp       block 3, index: group names, owner    │ one zstd frame and
//	                  names, link targets, a record of 64   │ perhaps skippable
//	                  bytes for each file, names            │ ones
//	+ index_comp      block 4, the contents of all regular  │
//	                  files, end to end, in record order    ┘
//
// So the offset of a file is the sum of the sizes before it, within one frame that can only be
// decoded from its beginning. Archives that holdall writes allow random reads nevertheless. Block
// 4 is still one frame, which all readers accept. It consists of sections that do not refer to
// anything before them, and usually begin with a file:
//
//	28 B5 2F FD 00 WD          frame header
//	zstd blocks                section
//	zstd blocks                section
//	…
//	01 00 00                   empty last block
//
// A skippable frame at the end of block 3 says where they begin (sections.go), so that header,
// metadata, index and this table are one prefix. frame.go has the condition for merging such
// frames.
//
// The code: layout.go has the header, the records and the table. frame.go parses zstd frames
// without decoding them. index.go is block 3 as a table of entries. archive.go reads the prefix,
// and finds out what a damaged header should contain. reader.go and metadata.go are the two
// views. writer.go and contents.go write. verify.go and repair.go do what their names say.
// docs/rvn.md describes the reference and the differences.
package rvn
