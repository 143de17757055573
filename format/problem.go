package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Code is the kind of a problem, in words that all formats share. They do not change, and are
// listed in docs/problems.md.
type Code string

// Kinds of problems.
const (
	Truncated     Code = "truncated"
	BadMagic      Code = "bad-magic"
	BadIndex      Code = "bad-index"
	BadChecksum   Code = "bad-checksum"
	LostDigest    Code = "lost-digest" // what would show damage was lost
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
	Exists        Code = "exists"        // an extraction found an existing file
	BeingWritten  Code = "being-written" // another program is writing to the archive; not damage
)

// A Problem is something that is wrong with an archive.
type Problem struct {
	Code     Code
	Class    string // the format's own word, such as "index-json"; empty if it has none
	Severity Severity
	Volume   string
	Off      int64 // -1 if it concerns no offset
	Entry    string
	HasEntry bool // set if Entry is valid, because a name can be ""
	Message  string
}

// Severity is the severity of a problem.
type Severity uint8

// Severities, in ascending order.
const (
	Note    Severity = iota + 1 // unusual but harmless
	Warning                     // everything can be read, but something is wrong
	Error                       // content is lost, wrong or unreadable
)

var severityNames = [...]string{"?", "note", "warning", "error"}

func (s Severity) String() string {
	if int(s) < len(severityNames) {
		return severityNames[s]
	}
	return fmt.Sprintf("Severity(%d)", s)
}

// ErrCorrupt is wrapped by every [CorruptError], except by those with the code Unsupported.
var ErrCorrupt = storekit.ErrDamaged

// A CorruptError means that an archive violates its format or exceeds a limit, and where. It
// wraps [ErrCorrupt], or [errors.ErrUnsupported] if its code is Unsupported.
type CorruptError struct {
	Format string // "caf"
	Problem
	Err error // the cause, if any
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

// A Plan describes a change of an archive's objects. It changes nothing by itself.
type Plan struct {
	Edits []Edit   // sorted by object and offset; they do not overlap
	Notes []string // what the change does, in sentences for people
	Lost  []string // what cannot be recovered, in sentences for people
	// Readable has how much can be read before and after the change, under FilesBefore and
	// FilesAfter. The caller of Format.Repair counts the files, with two exceptions: after Build
	// the format counts them, and formats with ReadsAll do all the counting, under names of their
	// own.
	Readable map[string]int64
	Account  string // Readable as a text for people
	// Partial means that the result lacks some of the archive's former contents.
	Partial bool

	// Build takes the place of Edits in archives that consist of several objects. It writes the
	// changed archive to st under another name or, in place, the objects that change. Replaces
	// lists the objects that are rewritten or removed, and Drops those of them that may be
	// removed.
	Build    func(ctx context.Context, st store.Store, name string, inPlace bool) error
	Replaces []string
	Drops    []string
	// Place, if not nil, is [Format.Place] for Build.
	Place func(ctx context.Context, st store.Store, name string) (place store.Store, release func() error, err error)
	// KeepsBackup means that Build in place keeps a copy of what it replaces, under the names
	// that the format's own tool uses.
	KeepsBackup bool
}

// Changes reports whether the plan changes anything.
func (p Plan) Changes() bool { return len(p.Edits) > 0 || p.Build != nil }

// An Edit replaces bytes [Off, Off+Len) of Object by what Write writes. Bytes after the range
// move. If Off is the end of the object, the Edit appends.
type Edit struct {
	Object   string
	Off, Len int64
	Write    func(io.Writer) error // nil writes nothing
}

// Unreadable returns the error for an entry whose place the reader does not have: its Fault, if
// it has one.
func (e Entry) Unreadable(format string) error {
	if e.Fault != nil {
		return &CorruptError{Format: format, Problem: *e.Fault}
	}
	return &fs.PathError{Op: "read", Path: e.Name, Err: fs.ErrInvalid}
}
