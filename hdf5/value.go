package hdf5

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
)

// A Ref is the value of an object reference: the address of the object's header, or 0 if it
// refers to nothing.
type Ref int64

// A RegionValue is the value of a region reference.
type RegionValue struct {
	Object Ref
	// Selection has the selected elements, as the library encodes them.
	Selection []byte
}

// Values returns the elements in b as Go values, where b is the result of Read or the Data of an
// attribute. The values are
//
//	integers       int64 or uint64, *big.Int if they have more than 64 bits; enums too
//	floats         float64, with NaN and infinities; longer floats are rounded
//	complex        complex128
//	strings        string, without padding; the bytes are unchanged
//	bit fields     uint64; []byte if they have more than 64 bits
//	opaque, time   []byte
//	compound       []any, by field
//	array, sequence  []any; arrays of several dimensions are flat
//	references     Ref, RegionValue; []byte for unknown kinds
//
// Values in heaps are read, several heaps at a time.
func (f *File) Values(ctx context.Context, t *Datatype, b []byte) ([]any, error) {
	d := decoder{w: f.wave(ctx)}
	return d.all(t, b)
}

// values decodes attributes.
func (w *wave) values(all []Attribute) {
	for i := range all {
		a := &all[i]
		if a.Err != nil {
			continue
		}
		d := decoder{w: w}
		a.Values, a.Err = d.all(a.Type, a.Data)
	}
}

// decoder converts elements to values.
type decoder struct {
	w     *wave
	heaps map[int64]*collection
}

const (
	valueCost  = 24  // bytes that a value takes besides its contents
	heapsReady = 256 // heaps that are read at a time
)

// take counts the memory that all values of a wave take.
func (d *decoder) take(n int64) error {
	w := d.w
	w.mu.Lock()
	w.room.values -= n
	left := w.room.values
	w.mu.Unlock()
	if left < 0 {
		return w.f.place("values", -1, overLimit("decoded data", w.f.Limit-left, w.f.Limit))
	}
	return nil
}

