package segment

import (
	"errors"
	"testing"
	"time"
)

func FuzzSegment(f *testing.F) {
	s := newSample(f)
	for _, o := range s.order {
		f.Add(o.Data)
	}
	for _, b := range loadStore(f, "v12").raw {
		if len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Add([]byte("0aK\x0d"))
	id := s.last.ID()
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(id, b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Segment != id || e.Off < 0 {
				t.Fatal(err)
			}
			return
		}
		found := 0
		for row := range s.Records() {
			r, err := s.Record(row.Number)
			if err != nil {
				continue
			}
			if found++; found > 50 {
				break
			}
			end, err := s.Bound(row.Number)
			if err != nil || end <= r.Pos() || end > len(b) || len(r.data) != len(b)-r.Pos() {
				t.Fatal(row, r.Pos(), end, err)
			}
		}
		s.Info()
		s.Check(func(p Problem) {
			if p.Code == "" || p.What == "" || p.Off > int64(len(b)) {
				t.Fatalf("%+v", p)
			}
		})
	})
}

// Of a few segments the last is replaced, and all is done with its records that
// can be.
func FuzzRecords(f *testing.F) {
	s := newSample(f)
	id := s.last.ID()
	f.Add(s.last.b, uint16(5))
	for row := range s.last.Records() {
		f.Add(s.last.b, uint16(row.Number))
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		p, err := Parse(id, b)
		if err != nil {
			return
		}
		start, budget := time.Now(), 5000
		exercise(t.Context(), NewReader(replaced{s, p}), RecordID{id, int32(n)}, &budget)
		if d := time.Since(start); d > 10*time.Second {
			t.Fatalf("it took %v", d)
		}
	})
}
