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

// A Ref is what an object reference is as a value: the address of an object's header, 0
// if it refers to nothing.
type Ref int64

// A RegionValue is what a region reference is as a value.
type RegionValue struct {
	Object Ref
	// Selection is which elements: as the library encodes it.
	Selection []byte
}

// Values gives elements as Go values, for b that Read has filled, or for an attribute's
// Data:
//
//	integers       int64 or uint64, *big.Int if they have more than 64 bits; enums too
//	floats         float64, with NaN and infinities; what has more bits is rounded
//	complex        complex128
//	strings        string, without what fills them up; the bytes are as they are
//	bit fields     uint64; []byte if they have more than 64 bits
//	opaque, time   []byte
//	compound       []any, by field
//	array, sequence  []any, arrays of several dimensions flat
//	references     Ref, RegionValue; []byte of kinds that are not known
//
// What lies in heaps is read, several heaps at once.
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

// A decoder makes values of elements.
type decoder struct {
	w     *wave
	heaps map[int64]*collection
}

const (
	valueCost  = 24  // bytes that a value takes besides what it has
	heapsReady = 256 // that are read at once
)

// take counts what values of a wave take together.
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

// all decodes elements that lie side by side.
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

// prepare reads the heaps that elements from i on refer to, until they are many. It
// returns how many elements are ready then.
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

// sequence decodes an element of variable length: a count (u32), and where in a heap
// its elements are: an address and a number (u32).
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
	// Elements that refer to heaps again have their own.
	inner := decoder{w: d.w, heaps: d.heaps}
	return inner.all(t.Base, got[:size])
}

// object is that of a global heap; nil if it refers to nothing.
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

// trim takes off what fills a string up.
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

// little is an element with its lowest byte first.
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

// bits is the number of an element of up to 8 bytes.
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

// field takes bits out of an element with its lowest byte first.
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
	// Of a long mantissa the upper bits count, and whether there is anything below them:
	// rounding to 53 bits needs no more.
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
		// The highest bit is stored: it is part of the number but not of a NaN's sign.
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
