package facts

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/app/hierarchy"
)

// A field is a member of a description. Fields of a list are those of one element.
type field struct {
	part   int // of hierarchy.NWB
	member int // of that, or -1
	list   bool
	number bool
}

// fields are all fields, by the names in JSON, with one word for an element of a list.
var fields = func() map[string]field {
	all := map[string]field{}
	one := map[string]string{"devices": "device", "tables": "table"}
	of := reflect.TypeFor[hierarchy.NWB]()
	for i := range of.NumField() {
		name, t := nameOf(of.Field(i)), bare(of.Field(i).Type)
		list := t.Kind() == reflect.Slice
		if list {
			t = t.Elem()
		}
		switch {
		case name == "":
		case t.Kind() != reflect.Struct:
			all[name] = field{part: i, member: -1}
		default:
			for k := range t.NumField() {
				if member := nameOf(t.Field(k)); member != "" {
					kind := bare(t.Field(k).Type)
					if kind.Kind() == reflect.Slice {
						kind = kind.Elem()
					}
					all[cmp.Or(one[name], name)+"."+member] = field{i, k, list, kind.Kind() != reflect.String}
				}
			}
		}
	}
	return all
}()

// unread is what catalogues do not have of series, because it takes requests.
const unread = "start"

// nameOf returns the name of a member in JSON, or "" if catalogues do not have it.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" || name == unread || !f.IsExported() {
		return ""
	}
	return name
}

func bare(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// FieldNames returns the names that expressions may have.
func FieldNames() []string {
	var all []string
	for name := range fields {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// A condition compares a field with a value.
type condition struct {
	field
	op   string
	text string
	num  float64
}

// A Query has conditions that hold together: those on fields of one list for one of its elements.
type Query []condition

const mostQuery = 4 << 10

var operators = []string{"!=", "<=", ">=", "=", "<", ">", "~"} // longer ones first

// ParseQuery parses conditions, FIELD OP VALUE, that are joined by "and". A value with spaces is in quotes.
func ParseQuery(s string) (q Query, err error) {
	if len(s) > mostQuery {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(s), mostQuery)
	}
	for {
		s = strings.TrimLeft(s, " \t\n")
		end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && r != '_' && (r < 'a' || r > 'z') })
		if end < 0 {
			end = len(s)
		}
		name := s[:end]
		c := condition{}
		var ok bool
		if c.field, ok = fields[name]; !ok {
			return nil, fmt.Errorf("expected one of %s, found %q", strings.Join(FieldNames(), ", "), name)
		}
		s = strings.TrimLeft(s[end:], " \t\n")
		at := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(s, op) })
		if at < 0 {
			return nil, fmt.Errorf("expected one of %s after %s", strings.Join(operators, " "), name)
		}
		c.op = operators[at]
		if c.text, s, err = value(strings.TrimLeft(s[len(c.op):], " \t\n")); err != nil {
			return nil, fmt.Errorf("%w after %s %s", err, name, c.op)
		}
		if c.number {
			if c.num, err = strconv.ParseFloat(c.text, 64); err != nil || c.op == "~" {
				return nil, fmt.Errorf("%s is a number: expected one, and not after ~, found %q", name, c.text)
			}
		}
		if q = append(q, c); strings.TrimLeft(s, " \t\n") == "" {
			return q, nil
		}
		word, rest, _ := strings.Cut(strings.TrimLeft(s, " \t\n"), " ")
		if !strings.EqualFold(word, "and") {
			return nil, fmt.Errorf("expected 'and' or the end after %q, found %q", c.text, word)
		}
		s = rest
	}
}

// value returns the value at the beginning of a text, and what follows it.
func value(s string) (v, rest string, err error) {
	if s == "" || s[0] == '=' { // as in ==
		return "", "", errors.New("expected a value")
	}
	if q := s[0]; q == '"' || q == '\'' {
		v, rest, ok := strings.Cut(s[1:], string(q))
		if !ok {
			return "", "", fmt.Errorf("expected a %c at the end of the value", q)
		}
		return v, rest, nil
	}
	if end := strings.IndexAny(s, " \t\n"); end >= 0 {
		return s[:end], s[end:], nil
	}
	return s, "", nil
}

// Holds reports whether the facts of a recording fulfil all conditions. What is not known fulfils none.
func (q Query) Holds(f *Facts) bool {
	n := reflect.ValueOf(&f.NWB).Elem()
	lists := map[int]Query{}
	for _, c := range q {
		if c.list {
			lists[c.part] = append(lists[c.part], c)
		} else if !c.holds(n.Field(c.part)) {
			return false
		}
	}
	for part, all := range lists {
		list, found := n.Field(part), false
		for i := 0; i < list.Len() && !found; i++ {
			found = !slices.ContainsFunc(all, func(c condition) bool { return !c.holds(list.Index(i)) })
		}
		if !found {
			return false
		}
	}
	return true
}

// holds reports whether a part fulfils the condition. Of a list of values, one must, or for != all.
func (c condition) holds(part reflect.Value) bool {
	if part.Kind() == reflect.Pointer {
		if part.IsNil() {
			return false
		}
		part = part.Elem()
	}
	if c.member >= 0 {
		part = part.Field(c.member)
	}
	some := false
	for v := range values(part) {
		is := c.compare(v)
		if some = true; is == (c.op != "!=") {
			return is
		}
	}
	return some && c.op == "!="
}

// values yields the values of a member that are there.
func values(v reflect.Value) func(yield func(reflect.Value) bool) {
	return func(yield func(reflect.Value) bool) {
		switch {
		case v.Kind() == reflect.Slice:
			for i := 0; i < v.Len() && yield(v.Index(i)); i++ {
			}
		case v.Kind() == reflect.Pointer && v.IsNil(), v.Kind() == reflect.String && v.Len() == 0:
		default:
			yield(reflect.Indirect(v))
		}
	}
}

func (c condition) compare(v reflect.Value) bool {
	order := 0
	switch {
	case c.op == "~":
		return strings.Contains(strings.ToLower(v.String()), strings.ToLower(c.text))
	case v.CanFloat():
		order = cmp.Compare(v.Float(), c.num)
	case v.CanInt():
		order = cmp.Compare(float64(v.Int()), c.num)
	default:
		order = cmp.Compare(v.String(), c.text)
	}
	switch c.op {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}
