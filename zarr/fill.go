package zarr

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// fillElement returns the bytes of an element of a missing chunk.
func (m *Meta) fillElement() ([]byte, error) {
	out := make([]byte, m.DType.Size)
	if m.Fill == nil || m.Fill == false {
		return out, nil
	}
	if n, ok := asInt(m.Fill); ok && n == 0 && (m.DType.Kind != 'f' && m.DType.Kind != 'c') {
		return out, nil // for any type, including structured ones
	}
	if !m.DType.encode(out, m.Fill) {
		return nil, corrupt("fill_value: %s is not a value of dtype %s", brief(m.Fill), clip(m.DType.Name))
	}
	return out, nil
}

// encode converts a fill_value to an element.
func (d DType) encode(out []byte, v any) bool {
	switch d.Kind {
	case 'b':
		n, ok := asInt(v)
		d.putBits(out, 1)
		return v == true || ok && n == 1
	case 'i', 'u', 'M', 'm':
		return d.encodeWhole(out, v)
	case 'f':
		return d.encodeFloat(out, v)
	case 'c':
		half := d.half()
		if pair, ok := v.([]any); ok {
			return len(pair) == 2 && half.encodeFloat(out[:half.Size], pair[0]) && half.encodeFloat(out[half.Size:], pair[1])
		}
		return half.encodeFloat(out[:half.Size], v)
	case 'S', 'V':
		s, ok := v.(string)
		if !ok {
			return false
		}
		raw, err := base64.StdEncoding.DecodeString(s)
		exact := d.Kind == 'V' && s != ""
		if err != nil || int64(len(raw)) > d.Size || exact && int64(len(raw)) != d.Size {
			return false
		}
		copy(out, raw)
		return true
	case 'U':
		s, ok := v.(string)
		if !ok || int64(utf8.RuneCountInString(s)) > d.Size/4 {
			return false
		}
		at := 0
		for _, c := range s {
			d.order().PutUint32(out[at:], uint32(c))
			at += 4
		}
		return true
	}
	return false
}

func (d DType) encodeWhole(out []byte, v any) bool {
	if v == "NaT" && (d.Kind == 'M' || d.Kind == 'm') {
		d.putBits(out, 1<<63)
		return true
	}
	n, ok := v.(json.Number)
	if !ok {
		return v == true && d.Kind != 'M' && d.Kind != 'm' && d.putNumber(out, 1)
	}
	if d.Kind == 'u' {
		if u, err := strconv.ParseUint(string(n), 10, int(8*d.Size)); err == nil {
			d.putBits(out, u)
			return true
		}
	} else if i, err := strconv.ParseInt(string(n), 10, int(8*d.Size)); err == nil {
		d.putBits(out, uint64(i))
		return true
	}
	if d.Kind != 'u' {
		d.Kind = 'i' // the type in which datetimes and timedeltas are counted
	}
	f, err := strconv.ParseFloat(string(n), 64) // such as 3.0
	return err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53 && d.putNumber(out, f)
}

func (d DType) encodeFloat(out []byte, v any) bool {
	f, ok := parseNumber(v)
	if b, isBool := v.(bool); isBool {
		f, ok = map[bool]float64{true: 1}[b], true
	}
	if n, isNumber := v.(json.Number); ok && isNumber && d.Size == 4 {
		// Rounding twice could be off by one.
		if g, err := strconv.ParseFloat(string(n), 32); err == nil {
			f = g
		}
	}
	switch {
	case !ok:
	case math.IsNaN(f): // as in NumPy: only the highest bit of the fraction is set
		d.putBits(out, map[int64]uint64{2: 0x7e00, 4: 0x7fc00000, 8: 0x7ff8 << 48}[d.Size])
	default:
		d.putBits(out, floatBits(f, d.Size))
	}
	return ok
}
