package audit

import (
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// How bad a problem is.
const (
	Note    = format.Note
	Warning = format.Warning // something is wrong, but nothing is lost
	Error   = format.Error   // something is lost, or will be
)

// Class is the kind of a problem.
type Class struct {
	name    string
	Code    format.Code // the general code
	Meaning string      // to the owner of the store
}

func (c Class) String() string { return c.name }

var (
	// Of the directory.
	IgnoredTar     = Class{"ignored-tar", format.BadHeader, "Oak does not see this file: if it is a renamed tar, its segments are missing from the store"}
	NameClash      = Class{"name-clash", format.Duplicate, "Oak refuses to open a store with two files of one number and letter: remove one of them"}
	NumberTooLarge = Class{"number-too-large", format.BadHeader, "Oak fails over this name and does not open the store: rename the file"}
	NoLetter       = Class{"no-letter", format.BadHeader, "the next cleanup renames this tar, and the open after it deletes that file: content is lost; rename the tar to have the letter a"}
	Letters        = Class{"letters", format.Duplicate, "a cleanup or a recovery was interrupted: the next open for writing keeps one of these files and deletes the others"}
	Leftovers      = Class{"leftovers", format.Gap, "recoveries left these files; Oak never reads or deletes them"}
	BadManifest    = Class{"manifest", format.BadHeader, "Oak does not open this store, or assumes a wrong version"}
	OldManifest    = Class{"manifest-old", format.BadHeader, "after the first open for writing by Oak 1.8 or later, Oak 1.6 can no longer open this store"}
	UnknownFile    = Class{"unreadable", format.MissingVolume, "this file could not be read, so its content is unknown"}
	DuplicateTars  = Class{"duplicate-segment", format.Duplicate, "Oak reads the segment from the newest tar; a cleanup or a copy was interrupted, or tars of two stores were mixed"}

	// Of the end of a tar.
	NotClosed   = Class{"not-closed", format.MissingIndex, "the store is open right now, or its writer was killed: the next open for writing makes a new file from it, and each read-only open makes another copy"}
	NoIndex     = Class{"no-index", format.MissingIndex, "Oak cannot read this tar: the next open for writing makes a new file from the segments it finds, and each read-only open makes another copy; damaged segments are dropped silently"}
	EmptyTar    = Class{"empty-tar", format.Truncated, "this file has no segment, so Oak does not open the store; without the file it does"}
	BadIndex    = Class{"index", format.BadIndex, "the index points to places with no segment or the wrong one: Oak fails when it reads the content there"}
	BadGraph    = Class{"graph", format.BadIndex, "Oak cannot clean up or compact this store: it fails at this tar, and does not see the tar's references to binaries"}
	BadBinaries = Class{"binaries", format.BadIndex, "Oak assumes that this tar refers to no binaries: a garbage collection of the data store deletes binaries in use"}
	OddGraph    = Class{"graph-odd", format.BadIndex, "no cleanup wrote this graph: the next one may keep or delete the wrong segments"}
	OddBinaries = Class{"binaries-odd", format.BadIndex, "no known writer wrote these references: a garbage collection of the data store may go wrong"}
	BadTail     = Class{"tail", format.BadHeader, "Oak does not use this when it reads, but a recovery of this tar may fail here"}
	Gap         = Class{"gap", format.Gap, "these bytes belong to no segment, and Oak never reads them: something overwrote the tar or its index"}

	// Of the segments of a tar.
	BadHeader     = Class{"entry-header", format.BadHeader, "Oak still reads this segment, but a recovery of this tar could lose it"}
	BadPadding    = Class{"padding", format.BadData, "Oak still reads this segment, but something overwrote its padding"}
	BadChecksum   = Class{"checksum", format.BadChecksum, "these bytes have changed since they were written, and Oak does not notice: it may read wrong content here"}
	BadSegment    = Class{"segment", format.BadData, "Oak cannot read this segment: everything in it, or below it in the tree, is lost"}
	BadGeneration = Class{"generation", format.BadIndex, "a cleanup uses the index and a recovery the segment: one of them would keep or delete the wrong segment"}
	BadRecords    = Class{"records", format.BadData, "the segment is unchanged since it was written, but its records break the format: its content may be unreadable"}
	WrongGraph    = Class{"graph-wrong", format.BadIndex, "a cleanup uses the graph: it deletes segments in use, or keeps unused ones"}
	WrongBinaries = Class{"binaries-wrong", format.BadIndex, "a garbage collection of the data store uses these references: it deletes binaries in use, or keeps unused ones"}
	Unrecoverable = Class{"unrecoverable", format.BadData, "a recovery of this tar cannot save these bytes"}

	// Of the store.
	NoJournal   = Class{"no-journal", format.MissingIndex, "no line of the journal has an existing revision: Oak silently starts an empty repository, and its next cleanup deletes the old content; 'holdall oak recover-journal' writes a journal, before Oak opens the store"}
	BadJournal  = Class{"journal-line", format.BadData, "Oak skips this line of the journal"}
	JournalEnd  = Class{"journal-end", format.Truncated, "Oak appends to this line, and loses what it appends; 'holdall repair' ends the line; newer lines may be lost: 'holdall oak recover-journal --dry-run' shows the newest revision"}
	JournalCut  = Class{"journal-cut", format.Truncated, "a part of the journal is lost: Oak may silently show an older revision; 'holdall oak recover-journal' rebuilds the journal"}
	JournalOld  = Class{"journal-old", format.Truncated, "this is normal if a program was killed, or the newest revisions were taken back; otherwise lines of the journal are lost: 'holdall oak recover-journal --dry-run' shows the newest"}
	HeadRewound = Class{"head-rewound", format.Dangling, "the newest revisions are lost: Oak silently shows an older one; 'holdall oak restore' takes what is missing from a backup"}
	HeadBroken  = Class{"head-broken", format.Dangling, "the newest revision cannot be read: Oak fails, or shows nothing; 'holdall oak restore' takes what is missing from a backup, 'holdall oak check' finds an older revision that is intact, 'holdall oak salvage' writes what is left to a new store"}
	HeadUnknown = Class{"head-unknown", format.Dangling, "the newest revision cannot be found without reading the tars that have no index"}
	Missing     = Class{"missing-segment", format.Dangling, "content that the newest revision needs is gone: Oak fails when it reads it; 'holdall oak restore' takes it from a backup"}
	Unknown     = Class{"unknown-segment", format.Dangling, "these segments cannot be found without reading the tars that have no index"}
	GarbageRefs = Class{"garbage-references", format.Gap, "earlier cleanups deleted segments that only garbage refers to: this is normal"}
	BadGCLog    = Class{"gc-log-line", format.BadData, "Oak reads this line as a garbage collection of nothing, or ignores it"}
	NoGCRoot    = Class{"gc-log-root", format.Dangling, "the newest line names a revision that is gone: the next cleanup of a running Oak deletes all compacted segments, even those in use (OAK-12119); before that, 'holdall oak check --fix-gc' makes the store safe"}
	StaleGCLog  = Class{"gc-log-stale", format.Dangling, "a compaction left no line: the next cleanup of a running Oak treats these segments as leftovers of a failed one and deletes those in use (OAK-12119); before that, 'holdall oak check --fix-gc' makes the store safe"}
	Order       = Class{"order", format.Overlap, "the next cleanup of Oak treats these segments as leftovers and deletes them, though they are in use (OAK-12400); 'holdall oak check --fix-gc' makes the store safe"}
	TooMany     = Class{"more", format.Limit, "only the first of many of the same kind are reported"}
	TooLarge    = Class{"too-large", format.Limit, "not checked, because it exceeds the size limit"}
)

type Problem struct {
	Class      Class
	Severity   format.Severity
	Tar        string // name of the file in the directory, which need not be a tar; "" is the directory
	Off        int64  // in the file; -1 if it has no place
	Segment    tarfile.ID
	HasSegment bool
	What       string // found, and what was expected
}

// ofAClass is how many problems of a class a unit reports, because a file could have millions.
const ofAClass = 1000

type teller struct {
	report func(Problem)
	told   map[key]int
	over   []Problem // the first of each kind that was not reported
}

type key struct {
	class    Class
	severity format.Severity
}

func newTeller(report func(Problem)) *teller {
	return &teller{report: report, told: map[key]int{}}
}

func (t *teller) tell(p Problem) {
	k := key{p.Class, p.Severity}
	t.told[k]++
	switch n := t.told[k]; {
	case n <= ofAClass:
		t.report(p)
	case n == ofAClass+1:
		t.over = append(t.over, p)
	}
}

// add adds what another teller has reported, and what it has not.
func (t *teller) add(o *teller, reported []Problem) {
	for _, p := range reported {
		t.tell(p)
	}
	for _, p := range o.over {
		k := key{p.Class, p.Severity}
		t.tell(p)
		t.told[k] += o.told[k] - ofAClass - 1
	}
}

// end reports the number of problems that were not reported one by one.
func (t *teller) end() {
	for _, p := range t.over {
		t.report(Problem{Class: TooMany, Severity: p.Severity, Tar: p.Tar, Off: p.Off,
			What: fmt.Sprintf("%s: %d more from here on", p.Class, t.told[key{p.Class, p.Severity}]-ofAClass)})
	}
}

func (t *teller) about(c Class, s format.Severity, tar string, off int64, format string, a ...any) {
	t.tell(Problem{Class: c, Severity: s, Tar: tar, Off: off, What: fmt.Sprintf(format, a...)})
}

func (t *teller) of(c Class, s format.Severity, tar string, off int64, id tarfile.ID, format string, a ...any) {
	t.tell(Problem{Class: c, Severity: s, Tar: tar, Off: off, Segment: id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}
