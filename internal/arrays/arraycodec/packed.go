package arraycodec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

var errParameters = errors.New("its parameters end early")

// Nbit decodes the filter nbit of HDF5: of each number, the bits that count. values are their number, whether nothing
// was packed, the number of elements, and a type: a class, its size, and
//
//	1 number     order (1 is big endian), bits, and the lowest of them
//	2 array      the type of an element
//	3 compound   the number of fields, and of each its offset and type
//	4 others     nothing: their bytes are kept
func Nbit(in []byte, values []uint32, most int64) ([]byte, error) {
	if len(values) < 3 || values[1] == 0 && len(values) < 5 {
		return nil, errParameters
	}
	if values[1] != 0 {
		return in, nil
	}
	n, size := int64(values[2]), int64(values[4])
	if size == 0 || n > most/size {
		return nil, fmt.Errorf("expected at most %d bytes, found %d elements of %d", most, n, size)
	}
	p := packed{values: values[3:]}
	t, bits, err := p.parse(0)
	if err != nil {
		return nil, err
	}
	if n > 0 && bits > 8*int64(len(in))/n {
		return nil, fmt.Errorf("expected %d elements of %d bits, found %d bytes", n, bits, len(in))
	}
	out := make([]byte, n*size)
	r := &bitReader{in: in}
	for at := int64(0); at < int64(len(out)); at += size {
		if err := t(r, out[at:at+size]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// packed parses the type of nbit.
type packed struct {
	values []uint32
}

// An unpacker reads an element.
type unpacker func(r *bitReader, to []byte) error

func (p *packed) next() (v uint32, err error) {
	if len(p.values) == 0 {
		return 0, errParameters
	}
	v, p.values = p.values[0], p.values[1:]
	return v, nil
}

// parse returns what reads an element of a type, and how many bits it has.
func (p *packed) parse(depth int) (_ unpacker, bits int64, err error) {
	defer func() {
		if err == nil && (bits == 0 || bits > 1<<33) {
			err = fmt.Errorf("expected elements of up to %d bits, found %d", int64(1)<<33, bits)
		}
	}()
	var head [2]uint32
	for i := 0; i < len(head) && err == nil; i++ {
		head[i], err = p.next()
	}
	size := int64(head[1])
	if err == nil && (size == 0 || size > 1<<30 || depth > 32) {
		err = fmt.Errorf("expected elements of 1 to %d bytes, found %d, %d deep", 1<<30, size, depth)
	}
	if err != nil {
		return nil, 0, err
	}
	switch head[0] {
	case 1:
		var of [3]uint32
		for i := 0; i < len(of) && err == nil; i++ {
			of[i], err = p.next()
		}
		big, n, low := of[0] == 1, int64(of[1]), int64(of[2])
		if err == nil && (n == 0 || size > 64 || n > 8*size || low > 8*size-n) {
			err = fmt.Errorf("%d bits from bit %d on do not fit into %d bytes", n, low, size)
		}
		return func(r *bitReader, to []byte) error { return unpack(r, to[:size], int(n), int(low), big) }, n, err
	case 2:
		of := int64(0)
		if len(p.values) > 1 {
			of = int64(p.values[1])
		}
		one, n, err := p.parse(depth + 1)
		if err == nil && size%of != 0 {
			err = fmt.Errorf("an array of %d bytes has no elements of %d", size, of)
		}
		if err != nil {
			return nil, 0, err
		}
		return func(r *bitReader, to []byte) error {
			for to = to[:size]; len(to) > 0; to = to[of:] {
				if err := one(r, to); err != nil {
					return err
				}
			}
			return nil
		}, n * (size / of), nil
	case 3:
		n, err := p.next()
		if err == nil && int64(n) > int64(len(p.values)) {
			err = errParameters
		}
		if err != nil {
			return nil, 0, err
		}
		type field struct {
			at  int64
			one unpacker
		}
		fields := make([]field, n)
		for i := range fields {
			at, err := p.next()
			if err != nil {
				return nil, 0, err
			}
			of := int64(0)
			if len(p.values) > 1 {
				of = int64(p.values[1])
			}
			one, n, err := p.parse(depth + 1)
			if err == nil && int64(at)+of > size {
				err = fmt.Errorf("a field of %d bytes at %d does not fit into %d", of, at, size)
			}
			if err != nil {
				return nil, 0, err
			}
			fields[i], bits = field{int64(at), one}, bits+n
		}
		return func(r *bitReader, to []byte) error {
			for _, f := range fields {
				if err := f.one(r, to[f.at:]); err != nil {
					return err
				}
			}
			return nil
		}, bits, nil
	case 4:
		return func(r *bitReader, to []byte) (err error) {
			for i := int64(0); i < size && err == nil; i++ {
				var v uint32
				v, err = r.take(8)
				to[i] = byte(v)
			}
			return err
		}, 8 * size, nil
	}
	return nil, 0, fmt.Errorf("expected class 1 to 4, found %d", head[0])
}

// unpack reads n bits, the highest first, to bit low and above.
func unpack(r *bitReader, to []byte, n, low int, big bool) error {
	at := func(i int) *byte { // by value
		if big {
			return &to[len(to)-1-i]
		}
		return &to[i]
	}
	for end := low + n; end > low; {
		k := (end-1)%8 + 1 // bits of the byte that has the highest
		k = min(k, end-low)
		v, err := r.take(k)
		if err != nil {
			return err
		}
		end -= k
		*at(end / 8) |= byte(v << (end % 8))
	}
	return nil
}

// ScaleOffset decodes the filter scaleoffset of HDF5: bits of each number (u32), bytes of the smallest number (u8), that
// number, 21 bytes in all, and then of each number its distance from the smallest one. values are a kind, the exponent
// of ten by which floats were multiplied, the number of elements, a class (1 are floats), bytes of an element, whether
// it has a sign, an order (1 is big endian), whether there is a fill value, and that value.
func ScaleOffset(in []byte, values []uint32, most int64) ([]byte, error) {
	const head = 21
	if len(values) < 10 {
		return nil, errParameters
	}
	factor, n, float, size, big, filled := int32(values[1]), int64(values[2]), values[3] == 1, int64(values[4]), values[6] == 1, values[7] != 0
	switch {
	case size != 1 && size != 2 && size != 4 && size != 8 || float && size < 4:
		return nil, fmt.Errorf("elements of %d bytes are not supported", size)
	case float && values[0] != 0:
		return nil, unsupported(fmt.Sprintf("scale type %d of floats is not supported", values[0]))
	case !float && int64(factor) == 8*size:
		return in, nil
	case n > most/size:
		return nil, fmt.Errorf("expected at most %d bytes, found %d elements of %d", most, n, size)
	case len(in) < head:
		return nil, fmt.Errorf("expected a header of %d bytes, found %d bytes", head, len(in))
	}
	bits, least := int64(binary.LittleEndian.Uint32(in)), binary.LittleEndian.Uint64(in[5:])
	if k := in[4]; k < 8 {
		least &= 1<<(8*k) - 1
	}
	if in = in[head:]; bits > 8*size || n*bits > 8*int64(len(in)) {
		return nil, fmt.Errorf("expected %d elements of %d bits, found %d bytes", n, bits, len(in))
	}
	out := make([]byte, n*size)
	one := func(v uint64) uint64 { return v + least }
	if float {
		one = scaled(size, factor, least)
	}
	absent, fill := uint64(1)<<bits-1, uint64(values[8])|uint64(values[9])<<32
	if bits == 8*size { // numbers as they are
		filled, one = false, func(v uint64) uint64 { return v }
		copy(out, in)
		in = nil
	}
	r := &bitReader{in: in}
	var room [8]byte
	for to := out; len(to) > 0; to = to[size:] {
		var v uint64
		var err error
		if bits < 8*size {
			if v, err = r.long(int(bits)); err != nil {
				return nil, err
			}
			if filled && v == absent {
				v = fill
			} else {
				v = one(v)
			}
			binary.LittleEndian.PutUint64(room[:], v)
			copy(to[:size], room[:])
		}
		if big {
			slices.Reverse(to[:size])
		}
	}
	return out, nil
}

// scaled returns the function that makes a float of its distance from the smallest one.
func scaled(size int64, factor int32, least uint64) func(uint64) uint64 {
	ten := math.Pow(10, float64(factor))
	if size == 4 {
		ten, least := float32(ten), math.Float32frombits(uint32(least))
		return func(v uint64) uint64 { return uint64(math.Float32bits(float32(int32(v))/ten + least)) }
	}
	start := math.Float64frombits(least)
	return func(v uint64) uint64 { return math.Float64bits(float64(int64(v))/ten + start) }
}
