// Package sstable reads, checks, salvages and writes directories of the LevelDB family, which are
// the sorted key/value index of a DataBundle. It is not a database: a directory is written once,
// from beginning to end, and then only read.
//
//	CURRENT           "MANIFEST-000002\n"
//	MANIFEST-000002   log of version edits: which tables and logs there are
//	000003.log        log of write batches that are in no table yet
//	000004.sst …      tables: rows in key order
//	LOCK, IDENTITY    ignored by readers
//
// A table is data blocks, an index block with a key and a place for each of them, and a footer
// with the place of the index:
//
//	data block ‖ compression u8 ‖ masked crc32c u32
//	…
//	metaindex block ‖ …
//	index block ‖ …
//	footer, 48 bytes: two block handles, zeros, magic
//
// Directories are written by several programs, which agree on most things. [Open] reads what
// LevelDB, goleveldb and dacha write. What only RocksDB and pebble support is refused as
// [Unsupported]. [Writer] writes what all of them read.
//
// Open requests the beginnings of CURRENT, of the manifest and of each log, one after another.
// The end of a table is read at the first lookup of one of its keys, and then the block of the
// key. For a directory that Writer wrote, [First] returns all of these ranges except the last.
// Requesting them in parallel, through a cache that Open then reads from, saves the round trips.
//
// The code: layout.go has names, keys and numbers. block.go, record.go, batch.go and manifest.go
// are the contents of files. table.go and cache.go keep tables open. db.go, scan.go and check.go
// are operations on a directory. salvage.go and chain.go read a directory without a manifest.
// build.go and writer.go write one.
package sstable
