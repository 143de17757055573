// Package repo reads what the directory of an Apache Oak segment store contains besides the
// contents of its tars: the list of tars, the journal, the manifest and the log of garbage
// collections. It opens no tars, takes no locks and changes nothing.
//
// The files of a repository are:
//
//	data00000a.tar   segments: the number is the order of writing, the letter that of cleanups
//	journal.log      revisions, the newest at the end
//	manifest         the version of the store
//	gc.log           one line for each garbage collection
//	repo.lock        empty, locked by the writer
//	<tar>.bak        a tar before a recovery
//	<tar>.ro.bak     a tar that was recovered for a read-only program
//
// The journal and the log are read from their ends, in about 70 KiB of memory whatever their
// length.
package repo
