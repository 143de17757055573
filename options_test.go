package holdall

import (
	"reflect"
	"testing"
	"time"
)

// filled sets each exported field of a struct to a value that is not its zero.
func filled(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		switch kind := f.Kind(); {
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(time.Unix(1, 0)))
		case f.CanInt():
			f.SetInt(int64(i + 1))
		case f.CanUint():
			f.SetUint(uint64(i + 1))
		case f.CanFloat():
			f.SetFloat(float64(i + 1))
		case kind == reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case kind == reflect.Bool:
			f.SetBool(true)
		case kind == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), i+1, i+1))
		case kind == reflect.Map:
			value := reflect.New(f.Type().Elem()).Elem()
			if value.Kind() == reflect.Struct {
				filled(t, value)
			}
			f.Set(reflect.MakeMap(f.Type()))
			f.SetMapIndex(reflect.ValueOf(v.Type().Field(i).Name), value)
		case kind == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case kind == reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		case kind == reflect.Interface: // Store, which is an argument of package pack
		default:
			t.Fatalf("%s: a %s", v.Type().Field(i).Name, kind)
		}
	}
}

func TestPackOptionsArePassedOn(t *testing.T) {
	var o PackOptions
	from := reflect.ValueOf(&o).Elem()
	filled(t, from)
	to := reflect.ValueOf(o.inner())
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		want, got := from.Field(i), to.FieldByName(name)
		switch {
		case want.Kind() == reflect.Interface:
		case !got.IsValid():
			t.Errorf("%s: package pack does not have it", name)
		case want.Kind() == reflect.Func:
			if got.Pointer() != want.Pointer() {
				t.Errorf("%s: another function", name)
			}
		case name == "Attrs":
			if a := o.inner().Attrs[name]; len(o.Attrs) != 1 || Attr(a) != o.Attrs[name] {
				t.Errorf("%s: %+v, expected %+v", name, a, o.Attrs)
			}
		case !reflect.DeepEqual(got.Interface(), want.Interface()):
			t.Errorf("%s: %v, expected %v", name, got, want)
		}
	}
}
