package hdf5

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/pyjson"
)

// unsupportedError reports what cannot be represented.
type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }
func (e unsupportedError) Unwrap() error { return errors.ErrUnsupported }

func unsupported(msg string, args ...any) error { return unsupportedError(fmt.Sprintf(msg, args...)) }

// errShape means that a value cannot be represented in JSON.
var errShape = unsupported("Zarr attributes cannot store it")

// texter writes HDF5 values as JSON, in LINDI's form or completely.
type texter struct {
	a      *archive
	fileID *string // of the root; set when it is first needed
	// all includes the names of fields of compounds, and what LINDI cannot represent: sequences,
	// bytes in base64, null for references to no object.
	all  bool
	bare bool // NaN and infinities are words, as in elements, instead of strings, as in attributes
}

// attribute appends the value of an attribute: a scalar, or lists nested as deep as it has
// dimensions.
func (t *texter) attribute(p []byte, at *h5.Attribute) ([]byte, error) {
	switch {
	case at.Err != nil:
		return p, at.Err
	case at.Space.Null:
		return append(p, "null"...), nil
	}
	dims := at.Space.Dims
	if t.a.scales != nil && !t.all && len(dims) == 1 && dims[0] == 1 {
		dims = nil
	}
	return t.array(p, at.Type, dims, at.Values)
}

// array appends values in lists nested as deep as there are dimensions.
func (t *texter) array(p []byte, typ *h5.Datatype, dims []int64, values []any) ([]byte, error) {
	for typ.Class == h5.Array { // its dimensions are appended
		var flat []any
		for _, v := range values {
			list, ok := v.([]any)
			if !ok {
				return p, errShape
			}
			flat = append(flat, list...)
		}
		typ, dims, values = typ.Base, append(dims[:len(dims):len(dims)], typ.Dims...), flat
	}
	p, rest, err := t.lists(p, typ, dims, values)
	if err == nil && len(rest) > 0 {
		err = errShape
	}
	return p, err
}

// lists appends the first values in lists of these dimensions, and returns the rest.
func (t *texter) lists(p []byte, typ *h5.Datatype, dims []int64, values []any) (_ []byte, rest []any, err error) {
	if len(dims) == 0 {
		if len(values) == 0 {
			return p, nil, errShape
		}
		p, err = t.value(p, typ, values[0])
		return p, values[1:], err
	}
	p = append(p, '[')
	for i := range dims[0] {
		if i > 0 {
			p = append(p, ',')
		}
		if p, values, err = t.lists(p, typ, dims[1:], values); err != nil {
			return p, nil, err
		}
	}
	return append(p, ']'), values, nil
}

// value appends one value.
func (t *texter) value(p []byte, typ *h5.Datatype, v any) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		if typ.Bool() {
			return strconv.AppendBool(p, v != 0), nil
		}
		return strconv.AppendInt(p, v, 10), nil
	case uint64:
		if typ.Bool() {
			return strconv.AppendBool(p, v != 0), nil
		}
		return strconv.AppendUint(p, v, 10), nil
	case *big.Int:
		return v.Append(p, 10), nil
	case float64:
		return t.float(p, v), nil
	case string:
		return t.text(p, v)
	case complex128:
		p = append(t.float(append(p, '['), real(v)), ',')
		return append(t.float(p, imag(v)), ']'), nil
	case h5.Ref:
		return t.reference(p, v)
	case h5.RegionValue:
		return t.region(p, v)
	case []byte:
		if t.all {
			return append(base64.StdEncoding.AppendEncode(append(p, '"'), v), '"'), nil
		}
	case []any:
		switch {
		case typ.Class == h5.Compound && len(v) == len(typ.Fields):
			return t.compound(p, typ, v)
		case typ.Class == h5.Variable:
			p, _, err := t.lists(p, typ.Base, []int64{int64(len(v))}, v)
			return p, err
		case typ.Class == h5.Array:
			p, _, err := t.lists(p, typ.Base, typ.Dims, v)
			return p, err
		}
	}
	if t.all {
		return p, unsupported("elements of type %v have no text form", typ)
	}
	return p, errShape
}

