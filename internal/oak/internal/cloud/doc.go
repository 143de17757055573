// Package cloud knows how Oak keeps a segment store in a container of Azure or in a bucket
// of S3, and shows it as tars:
//
//	data00000a.tar/0000.UUID …          a blob for each segment, by its number in the archive
//	data00000a.tar/data00000a.tar.brf   references to binaries, and .gph, the graph
//	data00000a.tar/data00000a.tar.idx   generations of segments: in buckets of S3 alone
//	data00000a.tar/closed               nothing; its writer came to its end
//	journal.log.001 …                   revisions: blobs that are appended to
//	manifest, gc.log, repo.lock         as beside tars
//
// What the index of a tar says of a segment is in Azure among the metadata of its blob, which
// come with a listing. There are no checksums of segments.
//
// A [Listing] takes names as they are listed; its [View] is a store in which each archive
// is a tar, which is made as it is read: headers without checksums, segments out of their
// blobs, an index of what was listed. So all that reads tars reads these, and nothing that
// writes tars can write here.
package cloud
