package zarr

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
)

// Some filters do arithmetic on elements. A number is an integer, kept as the bits of an int64 or
// uint64, or a float.

func (d DType) order() binary.ByteOrder {
	if d.BigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// bits reads an element of up to 8 bytes.
func (d DType) bits(b []byte) uint64 {
	switch d.Size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(d.order().Uint16(b))
	case 4:
		return uint64(d.order().Uint32(b))
	}
	return d.order().Uint64(b)
}

func (d DType) putBits(b []byte, v uint64) {
	switch d.Size {
	case 1:
		b[0] = byte(v)
	case 2:
		d.order().PutUint16(b, uint16(v))
	case 4:
		d.order().PutUint32(b, uint32(v))
	default:
		d.order().PutUint64(b, v)
	}
}

// whole reads an integer or a bool, with its sign extended.
func (d DType) whole(b []byte) uint64 {
	v := d.bits(b)
	if d.Kind == 'i' || d.Kind == 'M' || d.Kind == 'm' {
		shift := 64 - 8*uint(d.Size)
		return uint64(int64(v<<shift) >> shift)
	}
	return v
}

func (d DType) float(b []byte) float64 { return floatOf(d.bits(b), d.Size) }

// floatOf returns the float of size bytes with these bits.
func floatOf(v uint64, size int64) float64 {
	switch size {
	case 2:
		return fromHalf(uint16(v))
	case 4:
		return float64(math.Float32frombits(uint32(v)))
	}
	return math.Float64frombits(v)
}

// floatBits returns the bits of v as a float of size bytes, rounded to even.
func floatBits(v float64, size int64) uint64 {
	switch size {
	case 2:
		return uint64(toHalf(v))
	case 4:
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}

// number reads an element of kind b, i, u or f as a float.
func (d DType) number(b []byte) float64 {
	switch d.Kind {
	case 'f':
		return d.float(b)
	case 'i':
		return float64(int64(d.whole(b)))
	}
	return float64(d.whole(b))
}

// putNumber writes a float as an element of kind b, i, u or f, truncated if it must be an
// integer. It reports false if NumPy's result would depend on the machine.
func (d DType) putNumber(b []byte, v float64) bool {
	switch d.Kind {
	case 'f':
		d.putBits(b, floatBits(v, d.Size))
		return true
	case 'b':
		d.putBits(b, map[bool]uint64{true: 1}[v != 0])
		return true
	}
	v = math.Trunc(v)
	low, high := 0.0, math.Ldexp(1, int(8*d.Size))
	if d.Kind == 'i' {
		low, high = -high/2, high/2
	}
	if !(v >= low && v < high) {
		return false
	}
	if d.Kind == 'i' {
		d.putBits(b, uint64(int64(v)))
	} else {
		d.putBits(b, uint64(v))
	}
	return true
}

func fromHalf(h uint16) float64 {
	sign := uint64(h>>15) << 63
	exp, frac := int(h>>10)&31, uint64(h&0x3ff)
	switch exp {
	case 0:
		v := math.Ldexp(float64(frac), -24)
		return math.Float64frombits(math.Float64bits(v) | sign)
	case 31:
		return math.Float64frombits(sign | 0x7ff<<52 | frac<<42)
	}
	return math.Float64frombits(sign | uint64(exp-15+1023)<<52 | frac<<42)
}

func toHalf(v float64) uint16 {
	b := math.Float64bits(v)
	sign := uint16(b >> 48 & 0x8000)
	a := math.Abs(v)
	switch {
	case v != v:
		return sign | 0x7c00 | uint16(b>>42&0x3ff) | 0x200
	case a >= 65520: // half way between the largest value, 65504, and the next one
		return sign | 0x7c00
	case a < 0x1p-14:
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	frac, exp := math.Frexp(a) // a = frac * 2^exp, 0.5 <= frac < 1
	return sign | uint16(int(math.RoundToEven(frac*0x1p11))-0x400+(exp+14)<<10)
}

// parseNumber parses a JSON number, or one of the strings that Zarr uses for floats that JSON
// lacks.
func parseNumber(v any) (float64, bool) {
	var s string
	switch v := v.(type) {
	case json.Number:
		s = string(v)
	case string:
		s = v
		if s != "NaN" && s != "Infinity" && s != "-Infinity" {
			return 0, false
		}
	default:
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
