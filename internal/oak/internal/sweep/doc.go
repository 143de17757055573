// Package sweep finds what is garbage in an Oak segment store, and writes tars anew
// without it.
//
// It is for package oak; it opens no folder, reads no journal and removes no file.
// Its caller opens the tars, says which revision is the newest, and removes a tar
// once another one has taken its place.
//
// What is garbage goes by generations, and for bulk segments by references:
//
//   - a data segment is garbage if it is too old for the newest revision's
//     generation, as [Options] have it;
//   - a compacted data segment is garbage if it was written behind the newest
//     compacted root: it is left of a compaction that was broken off;
//   - any other segment is garbage if no data segment that is kept refers to it.
//
// Whether a data segment can be reached does not matter. A tar whose garbage is a
// quarter of it or less stays as it is, for which reason there are always segments
// that refer to others which are gone.
//
// Oak decides the same, by one walk from the newest segment to the oldest. There are
// these differences, all of which keep data that Oak loses or mend what it fails over:
//
//   - A bulk segment is kept wherever it stands: Oak loses one that is not before all
//     that refer to it.
//   - A bulk segment is never garbage for being compacted, as Oak has all segments of
//     tars before Oak 1.8.
//   - Of a segment that is in several tars each copy is decided on for itself: Oak
//     removes all if it would remove one.
//   - A graph that is damaged is read from the segments themselves, over which Oak
//     fails; so are damaged binary references, of which Oak writes none. A tar with
//     such a part is written anew whatever its garbage.
//   - A segment whose checksum is wrong keeps it: Oak makes it right, after which
//     nothing shows the damage.
//   - Sizes are of 64 bits: Oak's overflow over 683 MiB.
//   - A tar without a letter in its name gets one: Oak writes over the next tar.
//   - A root that is in no tar is an error: Oak takes all that was compacted for
//     garbage.
//
// plan.go has what is decided, and gc.log, the log beside the tars; mark.go decides,
// sweep.go writes.
package sweep
