package zarr

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteElements writes the elements in C order, as in .zarray, without a header.
func (a *Array) WriteElements(ctx context.Context, w io.Writer) error {
	if a.DType.Kind == 'O' {
		return &KeyError{a.name(), unsupported("objects have no byte form; write them as text")}
	}
	return a.slabs(ctx, func(s slab) error {
		_, err := w.Write(s.bytes)
		return err
	})
}

// WriteNPY writes the array as a NumPy file, as numpy.save would. Datetimes, timedeltas,
// structured types and big-endian numbers keep their types. For object arrays, which would need
// pickle, the error wraps [errors.ErrUnsupported].
func (a *Array) WriteNPY(ctx context.Context, w io.Writer) error {
	if a.DType.Kind == 'O' {
		return &KeyError{a.name(), unsupported("object arrays cannot be written as .npy without pickle; write them as text")}
	}
	// If the array cannot be read, not even a header should be written.
	if _, err := a.reader(ctx); err != nil {
		return err
	}
	if _, err := w.Write(a.npyHeader()); err != nil {
		return err
	}
	return a.WriteElements(ctx, w)
}

// npyHeader returns the header: magic, version, length of the rest (u16 in version 1, otherwise
// u32) and a Python literal, padded with spaces and a line feed to a multiple of 64 bytes. Like
// NumPy, it leaves room for the first length to grow to 20 digits.
func (a *Array) npyHeader() []byte {
	shape := a.Shape
	if a.Scalar {
		shape = nil
	}
	dict := "{'descr': " + a.DType.descr() + ", 'fortran_order': False, 'shape': " + pyTuple(shape) + ", }"
	if len(shape) > 0 {
		dict += strings.Repeat(" ", 21-len(strconv.FormatInt(shape[0], 10)))
	}
	// Versions 1 and 2 are Latin-1, version 3 is UTF-8.
	version, text := byte(1), []byte{}
	for _, c := range dict {
		if c > 0xff {
			version, text = 3, []byte(dict)
			break
		}
		text = append(text, byte(c))
	}
	fixed := 10
	if version == 1 && len(text)+fixed+64 > 0xffff {
		version = 2
	}
	if version > 1 {
		fixed = 12
	}
	text = append(text, strings.Repeat(" ", 63-(fixed+len(text))%64)...)
	text = append(text, '\n')
	out := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		out = binary.LittleEndian.AppendUint16(out, uint16(len(text)))
	} else {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(text)))
	}
	return append(out, text...)
}

func pyTuple(shape []int64) string {
	var b []byte
	for i, n := range shape {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, n, 10)
	}
	if len(shape) == 1 {
		b = append(b, ',')
	}
	return "(" + string(b) + ")"
}

// pyString returns Python's repr of a string.
func pyString(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{byte(quote)}
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case unicode.IsPrint(c):
			b = utf8.AppendRune(b, c)
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return string(append(b, byte(quote)))
}
