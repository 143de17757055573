package kept

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// tableIn returns the head of the table of an index, and where that begins.
func tableIn(t testing.TB, b []byte) (h tableHead, at int) {
	t.Helper()
	end := len(b) - footerLen - tableEndLen
	at = end - int(binary.LittleEndian.Uint32(b[end:]))
	if err := json.Unmarshal(b[at:end], &h); err != nil {
		t.Fatal(err)
	}
	return h, at
}

// forged is an index whose table was changed by an attacker who knows how it is checked.
func forged(t testing.TB, b []byte, change func(h *tableHead, flat []byte)) []byte {
	t.Helper()
	b = slices.Clone(b)
	h, at := tableIn(t, b)
	start, checks := h.Start, h.Sections.Checks
	change(&h, b[start:checks.Off])
	sums := b[checks.Off:][:0]
	for k := start; k < checks.Off; k += tableBlock {
		sums = binary.LittleEndian.AppendUint32(sums, crc32.ChecksumIEEE(b[k:][:tableBlock]))
	}
	h.Sum = crc32.ChecksumIEEE(sums)
	head, err := appendTableHead(h)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(b[:at], head, b[len(b)-footerLen:])
}

// answers are what an index says of names, and of some that are not there.
func answers(t testing.TB, x *Index, names []string) (all []any) {
	t.Helper()
	for _, name := range names {
		e, err := x.Lookup(t.Context(), name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%q: %v", name, err)
		}
		xs := extents(x, e)
		e.Ref = nil
		all = append(all, e, fmt.Sprint(err), xs)
	}
	return all
}

// small is an index of rows of all kinds, with names that are there and that are not.
func small(t testing.TB, rows int) (b []byte, names []string) {
	t.Helper()
	entries, xs := anyEntries(rand.New(rand.NewPCG(5, 6)), rows)
	l := &listed{format.NewIndex(format.Entries(entries)), xs}
	b, _ = build(t, l, Head{Format: "list"}, Options{})
	for e, err := range l.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault == nil {
			names = append(names, e.Name)
		}
	}
	return b, append(names, ".", "a", "b", "a/b", "c/", "nothing", "")
}

// TestADamagedTableIsHarmless damages each byte of a table, of its head and of what leads
// there: all answers stay the same.
func TestADamagedTableIsHarmless(t *testing.T) {
	testkit.Long(t)
	good, names := small(t, 30)
	h, head := tableIn(t, good)
	want := answers(t, opened(t, good), names)
	noticed, all := 0, 0
	damage := func(i int, mask byte) {
		bad := slices.Clone(good)
		bad[i] ^= mask
		x, err := openBytes(t.Context(), bad, true)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		if got := answers(t, x, names); !reflect.DeepEqual(got, want) {
			t.Fatalf("byte %d: other answers", i)
		}
		if all++; x.table == nil || x.table.lost.Load() {
			noticed++
		}
	}
	for i := int(h.Start); i < int(h.Sections.Checks.Off+h.Sections.Checks.Len); i++ {
		if good[i] != 0 || i%61 == 0 {
			damage(i, 0x41)
		}
	}
	for i := head; i < len(good)-footerLen; i++ {
		damage(i, 0x01)
		damage(i, 0x10)
	}
	// Nothing here reads the extents of a table.
	if noticed < all*3/4 {
		t.Errorf("%d damages of %d were noticed", noticed, all)
	}
}

