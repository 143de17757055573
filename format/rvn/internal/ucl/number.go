package ucl

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// A suffix is a multiplier of a number. Plain multipliers keep an integer an integer. Multipliers
// of bytes result in an integer, and drop a fraction before they multiply, as libucl does. Times
// are floats, in seconds.
type suffix struct {
	by          int64
	bytes, time bool
}

var suffixes = map[string]suffix{
	"": {by: 1}, "k": {by: 1e3}, "m": {by: 1e6}, "g": {by: 1e9},
	"kb": {by: 1 << 10, bytes: true}, "mb": {by: 1 << 20, bytes: true}, "gb": {by: 1 << 30, bytes: true},
	"ms": {time: true}, // which divides by 1000
	"s":  {by: 1, time: true}, "min": {by: 60, time: true}, "h": {by: 3600, time: true}, "d": {by: 86400, time: true},
	"w": {by: 7 * 86400, time: true}, "y": {by: 365 * 86400, time: true},
}

var errRange = errors.New("out of range")

// number reads a number. It returns false for anything else, such as the floats that the
// reference writes, 2.-5. It returns errRange if the number is too large.
func number(word string) (Value, bool, error) {
	form, digits, rest := splitNumber(word)
	if form == notNumber || len(rest) > len("min") {
		return Value{}, false, nil
	}
	s, known := suffixes[strings.ToLower(rest)]
	if !known {
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
		if f, err = strconv.ParseFloat(digits, 64); s.bytes && math.Abs(f) >= 1<<62 {
			err = errRange
		}
		i = int64(f)
	}
	switch {
	case err != nil:
		return Value{}, false, errRange
	case s.bytes || !s.time && form != fractional:
		if i > math.MaxInt64/s.by || i < math.MinInt64/s.by {
			return Value{}, false, errRange
		}
		return Int(i * s.by), true, nil
	case form != fractional:
		f = float64(i)
	}
	if s.by == 0 {
		f /= 1000
	} else {
		f *= float64(s.by)
	}
	if math.IsInf(f, 0) {
		return Value{}, false, errRange
	}
	return Float(f), true, nil
}

type numberForm int

const (
	notNumber numberForm = iota
	decimal
	hexadecimal
	fractional // has a point or an exponent
)

// splitNumber splits word after its digits. The digits of a hexadecimal number include 0x, which
// strconv requires for base 0.
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
