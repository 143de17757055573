package sorter

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// scratch gives temporary room in files, and counts how many are open.
func scratch(t testing.TB, open *int) func() (Scratch, error) {
	return func() (Scratch, error) {
		f, err := os.CreateTemp(t.TempDir(), "scratch")
		*open++
		return closing{f, open}, err
	}
}

type closing struct {
	*os.File
	open *int
}

func (c closing) Close() error {
	*c.open--
	return c.File.Close()
}

func TestSorterGivesRowsInOrder(t *testing.T) {
	const seed = 5
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int{0, 1, 500, 30_000} {
		want := map[string]string{}
		open := 0
		s := New(Options{Memory: 1, Scratch: scratch(t, &open)})
		add := func(k, v string) {
			if _, ok := want[k]; ok {
				return
			}
			want[k] = v
			if err := s.Add([]byte(k), []byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			add(randomKey(r), randomValue(r))
			if i == 400 {
				add("large", strings.Repeat("x", 5<<20))
				add("large too", strings.Repeat("y", 3<<20))
			}
		}
		got, err := collect(s.Sorted())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		if n == 30_000 && len(s.runs) < 5 {
			t.Errorf("%d runs, expected several", len(s.runs))
		}
		if got, err = collect(s.Sorted()); err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		if err := s.Add(nil, nil); err == nil {
			t.Error("a row was added behind the last one")
		}
		if err := s.Close(); err != nil || open != 0 {
			t.Errorf("%v, %d scratches are open", err, open)
		}
		if err := s.Add(nil, nil); err == nil {
			t.Error("a row was added after Close")
		}
	}
}

func TestSorterFindsDuplicates(t *testing.T) {
	for _, n := range []int{100, 60_000} { // in one run, and in different ones
		var met []string
		for _, report := range []func([]byte) error{nil, func(k []byte) error {
			met = append(met, string(k))
			return nil
		}} {
			open := 0
			s := New(Options{Memory: 1, Scratch: scratch(t, &open), Duplicate: report})
			for i := range n {
				s.Add(fmt.Appendf(nil, "key %d", i), []byte("first"))
			}
			s.Add([]byte("key 50"), []byte("second"))
			s.Add([]byte("key 50"), []byte("third"))
			rows, err := collect(s.Sorted())
			if report == nil {
				if err == nil || !strings.Contains(err.Error(), `"key 50"`) {
					t.Errorf("error is %v", err)
				}
			} else if err != nil || len(rows) != n || !slices.Contains(rows, kv{"key 50", "third"}) {
				t.Errorf("%v, %d rows", err, len(rows))
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(met, []string{"key 50", "key 50"}) {
			t.Errorf("reported: %q", met)
		}
	}
}

// breaking is room that fails after some bytes, or gives back others.
type breaking struct {
	Scratch
	left int
	lie  bool
}

var errFull = errors.New("no space left")

func (b *breaking) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errFull
	}
	return b.Scratch.Write(p)
}

func (b *breaking) Read(p []byte) (int, error) {
	n, err := b.Scratch.Read(p)
	if b.lie {
		for i := range p[:n] {
			p[i] = 0xff
		}
	}
	return n, err
}

func TestSorterTellsOfScratchThatFails(t *testing.T) {
	for _, lie := range []bool{false, true} {
		open := 0
		room := scratch(t, &open)
		s := New(Options{Memory: 1, Scratch: func() (Scratch, error) {
			f, err := room()
			b := &breaking{f, 2 << 20, lie}
			if lie {
				b.left = 1 << 30
			}
			return b, err
		}})
		var err error
		for i := 0; i < 300_000 && err == nil; i++ {
			err = s.Add(fmt.Appendf(nil, "%d", i*7919%300_000), []byte("some value"))
		}
		if err == nil {
			_, err = collect(s.Sorted())
		}
		if err == nil || !lie && !errors.Is(err, errFull) {
			t.Errorf("error is %v", err)
		}
		s.Close()
		if open != 0 {
			t.Error("scratch is left open")
		}
	}
}

func TestSorterKeepsToItsMemory(t *testing.T) {
	testkit.Long(t)
	open := 0
	s := New(Options{Memory: 8 << 20, Scratch: scratch(t, &open)})
	defer s.Close()
	var most uint64
	look := func() { most = max(most, testkit.Live()) }
	look()
	base := most
	const n = 400_000
	for i := range n {
		if err := s.Add(benchKey(i*7919%n), []byte("some twenty bytes of")); err != nil {
			t.Fatal(err)
		}
		if i%50_000 == 0 {
			look()
		}
	}
	rows := 0
	for _, err := range s.Sorted() {
		if err != nil {
			t.Fatal(err)
		}
		if rows++; rows%50_000 == 0 {
			look()
		}
	}
	if rows != n || most-base > 12<<20 {
		t.Errorf("%d rows, %d MiB", rows, (most-base)>>20)
	}
}

type kv struct{ k, v string }

func collect(rows iter.Seq2[Row, error]) (all []kv, err error) {
	for r, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, kv{string(r.Key), string(r.Value)})
	}
	return all, nil
}

