package facts

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/holdall/holdall/internal/app/hierarchy"
)

// A Column is one of a table of facts in a database. Type is text, int64 or float64; numbers may be missing.
type Column struct {
	Name string
	Type reflect.Kind
}

// Columns returns the columns of a device or a series, or, for a Facts, of what a recording has once.
func Columns[T Facts | hierarchy.Device | hierarchy.Series]() []Column {
	all, _ := columns(reflect.ValueOf(new(T)).Elem())
	return all
}

// Values returns the values of Columns for v. Lists are JSON.
func Values[T Facts | hierarchy.Device | hierarchy.Series](v T) []any {
	_, all := columns(reflect.ValueOf(v))
	return all
}

func columns(v reflect.Value) (all []Column, values []any) {
	add := func(name, prefix string, v reflect.Value) {
		if slices.ContainsFunc(all, func(c Column) bool { return c.Name == name }) {
			name = prefix + "_" + name
		}
		t := bare(v.Type())
		c := Column{name, t.Kind()}
		var is any
		switch {
		case t.Kind() == reflect.Slice || t.Kind() == reflect.Map:
			c.Type = reflect.String
			b := []byte{}
			if v.Len() > 0 {
				b, _ = json.Marshal(v.Interface()) // of texts and numbers
			}
			is = string(b)
		case v.Kind() != reflect.Pointer:
			is = v.Interface()
		case !v.IsNil():
			is = v.Elem().Interface()
		}
		all, values = append(all, c), append(values, is)
	}
	var of func(v reflect.Value, prefix string)
	of = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch t := bare(f.Type); {
			case f.Anonymous:
				of(v.Field(i), "")
			case nameOf(f) == "", t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			case t.Kind() == reflect.Struct:
				part := reflect.New(t).Elem()
				if f.Type == t {
					part = v.Field(i)
				} else if !v.Field(i).IsNil() {
					part = v.Field(i).Elem()
				}
				of(part, nameOf(f))
			default:
				add(nameOf(f), prefix, v.Field(i))
			}
		}
	}
	of(v, "")
	return all, values
}
