// Package rescue makes a sound tar from damaged ones of an Apache Oak segment store. It handles
// one number of the store's tars, and learns about the others only through [Copies]. It changes
// no existing files; the caller moves the old tars away.
//
// [Survey] reads the files of a number. Usually there is one; if a cleanup was killed, there are
// several letters. It makes a [Plan]: which segments the new tar will contain, and where their
// bytes are. [Write] reads these and writes the tar.
//
// The newest letter with a sound index defines which segments belong to the tar. Other letters are
// only used for copies of segments that are damaged there, and segments that a cleanup removed stay
// removed. If no letter has an index, all segments in any letter belong to the tar, in ascending
// order of letters, as in Oak's recovery. If a segment has several copies, the one with the best
// [Proof] is used.
//
// Oak's own recovery differs. It uses a letter with an index unchanged, damaged or not. It loses
// everything after a damaged size. It stops at a segment of an unknown version. It holds all
// segments in memory. If there is nothing in the tar, the whole store fails to open.
//
// The code: survey.go visits the letters. judge.go rates segments that an index names or a scan
// finds. plan.go makes the plan. write.go says package transfer what the tar
// has.
package rescue
