// Package rvn reads, checks, mends and writes RVN archives, version 3: the
// packages of Ravenports.
//
// It is registered by package format/all; programs that only want archives need
// package holdall.
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
// So no file has an offset: it is the sum of the sizes before it, within one
// frame that can only be decoded from its beginning. Ours can be read at random
// all the same. Block 4 is still one frame, which every reader takes, but it is
// made of sections, cut between files, none of which refers to anything before
// it:
//
//	28 B5 2F FD 00 WD          frame header
//	zstd blocks                section
//	zstd blocks                section
//	…
//	01 00 00                   empty last block
//
// and where they begin stands in a skippable frame at the end of block 3
// (sections.go), so that header, metadata, index and this table are one prefix.
// The condition on which such a frame may be merged is in frame.go.
//
// The code goes by these things: layout.go is the header, the records and the
// table; frame.go is what zstd frames look like from outside; index.go is block 3
// as a table of entries; archive.go reads the prefix, and finds out what a
// damaged header should have said; reader.go and metadata.go are the two views;
// writer.go and contents.go write; verify.go and repair.go say what they do.
// What the reference does and where we differ is in docs/rvn.md.
package rvn
