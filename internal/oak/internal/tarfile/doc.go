// Package tarfile reads, checks, salvages and writes the tar files of Apache Oak's segment store.
// It handles only single tars, and only the header of a segment.
//
// A tar that was closed consists of blocks of 512 bytes:
//
//	header ‖ segment ‖ zeros up to a block       "<uuid>.<crc32 of the segment>"
//	…
//	header ‖ zeros ‖ binary references ‖ footer  "<file>.brf"
//	header ‖ zeros ‖ graph ‖ footer              "<file>.gph"
//	header ‖ zeros ‖ index ‖ footer              "<file>.idx"
//	two blocks of zeros
//
// A footer is crc32, count, size and magic. It ends where the next header begins, so everything
// can be found from the end. The sizes in index and headers are those of segments, without zeros.
// The size of the index includes its zeros; those of graph and binary references do not.
//
// A tar whose writer was killed ends anywhere and has no index. [Open] then returns a [*NoIndex],
// and [Scan] finds what is there. Oak's readers stop at the first damaged size, and accept
// segments whose header has a wrong checksum; Scan does neither.
//
// The code: name.go, header.go, index.go, graph.go and binaries.go are the bytes. open.go reads a
// sound tar, check.go checks it, scan.go and repair.go read a damaged one, and writer.go writes.
package tarfile
