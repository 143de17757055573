package tarfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A whole is an intact tar and its contents.
type whole struct {
	b        []byte
	segments map[ID][]byte
	entries  []Entry
	graph    map[string][]string
	binaries map[string]map[string][]longText
	layout   Layout
}

func newWhole(t testing.TB) whole {
	t.Helper()
	b, segments := small(t, testkit.Rand(t))
	return describe(t, b, segments)
}

func describe(t testing.TB, b []byte, segments map[ID][]byte) whole {
	t.Helper()
	x := mustOpen(t, b)
	w := whole{b: b, segments: segments, entries: entries(x.Index())}
	g, err := x.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.graph, w.binaries = graphOf(g), binariesOf(r)
	if w.layout, err = x.Layout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := problemsOf(t, x); len(p) > 0 {
		t.Fatal(p)
	}
	return w
}

// at returns the entry whose header, data or padding is at off.
func (w whole) at(off int) (e Entry, ok bool) {
	for _, e := range w.entries {
		if int64(off) >= e.Pos-BlockSize && int64(off) < e.end() {
			return e, true
		}
	}
	return Entry{}, false
}

// holds fails if a scan returned something that was not written.
func (w whole) holds(t *testing.T, found []Found) {
	t.Helper()
	for _, f := range found {
		want, ok := w.segments[f.ID]
		if f.Doubt&DoubtID != 0 {
			ok = false
			for _, data := range w.segments {
				if bytes.Equal(data, f.Data) {
					want, ok = data, true
				}
			}
		}
		if !ok || !bytes.Equal(f.Data, want) || f.Len != len(want) || f.DataPos != f.HeaderPos+BlockSize || f.CRC != checksum(f.Data) {
			t.Errorf("found %s at %d of %d bytes, doubt %d: not what was written", f.ID, f.HeaderPos, f.Len, f.Doubt)
		}
	}
}

func TestNoFlippedByteGoesUnnoticed(t *testing.T) {
	w := newWhole(t)
	doubtful := map[int64]bool{} // places within headers
	for i := range w.b {
		e, inEntry := w.at(i)
		if plain := isZero(w.b[max(0, i-2):min(len(w.b), i+3)]) || int64(i) > e.Pos+refsAt && int64(i) < e.Pos+int64(e.Len)-4; (plain || raced) && i%13 != 0 {
			continue // zeros, or records
		}
		for _, mask := range []byte{1 << (i % 8), w.b[i] ^ '1', 0xff} {
			if mask == 0 {
				continue
			}
			b := bytes.Clone(w.b)
			b[i] ^= mask
			x, err := open(t, b)
			if _, ok := errors.AsType[*NoIndex](err); err != nil && !ok {
				t.Fatalf("byte %d: %v", i, err)
			}
			if err == nil {
				w.agrees(t, i, x)
			}
			found, problems := scanAll(t, b)
			w.holds(t, found)
			lost := len(w.segments) - len(found)
			switch {
			case !inEntry && lost > 0:
				t.Errorf("byte %d: %d segments lost, none was damaged", i, lost)
			case inEntry && lost > 0 && (int64(i) < e.Pos || int64(i) >= e.Pos+int64(e.Len)):
				t.Errorf("byte %d, ^%02x: %d segments lost, only header or padding of %s was damaged: %v", i, mask, lost, e.ID, problems)
			case lost > 1:
				t.Errorf("byte %d: %d segments lost, one was damaged", i, lost)
			case inEntry && len(problems) == 0:
				t.Errorf("byte %d: not noticed by the scan", i)
			}
			for _, f := range found {
				if f.Doubt&DoubtID != 0 {
					doubtful[int64(i)-f.HeaderPos] = true
				} else if f.Doubt != 0 && lost == 0 {
					t.Errorf("byte %d: doubt %d though none was lost", i, f.Doubt)
				}
			}
		}
	}
	for off := range doubtful {
		if inID := off < idText; !inID && (off < mtimeAt || off >= typeAt) {
			t.Errorf("byte %d of a header cannot have been in the id", off)
		}
	}
	if len(doubtful) < 32 && !raced {
		t.Errorf("doubt for %d bytes of headers, expected it for each digit of an id", len(doubtful))
	}
}

