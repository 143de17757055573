package zarr

import (
	"slices"
	"strconv"
	"strings"
)

// A DType is the type of an array's elements, as in NumPy.
type DType struct {
	// Name is the dtype in .zarray, such as "<f8", or the JSON of a list of fields.
	Name string
	// Kind is NumPy's letter: one of b i u f c S U V M m O. V with Fields is a structured type.
	// Kind is 0 if the type is not known to this package.
	Kind byte
	// BigEndian is the byte order of an element.
	BigEndian bool
	// Size is the size of an element in bytes. It is 0 for O, whose elements have no fixed size.
	Size int64
	// Unit is the unit of datetimes (M) and timedeltas (m), such as "ns" or "25s". It is empty if
	// there is none.
	Unit string
	// Fields are the fields of a structured type, which are adjacent.
	Fields []Field
}

// A Field is a field of a structured type.
type Field struct {
	Name  string
	Type  DType
	Shape []int64 // shape, if the field is an array
	Count int64   // number of elements of the field: the product of Shape, or 1
}

const (
	maxItem       = 1 << 30 // size of an element in bytes
	maxFieldDepth = 20
)

// sizes has the possible sizes of each kind of number.
var sizes = map[byte]string{'b': "1", 'i': "1 2 4 8", 'u': "1 2 4 8", 'f': "2 4 8", 'c': "8 16", 'M': "8", 'm': "8"}

var dateUnits = []string{"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}

// parseDType parses the dtype of a .zarray, or of a field. An unknown name results in Kind 0, so
// that the array can still be listed.
func parseDType(v any, depth int) (DType, error) {
	switch v := v.(type) {
	case string:
		return parseSimple(v), nil
	case []any:
		return parseFields(v, depth)
	}
	return DType{}, corrupt("dtype: expected a string or a list, found %s", brief(v))
}

func parseSimple(name string) DType {
	d := DType{Name: name}
	if len(name) < 2 || !strings.ContainsRune("<>|=", rune(name[0])) {
		return d
	}
	kind, rest := name[1], name[2:]
	if kind == 'O' && rest == "" {
		d.Kind = kind
		return d
	}
	if kind == 'M' || kind == 'm' {
		num, unit, bracket := strings.Cut(rest, "[")
		unit, closed := strings.CutSuffix(unit, "]")
		count, word := splitUnit(unit)
		if bracket != closed || bracket && (count < 1 || !slices.Contains(dateUnits, word)) {
			return d
		}
		rest, d.Unit = num, unit
	}
	n, err := strconv.ParseUint(rest, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != rest {
		return d
	}
	size := int64(n)
	switch kind {
	case 'S', 'V':
	case 'U':
		size *= 4
	default:
		if !strings.Contains(" "+sizes[kind]+" ", " "+rest+" ") {
			return d
		}
	}
	if size > maxItem {
		return d
	}
	d.Kind, d.Size = kind, size
	d.BigEndian = name[0] == '>' && !d.bytewise()
	return d
}

func (d DType) bytewise() bool {
	return d.Kind == 'S' || d.Kind == 'V' || d.Kind == 'O' || d.Size <= 1 && d.Kind != 'U'
}

// splitUnit splits a unit such as "25s"; the count is 0 if it is not valid.
func splitUnit(unit string) (int64, string) {
	name := strings.TrimLeft(unit, "0123456789")
	num := unit[:len(unit)-len(name)]
	if num == "" {
		return 1, name
	}
	n, err := strconv.ParseInt(num, 10, 31)
	if err != nil {
		return 0, name
	}
	return n, name
}

func parseFields(list []any, depth int) (DType, error) {
	if depth >= maxFieldDepth {
		return DType{}, corrupt("dtype: structured types are nested more than %d deep", maxFieldDepth)
	}
	fields := make([]Field, 0, min(len(list), 1024))
	for i, v := range list {
		parts, ok := v.([]any)
		if !ok || len(parts) != 2 && len(parts) != 3 {
			return DType{}, corrupt("dtype: field %d: expected [name, type] or [name, type, shape], found %s", i, brief(v))
		}
		f := Field{Count: 1}
		if f.Name, ok = parts[0].(string); !ok {
			return DType{}, corrupt("dtype: field %d: expected a name, found %s", i, brief(parts[0]))
		}
		var err error
		if f.Type, err = parseDType(parts[1], depth+1); err != nil {
			return DType{}, err
		}
		if len(parts) == 3 {
			if f.Shape, err = parseFieldShape(parts[2]); err != nil {
				return DType{}, corrupt("dtype: field %q: %v", f.Name, err)
			}
			if f.Count, ok = product(f.Shape); !ok {
				return DType{}, corrupt("dtype: field %q: its shape %v is too large", f.Name, f.Shape)
			}
		}
		fields = append(fields, f)
	}
	return structured(string(appendJSON(nil, list)), fields)
}

// structured returns the type with the given fields.
func structured(name string, fields []Field) (DType, error) {
	d := DType{Name: name, Kind: 'V', Fields: fields}
	if len(fields) == 0 {
		return d, corrupt("dtype: a structured type without fields")
	}
	for _, f := range fields {
		if f.Type.Kind == 0 || f.Type.Kind == 'O' {
			return DType{Name: name}, nil
		}
		n, ok := multiply(f.Count, f.Type.Size)
		if !ok || n > maxItem-d.Size {
			return d, corrupt("dtype: its elements are larger than %d bytes", maxItem)
		}
		d.Size += n
	}
	return d, nil
}

// parseFieldShape parses [2, 3], or 2 alone.
func parseFieldShape(v any) ([]int64, error) {
	if n, ok := asInt(v); ok && n >= 0 {
		return []int64{n}, nil
	}
	return parseLengths(v)
}

// String returns d.Name.
func (d DType) String() string { return d.Name }

// descr returns the type as a Python literal, as in NumPy files.
func (d DType) descr() string {
	if len(d.Fields) == 0 {
		return pyString(d.plain())
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, f := range d.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("(" + pyString(f.Name) + ", " + f.Type.descr())
		if f.Shape != nil {
			b.WriteString(", " + pyTuple(f.Shape))
		}
		b.WriteByte(')')
	}
	b.WriteByte(']')
	return b.String()
}

// plain returns NumPy's own name for a type that is not structured, such as "|i1" for "<i1".
func (d DType) plain() string {
	order := "<"
	if d.BigEndian {
		order = ">"
	}
	if d.bytewise() {
		order = "|"
	}
	size := d.Size
	if d.Kind == 'U' {
		size /= 4
	}
	s := order + string(rune(d.Kind)) + strconv.FormatInt(size, 10)
	if d.Unit != "" {
		s += "[" + d.Unit + "]"
	}
	return s
}
