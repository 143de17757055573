// Package repo reads what the directory of an Apache Oak segment store has besides
// the contents of its tars: which tars there are, journal, manifest and the log of
// garbage collections.
//
// It is for package oak; it opens no tar, takes no lock and changes nothing.
//
// The files of a repository are:
//
//	data00000a.tar   segments: the number is the order of writing, the letter that of cleanups
//	journal.log      revisions, the newest at the end
//	manifest         the version of the store
//	gc.log           one line for each garbage collection
//	repo.lock        empty, locked by who writes
//	<tar>.bak        what a tar was before a recovery
//	<tar>.ro.bak     what a recovery made of a tar for somebody who may not write
//
// Journal and log are read from their ends, in memory of some 70 KiB, however long
// they are.
package repo
