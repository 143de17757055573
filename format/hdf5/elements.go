package hdf5

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	h5 "github.com/holdall/holdall/hdf5"
)

// What elements become whose bytes NumPy cannot read as they are.

// other finds what elements become that NumPy has no name for, and reports whether they are numbers.
func (x *array) other(t *h5.Datatype) (number bool, err error) {
	if err = x.asJSON(t); err == nil {
		return false, nil
	}
	if name, convert := converted(t); name != "" {
		x.dtype, x.convert, x.item = name, convert, size(name)
		return true, nil
	}
	switch t.Class {
	case h5.Compound:
		if text, convert, n := recordOf(t); n > 0 {
			x.dtype, x.record, x.fields, x.json, x.item = "|V"+strconv.FormatInt(n, 10), text, nil, false, n
			if convert != nil {
				x.convert = convert
			}
			return true, nil
		}
	case h5.Variable:
		if name, _ := dtypeOf(t.Base); len(name) > 2 && strings.IndexByte("iufb", name[1]) >= 0 && x.Bytes() <= maxObjects {
			x.dtype, x.list = "|O", strings.Replace(name, ">", "<", 1)
			return false, nil
		}
	}
	return false, err
}

// size returns the size of elements of a simple dtype.
func size(name string) int64 {
	n, _ := strconv.ParseInt(name[2:], 10, 64)
	return n
}

// converted returns the dtype that numbers become which NumPy does not have: those of some of the bits, which it has
// in more, and floats of other sizes, which are rounded to 64 bits.
func converted(t *h5.Datatype) (name string, convert func(to, from []byte)) {
	switch {
	case t.Class == h5.Float:
		return "<f8", func(to, from []byte) { binary.LittleEndian.PutUint64(to, math.Float64bits(t.Number(from).(float64))) }
	case (t.Class == h5.Integer || t.Class == h5.BitField) && t.Size <= 8:
		kind, n := byte('u'), int64(1)
		if t.Signed {
			kind = 'i'
		}
		for n < t.Size {
			n *= 2
		}
		if name = "<" + string(kind) + strconv.FormatInt(n, 10); n == 1 {
			name = "|" + name[1:]
		}
		return name, func(to, from []byte) {
			var v uint64
			switch x := t.Number(from).(type) {
			case int64:
				v = uint64(x)
			case uint64:
				v = x
			}
			for i := range to[:n] {
				to[i] = byte(v >> (8 * i))
			}
		}
	case t.Class == h5.String && t.Size > 0:
		return "|S" + strconv.FormatInt(t.Size, 10), func(to, from []byte) {
			clear(to[copy(to, bytes.TrimRight(from[:t.Size], " ")):t.Size])
		}
	case t.Class == h5.Enum:
		return converted(t.Base)
	}
	return "", nil
}

// recordOf returns the dtype of a compound that has fields of fields, or of arrays, and its size. convert is nil if the
// elements are the same. The size is 0 if NumPy has no such type.
func recordOf(t *h5.Datatype) (text []byte, convert func(to, from []byte), n int64) {
	type part struct {
		from, size, to, made int64
		convert              func(to, from []byte)
	}
	var parts []part
	text = append(text, '[')
	same := true
	for i, f := range t.Fields {
		base, dims, count := f.Type, []int64(nil), int64(1)
		for base.Class == h5.Array {
			dims, base = append(dims, base.Dims...), base.Base
		}
		for _, d := range dims {
			if count *= d; count > maxParts { // dimensions are of the file
				return nil, nil, 0
			}
		}
		p := part{from: f.Offset, size: base.Size, to: n, made: base.Size}
		var inner []byte
		if name, _ := dtypeOf(base); name != "" {
			inner = strconv.AppendQuote(nil, name)
		} else if base.Class == h5.Compound {
			inner, p.convert, p.made = recordOf(base)
		} else if name, convert := converted(base); name != "" {
			inner, p.convert, p.made = strconv.AppendQuote(nil, name), convert, size(name)
		}
		named, err := name(nil, f.Name)
		if inner == nil || p.made == 0 || count == 0 || count > int64(maxParts-len(parts)) || err != nil || f.Name == "" {
			return nil, nil, 0
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(append(text, '['), named...), ','), inner...)
		if dims != nil {
			text = append(text, ',')
			text = lengths(text, dims)
		}
		text = append(text, ']')
		same = same && p.convert == nil && p.from == p.to
		for range count {
			parts = append(parts, p)
			p.from, p.to = p.from+p.size, p.to+p.made
		}
		n = p.to
	}
	if text = append(text, ']'); same && n == t.Size {
		return text, nil, n
	}
	return text, func(to, from []byte) {
		for _, p := range parts {
			if p.convert != nil {
				p.convert(to[p.to:], from[p.from:])
			} else {
				copy(to[p.to:p.to+p.made], from[p.from:])
			}
		}
	}, n
}

// maxParts is how many numbers a record may have.
const maxParts = 1 << 16

// change makes elements of stored ones.
func (x *array) change(b []byte) []byte {
	if x.convert == nil || len(b) == 0 {
		return b
	}
	typ := x.Type
	for typ.Class == h5.Array {
		typ = typ.Base
	}
	n := int64(len(b)) / typ.Size
	out := make([]byte, n*x.item)
	for i := range n {
		x.convert(out[i*x.item:(i+1)*x.item], b[i*typ.Size:])
	}
	return out
}

// appendNumber appends a number in n bytes, the lowest first.
func appendNumber(p []byte, v any, n int64) []byte {
	var bits uint64
	switch v := v.(type) {
	case int64:
		bits = uint64(v)
	case uint64:
		bits = v
	case float64:
		switch bits = math.Float64bits(v); n {
		case 4:
			bits = uint64(math.Float32bits(float32(v)))
		case 2:
			bits = uint64(float16(v))
		}
	}
	for i := range n {
		p = append(p, byte(bits>>(8*i)))
	}
	return p
}

// float16 returns the bits of a float that has 16.
func float16(v float64) uint16 {
	b := math.Float32bits(float32(v))
	sign, exponent, mantissa := uint16(b>>16&0x8000), int(b>>23&0xff)-112, b&0x7fffff
	switch {
	case exponent == 143 && mantissa != 0:
		return sign | 0x7e00 | uint16(mantissa>>13)
	case exponent >= 31:
		return sign | 0x7c00
	case exponent <= 0:
		return sign | uint16((mantissa|0x800000)>>min(14-exponent, 31))
	}
	return sign | uint16(exponent)<<10 | uint16(mantissa>>13)
}
