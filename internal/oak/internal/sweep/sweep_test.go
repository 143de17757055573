package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A sample is a store of two tars: of the older one the old segment and one of two
// bulk segments are garbage, which is more than half of it.
type sample struct {
	bulk, lost, old, keep, head piece
}

func newSample(r *rand.Rand) (s sample) {
	s.bulk = piece{id: randomID(r, false), n: 3000}
	s.lost = piece{id: randomID(r, false), n: 5001}
	s.old = piece{id: randomID(r, true), n: 4096, refs: []tarfile.ID{s.lost.id}, blob: "old#1"}
	s.keep = piece{id: randomID(r, true), n: 1024, gen: at(1, 1, true), refs: []tarfile.ID{s.bulk.id, s.old.id}, blob: "kept#2"}
	s.head = piece{id: randomID(r, true), n: 512, gen: at(1, 1, false), refs: []tarfile.ID{s.keep.id, s.bulk.id}}
	return s
}

func (s sample) headOf() Head { return Head{s.head.id, s.head.gen} }

// first is the older tar.
func (s sample) first(t testing.TB, name string) []byte {
	return tarOf(t, name, s.bulk, s.lost, s.old, s.keep)
}

func (s sample) store(t testing.TB, name string) (*storetest.Mem, []Tar) {
	return memStore(t, map[string][]byte{name: s.first(t, name), "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
}

func (s sample) mark(t testing.TB, tars []Tar, o Options) *Plan {
	t.Helper()
	p, err := Mark(t.Context(), tars, s.headOf(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantRewritten checks that the older tar was rewritten as expected.
func (s sample) wantRewritten(t testing.TB, st store.Store, name string) {
	t.Helper()
	x := openTar(t, st, name)
	d := describe(t, []Tar{x})[name]
	if len(d.Index) != 2 || d.Index[0][0] != s.bulk.id.String() || d.Index[1][0] != s.keep.id.String() {
		t.Errorf("%s: index %v", name, d.Index)
	}
	if want := map[string][]string{s.keep.id.String(): {s.bulk.id.String()}}; !reflect.DeepEqual(d.Graph, want) {
		t.Errorf("%s: graph %v, expected %v", name, d.Graph, want)
	}
	if want := map[string]map[string][]any{"1,1,true": {s.keep.id.String(): {"kept#2"}}}; !reflect.DeepEqual(d.Brf, want) {
		t.Errorf("%s: binary references %v, expected %v", name, d.Brf, want)
	}
	for _, p := range []piece{s.bulk, s.keep} {
		i, _ := x.Index().Find(p.id)
		b, err := x.Read(t.Context(), i, nil)
		if err != nil || !bytes.Equal(b, p.bytes()) {
			t.Errorf("%s: segment %s is another one, %v", name, p.id, err)
		}
	}
	wantSound(t, x)
}

func checkEntry(t testing.TB, x Tar, i int, report func(tarfile.Problem)) {
	t.Helper()
	at := x.Index().At(i).Whole()
	b := make([]byte, at.Len)
	if err := x.Object.ReadAt(t.Context(), b, at.Off); err != nil {
		t.Fatal(err)
	}
	x.CheckBytes(i, b, report)
}

func wantSound(t testing.TB, x Tar) {
	t.Helper()
	report := func(p tarfile.Problem) {
		if p.Segment.IsData() || p.Segment.IsBulk() || p.Class != tarfile.BadIndex { // others are a fault of the store
			t.Errorf("%s: %+v", x.Name, p)
		}
	}
	if _, err := x.CheckLayout(t.Context(), report); err != nil {
		t.Error(err)
	}
	for i := range x.Index().Len() {
		checkEntry(t, x, i, report)
	}
}

func TestSweepRemovesGarbageOnly(t *testing.T) {
	s := newSample(testkit.Rand(t))
	st, tars := s.store(t, "data00001a.tar")
	p := s.mark(t, tars, Options{})
	if p.Tars[0].Action != Keep || p.Tars[0].Before != p.Tars[0].After || p.Tars[0].Before != 1024 {
		t.Errorf("%+v", p.Tars[0])
	}
	x := p.Tars[1]
	if x.Action != Rewrite || x.Entries != 4 || x.Garbage != 2 || x.NewName != "data00001b.tar" ||
		x.Before != 3584+6144-512+4608+1536 || x.After != 3584+1536 {
		t.Errorf("%v %+v", x.Action, x)
	}
	for _, w := range []struct {
		piece
		kept bool
	}{{s.bulk, true}, {s.lost, false}, {s.old, false}, {s.keep, true}, {s.head, true}} {
		if p.Keeps(w.id) != w.kept {
			t.Errorf("%s: kept %t", w.id, !w.kept)
		}
	}
	if p.Keeps(tarfile.ID{}) {
		t.Error("a segment is kept that there is not")
	}
	if err := sweepAll(t.Context(), p, st); err != nil {
		t.Fatal(err)
	}
	s.wantRewritten(t, st, "data00001b.tar")
}

func TestWhatIsWrittenDependsOnTheOldTarAlone(t *testing.T) {
	s := newSample(testkit.Rand(t))
	var before []byte
	for range 2 {
		st, tars := s.store(t, "data00001a.tar")
		if err := sweepAll(t.Context(), s.mark(t, tars, Options{}), st); err != nil {
			t.Fatal(err)
		}
		b := storetest.Get(t, st, "data00001b.tar")
		if before != nil && !bytes.Equal(before, b) {
			t.Error("another tar")
		}
		before = b
		x := openTar(t, st, "data00001b.tar")
		i, _ := x.Index().Find(s.keep.id)
		h, err := tarfile.ParseHeader(b[x.Index().At(i).Pos-tarfile.BlockSize:][:tarfile.BlockSize])
		if err != nil || !h.ModTime.Equal(someTime().Add(-4*time.Second)) {
			t.Error(h, err)
		}
		l, err := x.Layout(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []tarfile.Span{l.Binaries, l.Graph, l.Index} {
			h, err := tarfile.ParseHeader(b[part.Off:][:tarfile.BlockSize])
			if err != nil || !h.ModTime.Equal(someTime().Add(-time.Second)) {
				t.Error(h, err)
			}
		}
	}
}

func TestDamagedPartsAreMadeFromSegments(t *testing.T) {
	for _, harm := range []func(b []byte){
		func(b []byte) { damagePart(t, b, graphPart, crcField) },
		func(b []byte) { damagePart(t, b, graphPart, magicField) },
		func(b []byte) { damagePart(t, b, binariesPart, crcField) },
		func(b []byte) { damagePart(t, b, binariesPart, magicField) },
		func(b []byte) {
			damagePart(t, b, binariesPart, crcField)
			damagePart(t, b, graphPart, crcField)
		},
	} {
		s := newSample(testkit.Rand(t))
		b := s.first(t, "data00001a.tar")
		harm(b)
		st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
		p := s.mark(t, tars, Options{Report: func(tar string, p tarfile.Problem) { t.Error(tar, p) }})
		if x := p.Tars[1]; x.GraphDamage == nil && x.BinariesDamage == nil {
			t.Error("no damage was seen")
		}
		if err := sweepAll(t.Context(), p, st); err != nil {
			t.Fatal(err)
		}
		s.wantRewritten(t, st, "data00001b.tar")
	}
}

// Oak reads a tar with a damaged graph never again, so it is repaired even if all of it
// is kept.
func TestATarWithADamagedPartIsRewrittenWhatever(t *testing.T) {
	s := newSample(testkit.Rand(t))
	b := tarOf(t, "data00002a.tar", s.head)
	damagePart(t, b, graphPart, crcField)
	st, tars := memStore(t, map[string][]byte{"data00001a.tar": s.first(t, "data00001a.tar"), "data00002a.tar": b})
	p := s.mark(t, tars, Options{})
	if x := p.Tars[0]; x.Action != Rewrite || x.Garbage != 0 || x.GraphDamage == nil || x.BinariesDamage != nil {
		t.Errorf("%+v", x)
	}
	if err := sweepAll(t.Context(), p, st); err != nil {
		t.Fatal(err)
	}
	x := openTar(t, st, "data00002b.tar")
	wantSound(t, x)
	g, err := x.Graph(t.Context())
	if err != nil || g.Len() != 1 {
		t.Error(g, err)
	}
}

// If a segment cannot be read in a tar without a graph, it is not known what it refers to.
func TestABulkSegmentIsKeptIfItCannotBeKnown(t *testing.T) {
	s := newSample(testkit.Rand(t))
	b := s.first(t, "data00001a.tar")
	damagePart(t, b, graphPart, crcField)
	st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
	i, _ := tars[1].Index().Find(s.keep.id)
	b[tars[1].Index().At(i).Pos] = 'x'
	st.Put("data00001a.tar", b)
	tars[1] = openTar(t, st, "data00001a.tar")
	var told []tarfile.Problem
	p := s.mark(t, tars, Options{Report: func(_ string, p tarfile.Problem) { told = append(told, p) }})
	if len(told) != 1 || told[0].Segment != s.keep.id || told[0].Class != tarfile.BadSegment {
		t.Errorf("%+v", told)
	}
	if !p.Keeps(s.lost.id) || p.Keeps(s.old.id) {
		t.Error("expected all bulk segments to be kept, and no more")
	}
	if err := sweepAll(t.Context(), p, st); err != nil {
		t.Fatal(err)
	}
	if x := openTar(t, st, "data00001b.tar"); x.Index().Len() != 3 {
		t.Error(x.Index().Len())
	}
}

func TestDamageStaysToBeSeen(t *testing.T) {
	s := newSample(testkit.Rand(t))
	b := s.first(t, "data00001a.tar")
	_, tars := memStore(t, map[string][]byte{"data00001a.tar": b})
	i, _ := tars[0].Index().Find(s.bulk.id)
	e := tars[0].Index().At(i)
	b[e.Pos+7] ^= 4
	st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
	if _, err := s.mark(t, tars, Options{}).Sweep(t.Context(), st, "", 1); err != nil {
		t.Fatal(err)
	}
	x := openTar(t, st, "data00001b.tar")
	i, _ = x.Index().Find(s.bulk.id)
	var found []tarfile.Problem
	checkEntry(t, x, i, func(p tarfile.Problem) { found = append(found, p) })
	if len(found) != 1 || found[0].Class != tarfile.BadChecksum {
		t.Errorf("%+v, expected a wrong checksum", found)
	}
}

// If nothing proves the segment, a new header would make damage look intact.
func TestADamagedHeaderIsMadeAnewIfItProvesItsSegment(t *testing.T) {
	s := newSample(testkit.Rand(t))
	name := func(id tarfile.ID) string { return fmt.Sprintf("%s.%08x", id, crc32.ChecksumIEEE(s.keep.bytes())) }
	for what, c := range map[string]struct {
		proves bool
		harm   func(header []byte)
		silent bool // the header is not damaged
	}{
		"a name that is none": {true, func(b []byte) { b[3] = '?' }, false},
		"a wrong checksum":    {true, func(b []byte) { b[300] = 1 }, false},
		"another size":        {true, func(b []byte) { copy(b, tarfile.AppendHeader(nil, name(s.keep.id), 7, someTime())) }, false},
		"another segment": {false, func(b []byte) {
			copy(b, tarfile.AppendHeader(nil, name(s.bulk.id), int64(s.keep.n), someTime()))
		}, false},
		"no checksum": {false, func(b []byte) {
			copy(b, tarfile.AppendHeader(nil, s.keep.id.String(), int64(s.keep.n), someTime()))
		}, true},
		"zeros": {false, func(b []byte) { clear(b) }, false},
	} {
		b := s.first(t, "data00001a.tar")
		_, tars := memStore(t, map[string][]byte{"data00001a.tar": b})
		i, _ := tars[0].Index().Find(s.keep.id)
		header := b[tars[0].Index().At(i).Pos-tarfile.BlockSize:][:tarfile.BlockSize]
		c.harm(header)
		st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
		told := 0
		p := s.mark(t, tars, Options{Report: func(_ string, p tarfile.Problem) {
			if told++; p.Class != tarfile.BadHeader || p.Segment != s.keep.id {
				t.Errorf("%s: %+v", what, p)
			}
		}})
		if err := sweepAll(t.Context(), p, st); err != nil || (told != 1) != c.silent {
			t.Error(what, told, err)
		}
		if c.proves {
			s.wantRewritten(t, st, "data00001b.tar")
			continue
		}
		x := openTar(t, st, "data00001b.tar")
		i, _ = x.Index().Find(s.keep.id)
		kept := make([]byte, tarfile.BlockSize)
		if err := x.Object.ReadAt(t.Context(), kept, x.Index().At(i).Pos-tarfile.BlockSize); err != nil || !bytes.Equal(kept, header) {
			t.Errorf("%s: the header is another one, %v", what, err)
		}
	}
}

// The index before Oak 1.8 has one number for a generation, and takes all segments
// for compacted. What is written has an index of today.
func TestATarBeforeOak18(t *testing.T) {
	s := newSample(testkit.Rand(t))
	b := withFirstIndex(t, s.first(t, "data00001a.tar"))
	st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
	if tars[1].Index().Version() != 1 {
		t.Fatal(tars[1].Index().Version())
	}
	// Its bulk segment is after the root, but what refers to it is not compacted.
	for _, o := range []Options{{}, {Root: &s.head.id}} {
		if p := s.mark(t, tars, o); !p.Keeps(s.bulk.id) || p.Keeps(s.old.id) {
			t.Errorf("%+v: other segments are kept", o)
		}
	}
	if err := sweepAll(t.Context(), s.mark(t, tars, Options{}), st); err != nil {
		t.Fatal(err)
	}
	s.wantRewritten(t, st, "data00001b.tar")
}

func TestNamesAreNeverTakenTwice(t *testing.T) {
	s := newSample(testkit.Rand(t))
	for _, c := range []struct {
		name, taken, want string
		action            Action
	}{
		{"data00001a.tar", "", "data00001b.tar", Rewrite},
		{"data00001.tar", "", "data00001b.tar", Rewrite}, // Oak would write data00002.tar
		{"data00001.tar", "data00001a.tar", "data00001b.tar", Rewrite},
		{"data00001.tar", "data00001b.tar", "data00001c.tar", Rewrite},
		{"data00001b.tar", "data00001c.tar data00001e.tar", "data00001f.tar", Rewrite},
		{"data00001y.tar", "", "data00001z.tar", Rewrite},
		{"data00001z.tar", "", "", KeepLastLetter},
		{"data00001a.tar", "data00001z.tar", "", KeepLastLetter},
	} {
		st, tars := s.store(t, c.name)
		taken := strings.Fields(c.taken)
		for _, name := range taken {
			st.Put(name, []byte("of somebody else"))
		}
		p := s.mark(t, tars, Options{Taken: func(name string) bool { return slices.Contains(taken, name) }})
		if x := p.Tars[1]; x.Action != c.action || x.NewName != c.want {
			t.Errorf("%+v: %v %s", c, x.Action, x.NewName)
		}
		if err := sweepAll(t.Context(), p, st); err != nil {
			t.Error(err)
		}
		if c.action == Rewrite {
			s.wantRewritten(t, st, c.want)
		}
		for _, name := range taken {
			if string(storetest.Get(t, st, name)) != "of somebody else" {
				t.Error(name, "was written over")
			}
		}
	}
}

func TestAFileThatCameMeanwhileIsNotWrittenOver(t *testing.T) {
	s := newSample(testkit.Rand(t))
	st, tars := s.store(t, "data00001a.tar")
	p := s.mark(t, tars, Options{})
	st.Put("sub/data00001b.tar", []byte("x"))
	if _, err := p.Sweep(t.Context(), st, "sub/", 1); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if _, err := p.Sweep(t.Context(), st, "", 0); err == nil {
		t.Error("a tar was rewritten that is to be kept")
	}
}

func TestATarThatCannotBeCopiedIsKept(t *testing.T) {
	s := newSample(testkit.Rand(t))
	var tail tarfile.Tail
	pos := int64(tarfile.BlockSize)
	for _, x := range []piece{s.bulk, s.lost, s.old, s.keep} {
		e := tarfile.Entry{ID: x.id, Pos: pos, Len: x.n, Generation: x.gen}
		if x.id == s.keep.id {
			e.Pos = 1 << 20
		}
		if err := tail.Add(e, nil, nil); err != nil {
			t.Fatal(err)
		}
		pos += e.Whole().Len
	}
	b, err := tail.Append(make([]byte, 16<<10), "data00001a.tar", someTime)
	if err != nil {
		t.Fatal(err)
	}
	_, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
	if p := s.mark(t, tars, Options{}); p.Tars[1].Action != KeepDamaged {
		t.Error(p.Tars[1].Action)
	}
}

func TestMarkRefusesWhatWouldLoseAll(t *testing.T) {
	s := newSample(testkit.Rand(t))
	_, tars := s.store(t, "data00001a.tar")
	other := randomID(rand.New(rand.NewPCG(1, 2)), true)
	wrongName := append([]Tar{}, tars...)
	wrongName[1].Number = 0
	for _, c := range []struct {
		what string
		tars []Tar
		head Head
		o    Options
	}{
		{"a head that there is not", tars, Head{other, s.head.gen}, Options{}},
		{"a head of bulk", tars, Head{s.bulk.id, tarfile.Generation{}}, Options{}},
		{"another generation", tars, Head{s.head.id, at(2, 2, false)}, Options{}},
		{"a root that there is not", tars, s.headOf(), Options{Root: &other}},
		{"an order of its own", []Tar{tars[1], tars[0]}, s.headOf(), Options{}},
		{"a tar twice", []Tar{tars[0], tars[0], tars[1]}, s.headOf(), Options{}},
		{"another number", wrongName, s.headOf(), Options{}},
		{"no tars", nil, s.headOf(), Options{}},
		{"less than no generation", tars, s.headOf(), Options{Retain: -1}},
		{"no such kind", tars, s.headOf(), Options{Kind: 2}},
	} {
		if _, err := Mark(t.Context(), c.tars, c.head, c.o); err == nil {
			t.Error(c.what, "is no error")
		}
	}
}

// A gc.log that was not adapted must not remove the head.
func TestARootThatWouldRemoveTheHeadIsRefused(t *testing.T) {
	s := newSample(testkit.Rand(t))
	s.head.gen = at(2, 2, true)
	_, tars := s.store(t, "data00001a.tar")
	if _, err := Mark(t.Context(), tars, s.headOf(), Options{Retain: 2, Root: &s.keep.id}); err == nil || !strings.Contains(err.Error(), s.keep.id.String()) {
		t.Error(err)
	}
	if _, err := Mark(t.Context(), tars, s.headOf(), Options{Retain: 2, Root: &s.head.id}); err != nil {
		t.Error(err)
	}
}

func TestOldSegments(t *testing.T) {
	for _, c := range []struct {
		o         Options
		head, gen tarfile.Generation
		old       bool
	}{
		{Options{Retain: 1}, at(3, 1, false), at(3, 1, false), false},
		{Options{Retain: 1}, at(3, 1, false), at(2, 1, false), true},
		{Options{Retain: 1}, at(3, 1, false), at(2, 1, true), false},
		{Options{Retain: 1}, at(3, 1, false), at(3, 0, true), true},
		{Options{Retain: 2}, at(3, 1, false), at(2, 1, false), false},
		{Options{Retain: 2}, at(3, 1, false), at(1, 1, false), true},
		{Options{Retain: 2}, at(3, 2, false), at(1, 1, true), false},
		{Options{Retain: 2}, at(3, 2, false), at(1, 0, true), true},
		{Options{Retain: 1, Kind: Tail}, at(3, 1, false), at(2, 1, true), false},
		{Options{Retain: 1, Kind: Tail}, at(3, 1, false), at(2, 0, true), true},
		{Options{Retain: 1, Kind: Tail}, at(3, 1, false), at(2, 1, false), true},
		{Options{Retain: 1, Kind: Tail}, at(3, 1, false), at(3, 0, false), false},
		{Options{Retain: 2, Kind: Tail}, at(3, 1, false), at(2, 0, true), false},
		// Differences are those of numbers, not of their last 32 bits.
		{Options{Retain: 1}, at(1<<31-1, 1<<31-1, false), at(-2, -2, false), true},
		{Options{Retain: 1}, at(-2, -2, false), at(1<<31-1, 1<<31-1, false), false},
	} {
		if got := c.o.old(c.head, c.gen); got != c.old {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// The quarter is relative to the size of the segments. More than 683 MiB do not change the
// answer.
func TestAQuarterOfGarbageIsKept(t *testing.T) {
	r := testkit.Rand(t)
	head := piece{id: randomID(r, true), n: 512, gen: at(1, 1, false)}
	keep := piece{id: randomID(r, true), n: 1024, gen: at(1, 1, false)}
	for garbage, want := range map[int]Action{16: KeepGarbage, 513: Rewrite} {
		_, tars := memStore(t, map[string][]byte{
			"data00000a.tar": tarOf(t, "data00000a.tar", piece{id: randomID(r, false), n: garbage}, keep, piece{id: head.id, n: 1024, gen: head.gen}),
		})
		p, err := Mark(t.Context(), tars, Head{head.id, head.gen}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if x := p.Tars[0]; x.Action != want || x.Garbage != 1 {
			t.Errorf("%d bytes: %v of %d, %d", garbage, x.Action, x.Before, x.After)
		}
	}
}

func TestCompactedSegmentsBehindTheRootAreGarbage(t *testing.T) {
	r := testkit.Rand(t)
	root := piece{id: randomID(r, true), n: 512, gen: at(1, 1, true)}
	whole := piece{id: randomID(r, true), n: 512, gen: at(1, 1, true)}
	broken := piece{id: randomID(r, true), n: 512, gen: at(1, 1, true)}
	newer := piece{id: randomID(r, true), n: 512, gen: at(2, 2, true)}
	head := piece{id: randomID(r, true), n: 512, gen: at(1, 1, false)}
	_, tars := memStore(t, map[string][]byte{
		"data00000a.tar": tarOf(t, "data00000a.tar", whole, root, broken),
		"data00001a.tar": tarOf(t, "data00001a.tar", newer, head),
	})
	for _, c := range []struct {
		o    Options
		gone []piece
	}{
		{Options{}, nil},
		{Options{Root: &root.id}, []piece{broken, newer}},
		{Options{Root: &head.id}, nil},
	} {
		p, err := Mark(t.Context(), tars, Head{head.id, head.gen}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []piece{root, whole, broken, newer, head} {
			want := true
			for _, g := range c.gone {
				want = want && g.id != x.id
			}
			if p.Keeps(x.id) != want {
				t.Errorf("%+v: %v kept %t", c.o, x.gen, !want)
			}
		}
	}
}

// Oak decides on all copies of a segment at once, and removes this one.
func TestACopyDoesNotRemoveTheOther(t *testing.T) {
	s := newSample(testkit.Rand(t))
	_, tars := memStore(t, map[string][]byte{
		"data00000a.tar": tarOf(t, "data00000a.tar", s.bulk),
		"data00001a.tar": s.first(t, "data00001a.tar"),
		"data00002a.tar": tarOf(t, "data00002a.tar", s.head),
	})
	p := s.mark(t, tars, Options{})
	if i, ok := p.Tars[1].Index().Find(s.bulk.id); !ok || p.Tars[1].IsGarbage(i) {
		t.Error("the newer copy is garbage")
	}
}

func TestABulkSegmentBehindWhatRefersToItIsKept(t *testing.T) {
	s := newSample(testkit.Rand(t))
	_, tars := memStore(t, map[string][]byte{"data00000a.tar": tarOf(t, "data00000a.tar", s.keep, s.head, s.bulk)})
	if p := s.mark(t, tars, Options{}); !p.Keeps(s.bulk.id) {
		t.Error("garbage")
	}
}

// What is known of binaries is better than nothing: without any reference all of them
// are garbage to their store.
func TestBinariesThatCannotBeReadAreTold(t *testing.T) {
	s := newSample(testkit.Rand(t))
	b := s.first(t, "data00001a.tar")
	damagePart(t, b, binariesPart, crcField)
	_, tars := memStore(t, map[string][]byte{"data00001a.tar": b})
	i, _ := tars[0].Index().Find(s.keep.id)
	e := tars[0].Index().At(i)
	pos := e.Pos + int64(e.Len-2-len(s.keep.blob))&^3
	if b[pos] != 0xe0 {
		t.Fatal("no record there")
	}
	// A long id: a string that is record 5 of a segment that there is not.
	copy(b[pos:], "\xf0\x00\x02\x00\x00\x00\x05")
	other := piece{id: randomID(testkit.Rand(t), true), n: 1024, gen: at(1, 1, false), blob: "other#3"}
	c := tarOf(t, "data00002a.tar", s.head, other)
	damagePart(t, c, binariesPart, crcField)
	st, tars := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": c})
	var told []tarfile.Problem
	p := s.mark(t, tars, Options{Report: func(_ string, p tarfile.Problem) { told = append(told, p) }})
	if err := sweepAll(t.Context(), p, st); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0].Segment != s.keep.id || !strings.Contains(told[0].What, "binary references are lost") {
		t.Errorf("%+v", told)
	}
	for name, want := range map[string]int{"data00001b.tar": 0, "data00002b.tar": 1} {
		if r, err := openTar(t, st, name).Binaries(t.Context()); err != nil || r.Len() != want {
			t.Errorf("%s: %d segments with binaries, expected %d, %v", name, r.Len(), want, err)
		}
	}
}

// A power failure leaves the old tars, and the new one complete or not at all.
func TestACrashLeavesTheOldTar(t *testing.T) {
	s := newSample(testkit.Rand(t))
	before, _ := s.store(t, "data00001a.tar")
	for steps := 0; ; steps++ {
		below := before.Clone()
		c := storetest.NewCrash(below, steps)
		tars := []Tar{openTar(t, below, "data00002a.tar"), openTar(t, below, "data00001a.tar")}
		err := sweepAll(t.Context(), s.mark(t, tars, Options{}), c)
		if o, openErr := below.Open(t.Context(), "data00001b.tar"); openErr == nil {
			if _, infoErr := o.Info(t.Context()); infoErr == nil {
				s.wantRewritten(t, below, "data00001b.tar")
			} else if !errors.Is(infoErr, fs.ErrNotExist) || err == nil {
				t.Error(infoErr, err)
			}
		}
		if !bytes.Equal(storetest.Get(t, below, "data00001a.tar"), storetest.Get(t, before, "data00001a.tar")) {
			t.Error("the old tar was changed")
		}
		if !c.Lost() {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
}

func TestErrorsOfTheStoreComeUp(t *testing.T) {
	s := newSample(testkit.Rand(t))
	broken := errors.New("broken")
	for fail := 0; ; fail++ {
		b := s.first(t, "data00001a.tar")
		damagePart(t, b, graphPart, crcField)
		damagePart(t, b, binariesPart, crcField)
		mem, _ := memStore(t, map[string][]byte{"data00001a.tar": b, "data00002a.tar": tarOf(t, "data00002a.tar", s.head)})
		n, armed := 0, false
		st := storetest.Fault(mem, func(op, name string, off, length int64) error {
			if !armed || op == "abort" { // of what is committed, or failed anyway
				return nil
			}
			if n++; n == fail+1 {
				return broken
			}
			return nil
		})
		tars := []Tar{openTar(t, st, "data00002a.tar"), openTar(t, st, "data00001a.tar")}
		armed = true
		p, err := Mark(t.Context(), tars, s.headOf(), Options{})
		if err == nil {
			err = sweepAll(t.Context(), p, st)
		}
		if n <= fail {
			if err != nil || fail < 10 {
				t.Error(fail, err)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Errorf("request %d: %v", fail, err)
		}
	}
}

// without returns what Oak leaves of a tar's parts: what belongs to a kept segment, without
// references in the graph to segments of the tar that are not kept.
func (d dump) without(x *TarPlan) dump {
	kept := func(s string) bool {
		id, err := segment.ParseID(s)
		i, ok := x.Index().Find(id)
		return err == nil && (!ok || !x.IsGarbage(i))
	}
	g := map[string][]string{}
	for from, to := range d.Graph {
		if to = slices.DeleteFunc(slices.Clone(to), func(s string) bool { return !kept(s) }); kept(from) && len(to) > 0 {
			g[from] = to
		}
	}
	b := map[string]map[string][]any{}
	for generation, segments := range d.Brf {
		if segments = maps.Clone(segments); len(segments) > 0 {
			maps.DeleteFunc(segments, func(s string, _ []any) bool { return !kept(s) })
			if len(segments) > 0 {
				b[generation] = segments
			}
		}
	}
	return dump{Graph: g, Brf: b}
}

// harmAll damages graph and binary references of all tars.
func harmAll(t testing.TB, dir string, off int) {
	t.Helper()
	st := storeOf(dir)
	tars, _ := openTars(t, st)
	closeTars(tars)
	for _, x := range tars {
		b := storetest.Get(t, st, x.Name)
		damagePart(t, b, binariesPart, off)
		damagePart(t, b, graphPart, off)
		writeFile(t, filepath.Join(dir, x.Name), b)
	}
}

// harmless are fixtures whose segments are sound.
func harmless(t testing.TB) (names []string) {
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		switch name {
		case "corrupt-gph", "corrupt-brf", "corrupt-segment-magic", "missing-tar":
		default:
			names = append(names, name)
		}
	}
	return names
}

// The result of a cleanup must not depend on whether there are graphs. Graphs that it derives
// from segments must equal those that were there.
func TestWithoutGraphsTheSameIsKept(t *testing.T) {
	lists, blobs := 0, 0
	for _, name := range harmless(t) {
		for _, off := range []int{crcField, magicField} {
			dir := filepath.Join(unpack(t, name), "segmentstore")
			tars := openDir(t, dir)
			sound := describe(t, tars)
			head, _ := newest(t, dir, tars)
			want, err := Mark(t.Context(), tars, head, Options{Root: &head.Segment})
			if err != nil {
				t.Fatal(err)
			}
			harmed := copyDir(t, dir)
			harmAll(t, harmed, off)
			s := cleanup(t, harmed, Options{})
			if len(s.problems) > 0 {
				t.Error(name, s.problems)
			}
			got := describe(t, openDir(t, harmed))
			for i := range want.Tars {
				w, g := &want.Tars[i], &s.plan.Tars[i]
				if !slices.Equal(w.garbage, g.garbage) {
					t.Errorf("%s: %s: other segments are garbage", name, w.Name)
				}
				if w.Action == Drop {
					continue
				}
				if g.Action != Rewrite {
					t.Errorf("%s: %s: %v", name, w.Name, g.Action)
				}
				made, wantMade := got[g.NewName], sound[w.Name].without(w)
				if !reflect.DeepEqual(made.Graph, wantMade.Graph) {
					t.Errorf("%s: %s: graph %v, expected %v", name, g.NewName, made.Graph, wantMade.Graph)
				}
				if !reflect.DeepEqual(made.Brf, wantMade.Brf) {
					t.Errorf("%s: %s: binary references %v, expected %v", name, g.NewName, made.Brf, wantMade.Brf)
				}
				lists += len(made.Graph)
				for _, segments := range made.Brf {
					blobs += len(segments)
				}
			}
		}
	}
	t.Log(lists, "lists,", blobs, "segments with binaries")
	if lists == 0 || blobs == 0 {
		t.Error("nothing was made")
	}
}