// agrees fails if a tar with a changed byte has another index, graph or binary references, or if
// no problem is reported for it.
func (w whole) agrees(t *testing.T, i int, x *Tar) {
	t.Helper()
	if !slices.Equal(entries(x.Index()), w.entries) {
		t.Errorf("byte %d: another index", i)
	}
	g, err := x.Graph(t.Context())
	if err == nil && !reflect.DeepEqual(graphOf(g), w.graph) || err != nil && !IsDamage(err) {
		t.Errorf("byte %d: graph: %v", i, err)
	}
	graphGone := err != nil
	r, err := x.Binaries(t.Context())
	if err == nil && !reflect.DeepEqual(binariesOf(r), w.binaries) || err != nil && !IsDamage(err) {
		t.Errorf("byte %d: binaries: %v", i, err)
	}
	if sizeField := w.layout.Index.Off - 8; err != nil && graphGone && (int64(i) < sizeField || int64(i) >= sizeField+8) {
		t.Errorf("byte %d: graph and binaries are lost", i)
	}
	problems := problemsOf(t, x)
	if len(problems) == 0 {
		t.Errorf("byte %d: not noticed by the checks", i)
	}
	for _, p := range problems {
		if p.Class == 0 || p.What == "" || p.Off < 0 || p.Len < 0 || p.Off+p.Len > x.Size() {
			t.Errorf("byte %d: %+v", i, p)
		}
	}
}

func TestTruncatedTarsKeepTheSegmentsThatAreWhole(t *testing.T) {
	w := newWhole(t)
	for n := range len(w.b) {
		if n%BlockSize != 0 && n%97 != 0 {
			continue
		}
		b := w.b[:n]
		x, err := open(t, b)
		none, ok := errors.AsType[*NoIndex](err)
		if !ok {
			t.Fatalf("%d bytes: %v, %v", n, x, err)
		}
		if short := n%BlockSize != 0; short != (none.Reason == LengthNotBlocks) {
			t.Errorf("%d bytes: %d", n, none.Reason)
		}
		found, problems := scanAll(t, b)
		w.holds(t, found)
		whole := 0
		for _, e := range w.entries {
			if e.Pos+int64(e.Len) <= int64(n) {
				whole++
			}
			if e.Pos < int64(n) && e.Pos+int64(e.Len) > int64(n) && (len(problems) != 1 || problems[0].Class != Truncated || problems[0].Segment != e.ID || problems[0].Off != e.Pos-BlockSize) {
				t.Errorf("%d bytes: %v, expected that %s is truncated", n, problems, e.ID)
			}
		}
		if len(found) != whole {
			t.Errorf("%d bytes: %d segments, expected %d", n, len(found), whole)
		}
	}
}

// lose returns b without n bytes at off.
func lose(b []byte, off, n int) []byte {
	return slices.Concat(b[:off], b[off+n:])
}

func fill(b []byte, off, n int, with byte) []byte {
	b = bytes.Clone(b)
	for i := range n {
		b[off+i] = with + byte(i)*(with&1)
	}
	return b
}

