// Package audit says what is wrong with an Apache Oak segment store, and what that
// means to the one who owns it.
//
// It is for package oak; it changes nothing, and mends nothing.
//
// There are two depths. [Audit.Quick] reads what stands at the ends of the tars, the
// journal and the other files: index, graph, references to binaries, and what they
// say of each other. [Audit.Full] also reads each segment with the header before it,
// and makes graph and references to binaries anew from the segments to compare.
//
// Both are made of units, for those who want to do several at once:
//
//	Directory   names, letters, manifest, duplicates      once
//	Tail        what stands at the end of one tar         for each tar, in parallel
//	Segments    the segments of one tar                   for each tar, in parallel (full)
//	Across      journal, gc.log, and what refers to what  once, after all others
//
// Each unit reports in the same order each time. In memory there are 24 bytes for
// each segment, besides what the caller has opened, and for each unit one window of a
// tar or one graph.
//
// A reference to a segment that is not there is damage only if the head needs what
// refers to it: cleanups leave garbage in tars that is not worth the work, and what
// that refers to may be gone. So what is needed is looked for from the head, by the
// references among segments.
package audit
