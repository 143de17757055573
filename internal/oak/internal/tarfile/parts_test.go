package tarfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// parts returns a tar of one segment with these binary references and graph, which
// are without their footers.
func parts(r *rand.Rand, id ID, brf, gph []byte, brfFooter, gphFooter footer) []byte {
	data := randomSegment(r, id, Generation{Gen: 1}, 64, randomID(r, true))
	b := AppendHeader(nil, entryName(id, checksum(data)), 64, someTime())
	b = append(append(b, data...), zeros[:pad(64)]...)
	for _, p := range []struct {
		suffix  string
		content []byte
		f       footer
	}{{".brf", brf, brfFooter}, {".gph", gph, gphFooter}} {
		p.f.crc, p.f.size = checksum(p.content), int32(len(p.content)+footerLen)
		n := int(p.f.size)
		b = AppendHeader(b, "data00000a.tar"+p.suffix, int64(n+pad(n)), someTime())
		b = p.f.append(append(append(b, zeros[:pad(n)]...), p.content...))
	}
	entries := appendEntry(nil, Entry{id, BlockSize, 64, Generation{Gen: 1}})
	index := appendIndex(nil, appendEntry(entries, Entry{bulkOf(id), BlockSize, 64, Generation{}})) // at one place
	b = AppendHeader(b, "data00000a.tar.idx", int64(len(index)), someTime())
	return append(append(b, index...), make([]byte, trailerLen)...)
}

// bulkOf is the id of a bulk segment.
func bulkOf(id ID) ID {
	id[8] = id[8]&15 | 0xb0
	return id
}

func numbers(all ...uint32) (b []byte) {
	for _, v := range all {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func TestOldBinaryReferencesAreRead(t *testing.T) {
	r := testkit.Rand(t)
	a, b := randomID(r, true), randomID(r, true)
	content := slices.Concat(
		numbers(3, 2), a[:], numbers(2, 1), []byte("x"), numbers(0), b[:], numbers(0),
		numbers(5, 1), a[:], numbers(1, 3), []byte("\xff\x00y"))
	tar := parts(r, a, content, nil, footer{count: 2, magic: binariesV1}, footer{magic: graphV1})
	refs, err := mustOpen(t, tar).Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for s := range refs.All() {
		got = append(got, fmt.Sprintf("%s %s %q", s.Generation, s.ID, slices.Collect(s.Refs.All())))
	}
	want := []string{fmt.Sprintf(`3,3,true %s ["x" ""]`, a), fmt.Sprintf(`3,3,true %s []`, b), fmt.Sprintf(`5,5,true %s ["\xff\x00y"]`, a)}
	if !slices.Equal(got, want) || refs.Len() != 3 {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestOfTwoListsOfOneSegmentTheLastCounts(t *testing.T) {
	r := testkit.Rand(t)
	a, b, c := randomID(r, true), randomID(r, true), randomID(r, true)
	content := slices.Concat(
		a[:], numbers(1), b[:],
		b[:], numbers(1), a[:],
		a[:], numbers(2), c[:], b[:])
	tar := parts(r, a, nil, content, footer{magic: binariesV2}, footer{count: 3, magic: graphV1})
	g, err := mustOpen(t, tar).Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if to, ok := g.Targets(a); !ok || !bytes.Equal(to, pack(c, b)) || g.Len() != 2 {
		t.Errorf("%s, %v of %d", texts(to), ok, g.Len())
	}
	if to, ok := g.Targets(c); ok || to != nil {
		t.Error(texts(to))
	}
}

// TestWhatPartsSayIsChecked makes tars whose parts are sound by their checksums.
func TestWhatPartsSayIsChecked(t *testing.T) {
	r := testkit.Rand(t)
	id, other := randomID(r, true), randomID(r, true)
	bulk := bulkOf(id)
	v2 := func(count int32) footer { return footer{count: count, magic: binariesV2} }
	v1 := func(count int32) footer { return footer{count: count, magic: graphV1} }
	for name, c := range map[string]struct {
		brf, gph       func(ID) []byte
		brfFoot, gFoot footer
		class          Class
		what           string
	}{
		"graph of another segment":    {nil, func(ID) []byte { return slices.Concat(other[:], numbers(1), other[:]) }, v2(0), v1(1), BadGraph, "not in the index"},
		"segment that names itself":   {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(1), id[:]) }, v2(0), v1(1), BadGraph, "itself"},
		"two lists":                   {nil, func(id ID) []byte { l := slices.Concat(id[:], numbers(1), other[:]); return slices.Concat(l, l) }, v2(0), v1(2), BadGraph, "duplicate lists"},
		"empty list":                  {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(0)) }, v2(0), v1(1), BadGraph, "at least 38"},
		"more lists than there are":   {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(1), other[:]) }, v2(0), v1(2), BadGraph, "at least"},
		"fewer lists than there are":  {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(1), other[:]) }, v2(0), v1(0), BadGraph, "after the last"},
		"a list too long":             {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(2), other[:]) }, v2(0), v1(1), BadGraph, "targets"},
		"a list of less than nothing": {nil, func(id ID) []byte { return slices.Concat(id[:], numbers(1<<31), other[:]) }, v2(0), v1(1), BadGraph, "targets"},
		"negative count of lists":     {nil, nil, v2(0), v1(-1), BadGraph, "-1 lists"},
		"no graph":                    {nil, nil, v2(0), footer{magic: indexV1}, BadGraph, "magic"},
		"no binaries":                 {nil, nil, footer{magic: indexV1}, v1(0), BadBinaries, "magic"},
		"binaries of another segment": {func(ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(1), other[:], numbers(0))
		}, nil, v2(1), v1(0), BadBinaries, "not in the index"},
		"binaries of a wrong generation": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{1}, numbers(1), id[:], numbers(0))
		}, nil, v2(1), v1(0), BadBinaries, "generation 1,0,true"},
		"binary too long": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(1), id[:], numbers(1, 9), []byte("a"))
		}, nil, v2(1), v1(0), BadBinaries, "reference of 9 bytes"},
		"fewer generations than there are": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(1), id[:], numbers(0))
		}, nil, v2(0), v1(0), BadBinaries, "after the last"},
		"more segments than there are": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(2), id[:], numbers(0))
		}, nil, v2(1), v1(0), BadBinaries, "2 segments"},
		"binaries of less than nothing": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(1), id[:], numbers(1<<31))
		}, nil, v2(1), v1(0), BadBinaries, "references"},
		"list without targets": {nil, func(id ID) []byte {
			return slices.Concat(id[:], numbers(0), other[:], numbers(2), id[:], id[:])
		}, v2(0), v1(2), BadGraph, "without targets"},
		"list of a bulk segment": {nil, func(ID) []byte { return slices.Concat(bulk[:], numbers(1), other[:]) }, v2(0), v1(1), BadGraph, "not a data segment"},
		"generations cut off": {func(id ID) []byte {
			return slices.Concat(numbers(1, 0), []byte{0}, numbers(1), id[:], numbers(1, 5), []byte("abcde1"))
		}, nil, v2(2), v1(0), BadBinaries, "at least"},
		"negative count of generations": {nil, nil, v2(-1), v1(0), BadBinaries, "-1 generations"},
	} {
		var brf, gph []byte
		if c.brf != nil {
			brf = c.brf(id)
		}
		if c.gph != nil {
			gph = c.gph(id)
		}
		p := problemsOf(t, mustOpen(t, parts(r, id, brf, gph, c.brfFoot, c.gFoot)))
		if !slices.ContainsFunc(p, func(p Problem) bool { return p.Class == c.class && strings.Contains(p.What, c.what) }) {
			t.Errorf("%s: %v, expected %d, %q", name, p, c.class, c.what)
		}
	}
}