func TestAForgedTableLeadsNowhere(t *testing.T) {
	testkit.Serial(t)
	good, names := small(t, 60)
	want := answers(t, opened(t, good), names)
	set32 := func(of func(*tableHead) section, k int64, v uint32) func(*tableHead, []byte) {
		return func(h *tableHead, flat []byte) {
			s := of(h)
			for at := s.Off - h.Start + 4*k; at < s.Off-h.Start+s.Len; at += 4 * max(k, 2) {
				binary.LittleEndian.PutUint32(flat[at:], v)
			}
		}
	}
	slots := func(h *tableHead) section { return h.Sections.Slots }
	hashes := func(h *tableHead) section { return h.Sections.Hashes }
	places := func(h *tableHead) section { return h.Sections.Places }
	groups := func(h *tableHead) section { return h.Sections.Groups }
	sums := func(h *tableHead) section { return h.Sections.Sums }
	runs := func(h *tableHead) section { return h.Sections.Runs }
	for what, change := range map[string]func(h *tableHead, flat []byte){
		"slots that lead behind":  set32(slots, 1, 1<<31),
		"slots that lead back":    set32(slots, 0, 7),
		"rows that are none":      set32(hashes, 1, 1<<30),
		"hows that are none":      set32(places, 1, 0xffff<<16),
		"groups that lead behind": set32(groups, 0, 1<<31),
		"groups far behind":       set32(groups, 1, 1<<31),
		"names of all bits":       func(h *tableHead, flat []byte) { fill(flat, h.Sections.Names, h.Start, 0xff) },
		"names of endless length": func(h *tableHead, flat []byte) { fill(flat, h.Sections.Names, h.Start, 0x7f) },
		"another format":          func(h *tableHead, _ []byte) { h.Format = "other" },
		"another view":            func(h *tableHead, _ []byte) { h.View = "other" },
		"other volumes": func(h *tableHead, _ []byte) {
			h.Volumes = append(h.Volumes, Volume{Name: "/etc/passwd", External: true})
		},
		"other digests":         func(h *tableHead, _ []byte) { h.Digests = append(h.Digests, digestKind{"x", 300}) },
		"too many digests":      func(h *tableHead, _ []byte) { h.Digests = make([]digestKind, maxSums+1) },
		"a digest that is none": func(h *tableHead, _ []byte) { eachHow(h, func(w *how) { w.digest = 1 << 30 }) },
		"pages in the table":    func(h *tableHead, _ []byte) { h.Pages = h.Start },
		"pages behind":          func(h *tableHead, _ []byte) { h.Pages = 1 << 62 },
		"no runs":               func(h *tableHead, _ []byte) { h.Sections.Runs = section{} },
		"half a run":            func(h *tableHead, _ []byte) { h.Sections.Runs.Len -= runLen / 2 },
		"runs that lead behind": set32(runs, 3, 1<<31),
		"runs of great length":  set32(runs, 1, 1<<30),
		"runs far behind":       set32(runs, 1, 1<<31),
		"sums that lead behind": set32(sums, 1, 1<<31),
		"a few times":           func(h *tableHead, _ []byte) { h.Sections.Times.Len -= 4 },
		"few that are stored":   func(h *tableHead, _ []byte) { h.Sections.Stored.Len -= 4 },
		"more rows":             func(h *tableHead, _ []byte) { h.Rows++ },
		"fewer rows":            func(h *tableHead, _ []byte) { h.Rows-- },
		"negative rows":         func(h *tableHead, _ []byte) { h.Rows = -1 },
		"more bits":             func(h *tableHead, _ []byte) { h.Bits++ },
		"negative bits":         func(h *tableHead, _ []byte) { h.Bits = -1 },
		"bits without end":      func(h *tableHead, _ []byte) { h.Bits = 1 << 30 },
		"a start behind":        func(h *tableHead, _ []byte) { h.Start += tableBlock },
		"a negative start":      func(h *tableHead, _ []byte) { h.Start = -tableBlock },
		"a volume that is none": func(h *tableHead, _ []byte) { eachHow(h, func(w *how) { w.volume = 1 << 30 }) },
		"a negative volume":     func(h *tableHead, _ []byte) { eachHow(h, func(w *how) { w.volume = -1 }) },
		"a codec that is none":  func(h *tableHead, _ []byte) { eachHow(h, func(w *how) { w.codec = 1 << 30 }) },
		"a negative codec":      func(h *tableHead, _ []byte) { eachHow(h, func(w *how) { w.codec = -2 }) },
		"no hows":               func(h *tableHead, _ []byte) { h.How = nil },
		"too many hows":         func(h *tableHead, _ []byte) { h.How = make([]how, maxHows+1) },
		"a section behind":      func(h *tableHead, _ []byte) { h.Sections.Names.Off = 1 << 62 },
		"a section before":      func(h *tableHead, _ []byte) { h.Sections.Names.Off = 0 },
		"a negative section":    func(h *tableHead, _ []byte) { h.Sections.Names.Off = -tableBlock },
		"a long section":        func(h *tableHead, _ []byte) { h.Sections.Names.Len = 1<<63 - 1 },
		"a negative length":     func(h *tableHead, _ []byte) { h.Sections.Names.Len = -1 },
		"a crooked section":     func(h *tableHead, _ []byte) { h.Sections.Names.Off++ },
		"checks without end":    func(h *tableHead, _ []byte) { h.Sections.Checks.Len = 1<<63 - 1 },
		"checks before":         func(h *tableHead, _ []byte) { h.Sections.Checks.Off = 0 },
		"checks behind":         func(h *tableHead, _ []byte) { h.Sections.Checks.Off = 1<<63 - 1 },
	} {
		bad := forged(t, good, change)
		for _, open := range []func(testing.TB, []byte) *Index{openedNear, openedFile} {
			x := open(t, bad)
			if got := answers(t, x, names); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: other answers", what)
			}
			if x.table != nil && !x.table.lost.Load() {
				t.Errorf("%s: nobody noticed", what)
			}
		}
	}
	same := forged(t, good, func(*tableHead, []byte) {})
	if !bytes.Equal(same, good) {
		t.Error("a table of which nothing is changed is another")
	}
}

