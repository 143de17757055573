package rescue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// A sample is a small tar and its contents.
type sample struct {
	name     string
	file     []byte
	order    []tarfile.ID
	data     map[tarfile.ID][]byte
	names    map[tarfile.ID][]string // of binaries
	segments int64                   // where the tail begins
}

func someTime(i int) time.Time { return time.Unix(1_700_000_000+int64(i), 0) }

func randomID(r *rand.Rand, data bool) (id tarfile.ID) {
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	id[6] = id[6]&15 | 0x40
	id[8] = id[8]&15 | 0xb0
	if data {
		id[8] = id[8]&15 | 0xa0
	}
	return id
}

// dataSegment makes a data segment of n bytes that names binaries.
func dataSegment(r *rand.Rand, gen tarfile.Generation, n int, refs []tarfile.ID, names ...string) []byte {
	b := make([]byte, n)
	copy(b, "0aK\x0d")
	binary.BigEndian.PutUint32(b[4:], uint32(gen.Full))
	if gen.Compacted {
		b[4] |= 1 << 7
	}
	binary.BigEndian.PutUint32(b[10:], uint32(gen.Gen))
	binary.BigEndian.PutUint32(b[14:], uint32(len(refs)))
	binary.BigEndian.PutUint32(b[18:], uint32(len(names)))
	at := 32
	for _, id := range refs {
		at += copy(b[at:], id[:])
	}
	end := n
	for i, name := range names {
		end = (end - 2 - len(name)) &^ 3
		binary.BigEndian.PutUint16(b[end:], 0xe000|uint16(len(name)))
		copy(b[end+2:], name)
		binary.BigEndian.PutUint32(b[at:], uint32(i))
		b[at+4] = byte(segment.BlobID)
		binary.BigEndian.PutUint32(b[at+5:], uint32(segment.MaxSize-n+end))
		at += 9
	}
	if at > end {
		panic("segment too small")
	}
	for i := range b[at:end] {
		b[at+i] = byte(r.Uint32())
	}
	return b
}

// newSample makes a tar of a few segments.
func newSample(t testing.TB, r *rand.Rand, number int) sample {
	t.Helper()
	s := sample{name: tarfile.Name(number, 'a'), data: map[tarfile.ID][]byte{}, names: map[tarfile.ID][]string{}}
	for i, n := range []int{700, 512, 208, 1024, 1, 1600, 160} {
		id := randomID(r, n%16 == 0)
		s.order = append(s.order, id)
		if !id.IsData() {
			s.data[id] = make([]byte, n)
			for k := range s.data[id] {
				s.data[id][k] = byte(r.Uint32())
			}
			continue
		}
		if n > 500 {
			s.names[id] = []string{fmt.Sprintf("binary-%d#100", i), "binary#0"}
			slices.Sort(s.names[id])
		}
		s.data[id] = dataSegment(r, tarfile.Generation{Gen: int32(i / 3), Full: 1, Compacted: i == 5}, n, s.order[:min(i, 4)], s.names[id]...)
	}
	s.build(t)
	return s
}

// build makes the file, with a different time in each header.
func (s *sample) build(t testing.TB) {
	t.Helper()
	var buf bytes.Buffer
	i := 0
	w := tarfile.NewWriter(&buf, s.name, func() time.Time {
		i = min(i+1, len(s.order))
		return someTime(i)
	})
	for _, id := range s.order {
		var h segment.Head
		if id.IsData() {
			var ok bool
			if h, ok = segment.ParseHead(s.data[id]); !ok {
				h = segment.Head{} // as some test has it
			}
		}
		if err := w.Add(id, h.Generation, s.data[id], h.Refs, s.names[id]); err != nil {
			t.Fatal(err)
		}
	}
	s.segments = w.Size()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.file = buf.Bytes()
}

// without returns the sample without some of its segments.
func (s sample) without(t testing.TB, letter byte, ids ...tarfile.ID) sample {
	number, _, _ := tarfile.ParseName(s.name)
	s.name = tarfile.Name(number, letter)
	s.order = slices.DeleteFunc(slices.Clone(s.order), func(id tarfile.ID) bool { return slices.Contains(ids, id) })
	s.build(t)
	return s
}

