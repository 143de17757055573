package tar

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

func unixTime(sec int64, nsec int32) time.Time { return time.Unix(sec, int64(nsec)) }

// memory is an object.
type memory struct{ b []byte }

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if n := copy(p, m.b[min(off, int64(len(m.b))):]); n < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}
func (m memory) Info(context.Context) (store.Info, error) {
	return store.Info{Size: int64(len(m.b))}, nil
}
func (memory) Close() error               { return nil }
func (memory) Can() store.ObjectAbilities { return store.ObjectAbilities{} }

// appendMember appends a file as GNU tar writes it, in a directory that is in no order.
func appendMember(b []byte, i, size int) []byte {
	at := len(b)
	b = append(b, make([]byte, blockSize+(size+blockSize-1)&^(blockSize-1))...)
	h := b[at:]
	copy(h, "objects/")
	name := strconv.AppendInt(h[:8], int64(i*7919%1000), 10)
	name = append(append(name, "/object-"...), strconv.Itoa(i)...)
	copy(name[len(name):cap(name)], ".json")
	copy(h[100:], "0000644\x000001750\x000001750\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", size, 1_600_000_000+i))
	copy(h[148:], "        0")
	copy(h[257:], "ustar  \x00somebody")
	copy(h[297:], "staff")
	sum := 0
	for _, c := range h[:blockSize] {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// manyMembers writes an archive of n members, most of them small.
func manyMembers(t testing.TB, n int) store.Store {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x.tar"))
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for i := range n {
		b = appendMember(b, i, i*31%900)
		if len(b) > 1<<20 || i == n-1 {
			if i == n-1 {
				b = append(b, make([]byte, 2*blockSize)...)
			}
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
			b = b[:0]
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return local.New(dir)
}

// Sequential reading takes as much memory after the last entry as after the first few. Extents
// that are requested meanwhile equal those of a loaded archive.
func TestStreamedEntriesAreNotKept(t *testing.T) {
	testkit.Serial(t)
	const n = 60_000
	st := manyMembers(t, n)
	r, err := open(t.Context(), st, "x.tar", format.OpenOptions{Once: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count, early := 0, uint64(0)
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := r.Can().Run(e); ok != (e.Size > 0) || ok && x.Len != e.Size {
			t.Fatalf("%q: %+v, %v", e.Name, x, ok)
		}
		covered := int64(0)
		for x := range r.Extents(t.Context(), e, 0, e.Size) {
			covered += x.Size
		}
		if covered != e.Size {
			t.Fatalf("%q: extents of %d bytes, it has %d", e.Name, covered, e.Size)
		}
		switch count++; count {
		case n / 10:
			early = testkit.Live()
		case n:
			if late := testkit.Live(); late > early+1<<20 {
				t.Errorf("%d bytes behind %d entries, %d behind %d", early, n/10, late, n)
			}
		}
	}
	if count != n {
		t.Errorf("%d entries, expected %d", count, n)
	}
}

// Streamed or loaded, entries are the same.
func TestStreamedEntriesAreTheLoadedOnes(t *testing.T) {
	st := manyMembers(t, 3000)
	var lists [2][]format.Entry
	for i := range lists {
		r, err := open(t.Context(), st, "x.tar", format.OpenOptions{Once: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			lists[i] = append(lists[i], e)
		}
		if _, err := r.Lookup(t.Context(), lists[i][17].Name); err != nil {
			t.Error(err)
		}
	}
	if !reflect.DeepEqual(lists[0], lists[1]) {
		t.Error("they differ")
	}
}

func BenchmarkOpen(b *testing.B) {
	b.Run("1000000", func(b *testing.B) {
		st := manyMembers(b, 1_000_000)
		for b.Loop() {
			r, err := open(b.Context(), st, "x.tar", format.OpenOptions{})
			if err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
		b.StopTimer()
		before := testkit.Live()
		r, err := open(b.Context(), st, "x.tar", format.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(testkit.Live()-before)/1e6, "held-B/entry")
		r.Close()
	})
}

func BenchmarkOnce(b *testing.B) {
	b.Run("1000000", func(b *testing.B) {
		st := manyMembers(b, 1_000_000)
		for b.Loop() {
			r, err := open(b.Context(), st, "x.tar", format.OpenOptions{Once: true})
			if err != nil {
				b.Fatal(err)
			}
			for _, err := range r.Entries(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
			}
			r.Close()
		}
	})
}
