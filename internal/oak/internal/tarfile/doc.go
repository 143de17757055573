// Package tarfile reads, checks, salvages and writes the tar files of Apache Oak's
// segment store.
//
// It is for package oak; it knows nothing of a directory of tars, of revisions or
// of records, and of a segment only its header.
//
// A tar that was closed is, in blocks of 512 bytes:
//
//	header ‖ segment ‖ zeros up to a block       "<uuid>.<crc32 of the segment>"
//	…
//	header ‖ zeros ‖ binary references ‖ footer  "<file>.brf"
//	header ‖ zeros ‖ graph ‖ footer              "<file>.gph"
//	header ‖ zeros ‖ index ‖ footer              "<file>.idx"
//	two blocks of zeros
//
// A footer is crc32, count, size and magic: it ends where the next header begins,
// so that everything is found from the end. The sizes in index and headers are
// those of segments, without zeros; the size of the index has its zeros in it, that
// of graph and binary references has not.
//
// A tar whose writer was killed ends anywhere and has no index: [Open] says so by
// a [*NoIndex], and [Scan] finds what is there. Readers of Oak stop at the first
// damaged size, and take what has a wrong checksum in its header; Scan does neither.
//
// The code goes by these things: name.go, header.go, index.go, graph.go and binaries.go are the bytes;
// open.go reads a sound tar, check.go looks for what is wrong with it, scan.go and mend.go
// read one that is not sound; writer.go writes.
package tarfile
