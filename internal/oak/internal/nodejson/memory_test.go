package nodejson

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// sameBulk has one content for all bulk segments.
type sameBulk struct {
	memory
	b []byte
}

func (s sameBulk) Segment(ctx context.Context, id segment.ID) (*segment.Segment, error) {
	if !id.IsData() {
		return segment.Parse(id, s.b)
	}
	return s.memory.Segment(ctx, id)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// However long a value is, neither side holds more than a few lines of it.
func TestALongValueTakesNoMoreMemoryThanAPieceOfIt(t *testing.T) {
	const size = 48 << 20
	src := sameBulk{memory{}, bytes.Repeat([]byte("x"), segment.MaxSize)}
	b := segment.NewBuilder(segment.BuilderOptions{}, func(_ context.Context, f segment.Finished) error {
		if !f.ID.IsData() {
			return nil
		}
		s, err := segment.Parse(f.ID, bytes.Clone(f.Data))
		src.memory[f.ID] = s
		return err
	})
	id, err := b.Binary(t.Context(), io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	v := segment.NewValue{Record: id, IsID: true}
	node, err := b.Node(t.Context(), segment.NewNode{Properties: []segment.NewProperty{
		{Name: "a", Type: segment.Binary, Values: []segment.NewValue{v}}, {Name: "b", Type: segment.String, Multi: true, Values: []segment.NewValue{v}}}})
	if err = errors.Join(err, b.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	n, err := segment.NewReader(src).Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(NewEncoder(w, plain).Node(t.Context(), "/", n)) }()
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, most, total := held(), uint64(0), int64(0)
	p := make([]byte, 1<<20)
	for d := NewDecoder(r); ; {
		item, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for item.Content != nil {
			k, err := io.ReadFull(item.Content, p)
			total += int64(k)
			most = max(most, held())
			if err != nil {
				break
			}
		}
	}
	if total != 2*size || most > before+size/2 {
		t.Errorf("%d bytes read, %d held", total, int64(most)-int64(before))
	}
}
