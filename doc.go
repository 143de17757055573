// Package holdall packs many files into a few archives, and lists, reads, verifies, repairs,
// converts and changes archives. Archives have an index, so any file can be read without reading
// the rest.
//
//	a, err := holdall.Open(ctx, "https://example.org/pack.caf", holdall.OpenOptions{})
//	…
//	defer a.Close()
//	f, err := a.Open(ctx, "docs/report.pdf")
//
// [Open] opens an archive on disk, on a web server or in a bucket. [Pack] makes an archive from
// files, [Extract] writes its files to disk, and [Convert] writes its entries into a new archive.
// [Verify] reports what is wrong with an archive, and [Repair] plans how to fix it. [Amend] opens
// an archive for changes in place. [Diff] compares two archives.
//
// Formats and stores are packages of their own. To support all of them, import both for their
// side effects:
//
//	import (
//		_ "github.com/holdall/holdall/format/all"
//		_ "github.com/holdall/holdall/store/all"
//	)
//
// To add a format, see package format. To add a place where archives can be stored, see package
// store.
package holdall
