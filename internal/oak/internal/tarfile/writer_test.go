package tarfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// written is what was added to a writer.
type written struct {
	id       ID
	gen      Generation
	data     []byte
	refs     []ID
	binaries []string
}

func (s written) addTo(w *Writer) error {
	return w.Add(s.id, s.gen, s.data, pack(s.refs...), s.binaries)
}

func randomTar(r *rand.Rand) (all []written) {
	for range 1 + r.IntN(40) {
		s := written{id: randomID(r, r.IntN(3) > 0)}
		n := 1 + r.IntN(2000)
		if r.IntN(20) == 0 {
			n = MaxSegment
		}
		if s.id.IsData() {
			n = max(16*(n/16), 32+16*8)
			s.gen = Generation{Gen: r.Int32N(4), Full: r.Int32N(2), Compacted: r.IntN(3) == 0}
			for _, i := range r.Perm(len(all))[:min(len(all), r.IntN(8))] {
				s.refs = append(s.refs, all[i].id)
			}
			for range r.IntN(4) - 1 {
				s.binaries = append(s.binaries, strings.Repeat(fmt.Sprintf("binary %d ", r.IntN(9)), r.IntN(5)))
			}
		}
		s.data = randomSegment(r, s.id, s.gen, n, s.refs...)
		all = append(all, s)
	}
	return all
}

func write(t testing.TB, all []written) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, "data00000a.tar", someTime)
	for _, s := range all {
		if err := s.addTo(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	r := testkit.Rand(t)
	rounds := 50
	if raced {
		rounds = 10
	}
	for range rounds {
		all := randomTar(r)
		b := write(t, all)
		if !bytes.Equal(b, write(t, all)) {
			t.Error("written twice, two different tars")
		}
		x := mustOpen(t, b)
		if p := problemsOf(t, x); len(p) > 0 {
			t.Error(p)
		}
		graph, binaries := map[string][]string{}, map[string]map[string][]longText{}
		for k, i := range x.Index().ByPosition() {
			e, s := x.Index().At(int(i)), all[k]
			data, err := x.Read(t.Context(), int(i), nil)
			if err != nil || e.ID != s.id || e.Generation != s.gen || !bytes.Equal(data, s.data) {
				t.Errorf("%v, %v, expected %s", e, err, s.id)
			}
			if len(s.refs) > 0 {
				graph[s.id.String()] = slices.Sorted(slices.Values(texts(pack(s.refs...))))
			}
			if len(s.binaries) > 0 {
				g := s.gen.String()
				if binaries[g] == nil {
					binaries[g] = map[string][]longText{}
				}
				for _, ref := range slices.Compact(slices.Sorted(slices.Values(s.binaries))) {
					binaries[g][s.id.String()] = append(binaries[g][s.id.String()], shorten(ref))
				}
			}
		}
		var w expectedTar
		w.Graph.v, w.Graph.ok, w.Brf.v, w.Brf.ok = graph, true, binaries, true
		compareParts(t, "written", x, w)
		found, problems := scanAll(t, b)
		if len(problems) > 0 {
			t.Error(problems)
		}
		for k, f := range found {
			if s := all[k]; f.ID != s.id || !bytes.Equal(f.Data, s.data) || f.Doubt != 0 {
				t.Errorf("%v, expected %s", f, s.id)
			}
		}
		// The tail alone repairs the damage.
		var tail Tail
		for k, f := range found {
			if err := tail.Add(Entry{f.ID, f.DataPos, f.Len, all[k].gen}, pack(all[k].refs...), all[k].binaries); err != nil {
				t.Fatal(err)
			}
		}
		again, err := tail.Append(slices.Clone(b[:tail.end]), "data00000a.tar", someTime)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("another tail: %v", err)
		}
	}
}

