package sstable

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

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
	r := seeded(t)
	for _, n := range []int{0, 1, 500, 30_000} {
		want := map[string]string{}
		open := 0
		s := NewSorter(SorterOptions{Memory: 1, Scratch: scratch(t, &open)})
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
			add(randomKey(r)+fmt.Sprint(r.IntN(1000)), randomValue(r))
			if i == 400 {
				add("large", strings.Repeat("x", 5<<20))
				add("large too", strings.Repeat("y", 3<<20))
			}
		}
		got, err := collect(s.Sorted())
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, sorted(want))
		if n == 30_000 && len(s.runs) < 5 {
			t.Errorf("%d runs, expected several", len(s.runs))
		}
		if got, err = collect(s.Sorted()); err != nil {
			t.Fatal(err)
		}
		same(t, got, sorted(want))
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
			s := NewSorter(SorterOptions{Memory: 1, Scratch: scratch(t, &open), Duplicate: report})
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
		s := NewSorter(SorterOptions{Memory: 1, Scratch: func() (Scratch, error) {
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
	if testing.Short() {
		t.Skip("many rows")
	}
	open := 0
	s := NewSorter(SorterOptions{Memory: 8 << 20, Scratch: scratch(t, &open)})
	defer s.Close()
	var most uint64
	look := func() {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	look()
	base := most
	const n = 400_000
	for i := range n {
		if err := s.Add(fileKey(i*7919%n/1000, i*7919%n%1000), fileValue(i, i)); err != nil {
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
