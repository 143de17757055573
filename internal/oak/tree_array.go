package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// inlineRun is how much of an array is made at once.
const inlineRun = 64 << 10

// arrayExtents makes the bytes of an array, and yields those from off to end.
func (t *treeReader) arrayExtents(ctx context.Context, ref arrayRef, off, end int64, yield func(format.Extent, error) bool) error {
	n, err := t.records.Node(ctx, ref.node)
	if err != nil {
		return err
	}
	p, ok, err := n.Property(ctx, ref.name)
	if err != nil {
		return err
	}
	if !ok || !p.Multi {
		return fmt.Errorf("property %.80q: %w", ref.name, fs.ErrInvalid)
	}
	x := format.Extent{At: off, Codec: codec.Inline}
	if tar, e, ok := t.locate(ref.node.Segment); ok {
		x.Object, x.Off, x.Len = tar.path, e.Pos, int64(e.Len)
	}
	at, stopped := int64(0), false
	err = t.array(ctx, p, func(b []byte) bool {
		from, to := min(max(off-at, 0), int64(len(b))), min(end-at, int64(len(b)))
		if at += int64(len(b)); from < to {
			x.Data = append(x.Data, b[from:to]...)
		}
		if x.Size = int64(len(x.Data)); x.Size >= inlineRun || x.Size > 0 && at >= end {
			stopped = !yield(x, nil)
			x.At, x.Data = x.At+x.Size, nil
		}
		return !stopped && at < end
	})
	if err == nil && !stopped && at < end {
		err = errors.New("array: it ends early") // as no store that does not change
	}
	return err
}

// array calls do with the parts of a JSON array of a property's values, until it
// returns false. All are strings with the text that is stored, as only that is the
// same in every type; bytes that are not UTF-8 stay as they are.
func (t *treeReader) array(ctx context.Context, p segment.Property, do func([]byte) bool) error {
	before := []byte(`["`)
	i := 0
	for v, err := range p.Values(ctx) {
		if err != nil {
			return fmt.Errorf("value %d: %w", i, err)
		}
		if !do(before) {
			return nil
		}
		for piece, err := range v.Pieces(ctx, 0, v.Len()) {
			var b []byte
			if err == nil {
				b, err = t.pieceBytes(ctx, piece)
			}
			if err != nil {
				return fmt.Errorf("value %d: %w", i, err)
			}
			if !escapeJSON(b, do) {
				return nil
			}
		}
		before = []byte(`","`)
		i++
	}
	if i == 0 {
		do([]byte(`[]`))
	} else {
		do([]byte(`"]`))
	}
	return nil
}

// escapeJSON calls do with b as it is within a JSON string.
func escapeJSON(b []byte, do func([]byte) bool) bool {
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i > 0 && !do(b[:i]) {
			return false
		}
		if i == len(b) {
			return true
		}
		if !do(jsonEscape(b[i])) {
			return false
		}
		b = b[i+1:]
	}
	return true
}

func jsonEscape(c byte) []byte {
	switch c {
	case '"', '\\':
		return []byte{'\\', c}
	case '\n':
		return []byte(`\n`)
	case '\r':
		return []byte(`\r`)
	case '\t':
		return []byte(`\t`)
	}
	return fmt.Appendf(nil, `\u%04x`, c)
}