// same wants rows to be those of a map, in order.
func same(t *testing.T, got []kv, want map[string]string) {
	t.Helper()
	if !slices.IsSortedFunc(got, func(a, b kv) int { return strings.Compare(a.k, b.k) }) {
		t.Error("rows are not in order")
	}
	found := map[string]string{}
	for _, row := range got {
		found[row.k] = row.v
	}
	if len(got) != len(want) || !maps.Equal(found, want) {
		t.Errorf("%d rows, expected %d, or others", len(got), len(want))
	}
}

func randomKey(r *rand.Rand) string {
	k := make([]byte, r.IntN(12))
	for i := range k {
		k[i] = "ab\x00\xff"[r.IntN(4)]
	}
	return string(k) + fmt.Sprint(r.IntN(1000))
}

func randomValue(r *rand.Rand) string {
	b := make([]byte, []int{0, 8, 500, 20_000}[r.IntN(4)])
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func benchKey(i int) []byte {
	return fmt.Appendf(nil, "\x02data/a folder with a name/%04d/\x00\x00file-%06d.bin", i/1000, i%1000)
}

func BenchmarkSorter(b *testing.B) {
	const rows = 100_000
	for b.Loop() {
		open := 0
		s := New(Options{Scratch: scratch(b, &open)})
		for i := range rows {
			if err := s.Add(benchKey(i*7919%rows), []byte("some twenty bytes of")); err != nil {
				b.Fatal(err)
			}
		}
		n := 0
		for _, err := range s.Sorted() {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != rows {
			b.Fatal(n)
		}
		s.Close()
	}
}

// FuzzSorter sorts rows of any bytes, in memory and through scratch.
func FuzzSorter(f *testing.F) {
	f.Add([]byte("\x01a\x02bc\x00\x00\x03abc\x05value"))
	f.Add([]byte("\x04\x01\x02\x03\x04\x03\xff\xff\xff\x02\xff\xff\x04\x01\x02\x03\x04\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		open := 0
		s := New(Options{Scratch: scratch(t, &open), Duplicate: func([]byte) error { return nil }})
		take := func() []byte {
			n := min(int(b[0]), len(b)-1)
			p := b[1 : 1+n]
			b = b[1+n:]
			return p
		}
		want := map[string]string{}
		for i := 0; len(b) > 0; i++ {
			k, v := take(), []byte(nil)
			if len(b) > 0 {
				v = take()
			}
			want[string(k)] = string(v)
			if err := s.Add(k, v); err != nil {
				t.Fatal(err)
			}
			if i%5 == 4 {
				if err := s.spill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := collect(s.Sorted())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		if err := s.Close(); err != nil || open != 0 {
			t.Errorf("%v, %d scratches are open", err, open)
		}
	})
}
