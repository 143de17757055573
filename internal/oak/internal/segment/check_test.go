package segment

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func problems(s *Segment) (all []Problem) {
	s.Check(func(p Problem) { all = append(all, p) })
	return all
}

func TestSegmentsOfTheReferenceHaveNoProblems(t *testing.T) {
	for _, name := range testkit.Names(t, fixtures, ".tar.gz", 24) {
		for id, b := range loadStore(t, name).raw {
			s, err := Parse(id, b)
			if err != nil {
				if name != "corrupt-segment-magic" {
					t.Error(name, err)
				}
				continue
			}
			for _, p := range problems(s) {
				t.Error(name, p)
			}
		}
	}
}

func TestEveryProblemIsFound(t *testing.T) {
	s := newSample(t).last
	if found := problems(s); len(found) > 0 {
		t.Fatal(found)
	}
	be := binary.BigEndian
	rows := func(b []byte) []byte { return b[s.table:][:rowLen*s.records] }
	of := func(typ Type) Record {
		for row := range s.Records() {
			if row.Type == typ && row.Number > 0 {
				r, err := s.Record(row.Number)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
		}
		t.Fatal("no ", typ)
		return Record{}
	}
	for _, c := range []struct {
		code   Code
		damage func(b []byte) []byte
	}{
		{BadSize, func(b []byte) []byte {
			for i := range s.records {
				at := rows(b)[rowLen*i+rowOffset:]
				be.PutUint32(at, be.Uint32(at)-4)
			}
			return append(b, 0, 0, 0, 0)
		}},
		{BadReserved, func(b []byte) []byte { b[reservedOff] = 1; return b }},
		{BadReserved, func(b []byte) []byte { b[spareOff+9] = 1; return b }},
		{SelfRef, func(b []byte) []byte { id := s.ID(); copy(b[headerLen:], id[:]); return b }},
		{OddRef, func(b []byte) []byte { b[headerLen+8] = 0xC0; return b }},
		{RowOrder, func(b []byte) []byte { be.PutUint32(rows(b)[rowLen:], 0); return b }},
		{RowGap, func(b []byte) []byte {
			at := rows(b)[rowLen*(s.records-1):]
			be.PutUint32(at, be.Uint32(at)+1)
			return b
		}},
		{RowOffset, func(b []byte) []byte { rows(b)[rowOffset+3]++; return b }},
		{RowOffset, func(b []byte) []byte { rows(b)[rowOffset]++; return b }},
		{Overlapping, func(b []byte) []byte { b[of(ListRecord).pos-1]++; r := of(ValueRecord); b[r.pos] += 40; return b }},
		{Hole, func(b []byte) []byte { b[s.place0(t)] -= 8; return b }},
		{BadRecord, func(b []byte) []byte { be.PutUint32(b[of(Leaf).pos:], 6<<29|1<<20); return b }},
		{BadRecord, func(b []byte) []byte { rows(b)[rowLen*3+rowType] = 9; return b }},
		{DanglingID, func(b []byte) []byte { be.PutUint32(b[of(NodeRecord).pos+nodeTemplateAt+2:], 1<<20); return b }},
		{DanglingID, func(b []byte) []byte { be.PutUint32(b[of(NodeRecord).pos+nodeTemplateAt+2:], 0); return b }},
		{DanglingID, func(b []byte) []byte { be.PutUint16(b[of(NodeRecord).pos+nodeTemplateAt:], 9); return b }},
		{BadInfo, func(b []byte) []byte { b[s.place0(t)+1] = '!'; return b }},
	} {
		b := c.damage(slices.Clone(s.b))
		damaged, err := Parse(s.id, b)
		if err != nil {
			t.Errorf("%s: %v", c.code, err)
			continue
		}
		found := problems(damaged)
		if !slices.ContainsFunc(found, func(p Problem) bool { return p.Code == c.code }) {
			t.Errorf("%s: found %v", c.code, found)
		}
	}
}

// place0 is where record 0 is.
func (s *Segment) place0(t *testing.T) int {
	r, err := s.Record(0)
	if err != nil {
		t.Fatal(err)
	}
	return r.pos
}

func TestCheckFindsWhatReferencesAndGapsMayNotBe(t *testing.T) {
	s := newSample(t).last
	// Make room for another reference: a copy of the first, which no record uses.
	id := s.Ref(0)
	b := slices.Insert(slices.Clone(s.b), headerLen+refLen*s.refs, id[:]...)
	binary.BigEndian.PutUint32(b[refCountOff:], uint32(s.refs+1))
	with := func(b []byte) (codes []Code) {
		s, err := Parse(s.id, b)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems(s) {
			codes = append(codes, p.Code)
		}
		return codes
	}
	if got := with(b); !slices.Equal(got, []Code{DuplicateRef, UnusedRef}) {
		t.Error(got)
	}
	b = slices.Insert(slices.Clone(s.b), s.table+rowLen*s.records, make([]byte, 16)...)
	b[s.table+rowLen*s.records+3] = 1
	if got := with(b); !slices.Equal(got, []Code{GapBytes}) {
		t.Error(got)
	}
}
