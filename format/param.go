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

// A Param declares an option that only some formats have: a key of OpenOptions.Param or
// CreateOptions.Param, and a flag of the command. A format is called only with parameters that it
// declares and with values that they allow.
type Param struct {
	Name string // the key, such as "ends"
	// Flag is the name of the command's flag, if it differs from Name; "-" means that there is no
	// flag. Formats with the same flag must use the same Name and meaning. A verb's own flag
	// hides a format's flag of the same name.
	Flag string
	Help string // help text of the flag
	For  Op     // the operations that accept it
	Kind ParamKind
	// Words are the allowed values of a ParamWord, or words that are allowed in place of a
	// number.
	Words       []string
	Least, Most int64 // limits of numbers
}

// An Op is a set of operations on archives.
type Op uint8

// Operations that can have parameters.
const (
	ToOpen Op = 1 << iota
	ToCreate
	ToVerify
	ToRepair
	ToAmend
)

// A ParamKind is the type of a parameter. An empty value always means the default.
type ParamKind uint8

// Types of parameters.
const (
	ParamText   ParamKind = iota // any text; the format checks it
	ParamWord                    // one of Param.Words
	ParamSwitch                  // true or false
	ParamNumber
	ParamSize   // a number of bytes; the command also accepts values such as 4MiB
	ParamFolder // an address or a path; the command makes a path absolute, and allows the archive to refer to it
)

// A ParamError means that a format does not have a parameter, or that the value is not allowed.
// It wraps [errors.ErrUnsupported] or [fs.ErrInvalid].
type ParamError struct {
	Format, Name, Value string
	Want                string // the allowed values; empty if there is no such parameter
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

// Param returns the parameter called name that is valid for one of ops, or nil.
func (f *Format) Param(ops Op, name string) *Param {
	for i, p := range f.Params {
		if p.Name == name && p.For&ops != 0 {
			return &f.Params[i]
		}
	}
	return nil
}

// CheckParams returns a [*ParamError] if f does not accept one of the given parameters for op.
// Before an archive is verified, repaired or amended, it is opened with the same parameters, so
// every op without ToCreate accepts the parameters of all of them.
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
	limits := fmt.Sprintf("from %d to %d%s", p.Least, p.Most, bytes)
	if len(p.Words) == 0 {
		return limits
	}
	return strings.Join(p.Words, ", ") + ", or " + limits
}