// place returns where a segment is in the file.
func (s sample) place(id tarfile.ID) int64 {
	at := int64(0)
	for _, k := range s.order {
		if k == id {
			return at + tarfile.BlockSize
		}
		at += tarfile.BlockSize + (int64(len(s.data[k]))+tarfile.BlockSize-1)&^(tarfile.BlockSize-1)
	}
	panic("no such segment")
}

const writtenName = "data00000a.tar"

// outcome is the result of a recovery.
type outcome struct {
	plan   *Plan
	events events
	data   map[tarfile.ID][]byte // of the written tar
	order  []tarfile.ID
	file   []byte
}

// recovered plans and writes what is left of number 0 in some files. The output is intact,
// whatever the files are.
func recovered(t testing.TB, files map[string][]byte, o Copies) outcome {
	t.Helper()
	m := newMemory(files)
	p, e := m.survey(t, 0, o)
	x := outcome{plan: p, events: e, data: map[tarfile.ID][]byte{}}
	if len(p.Words()) == 0 {
		t.Error("no words")
	}
	if p.Action == Leave {
		if len(p.Segments) > 0 {
			t.Error("segments are left")
		}
		return x
	}
	const name = writtenName
	w := write(t, p, name)
	x.file = w.bytes(t, name)
	got := w.sound(t, name, x.kept)
	if n := got.Index().Len(); n != len(p.Segments) {
		t.Errorf("%d segments, expected %d", n, len(p.Segments))
	}
	for _, i := range got.Index().ByPosition() {
		b, err := got.Read(t.Context(), int(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		id := got.Index().At(int(i)).ID
		x.data[id], x.order = b, append(x.order, id)
	}
	for _, c := range p.Segments {
		if c.Proof != Kept {
			continue
		}
		// It is there with its header as they were.
		i, _ := got.Index().Find(c.ID)
		now, was := got.Index().At(i).Pos, files[p.Sources[c.From].Name]
		if !bytes.Equal(x.file[now-tarfile.BlockSize:][:tarfile.BlockSize+c.Len], was[c.Pos-tarfile.BlockSize:][:tarfile.BlockSize+c.Len]) {
			t.Errorf("segment %s is kept otherwise than it was", c.ID)
		}
	}
	x.checkKeep(t, files)
	return x
}

// kept reports whether a segment is damaged and stays.
func (x outcome) kept(id tarfile.ID) bool {
	return slices.ContainsFunc(x.plan.Segments, func(c Segment) bool { return c.ID == id && c.Proof == Kept })
}

// checkKeep checks that the written file has what the plan keeps.
func (x outcome) checkKeep(t testing.TB, files map[string][]byte) {
	t.Helper()
	p := x.plan
	old := files[p.Sources[p.KeepOf].Name]
	switch {
	case p.Keep > int64(len(x.file)) || !bytes.Equal(x.file[:p.Keep], old[:p.Keep]):
		t.Errorf("the first %d bytes are not those of %s", p.Keep, p.Sources[p.KeepOf].Name)
	case p.Action == Nothing && p.Counts.Proof[Kept] == 0 && p.Sources[p.Base].Name == writtenName && !bytes.Equal(x.file, files[p.Sources[p.Base].Name]):
		t.Errorf("%s is not written as it was", p.Sources[p.Base].Name)
	}
}

// compare checks that the segments of s, except for some, are there in their order, and that no
// bytes have an ID that they never had.
func (x outcome) compare(t testing.TB, s sample, but ...tarfile.ID) {
	t.Helper()
	var want, got []tarfile.ID
	for _, id := range s.order {
		if !slices.Contains(but, id) {
			want = append(want, id)
		}
	}
	for _, id := range x.order {
		if slices.Contains(want, id) {
			got = append(got, id)
			if !bytes.Equal(x.data[id], s.data[id]) {
				t.Errorf("segment %s has other bytes", id)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("segments %v, expected %v%v", got, want, x.events)
	}
}

// only checks that no other segments were found.
func (x outcome) only(t testing.TB, s sample) {
	t.Helper()
	for id := range maps.Keys(x.data) {
		if _, ok := s.data[id]; !ok {
			t.Errorf("segment %s was never there%v", id, x.events)
		}
	}
}
