// Package sweep finds garbage in an Oak segment store, and rewrites tars without it. The caller
// opens the tars, provides the newest revision, and removes a tar after another one has replaced
// it.
//
// Garbage is found by generations and, for bulk segments, by references:
//
//   - A data segment is garbage if it is too old for the newest revision's generation; see
//     [Options].
//   - A compacted data segment is garbage if it was written after the newest compacted root,
//     because it is left from an interrupted compaction.
//   - Any other segment is garbage if no data segment that is kept refers to it.
//
// It does not matter whether a data segment can be reached. A tar with at most a quarter of
// garbage is not rewritten, so there are always segments that refer to missing ones.
//
// Oak decides in the same way, by one walk from the newest segment to the oldest. The differences
// keep data that Oak loses, or repair what it fails on:
//
//   - A bulk segment is kept wherever it is. Oak loses one that is not before all segments that
//     refer to it.
//   - A bulk segment is never garbage for being compacted, as all segments of tars before Oak 1.8
//     are for Oak.
//   - If a segment is in several tars, each copy is decided separately. Oak removes all if it
//     would remove one.
//   - A damaged graph is derived from the segments; Oak fails. Damaged binary references are
//     derived too; Oak then writes none. A tar with such damage is rewritten whatever its
//     garbage.
//   - A segment with a wrong checksum keeps it. Oak corrects the checksum, which hides the
//     damage.
//   - Sizes have 64 bits. Oak's overflow above 683 MiB.
//   - A tar without a letter in its name gets one. Oak overwrites the next tar.
//   - If a root is in no tar, that is an error. Oak takes everything that was compacted for
//     garbage.
//
// plan.go has the decisions, and gc.log, the log beside the tars. mark.go decides, and sweep.go
// writes, by package transfer.
package sweep