// compound appends a list of fields, or an object with them.
func (t *texter) compound(p []byte, typ *h5.Datatype, v []any) ([]byte, error) {
	left, right := byte('['), byte(']')
	if t.all {
		left, right = '{', '}'
	}
	p = append(p, left)
	for i, x := range v {
		if i > 0 {
			p = append(p, ',')
		}
		var err error
		if t.all {
			if p, err = name(p, typ.Fields[i].Name); err != nil {
				return p, err
			}
			p = append(p, ':')
		} else if x == h5.Ref(0) {
			p = append(p, noTarget...)
			continue
		}
		if p, err = t.value(p, typ.Fields[i].Type, x); err != nil {
			return p, err
		}
	}
	return append(p, right), nil
}

// float appends a float, or a word or string if JSON cannot represent it.
func (t *texter) float(p []byte, v float64) []byte {
	word := ""
	switch {
	case math.IsNaN(v):
		word = "NaN"
	case math.IsInf(v, 1):
		word = "Infinity"
	case math.IsInf(v, -1):
		word = "-Infinity"
	default:
		return pyjson.AppendFloat(p, v)
	}
	if t.bare {
		return append(p, word...)
	}
	return strconv.AppendQuote(p, word)
}

// text appends a string. JSON cannot store other bytes than UTF-8.
func (t *texter) text(p []byte, s string) ([]byte, error) {
	if t.all && !utf8.ValidString(s) {
		return append(base64.StdEncoding.AppendEncode(append(p, `{"base64":"`...), []byte(s)), `"}`...), nil
	}
	return name(p, s)
}

// name appends a string that must be UTF-8.
func name(p []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return p, unsupported("%.60q is not UTF-8, and JSON cannot store it", s)
	}
	return pyjson.AppendString(p, s), nil
}

// noTarget is a reference to no object where LINDI's package cannot read null: in compounds and
// attributes.
const noTarget = `{"_REFERENCE":{"object_id":null,"path":null,"source":null,"source_object_id":null}}`

// reference appends the target of a reference: the path of the object, and the object_id that NWB
// gives to it and to the file.
func (t *texter) reference(p []byte, r h5.Ref) (_ []byte, err error) {
	to := t.a.byAddr[int64(r)]
	switch {
	case r == 0 && t.bare, to == nil && t.all:
		return append(p, "null"...), nil
	case r == 0:
		return append(p, noTarget...), nil
	case to == nil:
		return p, unsupported("reference to an object outside this file")
	}
	if t.fileID == nil {
		id := objectID(t.a.root)
		t.fileID = &id
	}
	p = append(p, `{"_REFERENCE":{"object_id":`...)
	p = append(p, objectID(to)...)
	p = append(p, `,"path":`...)
	if p, err = t.text(p, to.Path); err != nil {
		return p, err
	}
	p = append(p, `,"source":".","source_object_id":`...)
	p = append(p, *t.fileID...)
	return append(p, "}}"...), nil
}

// region appends a reference to a part of a dataset: that of the dataset, and the blocks, each with the first and the
// last element along each axis.
func (t *texter) region(p []byte, r h5.RegionValue) ([]byte, error) {
	to := t.a.byAddr[int64(r.Object)]
	if to == nil {
		return t.reference(p, r.Object)
	}
	s, err := t.a.f.Region(r)
	var blocks []h5.Block
	if err == nil {
		blocks, err = s.In(to.Space.Dims)
	}
	if err == nil {
		p, err = t.reference(p, r.Object)
	}
	if err != nil {
		return p, err
	}
	p = append(p[:len(p)-1], `,"_REGION":[`...)
	for i, b := range blocks {
		if i > 0 {
			p = append(p, ',')
		}
		p = append(p, '[')
		for d := range b.Start {
			if d > 0 {
				p = append(p, ',')
			}
			p = lengths(p, []int64{b.Start[d], b.Start[d] + b.Count[d]})
		}
		p = append(p, ']')
	}
	return append(p, "]}"...), nil
}

// objectID returns the attribute of that name as JSON.
func objectID(o *h5.Object) string {
	for _, at := range o.Attributes {
		if at.Name == "object_id" && at.Err == nil && len(at.Values) == 1 {
			if s, ok := at.Values[0].(string); ok && utf8.ValidString(s) {
				return string(pyjson.AppendString(nil, s))
			}
		}
	}
	return "null"
}