func TestChecksOfTheIndexFindWhatOakDoesNot(t *testing.T) {
	r := testkit.Rand(t)
	d1, d2, bulk, odd := randomID(r, true), randomID(r, true), randomID(r, false), randomID(r, true)
	odd[8] = 0x80
	sound := func() []Entry {
		return []Entry{{d1, 512, 512, Generation{}}, {bulk, 1536, 100, Generation{}}, {d2, 2560, 32, Generation{Gen: 1, Full: 1, Compacted: true}}}
	}
	const end = 3072
	for name, c := range map[string]struct {
		change func(e []Entry) []Entry
		want   []Class
		off    int64
	}{
		"sound":           {func(e []Entry) []Entry { return e }, nil, 0},
		"gap":             {func(e []Entry) []Entry { return slices.Delete(e, 1, 2) }, []Class{Gap}, 1024},
		"gap at the end":  {func(e []Entry) []Entry { return e[:2] }, []Class{Gap}, 2048},
		"gap at first":    {func(e []Entry) []Entry { return e[1:] }, []Class{Gap}, 0},
		"overlap":         {func(e []Entry) []Entry { e[0].Len = 513; return e }, []Class{Overlap}, 1536},
		"same place":      {func(e []Entry) []Entry { e[1].Pos = 512; return e }, []Class{Overlap, Gap}, 512},
		"in the tail":     {func(e []Entry) []Entry { e[2].Len = 600; return e }, []Class{OutOfBounds, Gap}, 2560},
		"no header":       {func(e []Entry) []Entry { e[0].Pos = 0; return e }, []Class{OutOfBounds, Gap}, 0},
		"bulk generation": {func(e []Entry) []Entry { e[1].Generation.Gen = 1; return e }, []Class{BadIndex}, 1536},
		"generation":      {func(e []Entry) []Entry { e[0].Generation.Full = -1; return e }, []Class{BadIndex}, 512},
		"kind":            {func(e []Entry) []Entry { e[0].ID = odd; return e }, []Class{BadIndex}, 512},
		"length":          {func(e []Entry) []Entry { e[2].Len = 1 << 30; return e }, []Class{OutOfBounds, BadIndex, Gap}, 2560},
	} {
		var b []byte
		for _, e := range c.change(sound()) {
			b = appendEntry(b, e)
		}
		all := appendIndex(nil, b)
		f := parseFooter(all)
		n := int(f.count) * entryV2
		x, none := parseIndex(all[len(all)-footerLen-n:len(all)-footerLen], indexPlace{step: entryV2, count: int(f.count), crc: f.crc})
		if none != nil {
			t.Fatalf("%s: %v", name, none)
		}
		var got []Class
		first := int64(-1)
		x.Check(end, func(p Problem) {
			if got = append(got, p.Class); first < 0 {
				first = p.Off
			}
		})
		if !slices.Equal(got, c.want) || len(got) > 0 && first != c.off {
			t.Errorf("%s: %v from %d, expected %v from %d", name, got, first, c.want, c.off)
		}
	}
}
