// Package audit checks an Apache Oak segment store, and reports what problems mean for its owner.
// It changes nothing.
//
// There are two depths. [Audit.Quick] reads the ends of the tars, the journal and the other
// files: index, graph and references to binaries, and whether they agree. [Audit.Full] also reads
// each segment with its header, and compares graph and references to binaries with those of the
// segments.
//
// Both consist of units, several of which can run concurrently:
//
//	Directory   names, letters, manifest, duplicates      once
//	Tail        the end of one tar                        for each tar, in parallel
//	Segments    the segments of one tar                   for each tar, or its Parts in parallel (full)
//	Across      journal, gc.log, and all references       once, after all others
//
// Each unit always reports in the same order. The memory is 24 bytes for each segment, besides
// what the caller has open, and for each unit one window of a tar or one graph.
//
// A reference to a missing segment is damage only if the head needs the segment that contains the
// reference. Cleanups leave some garbage in tars, and what that refers to may have been removed.
// So the segments that are needed are found by following references from the head.
package audit