func fill(flat []byte, s section, start int64, with byte) {
	for i := range s.Len {
		flat[s.Off-start+i] = with
	}
}

func eachHow(h *tableHead, do func(*how)) {
	for i := range h.How {
		h.How[i].placed = true
		do(&h.How[i])
	}
}

// An unwatched object is a file whose changes are not noticed.
type unwatched struct {
	store.Object
	f *os.File
}

func (u unwatched) Can() store.ObjectAbilities {
	return store.ObjectAbilities{File: func(context.Context) (*os.File, error) { return u.f, nil }}
}

// TestAnIndexThatIsCutIsAnError has a file cut that is mapped: reading it is a fault that
// would end the program.
func TestAnIndexThatIsCutIsAnError(t *testing.T) {
	b, names := small(t, 60)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.holdall")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	obj, err := local.New(dir).Open(t.Context(), "x.holdall")
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), unwatched{obj, f}, path, "dir/x", 1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	answers(t, x, names)
	if x.table == nil || x.table.mapped == nil {
		if runtime.GOOS == "linux" {
			t.Fatal("the table is not mapped")
		}
		t.Skip("nothing is mapped here")
	}
	if err := f.Truncate(tableBlock); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := x.Lookup(t.Context(), names[0]); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%v, expected that it changed", err)
		} else {
			typed(t, err)
		}
	}
}

// TestLookupsMayRunInParallel, and the index be closed meanwhile: then reads fail, and none
// is of memory that is not the table's any more.
func TestLookupsMayRunInParallel(t *testing.T) {
	b, names := small(t, 300)
	want := answers(t, opened(t, b), names)
	x := openedFile(t, b)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i, name := range names {
				e, err := x.Lookup(context.Background(), name)
				if e.Ref = nil; err == nil && !reflect.DeepEqual(any(e), want[3*i]) {
					t.Errorf("%q: %+v", name, e)
				}
				if i == len(names)/2 {
					x.Close()
				}
			}
		})
	}
	all.Wait()
}

