// Package databundle reads, writes, checks and repairs DataBundles: datasets in shards of
// compressed records, with a sorted index. Its [Format] is used by package holdall; programs open
// bundles there.
//
// A bundle is a folder:
//
//	index/            a directory of the LevelDB family
//	shard-00000000    "daBS", header, records
//	shard-00000001    …
//
// A shard is a stream of bytes with the files end to end. It is divided into records. Each record
// is compressed separately and begins at a multiple of the alignment; a record that is all zeros
// is not stored. Neither the compressed nor the uncompressed size of a record is stored with it:
// both follow from the row of the next record. For the last record, only the files in it show its
// size. A shard without compression has no records.
//
// The index has, in the order of its keys (key.go), one row for the bundle, one for each file and
// directory, and one for each record. Values are protobuf messages (message.go). A bundle with
// one shard may have the rows in that shard's header.
//
// The code: layout.go has names, constants and the words for faults. index.go finds and writes
// rows. archive.go and reader.go interpret them, and regions.go returns what is not content.
// options.go, writer.go, compress.go and writer_rows.go, which sorts rows, write bundles.
// verify.go checks them. For repairs, repair_index.go finds rows, repair_judge.go examines what
// is stored and decides which rows to keep, repair_rows.go writes the new ones, and repair.go
// combines these.
package databundle
