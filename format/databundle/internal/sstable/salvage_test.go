package sstable

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// salvaged returns all rows and problems.
func salvaged(t testing.TB, st store.Store) (rows []kv, found []Problem) {
	t.Helper()
	rows, err := collect(Salvage(t.Context(), st, "index", Options{}, func(p Problem) { found = append(found, p) }))
	if err != nil {
		t.Fatal(err)
	}
	return rows, found
}

// accounted fails unless got is a part of want, in order, and a problem says that rows
// may be lost if there are any that are not in it.
func accounted(t testing.TB, got, want []kv, found []Problem) (lost int) {
	t.Helper()
	for _, w := range want {
		if len(got) > 0 && got[0] == w {
			got = got[1:]
			continue
		}
		lost++
		if !slices.ContainsFunc(found, func(p Problem) bool { return p.Rows }) {
			t.Fatalf("row %q is lost and nobody says so: %v", w.k, found)
		}
	}
	if len(got) > 0 {
		t.Fatalf("row %q = %.40q was never there", got[0].k, got[0].v)
	}
	return lost
}

func TestSalvagesAllWithoutAManifest(t *testing.T) {
	for _, name := range healthy(t) {
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			want := mustScan(t, mustOpen(t, st, Options{}))
			for _, n := range names(t, st) {
				if strings.Contains(n, "MANIFEST") || strings.Contains(n, "CURRENT") {
					st.Remove(t.Context(), n)
				}
			}
			for _, s := range []store.Store{st, unlisted{st}} {
				got, found := salvaged(t, s)
				same(t, got, want)
				if len(found) > 0 {
					t.Error(found)
				}
			}
		})
	}
}

func TestSalvageKeepsOfEachKeyTheNewest(t *testing.T) {
	st := &storetest.Mem{}
	put := func(num uint64, rows ...memTableRow) {
		b, _, _ := encodeTable(rows, encoding{})
		st.Put("index/"+tableName(num, ".ldb"), b)
	}
	put(9, memTableRow{"a", "old", 3, kindValue}, memTableRow{"b", "old", 4, kindValue}, memTableRow{"d", "kept", 2, kindValue})
	put(7, memTableRow{"a", "new", 5, kindValue}, memTableRow{"b", "", 6, kindDeleted}, memTableRow{"c", "only", 1, kindValue})
	st.Put("index/000011.log", appendRecord(nil, encodeBatch(10, []memTableRow{{"c", "", 0, kindDeleted}, {"e", "log", 0, kindValue}})))
	got, found := salvaged(t, st)
	same(t, got, []kv{{"a", "new"}, {"d", "kept"}, {"e", "log"}})
	if len(found) > 0 {
		t.Error(found)
	}
}

// smallTables returns a directory of a few tables of small blocks, and its rows.
func smallTables(t testing.TB, o WriterOptions) (*storetest.Mem, []kv) {
	var rows []kv
	for i := range 120 {
		rows = append(rows, kv{string(fileKey(i/30, i)), string(fileValue(i/30, i))})
	}
	return write(t, rows, o), rows
}

func TestSalvageSaysWhichRowsAFlippedByteCost(t *testing.T) {
	testkit.Serial(t)
	for _, o := range []WriterOptions{{BlockSize: 300, TableSize: 1500}, {BlockSize: 300}} {
		st, want := smallTables(t, o)
		most := 0
		for _, name := range names(t, st) {
			if !strings.HasSuffix(name, ".sst") {
				continue
			}
			sound := st.Get(name)
			for i := range sound {
				b := bytes.Clone(sound)
				b[i] ^= 1 << (i % 8)
				st.Put(name, b)
				got, found := salvaged(t, st)
				if lost := accounted(t, got, want, found); lost > most {
					most = lost
				}
				if len(found) == 0 && i < len(b)-footerLen && len(got) != len(want) {
					t.Errorf("%s: a flip at %d is not noticed", name, i)
				}
			}
			st.Put(name, sound)
		}
		if most == 0 || most > 20 {
			t.Errorf("a byte costs up to %d rows, expected those of one block", most)
		}
	}
}

