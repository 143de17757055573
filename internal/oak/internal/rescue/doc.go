// Package rescue makes a sound tar of damaged ones, of Apache Oak's segment store.
//
// It is for package oak; it knows one number of the tars of a store, and of the
// others only what it is told by [Copies]. It changes nothing that is there: moving
// the old tars out of the way is the caller's.
//
// [Survey] reads what is there of a number, mostly one file, at times several
// letters that a cleanup left when it was killed, and makes a [Plan]: which segments
// the new tar will have and where their bytes lie. [Write] reads these again and
// writes the tar.
//
// Which segments belong to the tar is what the newest letter with a sound index says:
// other letters then only have copies of what is damaged there. What a cleanup left
// out of it stays left out. If no letter has an index
// all that is found in any belongs, in ascending order of letters, as in Oak's
// recovery.
//
// Of the copies of a segment the one that is known best is taken. See [Proof].
//
// Oak's own recovery differs: it takes a letter with an index as it is, damaged or
// not; loses all behind a damaged size; ends over a segment of a version that it
// does not know; holds all segments in memory; and makes the whole store fail to
// open if there is nothing in the tar.
//
// The code goes by these steps: survey.go visits the letters, judge.go says what a
// segment is worth that an index names or a scan found; plan.go is what that comes to;
// write.go writes, with the names of binaries.
package rescue
