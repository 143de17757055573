package zarr

import (
	"bufio"
	"context"
	"io"
)

// WriteText writes the array as text for people and scripts; see the package comment.
func (a *Array) WriteText(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	line, plane := int64(1), int64(0)
	if n := len(a.Shape); n > 1 {
		line = a.Shape[n-1]
		if n > 2 {
			plane = line * a.Shape[n-2]
		}
	}
	// With these codecs all elements are strings, or byte strings.
	asStrings := a.DType.Kind == 'O' && len(a.Filters) > 0 && (a.Filters[0].ID == "vlen-utf8" || a.Filters[0].ID == "vlen-bytes")
	var at int64
	var p printer
	err := a.slabs(ctx, func(s slab) error {
		for i := range s.count {
			p.out = p.out[:0]
			switch {
			case at == 0:
			case plane > 0 && at%plane == 0:
				p.out = append(p.out, "\n\n"...)
			case at%line == 0:
				p.out = append(p.out, '\n')
			default:
				p.out = append(p.out, '\t')
			}
			switch {
			case s.values == nil:
				p.cell(a.DType, s.bytes[i*a.DType.Size:(i+1)*a.DType.Size])
			case asStrings:
				p.out = appendCell(p.out, s.values[i])
			default:
				p.out = appendJSON(p.out, s.values[i])
			}
			if p.err != nil {
				return &KeyError{a.name(), corrupt("element %d: %v", at, p.err)}
			}
			at++
			if _, err := out.Write(p.out); err != nil {
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

// Values returns the elements of an array of objects or of strings, in C order. The values are
// nil, bool, json.Number (including NaN, Infinity and -Infinity), string, []byte, []any or
// map[string]any. All of them together must take less than Limit.
func (a *Array) Values(ctx context.Context) ([]any, error) {
	k, size := a.DType.Kind, a.DType.Size
	if k != 'O' && k != 'S' && k != 'U' {
		return nil, &KeyError{a.name(), unsupported("expected an array of objects or strings, found %s", clip(a.DType.Name))}
	}
	out := []any{}
	held := int64(0)
	err := a.slabs(ctx, func(s slab) error {
		if held += s.held + int64(len(s.bytes)); held > a.Limit {
			return &KeyError{a.name(), overLimit("its values together", held, a.Limit)}
		}
		if k == 'O' {
			out = append(out, s.values...)
			return nil
		}
		for i := range s.count {
			v, err := a.DType.text(s.bytes[i*size : (i+1)*size])
			if err != nil {
				return &KeyError{a.name(), corrupt("element %d: %v", len(out), err)}
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}