func TestSalvagesATableWithoutItsIndex(t *testing.T) {
	testkit.Serial(t)
	for _, o := range []WriterOptions{{}, {BlockSize: 200 << 10}} {
		st := &storetest.Mem{}
		writeFiles(t, NewWriter(st, "index", o), 20_000)
		want := mustScan(t, mustOpen(t, st, Options{}))
		b := st.Get("index/000004.sst")
		foot, _ := parseFooter(b[len(b)-footerLen:], int64(len(b)))

		// Footer and index cut off; then within the last block; then the index
		// overwritten.
		noIndex := bytes.Clone(b)
		clear(noIndex[foot.index.off:])
		for i, c := range [][]byte{b[:len(b)-footerLen], b[:foot.index.off], b[:foot.meta.off-100], noIndex} {
			st.Put("index/000004.sst", c)
			got, found := salvaged(t, st)
			lost := accounted(t, got, want, found)
			if cut := i == 2; (lost > 0) != cut {
				t.Errorf("%+v: case %d: %d rows lost", o, i, lost)
			}
			if len(found) == 0 {
				t.Errorf("%+v: case %d: no problem", o, i)
			}
		}

		// No index, and holes.
		c := bytes.Clone(b[:foot.meta.off])
		n := len(c)
		clear(c[n/4:][:50])
		copy(c[n/2:n*3/4], bytes.Repeat([]byte("noise"), n))
		st.Put("index/000004.sst", c)
		got, found := salvaged(t, st)
		lost := accounted(t, got, want, found)
		if lost == 0 || o.BlockSize == 0 && lost > 6000 {
			t.Errorf("%+v: %d rows lost of %d", o, lost, len(want))
		}
	}
}

func TestFindsABlockInNoise(t *testing.T) {
	r := testkit.Rand(t)
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for n := range 20 {
		rows, value := make([]memTableRow, 1+r.IntN(50)), "v"
		for i := range rows {
			if n%2 == 0 {
				value = string(noise(200)) // makes a block that is not compressed
			}
			rows[i] = memTableRow{fmt.Sprintf("key %03d", i), value, 1, kindValue}
		}
		w := blockBuilder{interval: restartInterval}
		for _, row := range rows {
			w.add(row.internal(), []byte(row.val))
		}
		before := noise(r.IntN(5000))
		b := appendBlock(bytes.Clone(before), w.finish())
		if n := blockLength(b[len(before):]); n != len(b)-len(before) {
			t.Errorf("the block has %d bytes, %d are found", len(b)-len(before), n)
		}
		b = append(b, noise(r.IntN(1000))...)
		if at := findBlock(b); at != len(before) {
			t.Errorf("the block is at %d, found at %d", len(before), at)
		}
	}
	if at := findBlock(noise(100_000)); at >= 0 {
		t.Errorf("a block is found in noise at %d", at)
	}
}

func TestMultiplicationIsThatOfTheChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const x = 1 << 30
	for range 1000 {
		a, b, c := r.Uint32(), r.Uint32(), r.Uint32()
		if multiply(a, b) != multiply(b, a) || multiply(a, multiply(b, c)) != multiply(multiply(a, b), c) ||
			multiply(a, b^c) != multiply(a, b)^multiply(a, c) || multiply(a, 1<<31) != a || divideByX(multiply(a, x)) != a {
			t.Fatalf("%x %x %x", a, b, c)
		}
	}
	// A zero byte multiplies the register by x^8.
	reg := ^crc32.Update(^uint32(0x12345678), castagnoli, []byte{0})
	if got := multiply(0x12345678, 1<<23); got != reg {
		t.Errorf("%x, expected %x", got, reg)
	}
}