func TestScanFindsItsWayBehindDamage(t *testing.T) {
	r := testkit.Rand(t)
	w := newWhole(t)
	third, fourth := w.entries[2], w.entries[3]
	header := int(third.Pos) - BlockSize
	noise := randomSegment(r, ID{}, Generation{}, 5*BlockSize)
	for name, c := range map[string]struct {
		b     []byte
		lost  []ID // segments that cannot be had
		class Class
		off   int
		place bool // there is doubt about what follows
	}{
		"header overwritten":         {fill(w.b, header, BlockSize, 7), []ID{third.ID}, BadHeader, header, true},
		"header cleared":             {fill(w.b, header, BlockSize, 0), []ID{third.ID}, Gap, header, true},
		"name cleared":               {fill(w.b, header, nameLen, 0), []ID{third.ID}, BadHeader, header, true},
		"size cleared":               {fill(w.b, header+sizeAt, 12, 0), nil, BadHeader, header, false},
		"size nonsense":              {fill(w.b, header+sizeAt, 12, '7'), nil, BadHeader, header, false},
		"all but the name cleared":   {fill(w.b, header+nameText, BlockSize-nameText, 0), nil, BadHeader, header, false},
		"data overwritten":           {fill(w.b, int(third.Pos), third.Len, 3), []ID{third.ID}, BadChecksum, header, false},
		"data and header of next":    {fill(w.b, int(third.Pos), int(fourth.Pos-third.Pos), 3), []ID{third.ID, fourth.ID}, BadChecksum, header, true},
		"a block of data missing":    {lose(w.b, int(w.entries[1].Pos), BlockSize), []ID{w.entries[1].ID}, BadChecksum, int(w.entries[1].Pos) - BlockSize, true},
		"a header missing":           {lose(w.b, header, BlockSize), []ID{third.ID}, BadHeader, header, true},
		"an entry missing":           {lose(w.b, header, int(third.end())-header), []ID{third.ID}, 0, 0, false},
		"noise between":              {slices.Insert(bytes.Clone(w.b), header, noise...), nil, BadHeader, header, true},
		"zeros between":              {slices.Insert(bytes.Clone(w.b), header, make([]byte, 3*BlockSize)...), nil, Gap, header, true},
		"noise behind":               {slices.Concat(w.b, noise), nil, Gap, len(w.b) - trailerLen, false},
		"the tail missing":           {w.b[:w.layout.Segments.Len], nil, 0, 0, false},
		"zeros instead of the tail":  {fill(w.b, int(w.layout.Segments.Len), len(w.b)-int(w.layout.Segments.Len), 0), nil, Gap, int(w.layout.Segments.Len), false},
		"noise instead of the tail":  {slices.Concat(w.b[:w.layout.Segments.Len], noise), nil, BadHeader, int(w.layout.Segments.Len), false},
		"the first half missing":     {w.b[header:], []ID{w.entries[0].ID, w.entries[1].ID}, 0, 0, false},
		"a file of zeros":            {make([]byte, 64*BlockSize), nil, Gap, 0, false},
		"an empty file":              {nil, nil, 0, 0, false},
		"two blocks of zeros":        {make([]byte, trailerLen), nil, 0, 0, false},
		"twice, one after the other": {slices.Concat(w.b, w.b), nil, Gap, len(w.b) - trailerLen, true},
	} {
		t.Run(name, func(t *testing.T) {
			found, problems := scanAll(t, c.b)
			w.holds(t, found)
			have := map[ID]bool{}
			place := false
			for _, f := range found {
				have[f.ID] = true
				place = place || f.Doubt&DoubtPlace != 0
			}
			for _, e := range w.entries {
				want := !slices.Contains(c.lost, e.ID) && !(len(found) == 0 && isZero(c.b))
				for _, f := range found {
					if f.Doubt&DoubtID != 0 && f.Len == e.Len {
						have[e.ID] = true
					}
				}
				if have[e.ID] != want {
					t.Errorf("%s: found: %v, expected %v", e.ID, have[e.ID], want)
				}
			}
			if place != c.place {
				t.Errorf("doubt about places: %v, expected %v", place, c.place)
			}
			if c.class == 0 && len(problems) > 0 || c.class != 0 && !slices.ContainsFunc(problems, func(p Problem) bool { return p.Class == c.class && p.Off == int64(c.off) }) {
				t.Errorf("%v, expected %d at %d", problems, c.class, c.off)
			}
			if c.class == BadChecksum && !slices.ContainsFunc(problems, func(p Problem) bool { return p.HasSegment && p.Segment == c.lost[0] }) {
				t.Errorf("%v, expected that %s is named", problems, c.lost[0])
			}
		})
	}
}

