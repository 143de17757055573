package hdf5

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/pyjson"
)

// unsupportedError says what cannot be shown.
type unsupportedError string

func (e unsupportedError) Error() string { return string(e) }
func (e unsupportedError) Unwrap() error { return errors.ErrUnsupported }

func unsupported(msg string, args ...any) error { return unsupportedError(fmt.Sprintf(msg, args...)) }

// errShape is why a value has no place in JSON.
var errShape = unsupported("Zarr attributes cannot store it")

// A texter writes values of HDF5 in JSON, as LINDI has them, or all of them.
type texter struct {
	a      *archive
	fileID *string // of the root, made when it is first needed
	// all has compounds with the names of their fields, and what LINDI has no place for:
	// sequences, bytes in base64, null for references that lead to no object.
	all  bool
	bare bool // NaN and infinities are words, as in elements, and not strings, as in attributes
}

// attribute appends the value of an attribute: a scalar, or lists as deep as it has
// dimensions.
func (t *texter) attribute(p []byte, at *h5.Attribute) ([]byte, error) {
	switch {
	case at.Err != nil:
		return p, at.Err
	case at.Space.Null:
		return p, unsupported("empty data space without a shape")
	}
	return t.array(p, at.Type, at.Space.Dims, at.Values)
}

// array appends values in lists as deep as there are dimensions.
func (t *texter) array(p []byte, typ *h5.Datatype, dims []int64, values []any) ([]byte, error) {
	for typ.Class == h5.Array { // as the last dimensions
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

// lists appends the first of values in lists of those dimensions, and returns the others.
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
		return pyjson.AppendString(p, v), nil
	case complex128:
		p = append(t.float(append(p, '['), real(v)), ',')
		return append(t.float(p, imag(v)), ']'), nil
	case h5.Ref:
		return t.reference(p, v)
	case []byte:
		if t.all {
			return append(base64.StdEncoding.AppendEncode(append(p, '"'), v), '"'), nil
		}
	case []any:
		switch {
		case typ.Class == h5.Compound && len(v) == len(typ.Fields):
			return t.compound(p, typ, v)
		case t.all && typ.Class == h5.Variable:
			p, _, err := t.lists(p, typ.Base, []int64{int64(len(v))}, v)
			return p, err
		case t.all && typ.Class == h5.Array:
			p, _, err := t.lists(p, typ.Base, typ.Dims, v)
			return p, err
		}
	}
	if t.all {
		return p, unsupported("elements of type %v have no text form", typ)
	}
	return p, errShape
}

// compound appends a list of fields, or an object of them.
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
		if t.all {
			p = append(pyjson.AppendString(p, typ.Fields[i].Name), ':')
		}
		var err error
		if p, err = t.value(p, typ.Fields[i].Type, x); err != nil {
			return p, err
		}
	}
	return append(p, right), nil
}

// float appends a float, or the word for one that JSON does not have.
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

// reference appends what a reference leads to: the object's path, and the object_id that
// NWB gives it and the file.
func (t *texter) reference(p []byte, r h5.Ref) ([]byte, error) {
	to := t.a.byAddr[int64(r)]
	switch {
	case to == nil && t.all:
		return append(p, "null"...), nil
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
	p = pyjson.AppendString(p, to.Path)
	p = append(p, `,"source":".","source_object_id":`...)
	p = append(p, *t.fileID...)
	return append(p, "}}"...), nil
}

// objectID is the attribute of that name as JSON.
func objectID(o *h5.Object) string {
	for _, at := range o.Attributes {
		if at.Name == "object_id" && at.Err == nil && len(at.Values) == 1 {
			if s, ok := at.Values[0].(string); ok {
				return string(pyjson.AppendString(nil, s))
			}
		}
	}
	return "null"
}
