package ucl

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// What a suffix multiplies by. Multiples keep an integer one; those of bytes make
// one, and cut a fraction off before they multiply, as libucl does; times are
// floats, in seconds.
var (
	multiples = map[string]int64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
	bytesIn   = map[string]int64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
	secondsIn = map[string]float64{"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
)

var errRange = errors.New("out of range")

// number reads a number. It says false of what is none, such as the floats that
// the reference writes, 2.-5, and errRange of what is too large.
func number(word string) (Value, bool, error) {
	form, digits, suffix := splitNumber(word)
	if form == notNumber || len(suffix) > len("min") {
		return Value{}, false, nil
	}
	suffix = strings.ToLower(suffix)
	multiple, isMultiple := multiples[suffix]
	size, isBytes := bytesIn[suffix]
	seconds, isTime := secondsIn[suffix]
	if !isMultiple && !isBytes && !isTime && suffix != "ms" {
		return Value{}, false, nil
	}

	var i int64
	var f float64
	var err error
	switch form {
	case hexadecimal:
		i, err = strconv.ParseInt(digits, 0, 64)
	case decimal:
		i, err = strconv.ParseInt(digits, 10, 64)
	case fractional:
		f, err = strconv.ParseFloat(digits, 64)
	}
	if err != nil {
		return Value{}, false, errRange
	}

	switch {
	case isBytes:
		if form == fractional {
			if math.Abs(f) >= 1<<62 {
				return Value{}, false, errRange
			}
			i = int64(f)
		}
		return product(i, size)
	case isMultiple && form != fractional:
		return product(i, multiple)
	}
	if form != fractional {
		f = float64(i)
	}
	switch {
	case suffix == "ms":
		f /= 1000
	case isTime:
		f *= seconds
	default:
		f *= float64(multiple)
	}
	if math.IsInf(f, 0) {
		return Value{}, false, errRange
	}
	return Float(f), true, nil
}

func product(i, by int64) (Value, bool, error) {
	if i > math.MaxInt64/by || i < math.MinInt64/by {
		return Value{}, false, errRange
	}
	return Int(i * by), true, nil
}

type numberForm int

const (
	notNumber numberForm = iota
	decimal
	hexadecimal
	fractional // has a point or an exponent
)

// splitNumber cuts word where its digits end. Those of a hexadecimal number come
// with their 0x, as strconv wants them for base 0.
func splitNumber(word string) (form numberForm, digits, suffix string) {
	span := func(from int, in func(byte) bool) int {
		for from < len(word) && in(word[from]) {
			from++
		}
		return from
	}
	at := func(i int, set string) bool { return i < len(word) && strings.IndexByte(set, word[i]) >= 0 }

	start := 0
	if at(0, "-") {
		start++
	}
	end := span(start, isDigit)
	switch {
	case end == start:
		return notNumber, "", ""
	case end == start+1 && word[start] == '0' && at(end, "xX"):
		if end = span(start+2, isHexDigit); end == start+2 {
			return notNumber, "", ""
		}
		return hexadecimal, word[:end], word[end:]
	}
	form = decimal
	if at(end, ".") {
		form = fractional
		end = span(end+1, isDigit)
	}
	if at(end, "eE") {
		exponent := end + 1
		if at(exponent, "+-") {
			exponent++
		}
		if last := span(exponent, isDigit); last > exponent {
			form, end = fractional, last
		}
	}
	return form, word[:end], word[end:]
}

func isHexDigit(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