func TestEachSegmentThatIsLostIsTold(t *testing.T) {
	w := newWhole(t)
	b := bytes.Clone(w.b)
	for _, e := range w.entries[1:3] { // neighbours: neither header nor data is sound
		b[e.Pos-BlockSize+modeAt]++
		b[e.Pos]++
	}
	found, problems := scanAll(t, b)
	w.holds(t, found)
	if len(found) != len(w.entries)-2 || len(problems) != 2 {
		t.Fatalf("%d found, %v", len(found), problems)
	}
	for i, p := range problems {
		e := w.entries[i+1]
		if p.Class != BadHeader || p.Segment != e.ID || p.Off != e.Pos-BlockSize || p.Off+p.Len != e.end() {
			t.Errorf("%+v, expected all of %s at %d", p, e.ID, e.Pos-BlockSize)
		}
	}
}

func TestPartsWithDamagedFootersAreNotBelievedToBeSomewhere(t *testing.T) {
	w := newWhole(t)
	b := bytes.Clone(w.b)
	binary.BigEndian.PutUint32(b[w.layout.Index.Off-8:], uint32(w.layout.Graph.Len)+BlockSize) // the size of the graph
	x := mustOpen(t, b)
	var classes []Class
	l, err := x.CheckLayout(t.Context(), func(p Problem) { classes = append(classes, p.Class) })
	if err != nil {
		t.Fatal(err)
	}
	want := Layout{Segments: Span{0, w.layout.Index.Off}, Index: w.layout.Index, Trailer: w.layout.Trailer}
	if l != want || !slices.Equal(classes, []Class{BadGraph, BadBinaries, Gap}) {
		t.Errorf("%+v, expected %+v: %v", l, want, classes)
	}
}

// TestScanOfNothingButHeadersEnds scans what makes the most work: each block seems to
// be the header of a segment as long as can be, which it is not.
func TestScanOfNothingButHeadersEnds(t *testing.T) {
	r := testkit.Rand(t)
	for name, damage := range map[string]byte{"sound headers": 0, "damaged headers": 1} {
		var b []byte
		for len(b) < 2<<20 {
			h := AppendHeader(nil, entryName(randomID(r, false), 1), MaxSegment, someTime())
			h[300] = damage
			if len(b) > MaxSegment {
				h[checksumAt+checkDigits] = ' ' // none follows where one should
			}
			b = append(b, h...)
		}
		found, problems := scanAll(t, b)
		found = slices.DeleteFunc(found, func(f Found) bool { return f.Mask != 0 }) // by chance, one in 2,000
		limits := 0
		for _, p := range problems {
			if p.Class == Limit {
				limits++
			}
		}
		if len(found) != 0 || limits != 1 {
			t.Errorf("%s: %d found, %d limits", name, len(found), limits)
		}
	}
}

func TestFlippedBitsAreFound(t *testing.T) {
	r := testkit.Rand(t)
	for _, n := range []int{1, 2, 16, 511, 4096, MaxSegment} {
		b := randomSegment(r, ID{}, Generation{}, n)
		crc := checksum(b)
		if _, _, ok := findFlip(b, crc); ok {
			t.Errorf("%d bytes: a flip where there is none", n)
		}
		for range 20 {
			i, mask := r.IntN(n), byte(1)<<r.IntN(8)
			b[i] ^= mask
			off, m, ok := findFlip(b, crc)
			if !ok || off != i || m != mask {
				t.Errorf("%d bytes: %d, %02x, %v, expected %d, %02x", n, off, m, ok, i, mask)
			}
			b[i] ^= mask
		}
	}
}
