package segment

import (
	"testing"
)

func BenchmarkParse(b *testing.B) {
	s := loadStore(b, "types")
	var id ID
	for i, raw := range s.raw {
		if i.IsData() && len(raw) > len(s.raw[id]) {
			id = i
		}
	}
	raw := s.raw[id]
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(id, raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, name := range []string{"types", "wide", "multitar"} {
		b.Run(name, func(b *testing.B) {
			var all []*Segment
			bytes, records := 0, 0
			for id, raw := range loadStore(b, name).raw {
				s, err := Parse(id, raw)
				if err != nil {
					b.Fatal(err)
				}
				all, bytes, records = append(all, s), bytes+s.Size(), records+s.RecordCount()
			}
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			var c Checker
			n := 0
			for b.Loop() {
				for _, s := range all {
					c.Check(s, func(Problem) {})
				}
				n += records
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}

func BenchmarkMapGet(b *testing.B) {
	w, m := newTestBuilder(1)
	names := manyNames(12000)
	children := make([]Child, len(names))
	for i, n := range names {
		children[i] = Child{n, RecordID{ID{8: 0xA0}, int32(i)}}
	}
	id := made(b)(w.Map(b.Context(), children))
	flush(b, w)
	all, err := NewReader(m).Map(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok, err := all.Get(b.Context(), names[i%len(names)]); !ok || err != nil {
			b.Fatal(ok, err)
		}
		i++
	}
}

// A whole tree with all properties opened and all short values read.
func BenchmarkWalk(b *testing.B) {
	for _, name := range []string{"wide", "multitar"} {
		b.Run(name, func(b *testing.B) {
			s := loadStore(b, name)
			head, err := ParseRecordID(loadExpected(b, name).Head.Revision)
			if err != nil {
				b.Fatal(err)
			}
			nodes := 0
			b.ReportAllocs()
			for b.Loop() {
				walkAll(b, NewReader(s), head, &nodes)
			}
			b.ReportMetric(float64(nodes)/b.Elapsed().Seconds(), "nodes/s")
		})
	}
}

func walkAll(b *testing.B, r *Reader, id RecordID, nodes *int) {
	ctx := b.Context()
	n, err := r.Node(ctx, id)
	if err != nil {
		b.Fatal(err)
	}
	*nodes++
	for p, err := range n.Properties(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		for v, err := range p.Values(ctx) {
			if err != nil {
				b.Fatal(err)
			}
			if v.Kind() == Small {
				if _, err := v.Text(ctx, 128); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	for c, err := range n.Children(ctx) {
		if err != nil {
			b.Fatal(err)
		}
		walkAll(b, r, c.Value, nodes)
	}
}
