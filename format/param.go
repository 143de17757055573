package format

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Param is a wish that only some formats understand: a key of OpenOptions.Param or
// CreateOptions.Param, and a flag of the command. A format is called with what it
// declares, and with values that are possible, or not at all.
type Param struct {
	Name string // the key: "ends"
	// Flag is what the command calls it, if not like the key; "-" is none. Formats that
	// have the same flag have the same key, and mean the same. A flag that a verb has of
	// its own hides one of a format.
	Flag string
	Help string // of the flag
	For  Op     // what takes it
	Kind ParamKind
	// Words are the values of a ParamWord, or what may stand in the place of a number.
	Words       []string
	Least, Most int64 // of numbers
}

// An Op is a set of things that can be done with an archive.
type Op uint8

const (
	ToOpen Op = 1 << iota
	ToCreate
	ToVerify
	ToRepair
	ToAmend
)

// A ParamKind says which values a parameter has. An empty value is always the usual one.
type ParamKind uint8

const (
	ParamText   ParamKind = iota // whatever the format takes
	ParamWord                    // one of Param.Words
	ParamSwitch                  // true or false
	ParamNumber
	ParamSize   // a number of bytes; the command takes 4MiB, too
	ParamFolder // an address, or a path; the command makes a path absolute, and lets the archive lead there
)

// A ParamError says that a format does not take a parameter, or not with that value. It
// wraps errors.ErrUnsupported or fs.ErrInvalid.
type ParamError struct {
	Format, Name, Value string
	Want                string // which values there are; empty if there is no such parameter
}

func (e *ParamError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("%s has no %s", e.Format, e.Name)
	}
	return fmt.Sprintf("%s %.80q: expected %s", e.Name, e.Value, e.Want)
}

func (e *ParamError) Unwrap() error {
	if e.Want == "" {
		return errors.ErrUnsupported
	}
	return fs.ErrInvalid
}

// Param returns the parameter of that name that one of ops takes, or nil.
func (f *Format) Param(ops Op, name string) *Param {
	for i, p := range f.Params {
		if p.Name == name && p.For&ops != 0 {
			return &f.Params[i]
		}
	}
	return nil
}

// CheckParams returns a *ParamError if f does not take one of given. Whoever verifies,
// repairs or amends an archive opens it first, with the same parameters: ToOpen stands
// for all but ToCreate.
func (f *Format) CheckParams(op Op, given map[string]string) error {
	if op&ToCreate == 0 {
		op = ^ToCreate
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p := f.Param(op, name)
		if p == nil {
			return &ParamError{Format: f.Name, Name: name}
		}
		if v := given[name]; !p.takes(v) {
			return &ParamError{f.Name, name, v, p.want()}
		}
	}
	return nil
}

func (p *Param) takes(v string) bool {
	switch {
	case v == "" || p.Kind == ParamText || p.Kind == ParamFolder || slices.Contains(p.Words, v):
		return true
	case p.Kind == ParamSwitch:
		return v == "true" || v == "false"
	case p.Kind == ParamWord:
		return false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && n >= p.Least && n <= p.Most
}

func (p *Param) want() string {
	bytes := ""
	switch p.Kind {
	case ParamSwitch:
		return "true or false"
	case ParamWord:
		n := len(p.Words) - 1
		return strings.Join(p.Words[:n], ", ") + " or " + p.Words[n]
	case ParamSize:
		bytes = " bytes"
	}
	return strings.Join(append(p.Words, fmt.Sprintf("from %d to %d%s", p.Least, p.Most, bytes)), ", or ")
}
