package zarr

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// decodeJSON2 parses numcodecs' JSON: a list of the elements, nested like the chunk, and then its
// dtype and shape.
func decodeJSON2(in []byte, shape []int64, room *int64) ([]any, error) {
	v, err := parseJSON(in, room)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok || len(list) < 2 {
		return nil, corrupt("json2: expected a list that ends with a dtype and a shape")
	}
	n := len(list) - 2
	if list[n] != "|O" {
		return nil, unsupported("json2: elements of type %s are not supported", brief(list[n]))
	}
	inner, err := parseLengths(list[n+1])
	if err != nil {
		return nil, corrupt("json2: shape: %v", err)
	}
	want, _ := product(shape)
	if got, ok := product(inner); !ok || got != want {
		return nil, corrupt("json2: expected %d elements, found a list of shape %v", want, inner)
	}
	if len(inner) == 0 {
		inner = []int64{1}
	}
	return flatten(make([]any, 0, n), list[:n], inner)
}

// flatten flattens lists that are nested as the given shape.
func flatten(out, list []any, shape []int64) ([]any, error) {
	if int64(len(list)) != shape[0] {
		return nil, corrupt("json2: expected a list of %d, found %d", shape[0], len(list))
	}
	if len(shape) == 1 {
		return append(out, list...), nil
	}
	for _, v := range list {
		l, ok := v.([]any)
		if !ok {
			return nil, corrupt("json2: expected a list of %d, found %s", shape[1], kindWord(v))
		}
		var err error
		if out, err = flatten(out, l, shape[1:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func kindWord(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a bool"
	case string:
		return "a string"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

func decodeVlenUTF8(in []byte, shape []int64, room *int64) ([]any, error) {
	return decodeVlen(in, shape, room, func(b []byte) (any, error) {
		if !utf8.Valid(b) {
			return nil, corrupt("expected UTF-8")
		}
		return string(b), nil
	})
}

func decodeVlenBytes(in []byte, shape []int64, room *int64) ([]any, error) {
	return decodeVlen(in, shape, room, func(b []byte) (any, error) { return bytes.Clone(b), nil })
}

// vlenArrays decodes lists of numbers.
func vlenArrays(d DType) func(in []byte, shape []int64, room *int64) ([]any, error) {
	if !strings.ContainsRune("biuf", rune(d.Kind)) || d.Size == 0 {
		return nil
	}
	return func(in []byte, shape []int64, room *int64) ([]any, error) {
		if need := 32 * int64(len(in)) / d.Size; need > *room {
			return nil, overLimit("a chunk's elements", need, *room)
		}
		return decodeVlen(in, shape, room, func(b []byte) (any, error) {
			n := int64(len(b)) / d.Size
			if n*d.Size != int64(len(b)) {
				return nil, corrupt("%d bytes are not of elements of %d", len(b), d.Size)
			}
			return d.nested(b, []int64{n})
		})
	}
}

// decodeVlen parses a count, and then a length and bytes for each element. The numbers are
// little-endian u32.
func decodeVlen(in []byte, shape []int64, room *int64, one func([]byte) (any, error)) ([]any, error) {
	want, _ := product(shape)
	if len(in) < 4 || int64(binary.LittleEndian.Uint32(in)) != want {
		return nil, corrupt("expected a count of %d elements, found %d bytes that begin with %x", want, len(in), in[:min(4, len(in))])
	}
	if int64(len(in)-4)/4 < want {
		return nil, corrupt("%d elements do not fit into %d bytes", want, len(in))
	}
	if need := int64(len(in)) + 48*want; need > *room {
		return nil, overLimit("a chunk's elements", need, *room)
	}
	*room -= int64(len(in)) + 48*want
	out := make([]any, want)
	at := 4
	for i := range out {
		if len(in)-at < 4 {
			return nil, corrupt("element %d: expected a length at offset %d, found the end", i, at)
		}
		n := int64(binary.LittleEndian.Uint32(in[at:]))
		at += 4
		if n > int64(len(in)-at) {
			return nil, corrupt("element %d: expected %d bytes at offset %d, found %d", i, n, at, len(in)-at)
		}
		var err error
		if out[i], err = one(in[at : at+int(n)]); err != nil {
			return nil, corrupt("element %d: %v", i, err)
		}
		at += int(n)
	}
	if at != len(in) {
		return nil, corrupt("offset %d: expected the end, found %d bytes more", at, len(in)-at)
	}
	return out, nil
}
