// Package holdall opens, makes, checks and mends archives that pack many files
// into few objects and index them, so that any one file can be read without
// the rest.
//
//	a, err := holdall.Open(ctx, "https://example.org/pack.caf", holdall.OpenOptions{})
//	…
//	defer a.Close()
//	f, err := a.Open(ctx, "docs/report.pdf")
//
// [Open] reads an archive wherever it is; [Pack] makes one from files, [Extract]
// gives them back, [Convert] does both at once, [Verify] says what is wrong with
// an archive, [Repair] what can be done about it, and [Diff] how two of them
// differ.
//
// Formats and stores come from their own packages; a program that wants all of
// them imports holdall/format/all and holdall/store/all for their side effects.
// Whoever wants to add a format reads package format, and package store to add
// a place where archives can be.
package holdall
