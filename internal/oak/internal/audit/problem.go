package audit

import (
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// How bad a problem is.
const (
	Note    = format.Note
	Warning = format.Warning // nothing is lost, but something is not as it should be
	Error   = format.Error   // something is lost, or will be
)

// Class is the kind of a problem.
type Class struct {
	name    string
	Code    format.Code // the general word for it
	Meaning string      // to the owner of the store
}

func (c Class) String() string { return c.name }

var (
	// Of the directory.
	IgnoredTar     = Class{"ignored-tar", format.BadHeader, "Oak does not see this file: if it is a renamed tar, its segments are missing from the store"}
	NameClash      = Class{"name-clash", format.Duplicate, "Oak refuses to open a store with two files of one number and letter: one of them has to go"}
	NumberTooLarge = Class{"number-too-large", format.BadHeader, "Oak fails over this name and does not open the store: rename the file"}
	NoLetter       = Class{"no-letter", format.BadHeader, "what the next cleanup leaves of this tar gets a name that the open after it deletes: content is lost; rename it to have the letter a"}
	Letters        = Class{"letters", format.Duplicate, "a cleanup or a recovery was interrupted: the next open that may write keeps one of these files and deletes the others"}
	Leftovers      = Class{"leftovers", format.Gap, "recoveries left these files; Oak never reads or deletes them"}
	BadManifest    = Class{"manifest", format.BadHeader, "Oak does not open this store, or takes it for another version than it may be"}
	OldManifest    = Class{"manifest-old", format.BadHeader, "the first open by Oak 1.8 or later that may write makes this a store that Oak 1.6 cannot open any more"}
	UnknownFile    = Class{"unreadable", format.MissingVolume, "this file could not be read, so nothing is known of what it says"}
	DuplicateTars  = Class{"duplicate-segment", format.Duplicate, "Oak takes the segment from the newest tar; a cleanup or a copy was interrupted, or tars of two stores were mixed"}

	// Of the end of a tar.
	NotClosed   = Class{"not-closed", format.MissingIndex, "the store is open right now, or whoever wrote it was killed: the next open that may write makes a new file from it, and each one that may not makes another copy"}
	NoIndex     = Class{"no-index", format.MissingIndex, "Oak does not read this tar as it is: the next open that may write makes a new file of what it can find, and each one that may not makes another copy; what is damaged is left out without a word"}
	EmptyTar    = Class{"empty-tar", format.Truncated, "there is no segment in this file, and Oak does not open the store for it; without the file it would"}
	BadIndex    = Class{"index", format.BadIndex, "the index leads to places that hold no segment, or not the right one: Oak finds this out when it reads the content there"}
	BadGraph    = Class{"graph", format.BadIndex, "Oak cannot clean up or compact this store: it fails over this tar, and with it loses sight of the tar's references to binaries"}
	BadBinaries = Class{"binaries", format.BadIndex, "Oak takes this tar for one that refers to no binaries: a garbage collection of the data store deletes binaries that are in use"}
	OddGraph    = Class{"graph-odd", format.BadIndex, "no cleanup wrote this graph, and the next one may keep or delete wrongly"}
	OddBinaries = Class{"binaries-odd", format.BadIndex, "no writer wrote these references so; a garbage collection of the data store may go wrong"}
	BadTail     = Class{"tail", format.BadHeader, "Oak does not look at this when it reads; a recovery of this tar may go astray here"}
	Gap         = Class{"gap", format.Gap, "these bytes belong to nothing, and Oak never reads them: something overwrote the tar or its index"}

	// Of the segments of a tar.
	BadHeader     = Class{"entry-header", format.BadHeader, "Oak reads this segment all the same, but a recovery of this tar could lose it"}
	BadPadding    = Class{"padding", format.BadData, "Oak reads this segment all the same; something wrote to this place that should not have"}
	BadChecksum   = Class{"checksum", format.BadChecksum, "these bytes are not what was written, and Oak does not notice: what it reads from here may be wrong"}
	BadSegment    = Class{"segment", format.BadData, "Oak cannot read this segment: everything that is in it, or below it in the tree, is lost"}
	BadGeneration = Class{"generation", format.BadIndex, "a cleanup goes by the index and a recovery by the segment: one of them would keep or delete the wrong one"}
	BadRecords    = Class{"records", format.BadData, "the segment is as it was written, but its records break the format: content in it may be unreadable"}
	WrongGraph    = Class{"graph-wrong", format.BadIndex, "a cleanup goes by the graph: it deletes what is in use, or keeps what is not"}
	WrongBinaries = Class{"binaries-wrong", format.BadIndex, "a garbage collection of the data store goes by these references: it deletes what is in use, or keeps what is not"}
	Unrecoverable = Class{"unrecoverable", format.BadData, "a recovery of this tar cannot save these bytes"}

	// Of the store.
	NoJournal   = Class{"no-journal", format.MissingIndex, "no line of the journal leads to a revision that is there: Oak silently begins an empty repository, and its next cleanup deletes all that there was; write a journal before anybody opens the store"}
	BadJournal  = Class{"journal-line", format.BadData, "Oak skips this line of the journal"}
	HeadRewound = Class{"head-rewound", format.Dangling, "the newest revisions are lost: Oak silently shows an older one"}
	HeadBroken  = Class{"head-broken", format.Dangling, "the newest revision cannot be read: Oak fails, or shows nothing"}
	HeadUnknown = Class{"head-unknown", format.Dangling, "where the newest revision is cannot be told without reading the tars that have no index"}
	Missing     = Class{"missing-segment", format.Dangling, "content that the newest revision needs is gone: Oak fails when it comes to it"}
	Unknown     = Class{"unknown-segment", format.Dangling, "whether these segments are there cannot be told without reading the tars that have no index"}
	GarbageRefs = Class{"garbage-references", format.Gap, "earlier cleanups deleted what only garbage refers to: this is as it should be"}
	BadGCLog    = Class{"gc-log-line", format.BadData, "Oak takes this line for a garbage collection of nothing, or none"}
	NoGCRoot    = Class{"gc-log-root", format.Dangling, "the newest line names a revision that is gone: the next cleanup of a running Oak deletes all compacted segments, and with them what is in use (OAK-12119); delete gc.log or write a line for the last compaction"}
	StaleGCLog  = Class{"gc-log-stale", format.Dangling, "a compaction left no line: the next cleanup of a running Oak takes these segments for the leftovers of a failed one and deletes what is in use (OAK-12119); delete gc.log or write a line for the last compaction"}
	TooMany     = Class{"more", format.Limit, "only the first of many of the same kind are told"}
	TooLarge    = Class{"too-large", format.Limit, "this was not looked at, since it is larger than may be believed"}
)

type Problem struct {
	Class      Class
	Severity   format.Severity
	Tar        string // name of the file in the directory, which may be no tar; "" is the directory
	Off        int64  // in the file; -1 if it has no place
	Segment    tarfile.ID
	HasSegment bool
	What       string // is found, and expected
}

// ofAClass is how many problems of a class a unit tells: a file could have millions.
const ofAClass = 1000

type teller struct {
	report func(Problem)
	told   map[key]int
	over   []Problem // the first of each kind that was not told
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

// end tells how many there were of which not all were told.
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
