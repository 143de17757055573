package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// replaced is a Source in which one segment is replaced by another.
type replaced struct {
	Source
	by *Segment
}

func (r replaced) Segment(ctx context.Context, id ID) (*Segment, error) {
	if id == r.by.ID() {
		return r.by, nil
	}
	return r.Source.Segment(ctx, id)
}

// exercise uses a record in all possible ways, in at most as many steps as the budget has: a map
// of a few bytes may claim more entries than can ever be read.
func exercise(ctx context.Context, r *Reader, id RecordID, budget *int) {
	spend := func() bool { *budget--; return *budget > 0 }
	if v, err := r.Value(ctx, id); err == nil {
		v.Text(ctx, 1<<16)
		v.BlobID(ctx, 1<<16)
		for range v.Pieces(ctx, 0, max(0, v.Len())) {
			if !spend() {
				break
			}
		}
	}
	for _, n := range []int{1, 2, 256, maxList} {
		if l, err := r.List(id, n); err == nil {
			l.At(ctx, n/2)
			for range l.Range(ctx, n-min(n, 3), n) {
				spend()
			}
		}
	}
	if l, err := r.ListOf(ctx, id); err == nil {
		for range l.All(ctx) {
			if !spend() {
				break
			}
		}
	}
	p, _ := r.Part(ctx, id)
	r.Nameless(ctx, id)
	if *budget -= len(p.Named) + len(p.Unnamed) + len(p.Maps); *budget < 0 {
		return
	}
	if m, err := r.Map(ctx, id); err == nil {
		m.Get(ctx, "two")
		m.Get(ctx, "name17")
		var all []string
		for e, err := range m.All(ctx) {
			if all = append(all, fmt.Sprint(e, err)); !spend() {
				break
			}
		}
		// Whatever the damage, a walk that was stopped resumes as if it had not been.
		var again []string
		for e, err := range inSteps(ctx, m, 3) {
			if again = append(again, fmt.Sprint(e, err)); len(again) == len(all) {
				break
			}
		}
		if !slices.Equal(again, all) {
			panic(fmt.Sprintf("a walk in steps found\n%s\nexpected\n%s", again, all))
		}
	}
	if n, err := r.Node(ctx, id); err == nil {
		n.StableID(ctx)
		n.ChildCount(ctx)
		n.Child(ctx, "inner")
		n.Property(ctx, "many")
		for range n.Children(ctx) {
			if !spend() {
				break
			}
		}
		for p := range n.Properties(ctx) {
			for range p.Values(ctx) {
				if !spend() {
					break
				}
			}
		}
	}
	if d, err := r.Describe(ctx, id); err == nil {
		*budget -= len(d.Fields)
	}
}

// exerciseAll does so with all records of a segment.
func exerciseAll(ctx context.Context, src Source, s *Segment) {
	r, budget := NewReader(replaced{src, s}), 1500
	for row := range s.Records() {
		if budget <= 0 {
			break
		}
		exercise(ctx, r, RecordID{s.ID(), row.Number}, &budget)
	}
}

func TestASegmentWithAnyByteFlippedIsReadOrRefused(t *testing.T) {
	s := newSample(t)
	whole := 0
	blocks := make([]bool, len(s.last.b))
	for row := range s.last.Records() {
		r, err := s.last.Record(row.Number)
		if err != nil {
			t.Fatal(err)
		}
		end, err := s.last.Bound(row.Number)
		if err != nil {
			t.Fatal(err)
		}
		for i := r.pos; i < end && row.Type == Block; i++ {
			blocks[i] = end-r.pos > stableIDLen
		}
	}
	for i := range s.last.b {
		if blocks[i] && i%61 > 0 {
			continue // text, and all the same to the decoders
		}
		b := slices.Clone(s.last.b)
		b[i] ^= 1 << (i % 8)
		if i%3 == 0 {
			b[i] = ^s.last.b[i]
		}
		damaged, err := Parse(s.last.ID(), b)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Segment != s.last.ID() {
				t.Fatal(i, err)
			}
			continue
		}
		whole++
		damaged.Check(func(p Problem) {
			if p.Off < -1 || p.Off > int64(len(b)) || p.What == "" || p.Code == "" {
				t.Errorf("byte %d: %+v", i, p)
			}
		})
		damaged.Info()
		if i%16 == 0 || i < headerLen {
			exerciseAll(t.Context(), s, damaged)
		}
	}
	if whole == 0 {
		t.Error("none was read")
	}
}

