package zarr

import (
	"bufio"
	"context"
	"io"
)

// WriteText writes the array for people and scripts; the package comment says
// what it looks like.
func (a *Array) WriteText(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	line, plane := int64(1), int64(0)
	if n := len(a.Shape); n > 1 {
		line = a.Shape[n-1]
		if n > 2 {
			plane = line * a.Shape[n-2]
		}
	}
	// Of these object codecs all elements are strings, or byte strings.
	asStrings := a.DType.Kind == 'O' && len(a.Filters) > 0 && (a.Filters[0].ID == "vlen-utf8" || a.Filters[0].ID == "vlen-bytes")
	var at int64
	var b []byte
	err := a.slabs(ctx, func(s slab) error {
		for i := range s.count {
			switch {
			case at == 0:
			case plane > 0 && at%plane == 0:
				b = append(b[:0], "\n\n"...)
			case at%line == 0:
				b = append(b[:0], '\n')
			default:
				b = append(b[:0], '\t')
			}
			at++
			var err error
			switch {
			case s.values == nil:
				b, err = a.DType.appendText(b, s.bytes[i*a.DType.Size:(i+1)*a.DType.Size])
			case asStrings:
				b = appendCell(b, s.values[i])
			default:
				b = appendJSON(b, s.values[i])
			}
			if err != nil {
				return &KeyError{a.name(), corrupt("element %d: %v", at-1, err)}
			}
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && at > 0 {
		err = out.WriteByte('\n')
	}
	if flush := out.Flush(); err == nil {
		err = flush
	}
	return err
}

// Values gives the elements of an object array, in C order. They are nil, bool,
// json.Number (NaN, Infinity and -Infinity included), string, []byte, []any or
// map[string]any, and must all together stay below Limit.
func (a *Array) Values(ctx context.Context) ([]any, error) {
	if a.DType.Kind != 'O' {
		return nil, &KeyError{a.name(), unsupported("only the elements of object arrays are values, these are %s", clip(a.DType.Name))}
	}
	out := []any{}
	held := int64(0)
	err := a.slabs(ctx, func(s slab) error {
		if held += s.held; held > a.Limit {
			return &KeyError{a.name(), overLimit("its values together", held, a.Limit)}
		}
		out = append(out, s.values...)
		return nil
	})
	return out, err
}