func TestWriterRefusesWhatCannotBe(t *testing.T) {
	r := testkit.Rand(t)
	data, bulk := randomID(r, true), randomID(r, false)
	var buf bytes.Buffer
	w := NewWriter(&buf, "data00000a.tar", nil)
	if err := w.Close(); err == nil || buf.Len() > 0 {
		t.Error("a tar without segments")
	}
	if err := w.Add(data, Generation{}, randomSegment(r, data, Generation{}, 32), nil, nil); err != nil {
		t.Fatal(err)
	}
	n := buf.Len()
	for what, s := range map[string]written{
		"no bytes":             {id: bulk},
		"too many bytes":       {id: bulk, data: make([]byte, MaxSegment+1)},
		"generation":           {id: randomID(r, true), gen: Generation{Gen: -1}, data: make([]byte, 32)},
		"full generation":      {id: randomID(r, true), gen: Generation{Full: -1}, data: make([]byte, 32)},
		"twice":                {id: data, data: make([]byte, 32)},
		"generation of bulk":   {id: bulk, gen: Generation{Compacted: true}, data: []byte{1}},
		"references of bulk":   {id: bulk, data: []byte{1}, refs: []ID{data}},
		"binaries of bulk":     {id: bulk, data: []byte{1}, binaries: []string{"b"}},
		"binaries beyond 2^31": {id: randomID(r, true), data: make([]byte, 32), binaries: slices.Repeat([]string{strings.Repeat("x", 1<<20)}, 2048)},
	} {
		if err := s.addTo(w); err == nil || buf.Len() != n {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.Add(randomID(r, true), Generation{}, make([]byte, 32), make(IDs, 15), nil); err == nil {
		t.Error("15 bytes of references")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Add(bulk, Generation{}, []byte{1}, nil, nil) == nil || w.Close() == nil {
		t.Error("written after the end")
	}
	if x := mustOpen(t, buf.Bytes()); x.Index().Len() != 1 || len(problemsOf(t, x)) > 0 {
		t.Error("what was refused is there")
	}
	long := NewWriter(&buf, strings.Repeat("x", nameLen-3), nil)
	if err := long.Add(data, Generation{}, make([]byte, 32), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := long.Close(); err == nil {
		t.Error("a name that does not fit")
	}
	var tail Tail
	for _, pos := range []int64{0, 1, 513, -512, 1 << 31, maxLen - 511} {
		if err := tail.Add(Entry{ID: bulk, Pos: pos, Len: 1}, nil, nil); err == nil {
			t.Errorf("position %d", pos)
		}
	}
}

// A void takes everything.
type void struct{}

func (void) Write(b []byte) (int, error) { return len(b), nil }

func TestWriterIsFullBeforeItIsTooLong(t *testing.T) {
	r := testkit.Rand(t)
	data := make([]byte, MaxSegment)
	w := NewWriter(void{}, "data00000a.tar", someTime)
	if w.Full(1) {
		t.Error("full when empty")
	}
	w.size = maxLen + 1 - 64<<20 // as if there were so much
	for !w.Full(1 << 40) {
		if err := w.Add(randomID(r, false), Generation{}, data, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if w.Size() < maxLen-4<<20 {
		t.Errorf("full at %d bytes", w.Size())
	}
	if err := w.Close(); err != nil || w.Size() > maxLen || w.Size()%BlockSize != 0 {
		t.Errorf("%d bytes, %v", w.Size(), err)
	}
	w = NewWriter(void{}, "data00000a.tar", someTime)
	for !w.Full(1 << 20) {
		if err := w.Add(randomID(r, false), Generation{}, data, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := int64(4 * (MaxSegment + BlockSize)); w.Size() != n {
		t.Errorf("full at %d bytes, expected %d", w.Size(), n)
	}
}

func TestAFailedWriteEndsTheTar(t *testing.T) {
	r := testkit.Rand(t)
	full := errors.New("disk is full")
	st := storetest.Fault(&storetest.Mem{}, storetest.CutWrites(4000, full))
	obj, err := storekit.Create(t.Context(), st, "t")
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(obj, "t", someTime)
	failed := 0
	for range 8 {
		if err := w.Add(randomID(r, false), Generation{}, make([]byte, 1000), nil, nil); err != nil {
			if failed++; !errors.Is(err, full) {
				t.Error(err)
			}
		}
	}
	if err := w.Close(); !errors.Is(err, full) || failed != 6 {
		t.Errorf("%v, %d failed", err, failed)
	}
}

func TestTimesAreAskedForEachHeader(t *testing.T) {
	n := 0
	w := NewWriter(void{}, "t", func() time.Time { n++; return someTime() })
	if err := w.Add(randomID(testkit.Rand(t), true), Generation{}, make([]byte, 32), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || n != 4 {
		t.Errorf("%d times, %v", n, err)
	}
}

// No tar is written with parts so long that they could not be read again.
func TestPartsThatAreTooLongAreRefused(t *testing.T) {
	r := testkit.Rand(t)
	id := randomID(r, true)
	for what, add := range map[string]func(w *Writer) error{
		"graph": func(w *Writer) error {
			return w.Add(id, Generation{}, make([]byte, 32), make(IDs, 16*len(ID{})), nil)
		},
		"binary references": func(w *Writer) error {
			return w.Add(id, Generation{}, make([]byte, 32), nil, []string{strings.Repeat("name", 50)})
		},
	} {
		for most, want := range map[int64]bool{128: false, 512: true} {
			var b bytes.Buffer
			w := NewWriter(&b, "data00001a.tar", someTime)
			w.tail.mostPart = most
			err := add(w)
			if e, ok := errors.AsType[*Error](err); want != (err == nil) || err != nil && (!ok || e.Class != Limit || e.Object != "data00001a.tar") {
				t.Errorf("%s of at most %d bytes: %v", what, most, err)
			}
			if !want && b.Len() > 0 {
				t.Errorf("%s: %d bytes were written", what, b.Len())
			}
		}
	}
}

// A segment that moves keeps the time of its header. If that is lost, it gets the newest time before;
// what follows the segments has the newest of all.
func TestSegmentsThatMoveKeepTheirTimes(t *testing.T) {
	r := testkit.Rand(t)
	var b bytes.Buffer
	w := NewWriter(&b, "t", func() time.Time { t.Error("asked for a time"); return time.Time{} })
	data, at := make([]byte, BlockSize), []time.Time{time.Unix(200, 0), time.Unix(100, 0), time.Unix(200, 0)}
	for i, when := range at {
		id := randomID(r, false)
		header := NewHeader(nil, id, data, when)
		if i == 2 {
			header[300] = 1 // its checksum is wrong, but it proves the segment
		}
		if err := w.Put(segment.Finished{ID: id, Data: data, Header: header}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for i, when := range append(at, time.Unix(200, 0)) {
		h, err := ParseHeader(b.Bytes()[2*BlockSize*i:][:BlockSize])
		if err != nil || !h.ChecksumOK || !h.ModTime.Equal(when) {
			t.Errorf("header %d: %+v, expected %v; %v", i, h, when, err)
		}
	}
}