func TestASegmentCutAnywhereIsReadOrRefused(t *testing.T) {
	s := newSample(t)
	for n := range len(s.last.b) {
		if n > s.last.table+rowLen*s.last.records && n%11 > 0 {
			continue
		}
		cut, err := Parse(s.last.ID(), s.last.b[:n])
		if err != nil {
			continue
		}
		cut.Check(func(Problem) {})
		if n%37 == 0 {
			exerciseAll(t.Context(), s, cut)
		}
	}
}

func TestSizesAreBelievedOnlyWithTheirBytes(t *testing.T) {
	id := ID{8: 0xA0}
	header := func(version byte, refs, records uint32) []byte {
		b := make([]byte, 64)
		copy(b, magic)
		b[versionOff] = version
		binary.BigEndian.PutUint32(b[refCountOff:], refs)
		binary.BigEndian.PutUint32(b[recordCountOff:], records)
		return b
	}
	for name, c := range map[string]struct {
		b   []byte
		off int64
	}{
		"empty":            {nil, 0},
		"too long":         {make([]byte, MaxSize+1), MaxSize},
		"short":            {header(13, 0, 0)[:31], 31},
		"magic":            {make([]byte, 64), 0},
		"version 11":       {header(11, 0, 0), versionOff},
		"version 14":       {header(14, 0, 0), versionOff},
		"references":       {header(13, 3, 0), refCountOff},
		"many references":  {header(13, 1<<31, 0), refCountOff},
		"references -1":    {header(13, 1<<32-1, 0), refCountOff},
		"records":          {header(13, 0, 4), recordCountOff},
		"records -1":       {header(13, 0, 1<<32-1), recordCountOff},
		"records in range": {header(13, 2, 1), recordCountOff},
	} {
		_, err := Parse(id, c.b)
		var e *Error
		if !errors.As(err, &e) || e.Class != Corrupt || e.Off != c.off || e.Segment != id {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse(id, header(12, 1, 1)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(ID{8: 0xB0}, []byte{1}); err != nil {
		t.Error(err)
	}
}

func TestNumbersOfRecordsMayHaveGapsAndBeOutOfOrder(t *testing.T) {
	s := newSample(t).last
	row := func(b []byte, i int) []byte { return b[s.table+rowLen*i:][:rowLen] }
	find := func(b []byte, n int32, pos int) {
		t.Helper()
		p, err := Parse(s.id, b)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Record(n); err != nil || r.Pos() != pos {
			t.Errorf("record %d at %d, %v; expected %d", n, r.Pos(), err, pos)
		}
		for _, n := range []int32{-1, 3, 1 << 30} {
			var e *Error
			if _, err := p.Record(n); !errors.As(err, &e) || e.Class != Missing {
				t.Errorf("record %d: %v", n, err)
			}
		}
	}
	r3, err := s.Record(3)
	if err != nil {
		t.Fatal(err)
	}
	r5, err := s.Record(5)
	if err != nil {
		t.Fatal(err)
	}
	b := slices.Clone(s.b)
	for i := s.records - 1; i >= 3; i-- {
		binary.BigEndian.PutUint32(row(b, i), uint32(i+10))
	}
	find(b, 13, r3.Pos())
	find(b, 15, r5.Pos())
	a := slices.Clone(row(b, 3))
	copy(row(b, 3), row(b, 5))
	copy(row(b, 5), a)
	find(b, 13, r3.Pos())
	find(b, 15, r5.Pos())
}
