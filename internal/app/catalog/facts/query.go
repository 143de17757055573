package facts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/internal/app/hierarchy"
)

// fields are what expressions may name: members of a description, with one word for an element of a list. Each
// says where it is in the JSON, and whether it is a number.
var fields = sync.OnceValue(func() map[string]field {
	all := map[string]field{}
	gather(all, reflect.TypeFor[hierarchy.NWB](), "", "")
	return all
})

type field struct {
	part, member string
	number       bool
}

// unread is what catalogues do not have of series, because it takes requests.
const unread = "start"

func gather(all map[string]field, t reflect.Type, part, prefix string) {
	one := map[string]string{"devices": "device", "tables": "table"}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		of := t.Field(i).Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		switch {
		case name == "" || name == "-" || name == unread:
		case of.Kind() == reflect.Struct:
			gather(all, of, name, cmp.Or(one[name], name)+".")
		case part == "":
			all[name] = field{part: name}
		default:
			all[prefix+name] = field{part, name, of.Kind() != reflect.String}
		}
	}
}

// A condition compares a field with a value.
type condition struct {
	field
	op, text string
	num      float64
}

// A Query has conditions that hold together, by the part of the facts that they are about: those on a list for one of
// its elements.
type Query map[string][]condition

const (
	mostQuery = 4 << 10
	spaces    = " \t\r\n"
)

var operators = []string{"!=", "<=", ">=", "=", "<", ">", "~"} // longer ones first

// ParseQuery parses conditions, FIELD OP VALUE, that are joined by "and". A value with spaces is in quotes.
func ParseQuery(s string) (Query, error) {
	if len(s) > mostQuery {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(s), mostQuery)
	}
	for q := (Query{}); ; {
		s = strings.TrimLeft(s, spaces)
		rest := strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz_.")
		name := s[:len(s)-len(rest)]
		of, ok := fields()[name]
		if !ok {
			return nil, fmt.Errorf("expected one of %s, found %q", strings.Join(slices.Sorted(maps.Keys(fields())), ", "), name)
		}
		rest = strings.TrimLeft(rest, spaces)
		at := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) })
		if at < 0 {
			return nil, fmt.Errorf("expected one of %s after %s", strings.Join(operators, " "), name)
		}
		c := condition{field: of, op: operators[at]}
		var err error
		if c.text, rest, err = value(strings.TrimLeft(rest[len(c.op):], spaces)); err != nil {
			return nil, fmt.Errorf("%w after %s %s", err, name, c.op)
		}
		if c.num, err = strconv.ParseFloat(c.text, 64); c.number && (err != nil || c.op == "~") {
			return nil, fmt.Errorf("%s is a number: expected one, and not after ~, found %q", name, c.text)
		}
		q[c.part] = append(q[c.part], c)
		if rest = strings.TrimLeft(rest, spaces); rest == "" {
			return q, nil
		}
		word, after, _ := strings.Cut(rest, " ")
		if !strings.EqualFold(word, "and") {
			return nil, fmt.Errorf("expected 'and' or the end after %q, found %q", c.text, word)
		}
		s = after
	}
}

// value returns the value at the beginning of a text, and what follows it.
func value(s string) (v, rest string, err error) {
	if s == "" || s[0] == '=' { // as in ==
		return "", "", errors.New("expected a value")
	}
	if s[0] == '"' || s[0] == '\'' {
		v, rest, ok := strings.Cut(s[1:], s[:1])
		if !ok {
			err = fmt.Errorf("expected a %c at the end of the value", s[0])
		}
		return v, rest, err
	}
	if end := strings.IndexAny(s, spaces); end >= 0 {
		return s[:end], s[end:], nil
	}
	return s, "", nil
}

// Holds reports whether facts fulfil all conditions. What is not known fulfils none.
func (q Query) Holds(f *Facts) bool {
	for part, all := range q {
		if !slices.ContainsFunc(elements(f.all[part]), func(x any) bool {
			return !slices.ContainsFunc(all, func(c condition) bool { return !c.holds(x) })
		}) {
			return false
		}
	}
	return true
}

func elements(v any) []any {
	if all, ok := v.([]any); ok {
		return all
	}
	if v == nil {
		return nil
	}
	return []any{v}
}

// holds reports whether a part fulfils the condition. If it is a list of values, one of them must, or all for !=.
func (c condition) holds(part any) bool {
	if of, ok := part.(map[string]any); ok {
		part = of[c.member]
	}
	all := elements(part)
	if c.op == "!=" {
		return len(all) > 0 && !slices.ContainsFunc(all, c.equals)
	}
	return slices.ContainsFunc(all, c.equals)
}

// equals compares a value. For !=, it reports whether it is equal.
func (c condition) equals(v any) bool {
	order := 0
	switch v := v.(type) {
	case float64:
		order = cmp.Compare(v, c.num)
	case string:
		if c.op == "~" {
			return strings.Contains(strings.ToLower(v), strings.ToLower(c.text))
		}
		order = strings.Compare(v, c.text)
	default:
		return false
	}
	switch c.op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	}
	return order == 0
}
