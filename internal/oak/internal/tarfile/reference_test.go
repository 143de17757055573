package tarfile

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
)

func TestWhatOakWroteIsReadAsOakReadsIt(t *testing.T) {
	versions, none := [3]int{}, 0
	fixtures(t, func(t *testing.T, tars map[string][]byte, want expected) {
		if len(tars) != len(want.Tars) {
			t.Errorf("%d tars, expected %d", len(tars), len(want.Tars))
		}
		for name, b := range tars {
			w := want.Tars[name]
			if int64(len(b)) != w.Length {
				t.Fatalf("%s: %d bytes, expected %d", name, len(b), w.Length)
			}
			x, err := open(t, b)
			if !w.Index.ok {
				if _, ok := errors.AsType[*NoIndex](err); !ok {
					t.Errorf("%s: %v, expected no index", name, err)
				}
				none++
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := entries(x.Index()); !slices.Equal(got, plain(w.Index.v)) || x.Index().Version() != w.IndexVersion {
				t.Errorf("%s: index %v of version %d, expected %v of %d", name, got, x.Index().Version(), w.Index.v, w.IndexVersion)
			}
			versions[x.Index().Version()]++
			compareParts(t, name, x, w)
			compareSegments(t, name, x, w)
		}
	})
	if versions[1] == 0 || versions[2] == 0 || none == 0 {
		t.Errorf("tars by version %v, %d without an index: expected some of all", versions, none)
	}
}

func compareParts(t *testing.T, name string, x *Tar, w expectedTar) {
	t.Helper()
	g, err := x.Graph(t.Context())
	if w.Graph.ok != (err == nil) || err != nil && !IsDamage(err) {
		t.Fatalf("%s: graph: %v, expected %v", name, err, w.Graph)
	}
	if err == nil && !reflect.DeepEqual(graphOf(g), w.Graph.v) {
		t.Errorf("%s: graph %v, expected %v", name, graphOf(g), w.Graph.v)
	}
	for id, refs := range w.Graph.v {
		to, ok := g.Targets(mustID(t, id))
		if got := slices.Sorted(slices.Values(texts(to))); !ok || !slices.Equal(got, refs) {
			t.Errorf("%s: targets of %s: %v, expected %v", name, id, got, refs)
		}
	}
	r, err := x.Binaries(t.Context())
	switch {
	case err != nil && !IsDamage(err):
		t.Fatal(err)
	case err == nil && !w.Brf.ok && !w.Graph.ok: // Oak does not find what is before a damaged graph.
	case w.Brf.ok != (err == nil):
		t.Errorf("%s: binaries: %v, expected %v", name, err, w.Brf)
	case err == nil && !reflect.DeepEqual(binariesOf(r), w.Brf.v):
		t.Errorf("%s: binaries %v, expected %v", name, binariesOf(r), w.Brf.v)
	}
}

func compareSegments(t *testing.T, name string, x *Tar, w expectedTar) {
	t.Helper()
	var buf []byte
	var err error
	for _, e := range w.Index.v {
		i, ok := x.Index().Find(e.ID)
		if !ok || x.Index().At(i) != e.Entry {
			t.Fatalf("%s: %s: found %d, %v", name, e.ID, i, ok)
		}
		if buf, err = x.Read(t.Context(), i, buf); err != nil {
			t.Fatal(err)
		}
		s := w.Segments[e.ID.String()]
		if digest(buf) != s.SHA256 {
			t.Errorf("%s: %s: not what was expected", name, e.ID)
		}
		block := make([]byte, BlockSize)
		if err := x.obj.ReadAt(t.Context(), block, e.Pos-BlockSize); err != nil {
			t.Fatal(err)
		}
		h, err := ParseHeader(block)
		if n, ok := ParseEntryName(h.Name); err != nil || !ok || n.ID != e.ID || !h.ChecksumOK || h.Size != int64(e.Len) {
			t.Errorf("%s: %s: header %v, %v", name, e.ID, h, err)
		}
		if !e.ID.IsData() || string(buf[:3]) != "0aK" { // of corrupt-segment-magic
			continue
		}
		head, ok := segment.ParseHead(buf)
		gen := Generation{Gen: s.Gen, Full: s.Full, Compacted: s.Compacted}
		if !ok || buf[3] != s.Version || head.Generation != gen || !slices.Equal(texts(head.Refs), s.Refs) {
			t.Errorf("%s: %s: head %v, expected %v", name, e.ID, head, s)
		}
	}
}

func TestChecksFindTheDamageOfFixturesAndNothingElse(t *testing.T) {
	want := map[string][]Class{
		"TestChecksFindTheDamageOfFixturesAndNothingElse/corrupt-value/data00000a.tar":         {BadChecksum},
		"TestChecksFindTheDamageOfFixturesAndNothingElse/corrupt-segment-magic/data00001a.tar": {BadChecksum, BadSegment},
		"TestChecksFindTheDamageOfFixturesAndNothingElse/corrupt-gph/data00001a.tar":           {BadGraph},
		"TestChecksFindTheDamageOfFixturesAndNothingElse/corrupt-brf/data00000a.tar":           {BadBinaries},
	}
	fixtures(t, func(t *testing.T, tars map[string][]byte, _ expected) {
		for name, b := range tars {
			x, err := open(t, b)
			if err != nil {
				continue
			}
			var got []Class
			problems := problemsOf(t, x)
			for _, p := range problems {
				got = append(got, p.Class)
			}
			if !slices.Equal(got, want[t.Name()+"/"+name]) {
				t.Errorf("%s: %v, expected %v", name, problems, want[t.Name()+"/"+name])
			}
			delete(want, t.Name()+"/"+name)
		}
	})
	if len(want) > 0 {
		t.Errorf("not met: %v", want)
	}
}

func TestScanFindsWhatTheIndexHas(t *testing.T) {
	fixtures(t, func(t *testing.T, tars map[string][]byte, want expected) {
		for name, b := range tars {
			w := want.Tars[name]
			if !w.Index.ok {
				continue
			}
			found, problems := scanAll(t, b)
			bad := 0
			for _, p := range problems {
				if p.Class != BadChecksum || len(w.Index.v) == 0 {
					t.Errorf("%s: %v", name, p)
				}
				if !p.Healed {
					bad++
				}
			}
			if len(found)+bad != len(w.Index.v) {
				t.Errorf("%s: %d segments, %d bad, expected %d", name, len(found), bad, len(w.Index.v))
			}
			for _, f := range found {
				if (w.Segments[f.ID.String()].SHA256 != digest(f.Data)) != (f.Mask != 0) || f.Doubt != 0 || !f.HasCRC {
					t.Errorf("%s: %s is not what was expected", name, f.ID)
				}
			}
		}
	})
}

// TestRecoveryIsThatOfOak scans the tars that Oak recovered, writes what was found, and compares
// that with what Oak wrote: index, graph and binary references.
func TestRecoveryIsThatOfOak(t *testing.T) {
	n := 0
	fixtures(t, func(t *testing.T, tars map[string][]byte, want expected) {
		recovered := map[string]expectedTar{}
		for name, w := range want.RoBak {
			recovered[name[:len("data00000a.tar")]] = w
		}
		for name, w := range want.After.Tars {
			if _, ok := want.After.Files[name+".bak"]; ok {
				recovered[name] = w
			}
		}
		for name, w := range recovered {
			n++
			found, _ := scanAll(t, tars[name])
			var buf bytes.Buffer
			out := NewWriter(&buf, name, nil)
			for _, f := range found {
				var head segment.Head
				if f.ID.IsData() {
					var ok bool
					if head, ok = segment.ParseHead(f.Data); !ok {
						t.Fatal(f.ID)
					}
				}
				// What binaries the records name is not this package's to know.
				var binaries []string
				for _, ref := range w.Brf.v[head.Generation.String()][f.ID.String()] {
					binaries = append(binaries, string(ref))
				}
				if err := out.Add(f.ID, head.Generation, f.Data, head.Refs, binaries); err != nil {
					t.Fatal(err)
				}
			}
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			x := mustOpen(t, buf.Bytes())
			if got := entries(x.Index()); !slices.Equal(got, plain(w.Index.v)) || x.Size() != w.Length {
				t.Errorf("%s: %d bytes, index %v, expected %d, %v", name, x.Size(), got, w.Length, w.Index.v)
			}
			compareParts(t, name, x, w)
			if p := problemsOf(t, x); len(p) > 0 {
				t.Errorf("%s: %v", name, p)
			}
		}
	})
	if n != 5 {
		t.Errorf("%d tars were recovered", n)
	}
}

// TestWrittenTarsAreThoseOfOak writes the tars of the fixtures again. Oak's have the
// order of hash maps in graph and binary references: of those with one list at most
// each byte is the same, of others all but these lists.
func TestWrittenTarsAreThoseOfOak(t *testing.T) {
	same, like := 0, 0
	fixtures(t, func(t *testing.T, tars map[string][]byte, want expected) {
		for name, b := range tars {
			x, err := open(t, b)
			if err != nil || x.Index().Version() == 1 || len(problemsOf(t, x)) > 0 {
				continue
			}
			g, err := x.Graph(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := x.Binaries(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			layout, err := x.Layout(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			again := rewrite(t, name, x, layout, g, r)
			ordered := g.Len() <= 1 && r.Len() <= 1
			for id, to := range g.All() {
				ordered = ordered && slices.IsSorted(texts(to)) && id.IsData()
			}
			for s := range r.All() {
				ordered = ordered && slices.IsSorted(slices.Collect(s.Refs.All()))
			}
			switch {
			case bytes.Equal(again, b):
				same++
			case ordered:
				t.Errorf("%s: differs from byte %d on", name, firstDifference(again, b))
			case !bytes.Equal(again[:layout.Binaries.Off], b[:layout.Binaries.Off]) || !bytes.Equal(again[layout.Index.Off:], b[layout.Index.Off:]):
				t.Errorf("%s: differs from byte %d on, expected only within %v and %v", name, firstDifference(again, b), layout.Binaries, layout.Graph)
			default:
				like++
				y := mustOpen(t, again)
				compareParts(t, name, y, want.Tars[name])
			}
		}
	})
	t.Logf("%d tars are the same, %d but for the order of lists", same, like)
	if same == 0 || like == 0 {
		t.Error("one of the two was not tried")
	}
}

func rewrite(t *testing.T, name string, x *Tar, layout Layout, g *Graph, r *BinaryRefs) []byte {
	t.Helper()
	var times []time.Time
	at := func(off int64) {
		b := make([]byte, BlockSize)
		if err := x.obj.ReadAt(t.Context(), b, off); err != nil {
			t.Fatal(err)
		}
		h, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, h.ModTime)
	}
	for _, e := range entries(x.Index()) {
		at(e.Pos - BlockSize)
	}
	for _, s := range []Span{layout.Binaries, layout.Graph, layout.Index} {
		at(s.Off)
	}
	binaries := map[ID][]string{}
	for s := range r.All() {
		binaries[s.ID] = slices.Collect(s.Refs.All())
	}
	var buf bytes.Buffer
	w := NewWriter(&buf, name, func() time.Time {
		now := times[0]
		times = times[1:]
		return now
	})
	for _, i := range x.Index().ByPosition() {
		e := x.Index().At(int(i))
		data, err := x.Read(t.Context(), int(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		refs, _ := g.Targets(e.ID)
		if err := w.Add(e.ID, e.Generation, data, refs, binaries[e.ID]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
