// Package ucl reads and writes the metadata of RVN packages: UCL, the configuration language of
// libucl, as people write it and as the reference packer stores it. It is not a general UCL
// library: it has no macros, variables, merging or priorities, and writes a single form.
package ucl

import (
	"fmt"
	"slices"
)

// Limits of what Parse accepts and Append writes.
const (
	MaxText  = 512 << 10 // bytes; readers of packages refuse longer metadata
	MaxDepth = 64        // arrays and objects within each other
)

// A Kind is the type of a Value.
type Kind uint8

const (
	KindNull Kind = iota
	KindBool
	KindInt
	KindFloat
	KindString
	KindArray
	KindObject
)

func (k Kind) String() string {
	names := [...]string{"null", "boolean", "integer", "float", "string", "array", "object"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", k)
}

// A Value is an immutable tree. The zero Value is null.
type Value struct {
	_ [0]func() // == would compare slices, and panic
	v any       // nil, bool, int64, float64, string, []Value or []Member
}

// A Member is a key of an object and its value. Keys and strings are bytes: usually, but not
// always, UTF-8.
type Member struct {
	Key   string
	Value Value
}

// The seven kinds, less null, made from Go values. Array and Object keep the
// slice they are given.
func Bool(b bool) Value           { return Value{v: b} }
func Int(i int64) Value           { return Value{v: i} }
func Float(f float64) Value       { return Value{v: f} }
func String(s string) Value       { return Value{v: s} }
func Array(elems ...Value) Value  { return Value{v: elems} }
func Object(list ...Member) Value { return Value{v: list} }

// Kind returns the type of v.
func (v Value) Kind() Kind {
	switch v.v.(type) {
	case bool:
		return KindBool
	case int64:
		return KindInt
	case float64:
		return KindFloat
	case string:
		return KindString
	case []Value:
		return KindArray
	case []Member:
		return KindObject
	}
	return KindNull
}

// Members returns the members of an object, in order, or nothing for any other value. They must
// not be changed.
func (v Value) Members() []Member { list, _ := v.v.([]Member); return list }

// Elems returns the elements of an array, or nothing for any other value. They must not be
// changed.
func (v Value) Elems() []Value { elems, _ := v.v.([]Value); return elems }

// Get follows path through objects. It returns null where a key is missing.
func (v Value) Get(path ...string) Value {
	for _, key := range path {
		list := v.Members()
		i := indexKey(list, key)
		if i < 0 {
			return Value{}
		}
		v = list[i].Value
	}
	return v
}

// Str, Int, Float and Bool return v if it is such a value.
func (v Value) Str() (string, bool)    { s, ok := v.v.(string); return s, ok }
func (v Value) Int() (int64, bool)     { i, ok := v.v.(int64); return i, ok }
func (v Value) Float() (float64, bool) { f, ok := v.v.(float64); return f, ok }
func (v Value) Bool() (b, ok bool)     { b, ok = v.v.(bool); return b, ok }

// Strings returns an array that consists only of strings. A single string is an array of one, as
// it is wherever UCL expects a list.
func (v Value) Strings() ([]string, bool) {
	if s, ok := v.Str(); ok {
		return []string{s}, true
	}
	elems, ok := v.v.([]Value)
	if !ok {
		return nil, false
	}
	list := make([]string, len(elems))
	for i, e := range elems {
		if list[i], ok = e.Str(); !ok {
			return nil, false
		}
	}
	return list, true
}

// With returns the object v with key set to val: in its place if v has the key, otherwise at the
// end. A value that is not an object is treated as an empty one.
func (v Value) With(key string, val Value) Value {
	list := slices.Clone(v.Members())
	if i := indexKey(list, key); i >= 0 {
		list[i].Value = val
	} else {
		list = append(list, Member{key, val})
	}
	return Object(list...)
}

// WithoutNulls returns v without the nulls in its arrays and objects, and how many there were.
// The reference packer omits them, because its package manager complains about each.
func (v Value) WithoutNulls() (Value, int) {
	dropped := 0
	switch x := v.v.(type) {
	case []Value:
		kept := make([]Value, 0, len(x))
		for _, e := range x {
			if e.v == nil {
				dropped++
				continue
			}
			e, n := e.WithoutNulls()
			kept, dropped = append(kept, e), dropped+n
		}
		v = Array(kept...)
	case []Member:
		kept := make([]Member, 0, len(x))
		for _, m := range x {
			if m.Value.v == nil {
				dropped++
				continue
			}
			e, n := m.Value.WithoutNulls()
			kept, dropped = append(kept, Member{m.Key, e}), dropped+n
		}
		v = Object(kept...)
	}
	return v, dropped
}

func indexKey(list []Member, key string) int {
	return slices.IndexFunc(list, func(m Member) bool { return m.Key == key })
}
