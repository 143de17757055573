package rescue

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// FuzzSurvey recovers two arbitrary letters. The output must open, and each checksum in it must
// match, except for segments that are kept though they are damaged.
func FuzzSurvey(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	s := newSample(f, r, 0)
	other := s.without(f, 'b', s.order[2])
	bad := bytes.Clone(s.file)
	bad[s.place(s.order[3])] ^= 1
	clear(bad[s.place(s.order[1])-tarfile.BlockSize:][:tarfile.BlockSize])
	for _, a := range [][]byte{s.file, bad, s.file[:s.segments], bad[:s.segments], s.file[:5000], nil} {
		for _, b := range [][]byte{nil, other.file, other.file[:other.segments]} {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		files := map[string][]byte{"data00000a.tar": a}
		if len(b) > 0 {
			files["data00000b.tar"] = b
		}
		m := newMemory(files)
		p, _ := m.survey(t, 0, m.copies(t, -1))
		if len(p.Words()) == 0 {
			t.Error("no words")
		}
		out := newMemory(nil)
		err := Write(t.Context(), out, "data00000a.tar", p)
		if (p.Action == Leave) != errors.Is(err, ErrNothing) || err != nil && p.Action != Leave {
			t.Fatal(p.Action, err)
		}
		if err != nil {
			return
		}
		x := out.open(t, "data00000a.tar")
		fault := func(p tarfile.Problem) {
			// Ids of no kind are left as they are, and so are lists that name them.
			if p.Class != tarfile.BadIndex && p.Class != tarfile.BadGraph {
				t.Errorf("%+v", p)
			}
		}
		ofKept := func(tarfile.Problem) {}
		if _, err := x.CheckLayout(t.Context(), fault); err != nil {
			t.Fatal(err)
		}
		if x.Index().Len() != len(p.Segments) {
			t.Errorf("%d segments, expected %d", x.Index().Len(), len(p.Segments))
		}
		file := out.bytes(t, "data00000a.tar")
		for i, e := range x.Index().All() {
			at, tell := e.Whole(), fault
			if c, ok := p.Find(e.ID); ok && (c.Proof == Kept || c.Proof == Doubtful) {
				tell = ofKept
			}
			x.CheckBytes(i, file[at.Off:][:at.Len], tell)
		}
	})
}
