// Package cloud reads and writes segment stores that Oak keeps in a container of Azure, reads those in
// an S3 bucket, and presents them as tars:
//
//	data00000a.tar/0000.UUID …          a blob for each segment, by its number in the archive
//	data00000a.tar/data00000a.tar.brf   references to binaries, and .gph, the graph
//	data00000a.tar/data00000a.tar.idx   generations of segments: in buckets of S3 alone
//	data00000a.tar/closed               nothing; its writer came to its end
//	journal.log.001 …                   revisions: blobs that are appended to
//	manifest, gc.log, repo.lock         as beside tars
//
// In Azure, what the index of a tar says about a segment is in the metadata of its blob, which a
// listing contains. There are no checksums of segments.
//
// A [Listing] collects listed names. Its [View] is a store in which each archive is a tar that is
// generated while it is read: headers without checksums, segments from their blobs, and an index
// from the listing. So all code that reads tars can read these stores. If it is a view of a [Leased]
// store, code that writes tars can write them, too: a tar that is created becomes an archive.
package cloud