// all converts consecutive elements.
func (d *decoder) all(t *Datatype, b []byte) ([]any, error) {
	size := int(t.Size)
	if size == 0 || len(b)%size != 0 {
		if len(b) > 0 {
			return nil, d.w.f.place("values", -1, corrupt("expected elements of %d bytes, found %d bytes", size, len(b)))
		}
		return []any{}, nil
	}
	n := len(b) / size
	if err := d.take(int64(n) * valueCost); err != nil {
		return nil, err
	}
	out := make([]any, n)
	ready := 0
	for i := range out {
		if t.variable && i == ready {
			var err error
			if ready, err = d.prepare(t, b, i); err != nil {
				return nil, err
			}
		}
		v, err := d.one(t, b[i*size:(i+1)*size])
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// prepare reads the heaps that elements from i on refer to, up to a limit. It returns the number
// of elements that can then be converted.
func (d *decoder) prepare(t *Datatype, b []byte, i int) (int, error) {
	size := int(t.Size)
	var want []int64
	seen := map[int64]bool{}
	for ; (i+1)*size <= len(b) && len(want) < heapsReady; i++ {
		d.refs(t, b[i*size:(i+1)*size], func(at int64) {
			if !seen[at] {
				seen[at] = true
				want = append(want, at)
			}
		})
	}
	var err error
	d.heaps, err = d.w.collections(want, d.heaps)
	return i, err
}

// refs calls found with the heaps that an element refers to.
func (d *decoder) refs(t *Datatype, b []byte, found func(at int64)) {
	switch {
	case !t.variable:
	case t.Class == Compound:
		for _, x := range t.Fields {
			d.refs(x.Type, b[x.Offset:x.Offset+x.Type.Size], found)
		}
	case t.Class == Array:
		for ; len(b) > 0; b = b[t.Base.Size:] {
			d.refs(t.Base, b, found)
		}
	case t.Class == Variable || t.Class == Reference:
		c := d.w.f.cursor(b)
		if t.Class == Variable && c.u32() == 0 {
			return
		}
		if at := c.addr(); at > d.w.f.Base {
			found(at)
		}
	}
}

func (d *decoder) one(t *Datatype, b []byte) (any, error) {
	b = b[:t.Size]
	f := d.w.f
	switch t.Class {
	case Integer:
		return t.integer(b), nil
	case BitField:
		if t.Size <= 8 {
			return t.bits(b), nil
		}
	case Float:
		return t.float(b), nil
	case Complex:
		half := t.Base.Size
		return complex(t.Base.float(b[:half]), t.Base.float(b[half:])), nil
	case String:
		return string(t.trim(b)), d.take(t.Size)
	case Enum:
		return d.one(t.Base, b)
	case Compound:
		if err := d.take(int64(len(t.Fields)) * valueCost); err != nil {
			return nil, err
		}
		out := make([]any, len(t.Fields))
		for i, x := range t.Fields {
			var err error
			if out[i], err = d.one(x.Type, b[x.Offset:x.Offset+x.Type.Size]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case Array:
		if err := d.take(t.count * valueCost); err != nil {
			return nil, err
		}
		out := make([]any, t.count)
		for i := range out {
			var err error
			if out[i], err = d.one(t.Base, b[int64(i)*t.Base.Size:]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case Variable:
		return d.sequence(t, b)
	case Reference:
		c := f.cursor(b)
		switch t.Ref {
		case ObjectRef:
			at := c.addr()
			if at == undefined || at == f.Base {
				at = 0
			}
			return Ref(at), nil
		case RegionRef:
			got, err := d.object(c.addr(), c.u32())
			if err != nil || got == nil {
				return RegionValue{}, err
			}
			r := f.cursor(got)
			at := r.addr()
			v := RegionValue{Ref(at), bytes.Clone(r.b[r.at:])}
			return v, cmp.Or(d.take(int64(len(v.Selection))), f.place("region reference", -1, r.err()))
		}
	}
	return bytes.Clone(b), d.take(t.Size)
}

// sequence converts an element of variable length: a count (u32), and the place of its elements
// in a heap, which is an address and a number (u32).
func (d *decoder) sequence(t *Datatype, b []byte) (any, error) {
	c := d.w.f.cursor(b)
	n := int64(c.u32())
	at, number := c.addr(), c.u32()
	var got []byte
	if n > 0 {
		var err error
		if got, err = d.object(at, number); err != nil {
			return nil, err
		}
	}
	if t.IsString {
		if n > int64(len(got)) && got != nil {
			return nil, d.w.f.place("global heap", at, corrupt("object %d: expected a string of %d bytes, found %d", number, n, len(got)))
		}
		s, _, _ := bytes.Cut(got[:min(n, int64(len(got)))], []byte{0})
		return string(s), d.take(int64(len(s)))
	}
	if got == nil {
		return []any{}, nil
	}
	size, ok := multiply(n, t.Base.Size)
	if !ok || size > int64(len(got)) {
		return nil, d.w.f.place("global heap", at, corrupt("object %d: expected %d elements of %d bytes, found %d bytes", number, n, t.Base.Size, len(got)))
	}
	if !t.Base.variable {
		return d.all(t.Base, got[:size])
	}
	// Elements that refer to heaps themselves have a decoder of their own.
	inner := decoder{w: d.w, heaps: d.heaps}
	return inner.all(t.Base, got[:size])
}

// object returns an object of a global heap, or nil if the reference is empty.
func (d *decoder) object(at int64, number uint32) ([]byte, error) {
	if at == undefined || at == d.w.f.Base {
		return nil, nil
	}
	if d.heaps[at] == nil {
		var err error
		if d.heaps, err = d.w.collections([]int64{at}, d.heaps); err != nil {
			return nil, err
		}
	}
	x := d.heaps[at]
	if x.err != nil {
		return nil, x.err
	}
	b := x.object(number)
	if b == nil {
		return nil, d.w.f.place("global heap", at, corrupt("it has no object %d", number))
	}
	return b, nil
}

// trim removes the padding of a string.
func (t *Datatype) trim(b []byte) []byte {
	switch t.Padding {
	case SpacePadded:
		return bytes.TrimRight(b, " ")
	case ZeroPadded:
		return bytes.TrimRight(b, "\x00")
	}
	s, _, _ := bytes.Cut(b, []byte{0})
	return s
}

// little returns an element with its lowest byte first.
func (t *Datatype) little(b []byte) []byte {
	switch {
	case t.vax:
		b = bytes.Clone(b)
		for i, j := 0, len(b)-2; i < j; i, j = i+2, j-2 {
			b[i], b[i+1], b[j], b[j+1] = b[j], b[j+1], b[i], b[i+1]
		}
	case t.BigEndian:
		b = bytes.Clone(b)
		slices.Reverse(b)
	}
	return b
}

// bits returns the number of an element of up to 8 bytes.
func (t *Datatype) bits(b []byte) uint64 {
	var v uint64
	switch {
	case t.BigEndian && len(b) == 8:
		v = binary.BigEndian.Uint64(b)
	case t.BigEndian:
		for _, x := range b {
			v = v<<8 | uint64(x)
		}
	case len(b) == 8:
		v = binary.LittleEndian.Uint64(b)
	default:
		for i, x := range b {
			v |= uint64(x) << (8 * i)
		}
	}
	v >>= t.BitOffset
	if t.Precision < 64 {
		v &= 1<<t.Precision - 1
	}
	return v
}

// Number returns an element of an Integer, BitField or Float of up to 8 bytes, or of any Float: int64, uint64 or float64.
func (t *Datatype) Number(b []byte) any {
	switch b = b[:t.Size]; t.Class {
	case Float:
		return t.float(b)
	case BitField:
		return t.bits(b)
	}
	return t.integer(b)
}

func (t *Datatype) integer(b []byte) any {
	if t.Size > 8 {
		little := bytes.Clone(t.little(b))
		slices.Reverse(little)
		v := new(big.Int).SetBytes(little)
		v.Rsh(v, uint(t.BitOffset))
		one := big.NewInt(1)
		if p := uint(t.Precision); t.Signed && v.Bit(int(p)-1) != 0 {
			v.And(v, new(big.Int).Sub(new(big.Int).Lsh(one, p), one))
			return v.Sub(v, new(big.Int).Lsh(one, p))
		} else {
			return v.And(v, new(big.Int).Sub(new(big.Int).Lsh(one, p), one))
		}
	}
	v := t.bits(b)
	if !t.Signed {
		return v
	}
	shift := 64 - t.Precision
	return int64(v<<shift) >> shift
}

// field returns n bits at bit at of a little-endian element.
func field(b []byte, at, n int) uint64 {
	var v uint64
	for i := range n {
		if b[(at+i)/8]>>((at+i)%8)&1 != 0 {
			v |= 1 << i
		}
	}
	return v
}

func (t *Datatype) float(b []byte) float64 {
	x := t.Float
	if t.Size == 8 && *x == (FloatFormat{63, 52, 11, 0, 52, 1023, true}) && !t.vax {
		return math.Float64frombits(t.bits(b))
	}
	if t.Size == 4 && *x == (FloatFormat{31, 23, 8, 0, 23, 127, true}) && !t.vax {
		return float64(math.Float32frombits(uint32(t.bits(b))))
	}
	b = t.little(b)
	// Of a long mantissa, only the upper bits matter for rounding to 53 bits, and whether any
	// lower bit is set.
	dropped := max(0, x.MantissaBits-63)
	mantissa := field(b, x.MantissaAt+dropped, x.MantissaBits-dropped)
	for at := x.MantissaAt; at < x.MantissaAt+dropped; at++ {
		mantissa |= field(b, at, 1)
	}
	exponent := int64(field(b, x.ExponentAt, x.ExponentBits))
	width := x.MantissaBits - dropped
	scale := -width
	largest := int64(1)<<x.ExponentBits - 1
	fraction := mantissa
	if !x.Implied {
		// The highest bit is stored: it is a part of the number, but not of the sign of a NaN.
		scale++
		fraction &^= 1 << (width - 1)
	}
	var v float64
	switch {
	case exponent == largest && !t.vax && fraction == 0:
		v = math.Inf(1)
	case exponent == largest && !t.vax:
		v = math.NaN()
	case x.Implied && exponent != 0:
		v = math.Ldexp(float64(mantissa|1<<width), scale+int(exponent-x.Bias))
	case x.Implied, exponent == 0:
		v = math.Ldexp(float64(mantissa), scale+1-int(x.Bias))
	default:
		v = math.Ldexp(float64(mantissa), scale+int(exponent-x.Bias))
	}
	if field(b, x.Sign, 1) != 0 {
		v = -v
	}
	return v
}
