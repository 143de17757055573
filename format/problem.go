package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
)

// Code is the general word for what is wrong with an archive. The words are
// the command line's contract, listed in docs/problems.md.
type Code string

const (
	Truncated     Code = "truncated"
	BadMagic      Code = "bad-magic"
	BadIndex      Code = "bad-index"
	BadChecksum   Code = "bad-checksum"
	BadHeader     Code = "bad-header"
	BadData       Code = "bad-data"
	OutOfBounds   Code = "out-of-bounds"
	Overlap       Code = "overlap"
	Gap           Code = "gap"
	Duplicate     Code = "duplicate"
	Dangling      Code = "dangling"
	UnsafePath    Code = "unsafe-path"
	MissingVolume Code = "missing-volume"
	MissingIndex  Code = "missing-index"
	Unsupported   Code = "unsupported"
	Limit         Code = "limit"
	Exists        Code = "exists"        // a file is there already, of extractions
	BeingWritten  Code = "being-written" // another program writes to the archive: no damage
)

// A Problem is one thing a check found.
type Problem struct {
	Code     Code
	Class    string // the format's own word ("index-json"), empty if it has none
	Severity Severity
	Volume   string
	Off      int64 // -1 if it has no place
	Entry    string
	HasEntry bool // an entry may be called ""
	Message  string
}

// Severity orders problems by what they cost.
type Severity uint8

const (
	Note    Severity = iota + 1 // odd but harmless
	Warning                     // readable, but not as it should be
	Error                       // some content is lost, wrong or unreadable
)

var severityNames = [...]string{"?", "note", "warning", "error"}

func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", s)
}

// ErrCorrupt is what every [CorruptError] wraps unless it says that the archive
// is only not supported.
var ErrCorrupt = errors.New("archive is damaged")

// A CorruptError says where an archive breaks its own format, or the limits
// that it may be believed up to.
type CorruptError struct {
	Format string // "caf"
	Problem
	Err error // cause, if any
}

func (e *CorruptError) Error() string {
	s := e.Format + ": "
	if e.HasEntry {
		s += fmt.Sprintf("%q: ", e.Entry)
	}
	s += e.Message
	if e.Off >= 0 {
		s += fmt.Sprintf(" (at byte %d of %s)", e.Off, e.Volume)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *CorruptError) Unwrap() []error {
	kind := ErrCorrupt
	if e.Code == Unsupported {
		kind = errors.ErrUnsupported
	}
	if e.Err == nil {
		return []error{kind}
	}
	return []error{kind, e.Err}
}

// A Plan is a change to an archive's objects, described but not made.
type Plan struct {
	Edits []Edit   // by object, then by offset; they do not overlap
	Notes []string // what the change does, a sentence each, for people
	Lost  []string // what cannot be saved, a sentence each
	// Readable says how much can be read before the change and after it. Whoever asked for
	// the plan counts files, but for those after a Build, and in a format that ReadsAll,
	// which has names of its own for what it counts.
	Readable map[string]int64
	Account  string // the same for people
	// Partial says that the result is not all that the archive once held.
	Partial bool

	// Build, where an archive is several objects, takes the place of Edits: it
	// writes the changed archive into st under another name, or in place those
	// of its objects that change. Replaces are objects that are written anew or
	// left out, Drops those of them that may be left out.
	Build    func(ctx context.Context, st store.Store, name string, inPlace bool) error
	Replaces []string
	Drops    []string
	// KeepsBackup says that Build in place keeps what it replaces beside it, by
	// the names that the format's own tool has for that.
	KeepsBackup bool
}

// Names of numbers in Readable.
const (
	FilesBefore = "files_before"
	FilesAfter  = "files_after"
)

// Changes reports whether there is anything to do.
func (p Plan) Changes() bool { return len(p.Edits) > 0 || p.Build != nil }

// An Edit replaces stored bytes [Off, Off+Len) of Object by what Write writes.
// What follows moves. An Off at the object's end appends.
type Edit struct {
	Object   string
	Off, Len int64
	Write    func(io.Writer) error // nil writes nothing
}

// Unreadable is the error of an entry that has no place of which the reader knows: its
// fault, if it has one.
func (e Entry) Unreadable(format string) error {
	if e.Fault != nil {
		return &CorruptError{Format: format, Problem: *e.Fault}
	}
	return &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
}
