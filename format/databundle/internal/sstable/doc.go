// Package sstable reads, checks, salvages and writes a directory of the LevelDB
// family: the sorted key/value index of a DataBundle.
//
// It is for package databundle; it is no database and changes nothing in place:
// a directory is written once, from front to back, and only read after that.
//
//	CURRENT           "MANIFEST-000002\n"
//	MANIFEST-000002   log of version edits: which tables and logs there are
//	000003.log        log of write batches that are in no table yet
//	000004.sst …      tables: rows in key order
//	LOCK, IDENTITY    nothing to a reader
//
// A table is data blocks, an index block that has a key and a place for each of
// them, and a footer that says where the index is:
//
//	data block ‖ compression u8 ‖ masked crc32c u32
//	…
//	metaindex block ‖ …
//	index block ‖ …
//	footer, 48 bytes: two block handles, zeros, magic
//
// Whoever wrote a directory had one of several programs, which agree on most
// things: LevelDB, goleveldb and dacha write what [Open] reads; what only RocksDB
// and pebble know is refused as [Unsupported]. [Writer] writes what all of them
// read.
//
// The requests that [Open] makes, one after another, are the beginning of CURRENT,
// of the manifest and of each log. The end of a table is read when a key of it is
// first asked for, and then the block of the key. [First] names all of them but
// the last for a directory that Writer wrote: who asks for these at once, in
// parallel, through a cache that Open then reads from, saves the round trips.
//
// The code goes by these things: layout.go is names, keys and numbers; block.go,
// record.go, batch.go and manifest.go are what stands in files; table.go and
// cache.go hold tables open; db.go, scan.go and check.go are what can be done with
// a directory; salvage.go and chain.go read one that has lost its manifest;
// build.go and writer.go make one.
package sstable
