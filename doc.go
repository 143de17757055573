// Package holdall packs many files into a few archives, on disk, on web servers and in buckets, and
// lists, reads, verifies, repairs, converts and changes archives. Any file can be read without the
// rest. Import packages format/all and store/all for their side effects: they register all formats
// and stores. To add one, see packages format and store.
package holdall
