package audit

import (
	"fmt"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// Severity says how bad a problem is.
type Severity uint8

const (
	Note    Severity = iota + 1 // worth knowing
	Warning                     // nothing is lost, but something is not as it should be
	Error                       // something is lost, or will be
)

func (s Severity) String() string {
	return segment.Word("Severity", s, "", "note", "warning", "error")
}

// Class is the kind of a problem.
type Class string

const (
	// Of the directory.
	IgnoredTar     Class = "ignored-tar"
	NameClash      Class = "name-clash"
	NumberTooLarge Class = "number-too-large"
	NoLetter       Class = "no-letter"
	Letters        Class = "letters"
	Leftovers      Class = "leftovers"
	BadManifest    Class = "manifest"
	OldManifest    Class = "manifest-old"
	UnknownFile    Class = "unreadable"
	DuplicateTars  Class = "duplicate-segment"

	// Of the end of a tar.
	NotClosed   Class = "not-closed"
	NoIndex     Class = "no-index"
	EmptyTar    Class = "empty-tar"
	BadIndex    Class = "index"
	BadGraph    Class = "graph"
	BadBinaries Class = "binaries"
	OddGraph    Class = "graph-odd"
	OddBinaries Class = "binaries-odd"
	BadTail     Class = "tail"
	Gap         Class = "gap"

	// Of the segments of a tar.
	BadHeader     Class = "entry-header"
	BadPadding    Class = "padding"
	BadChecksum   Class = "checksum"
	BadSegment    Class = "segment"
	BadGeneration Class = "generation"
	BadRecords    Class = "records"
	WrongGraph    Class = "graph-wrong"
	WrongBinaries Class = "binaries-wrong"
	Unrecoverable Class = "unrecoverable"

	// Of the store.
	NoJournal   Class = "no-journal"
	BadJournal  Class = "journal-line"
	HeadRewound Class = "head-rewound"
	HeadBroken  Class = "head-broken"
	HeadUnknown Class = "head-unknown"
	Missing     Class = "missing-segment"
	Unknown     Class = "unknown-segment"
	GarbageRefs Class = "garbage-references"
	BadGCLog    Class = "gc-log-line"
	NoGCRoot    Class = "gc-log-root"
	StaleGCLog  Class = "gc-log-stale"
	TooMany     Class = "more"
	TooLarge    Class = "too-large"
)

// meanings says in words what the problems of a class mean to the owner.
var meanings = map[Class]string{
	IgnoredTar:     "Oak does not see this file: if it is a renamed tar, its segments are missing from the store",
	NameClash:      "Oak refuses to open a store with two files of one number and letter: one of them has to go",
	NumberTooLarge: "Oak fails over this name and does not open the store: rename the file",
	NoLetter:       "what the next cleanup leaves of this tar gets a name that the open after it deletes: content is lost; rename it to have the letter a",
	Letters:        "a cleanup or a recovery was interrupted: the next open that may write keeps one of these files and deletes the others",
	Leftovers:      "recoveries left these files; Oak never reads or deletes them",
	BadManifest:    "Oak does not open this store, or takes it for another version than it may be",
	OldManifest:    "the first open by Oak 1.8 or later that may write makes this a store that Oak 1.6 cannot open any more",
	UnknownFile:    "this file could not be read, so nothing is known of what it says",
	DuplicateTars:  "Oak takes the segment from the newest tar; a cleanup or a copy was interrupted, or tars of two stores were mixed",

	NotClosed:   "the store is open right now, or whoever wrote it was killed: the next open that may write makes a new file from it, and each one that may not makes another copy",
	NoIndex:     "Oak does not read this tar as it is: the next open that may write makes a new file of what it can find, and each one that may not makes another copy; what is damaged is left out without a word",
	EmptyTar:    "there is no segment in this file, and Oak does not open the store for it; without the file it would",
	BadIndex:    "the index leads to places that hold no segment, or not the right one: Oak finds this out when it reads the content there",
	BadGraph:    "Oak cannot clean up or compact this store: it fails over this tar, and with it loses sight of the tar's references to binaries",
	BadBinaries: "Oak takes this tar for one that refers to no binaries: a garbage collection of the data store deletes binaries that are in use",
	OddGraph:    "no cleanup wrote this graph, and the next one may keep or delete wrongly",
	OddBinaries: "no writer wrote these references so; a garbage collection of the data store may go wrong",
	BadTail:     "Oak does not look at this when it reads; a recovery of this tar may go astray here",
	Gap:         "these bytes belong to nothing, and Oak never reads them: something overwrote the tar or its index",

	BadHeader:     "Oak reads this segment all the same, but a recovery of this tar could lose it",
	BadPadding:    "Oak reads this segment all the same; something wrote to this place that should not have",
	BadChecksum:   "these bytes are not what was written, and Oak does not notice: what it reads from here may be wrong",
	BadSegment:    "Oak cannot read this segment: everything that is in it, or below it in the tree, is lost",
	BadGeneration: "a cleanup goes by the index and a recovery by the segment: one of them would keep or delete the wrong one",
	BadRecords:    "the segment is as it was written, but its records break the format: content in it may be unreadable",
	WrongGraph:    "a cleanup goes by the graph: it deletes what is in use, or keeps what is not",
	WrongBinaries: "a garbage collection of the data store goes by these references: it deletes what is in use, or keeps what is not",
	Unrecoverable: "a recovery of this tar cannot save these bytes",

	NoJournal:   "no line of the journal leads to a revision that is there: Oak silently begins an empty repository, and its next cleanup deletes all that there was; write a journal before anybody opens the store",
	BadJournal:  "Oak skips this line of the journal",
	HeadRewound: "the newest revisions are lost: Oak silently shows an older one",
	HeadBroken:  "the newest revision cannot be read: Oak fails, or shows nothing",
	HeadUnknown: "where the newest revision is cannot be told without reading the tars that have no index",
	Missing:     "content that the newest revision needs is gone: Oak fails when it comes to it",
	Unknown:     "whether these segments are there cannot be told without reading the tars that have no index",
	GarbageRefs: "earlier cleanups deleted what only garbage refers to: this is as it should be",
	BadGCLog:    "Oak takes this line for a garbage collection of nothing, or none",
	NoGCRoot:    "the newest line names a revision that is gone: the next cleanup of a running Oak deletes all compacted segments, and with them what is in use (OAK-12119); delete gc.log or write a line for the last compaction",
	StaleGCLog:  "a compaction left no line: the next cleanup of a running Oak takes these segments for the leftovers of a failed one and deletes what is in use (OAK-12119); delete gc.log or write a line for the last compaction",
	TooMany:     "only the first of many of the same kind are told",
	TooLarge:    "this was not looked at, since it is larger than may be believed",
}

// Meaning says in words what a problem of the class means to the owner of the store.
func (c Class) Meaning() string { return meanings[c] }

// A Problem is one thing that is not as it should be.
type Problem struct {
	Class      Class
	Severity   Severity
	Tar        string // name of the file in the directory, which may be no tar; "" is the directory
	Off        int64  // in the file; -1 if it has no place
	Segment    tarfile.ID
	HasSegment bool
	What       string // is found, and expected
}

// String is the whole problem, with what it means.
func (p Problem) String() string {
	s := p.Severity.String() + ": " + string(p.Class) + ": "
	if p.Tar != "" {
		s += p.Tar
		if p.Off >= 0 {
			s += fmt.Sprintf(" at %d", p.Off)
		}
		s += ": "
	}
	if p.HasSegment {
		s += "segment " + p.Segment.String() + ": "
	}
	return s + p.What + ": " + p.Class.Meaning()
}

// ofAClass is how many problems of one class a unit tells: a damaged file of 2 GiB
// could have millions.
const ofAClass = 1000

// A teller counts what it passes on.
type teller struct {
	report func(Problem)
	told   map[key]int
	over   []Problem // the first of each kind that was not told
}

type key struct {
	class    Class
	severity Severity
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

// about tells a problem of a place in a file.
func (t *teller) about(c Class, s Severity, tar string, off int64, format string, a ...any) {
	t.tell(Problem{Class: c, Severity: s, Tar: tar, Off: off, What: fmt.Sprintf(format, a...)})
}

// of tells a problem of a segment.
func (t *teller) of(c Class, s Severity, tar string, off int64, id tarfile.ID, format string, a ...any) {
	t.tell(Problem{Class: c, Severity: s, Tar: tar, Off: off, Segment: id, HasSegment: true, What: fmt.Sprintf(format, a...)})
}
