package zarr

import (
	"fmt"
	"math"
	"strconv"
)

// perSecond is the number of units in a second, as a power of ten.
var perSecond = map[string]int{"s": 0, "ms": 3, "us": 6, "ns": 9, "ps": 12, "fs": 15, "as": 18}

// longUnits are the units longer than a second, in seconds, days, months or years.
var longUnits = map[string]int64{"m": 60, "h": 3600, "D": 1, "W": 7, "M": 1, "Y": 1}

// appendTime appends a datetime (M) as in ISO 8601, with the precision of its unit, or a
// timedelta (m) with its unit. A datetime that overflows is appended as its number and its unit.
func appendTime(out []byte, v int64, kind byte, unit string) []byte {
	if v == math.MinInt64 {
		return append(out, "NaT"...)
	}
	if unit == "" {
		return strconv.AppendInt(out, v, 10)
	}
	count, name := splitUnit(unit)
	n, ok := scaled(v, count)
	if !ok {
		return fmt.Appendf(out, "%d*%s", v, unit)
	}
	if kind == 'm' {
		return fmt.Appendf(out, "%d%s", n, name)
	}
	if digits, ok := perSecond[name]; ok {
		per := int64(math.Pow10(digits))
		sec, rest := floorDiv(n, per)
		out = appendClock(out, sec, "s")
		if digits > 0 {
			out = fmt.Appendf(out, ".%0*d", digits, rest)
		}
		return out
	}
	if n, ok = scaled(n, longUnits[name]); !ok || n > 1<<61 || n < -1<<61 {
		return fmt.Appendf(out, "%d*%s", v, unit)
	}
	switch name {
	case "Y":
		return appendYear(out, n+1970)
	case "M":
		year, month := floorDiv(n, 12)
		return fmt.Appendf(appendYear(out, year+1970), "-%02d", month+1)
	case "D", "W":
		return appendDate(out, n)
	}
	return appendClock(out, n, name)
}

// scaled multiplies, and reports whether the product fits in an int64.
func scaled(v, by int64) (int64, bool) {
	n := v * by
	return n, by == 1 || n/by == v
}

func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}

// appendClock appends a time in seconds since 1970, down to the given unit.
func appendClock(out []byte, sec int64, unit string) []byte {
	day, sec := floorDiv(sec, 86400)
	out = fmt.Appendf(appendDate(out, day), "T%02d", sec/3600)
	if unit != "h" {
		out = fmt.Appendf(out, ":%02d", sec/60%60)
	}
	if unit == "s" {
		out = fmt.Appendf(out, ":%02d", sec%60)
	}
	return out
}

// appendDate appends a day of the Gregorian calendar, given as a number of days since 1970. Years
// begin in March, so that the leap day is the last day of a year, and are counted from 0000 in
// spans of 400 years, or 146097 days.
func appendDate(out []byte, day int64) []byte {
	era, day := floorDiv(day+719468, 146097)
	year := (day - day/1460 + day/36524 - day/146096) / 365
	day -= 365*year + year/4 - year/100
	month := (5*day + 2) / 153
	day -= (153*month+2)/5 - 1
	year += 400 * era
	if month += 3; month > 12 {
		year, month = year+1, month-12
	}
	return fmt.Appendf(appendYear(out, year), "-%02d-%02d", month, day)
}

func appendYear(out []byte, year int64) []byte {
	if year < 0 {
		return fmt.Appendf(out, "-%04d", -year)
	}
	return fmt.Appendf(out, "%04d", year)
}
