// Package databundle is DataBundle: datasets in shards of compressed records, with
// a sorted index.
//
// It is for the engine; programs open bundles with package holdall.
//
// A bundle is a folder:
//
//	index/            a directory of the LevelDB family
//	shard-00000000    "daBS", header, records
//	shard-00000001    …
//
// A shard is one stream of bytes, files end to end. It is cut into records, each
// of which is compressed alone and begins at a multiple of the alignment; a record
// that is all zeros is not stored. Neither how long a record is nor how long it was
// is stored with it: the next one's row says both, and of the last record only the
// files that lie in it. A shard without compression has no records.
//
// The index has, in the order of its keys (key.go), one row for the bundle, one for
// each file and directory, and one for each record; values are protobuf messages
// (message.go). A bundle of one shard may have the rows in that shard's header.
//
// The code goes by these things: layout.go is names, constants and words for
// faults; index.go finds rows and writes them; archive.go and reader.go say what
// they mean, and regions.go what is no content. Bundles are made by options.go,
// writer.go, compress.go and writer_rows.go, which puts rows in order. verify.go
// checks them. Of a repair, repair_index.go finds rows, repair_judge.go what is
// stored and which rows are worth keeping, repair_rows.go writes the new ones, and
// repair.go holds it together.
package databundle
