package kit

import (
	"errors"
	"fmt"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

// Reported reports the problem if err is a CorruptError. It returns any other error.
func Reported(err error, report func(format.Problem)) error {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		report(c.Problem)
		return nil
	}
	return err
}

// CheckEntries reports the problems of the entries of an index: those that cannot be read, and names
// that are not extracted.
func CheckEntries(x *Index, volume string, report func(format.Problem)) {
	for i := range x.Len() + len(x.Repeated()) { // all rows
		e := x.Row(i)
		if e.Fault != nil {
			report(*e.Fault)
		}
		if p, found := x.NameProblem(i, e); found {
			p.Volume = volume
			report(p)
		}
	}
}

// UnsafeName returns why a name is not a path within a folder on any system, or "". It is for
// Format.Refuses.
func UnsafeName(name string) string {
	if class := naming.Fault(name); class != "" && class != "name-drive" && class != "name-too-long" {
		return naming.Advice(class)
	}
	return ""
}

// Corrupt returns the error for damage at an offset of an object.
func Corrupt(formatName string, code format.Code, object string, off int64, msg string, args ...any) *format.CorruptError {
	return &format.CorruptError{Format: formatName, Problem: format.Problem{
		Code: code, Severity: format.Error, Volume: object, Off: off, Message: fmt.Sprintf(msg, args...),
	}}
}

// Classes are a format's names for problems, each with the general code.
type Classes struct {
	Format string
	Codes  map[string]format.Code
}

// Fault returns a CorruptError of one of the classes.
func (c Classes) Fault(class, volume string, off int64, msg string, args ...any) *format.CorruptError {
	code, ok := c.Codes[class]
	if !ok {
		panic(c.Format + ": no code for " + class)
	}
	err := Corrupt(c.Format, code, volume, off, msg, args...)
	err.Class = class
	return err
}

// MostSaid is the maximum number of notes, or of losses, in a Plan.
const MostSaid = 20

// Say adds a sentence to the notes or losses of a Plan. If there are too many, it keeps only the
// first ones.
func Say(to *[]string, msg string, args ...any) {
	switch n := len(*to); {
	case n < MostSaid:
		*to = append(*to, fmt.Sprintf(msg, args...))
	case n == MostSaid:
		*to = append(*to, "and more")
	}
}

// DamagedSuffix is added to the name of a file of which only a part is left, so that the part does
// not pass for the file.
const DamagedSuffix = ".damaged"

// Keys of Plan.Readable.
const (
	FilesBefore = "files_before"
	FilesAfter  = "files_after"
)
