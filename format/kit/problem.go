package kit

import (
	"errors"
	"fmt"

	"github.com/holdall/holdall/format"
)

// Reported reports the problem if err is a CorruptError. It returns any other error.
func Reported(err error, report func(format.Problem)) error {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		report(c.Problem)
		return nil
	}
	return err
}

// CheckEntries reports the problems of the entries of a table, whose index is x.
func CheckEntries(x *format.Index, entry func(int) format.Entry, volume string, report func(format.Problem)) {
	for i := range x.Len() + len(x.Repeated()) { // all rows
		e := entry(i)
		if e.Fault != nil {
			report(*e.Fault)
		}
		if p, found := x.NameProblem(i, e); found {
			p.Volume = volume
			report(p)
		}
	}
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
	return &format.CorruptError{Format: c.Format, Problem: format.Problem{
		Code: code, Class: class, Severity: format.Error, Volume: volume, Off: off, Message: fmt.Sprintf(msg, args...),
	}}
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
