package zarr

import "cmp"

// Filters that do arithmetic.

// numeric returns the dtype that a codec names, which must be of one of the given kinds.
func numeric(c Codec, name string, kinds string) (DType, error) {
	s, ok := c.Config[name].(string)
	if !ok {
		return DType{}, corrupt("%s: expected a dtype, found %s", name, brief(c.Config[name]))
	}
	d := parseSimple(s)
	for _, k := range kinds {
		if rune(d.Kind) == k {
			return d, nil
		}
	}
	return d, &CodecError{Codec: c.ID, Why: name + " " + s + " is not supported"}
}

func decodedAndStored(c Codec, kinds string) (decoded, stored DType, err error) {
	if decoded, err = numeric(c, "dtype", kinds); err != nil || c.Config["astype"] == nil {
		return decoded, decoded, err
	}
	stored, err = numeric(c, "astype", kinds)
	return decoded, stored, err
}

// elementwise returns a stage that converts one element at a time.
func elementwise(decoded, stored DType, one func(out, in []byte) error) stage {
	return stage{
		bound: func(n int64) int64 {
			n, ok := multiply(n/decoded.Size, stored.Size)
			if !ok {
				return maxSize
			}
			return n
		},
		decode: func(in []byte, most int64) ([]byte, error) {
			n := int64(len(in)) / stored.Size
			if n*stored.Size != int64(len(in)) {
				return nil, corrupt("expected elements of %d bytes, found %d bytes", stored.Size, len(in))
			}
			if n > most/decoded.Size {
				return nil, corrupt("expected at most %d elements, found %d", most/decoded.Size, n)
			}
			out := make([]byte, n*decoded.Size)
			for i := range n {
				if err := one(out[i*decoded.Size:(i+1)*decoded.Size], in[i*stored.Size:(i+1)*stored.Size]); err != nil {
					return nil, corrupt("element %d: %v", i, err)
				}
			}
			return out, nil
		},
	}
}

// convert converts an element to another dtype, as NumPy's astype does.
func convert(to, from DType, out, in []byte) error {
	switch {
	case from.Kind != 'f' && to.Kind == 'b':
		to.putBits(out, map[bool]uint64{true: 1}[from.whole(in) != 0])
	case from.Kind != 'f' && to.Kind != 'f':
		to.putBits(out, from.whole(in))
	default:
		if v := from.number(in); !to.putNumber(out, v) {
			return corrupt("%v does not fit into %s", v, to)
		}
	}
	return nil
}

// converting returns a stage that converts elements, unless there is an error.
func converting(decoded, stored DType, err error) (stage, error) {
	if err != nil {
		return stage{}, err
	}
	return elementwise(decoded, stored, func(out, in []byte) error { return convert(decoded, stored, out, in) }), nil
}

func astypeStage(c Codec) (stage, error) {
	stored, err := numeric(c, "encode_dtype", "biuf")
	decoded, derr := numeric(c, "decode_dtype", "biuf")
	return converting(decoded, stored, cmp.Or(err, derr))
}

func quantizeStage(c Codec) (stage, error) { return converting(decodedAndStored(c, "f")) }

// deltaStage adds up differences in the resulting type: floats are rounded at each step, integers
// wrap around.
func deltaStage(c Codec) (stage, error) {
	decoded, stored, err := decodedAndStored(c, "iuf")
	s, err := converting(decoded, stored, err)
	differences := s.decode
	s.decode = func(in []byte, most int64) ([]byte, error) {
		out, err := differences(in, most)
		if err != nil {
			return nil, err
		}
		var whole uint64
		var float float64
		for at := int64(0); at < int64(len(out)); at += decoded.Size {
			b := out[at : at+decoded.Size]
			if decoded.Kind != 'f' {
				whole += decoded.whole(b)
				decoded.putBits(b, whole)
				continue
			}
			if at == 0 {
				float = decoded.float(b)
			} else {
				float += decoded.float(b)
			}
			bits := floatBits(float, decoded.Size)
			float = floatOf(bits, decoded.Size)
			decoded.putBits(b, bits)
		}
		return out, nil
	}
	return s, err
}

// scaleStage undoes (v - offset) * scale. Like NumPy, it computes in float32 if float32 is
// stored, and in float64 otherwise.
func scaleStage(c Codec) (stage, error) {
	decoded, stored, err := decodedAndStored(c, "iuf")
	if err != nil {
		return stage{}, err
	}
	if stored.Kind == 'f' && stored.Size == 2 {
		return stage{}, &CodecError{Codec: c.ID, Why: "astype " + stored.Name + " is not supported"}
	}
	scale, ok := parseNumber(c.Config["scale"])
	offset, ok2 := parseNumber(c.Config["offset"])
	if !ok || !ok2 {
		return stage{}, corrupt("expected numbers as scale and offset, found %s and %s",
			brief(c.Config["scale"]), brief(c.Config["offset"]))
	}
	return elementwise(decoded, stored, func(out, in []byte) error {
		v := stored.number(in)
		if stored.Kind == 'f' && stored.Size == 4 {
			v = float64(float32(float32(v)/float32(scale)) + float32(offset))
		} else {
			v = v/scale + offset
		}
		if !decoded.putNumber(out, v) {
			return corrupt("%v does not fit into %s", v, decoded)
		}
		return nil
	}), nil
}
