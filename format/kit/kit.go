// Package kit has what formats are made of: readers and writers for usual layouts, and the smaller
// pieces of which formats with other layouts consist. It is for packages that add a format; it needs
// no engine, cache or network.
//
// Begin with what fits the layout:
//
//   - Contents are stored as they are, each after a header: read with [OpenRuns], write with
//     [NewMembers]. Package format/formattest/ar is an example.
//   - An index lists the contents: read its place with [OpenPart], make an [Index] of it, or a
//     [LateIndex] if it is large, and return contents with [RunExtents].
//   - Contents are written as they come, and the index last: an [Appender], and a [Spill] for the
//     rows of the index.
//   - A content must be known before its header is written: [Spool] and [CopyContent].
//
// Return damage as errors of [Corrupt] or [Classes], and check an archive with [Reported] and
// [CheckEntries]. Lists of millions are in package columns, sorting in package sorter, and work on
// several goroutines in package pipe. Package naming is about names of entries.
package kit