// TestManyNamesOfOneHashAreFound has names that were made to collide: they differ by a multiple
// of the polynomial of CRC-32.
func TestManyNamesOfOneHashAreFound(t *testing.T) {
	testkit.Serial(t)
	var entries []format.Entry
	for i := range 1 << 10 {
		name := bytes.Repeat([]byte("x"), 50)
		for bit := range 10 {
			if i>>bit&1 != 0 {
				for k, c := range []byte{0x41, 0x06, 0x71, 0xdb, 0x01} {
					name[5*bit+k] ^= c
				}
			}
		}
		entries = append(entries, format.Entry{Name: string(name), Size: int64(i)})
	}
	l := &listed{format.NewIndex(format.Entries(entries)), nil}
	for _, n := range []int{maxSame, len(entries)} {
		l.Index = format.NewIndex(format.Entries(entries[:n]))
		b, _ := build(t, l, Head{Format: "list"}, Options{})
		x := openedNear(t, b)
		h, _ := tableIn(t, b)
		if s := h.Sections.Hashes; !bytes.Equal(b[s.Off:][:4], b[s.Off+s.Len-hashLen:][:4]) {
			t.Fatal("names of several hashes")
		}
		for _, e := range entries {
			got, err := x.Lookup(t.Context(), e.Name)
			if there := int(e.Size) < n; there != (err == nil) || there && got.Size != e.Size {
				t.Fatalf("%q of %d: %+v, %v", e.Name, n, got, err)
			}
		}
		if x.table == nil || x.table.lost.Load() {
			t.Error("the table is not used any more")
		}
	}
}

// TestHashesAreSortedOnScratch has more of them than are sorted in memory.
func TestHashesAreSortedOnScratch(t *testing.T) {
	testkit.Long(t)
	rnd := testkit.Rand(t)
	h := &hashes{scratch: sorter.TempFile}
	var want []uint64
	for row := range uint64(2*hashRun + 12_345) {
		v := rnd.Uint64()>>(32+rnd.IntN(3)*10)<<32 | row
		want = append(want, v)
		if err := h.add(v); err != nil {
			t.Fatal(err)
		}
	}
	defer h.disk.Close()
	slices.Sort(want)
	for range 2 {
		var got []uint64
		for v, err := range h.sorted() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d numbers, expected %d in order", len(got), len(want))
		}
	}
}

// FuzzTable tests what checksums hide from FuzzOpen: the head of a table and its bytes. The
// patches are offsets and values of those bytes.
func FuzzTable(f *testing.F) {
	good, names := small(f, 40)
	h, at := tableIn(f, good)
	head := good[at : len(good)-footerLen-tableEndLen]
	f.Add([]byte(nil), head)
	for _, s := range []section{h.Sections.Slots, h.Sections.Hashes, h.Sections.Places, h.Sections.Groups, h.Sections.Names, h.Sections.Longs, h.Sections.Sums, h.Sections.Runs, h.Sections.Times} {
		var patches []byte
		for i := range min(s.Len, 40) {
			patches = append(binary.LittleEndian.AppendUint16(patches, uint16(s.Off-h.Start+i)), byte(i))
		}
		f.Add(patches, head)
	}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	f.Fuzz(func(t *testing.T, patches, head []byte) {
		b := forged(t, good, func(h *tableHead, flat []byte) {
			for ; len(patches) >= 3; patches = patches[3:] {
				flat[int(binary.LittleEndian.Uint16(patches))%len(flat)] = patches[2]
			}
			if json.Unmarshal(head, h) == nil {
				h.Start = tableBlock
			}
		})
		x, err := openBytes(t.Context(), b, true)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		for name := range want {
			e, err := x.Lookup(t.Context(), name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Name != name || e.Size < 0 {
				t.Fatalf("%q is %+v", name, e)
			}
			for v, err := range x.Extents(t.Context(), e, 0, e.Size) {
				if _, bad := errors.AsType[*Error](err); err != nil && !bad && !errors.Is(err, ErrElsewhere) {
					t.Fatal(err)
				}
				if err == nil && min(v.Off, v.Len, v.Size, v.At) < 0 {
					t.Fatalf("%+v", v)
				}
			}
		}
	})
}
