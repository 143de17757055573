package rescue

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
)

// indexed gives a sample another index, in which everything that Oak checks is correct.
func (s sample) indexed(t testing.TB, change func(e *tarfile.Entry), more ...tarfile.Entry) []byte {
	t.Helper()
	var tail tarfile.Tail
	for _, id := range s.order {
		h, _ := segment.ParseHead(s.data[id])
		if !id.IsData() {
			h = segment.Head{}
		}
		e := tarfile.Entry{ID: id, Pos: s.place(id), Len: len(s.data[id]), Generation: h.Generation}
		change(&e)
		if err := tail.Add(e, h.Refs, s.names[id]); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range more {
		if err := tail.Add(e, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	b, err := tail.Append(bytes.Clone(s.file[:s.segments]), s.name, func() time.Time { return someTime(len(s.order)) })
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnIndexIsBelievedAsFarAsTheSegmentsBearItOut(t *testing.T) {
	r := testkit.Rand(t)
	s := newSample(t, r, 0)
	third := s.order[3] // of 1024 bytes
	none := func(*tarfile.Entry) {}
	only := func(change func(e *tarfile.Entry)) func(e *tarfile.Entry) {
		return func(e *tarfile.Entry) {
			if e.ID == third {
				change(e)
			}
		}
	}
	another := randomID(r, true)
	for name, c := range map[string]struct {
		file  []byte
		lost  []tarfile.ID
		class tarfile.Class
	}{
		"length too small":   {s.indexed(t, only(func(e *tarfile.Entry) { e.Len -= 16 })), nil, tarfile.BadHeader},
		"length too large":   {s.indexed(t, only(func(e *tarfile.Entry) { e.Len += 16 })), nil, tarfile.BadHeader},
		"behind the file":    {s.indexed(t, only(func(e *tarfile.Entry) { e.Pos += 1 << 20 })), []tarfile.ID{third}, tarfile.OutOfBounds},
		"another segment":    {s.indexed(t, only(func(e *tarfile.Entry) { e.Pos = s.place(s.order[5]) })), []tarfile.ID{third}, tarfile.BadHeader},
		"a segment too many": {s.indexed(t, none, tarfile.Entry{ID: another, Pos: s.place(third), Len: 1024}), []tarfile.ID{another}, tarfile.BadHeader},
	} {
		x := recovered(t, map[string][]byte{s.name: c.file}, nil)
		x.compare(t, s, c.lost...)
		x.only(t, s)
		told := x.events.of(SegmentLost)
		if len(told) != len(c.lost) || len(told) > 0 && told[0].Segment != c.lost[0] {
			t.Errorf("%s: %v", name, x.events)
		}
		if !slices.ContainsFunc(x.events, func(e Event) bool { return e.Kind == Damage && e.Class == c.class }) {
			t.Errorf("%s: expected %d%v", name, c.class, x.events)
		}
		if x.plan.Base != 0 {
			t.Errorf("%s: base %d", name, x.plan.Base)
		}
	}
}

// TestAnIndexOfMoreThanTheFileIsNone has an index that would make a survey read the
// same bytes again and again.
func TestAnIndexOfMoreThanTheFileIsNone(t *testing.T) {
	r := testkit.Rand(t)
	s := newSample(t, r, 0)
	var more []tarfile.Entry
	for range 30 {
		more = append(more, tarfile.Entry{ID: randomID(r, false), Pos: 512, Len: tarfile.MaxSegment})
	}
	// Bytes after the segments make room for the count.
	c := s
	c.file = append(bytes.Clone(s.file[:s.segments]), make([]byte, 40<<10)...)
	c.segments = int64(len(c.file))
	x := recovered(t, map[string][]byte{s.name: c.indexed(t, func(*tarfile.Entry) {}, more...)}, nil)
	x.compare(t, s)
	x.only(t, s)
	if x.plan.Base != -1 || x.events[0].Class != tarfile.BadIndex {
		t.Error(x.plan.Base, x.events)
	}
}

func TestThereMayBeNothingToGain(t *testing.T) {
	s := newSample(t, testkit.Rand(t), 0)
	b := bytes.Clone(s.file)
	copy(b[s.place(s.order[3])+100:], "wrong bytes")
	x := recovered(t, map[string][]byte{s.name: b}, nil)
	x.compare(t, s, s.order[3])
	if x.plan.Gain || x.plan.Action != Nothing || !x.kept(s.order[3]) {
		t.Error(x.plan.Words())
	}
	clear(b[s.place(s.order[3]):][:600]) // unreadable
	x = recovered(t, map[string][]byte{s.name: b}, nil)
	x.compare(t, s, s.order[3])
	if x.plan.Gain || x.plan.Action != Rewrite {
		t.Error(x.plan.Words())
	}
	b[len(b)-1100] ^= 1 // of the index, which must now be rebuilt
	x = recovered(t, map[string][]byte{s.name: b}, nil)
	if !x.plan.Gain || x.plan.Action != Rewrite {
		t.Error(x.plan.Words())
	}
	b = bytes.Clone(s.file)
	b[s.place(s.order[3])+100] ^= 1
	x = recovered(t, map[string][]byte{s.name: b}, nil)
	if !x.plan.Gain || x.plan.Action != Rewrite {
		t.Error(x.plan.Words())
	}
}
