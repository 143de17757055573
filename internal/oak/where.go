package oak

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math/big"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// A Where is a condition on a property of a node. If the property has several values, one must
// match.
type Where struct {
	name   string
	op     string // empty: the property is there; "!": it is not
	text   string
	number *big.Float // nil if the text is not a number
	time   time.Time  // zero if the text is not a time
}

// ParseWhere parses NAME, !NAME, or NAME, an operator and a value. The operators =, !=, <, <=, >
// and >= compare numbers, dates or texts, whatever the type of the property is, and ~ searches
// for a part of a text.
func ParseWhere(s string) (w Where, err error) {
	i := strings.IndexAny(s, "=<>~")
	if i < 0 {
		w.name = s
		if w.name, w.op = strings.TrimPrefix(s, "!"), ""; w.name != s {
			w.op = "!"
		}
	} else {
		w.name, w.op, w.text = s[:i], s[i:i+1], s[i+1:]
		if rest, ok := strings.CutPrefix(w.text, "="); ok && (w.op == "<" || w.op == ">") {
			w.op, w.text = w.op+"=", rest
		}
		if name, ok := strings.CutSuffix(w.name, "!"); ok && w.op == "=" {
			w.name, w.op = name, "!="
		}
	}
	if w.name == "" {
		return w, fmt.Errorf("%.100q: expected the name of a property, as in jcr:primaryType=nt:file: %w", s, fs.ErrInvalid)
	}
	if len(w.text) < mostNumber {
		w.number, _ = numberOf(w.text)
	}
	w.time, _ = timeIn(w.text)
	return w, nil
}

// mostNumber bounds the text of numbers that are compared: they are exact.
const mostNumber = 256

func numberOf(s string) (*big.Float, bool) {
	f, _, err := big.ParseFloat(s, 10, 1024, big.ToNearestEven)
	return f, err == nil
}

// timeIn parses a time in Oak's format, or a date, which means the beginning of that day in UTC.
func timeIn(s string) (at time.Time, err error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02T15:04:05"} {
		if at, err = time.Parse(layout, s); err == nil {
			break
		}
	}
	return at, err
}

// match reports whether a node matches. If damage hides that, it returns an error.
func (w Where) match(ctx context.Context, n segment.Node) (bool, error) {
	p, ok, err := n.Property(ctx, w.name)
	switch {
	case err != nil:
		return false, err
	case w.op == "":
		return ok, nil
	case w.op == "!":
		return !ok, nil
	case !ok:
		return false, nil
	}
	for v, err := range p.Values(ctx) {
		if err == nil {
			ok, err = w.value(ctx, p.Type, v)
		}
		if err != nil {
			return false, err
		}
		if ok {
			return w.op != "!=", nil
		}
	}
	return w.op == "!=", nil
}

// mostCompared limits how much of a text is compared by order, or searched.
const mostCompared = 1 << 20

// value reports whether a value matches; for != whether it is equal.
func (w Where) value(ctx context.Context, typ segment.PropertyType, v segment.Value) (bool, error) {
	if typ == segment.Binary { // by its length
		size := v.Len()
		if v.External() {
			id, err := v.BlobID(ctx, mostBlobID)
			if err != nil {
				return false, err
			}
			size, _, _ = blobPlace(id, false)
		}
		return w.number != nil && w.ordered(new(big.Float).SetInt64(size).Cmp(w.number)), nil
	}
	if (w.op == "=" || w.op == "!=") && typ != segment.Date && !isNumber(typ) && v.Len() != int64(len(w.text)) {
		return false, nil
	}
	b := make([]byte, min(v.Len(), mostCompared))
	if err := v.ReadAt(ctx, b, 0); err != nil {
		return false, err
	}
	switch {
	case w.op == "~":
		return bytes.Contains(b, []byte(w.text)), nil
	case isNumber(typ):
		if w.number == nil || len(b) >= mostNumber {
			return false, nil
		}
		f, ok := numberOf(string(b))
		return ok && w.ordered(f.Cmp(w.number)), nil
	case typ == segment.Date && !w.time.IsZero():
		at, err := timeIn(string(b))
		return err == nil && w.ordered(at.Compare(w.time)), nil
	}
	return w.ordered(cmp.Compare(string(b), w.text)), nil
}

func isNumber(typ segment.PropertyType) bool {
	return typ == segment.Integer || typ == segment.Double || typ == segment.Decimal
}

func (w Where) ordered(c int) bool {
	switch w.op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case ">=":
		return c >= 0
	}
	return c == 0
}
