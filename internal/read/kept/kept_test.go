package kept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// listed is an archive that is a list.
type listed struct {
	*kit.Index
	xs map[string][]format.Extent
}

func (l *listed) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		for _, x := range l.xs[e.Name] {
			if x.At+x.Size > off && x.At < off+n && !yield(x, nil) {
				return
			}
		}
	}
}
func (l *listed) Regions(context.Context) iter.Seq2[format.Region, error] { return nil }
func (l *listed) About(context.Context) (format.About, error)             { return format.About{}, nil }
func (l *listed) Close() error                                            { return nil }

func build(t testing.TB, r format.Reader, head Head, o Options) ([]byte, Head) {
	t.Helper()
	var b bytes.Buffer
	o.Scratch = sorter.TempFile
	head, err := Build(t.Context(), &b, r, "dir/x", head, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), head
}

func opened(t testing.TB, b []byte) *Index {
	t.Helper()
	x, err := openBytes(t.Context(), b, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// openedNear is opened of an index on a disk that is not mapped.
func openedNear(t testing.TB, b []byte) *Index {
	t.Helper()
	x, err := openBytes(t.Context(), b, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// openedFile is opened of an index in a file, which is mapped.
func openedFile(t testing.TB, b []byte) *Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.holdall")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return openedAt(t, path)
}

// openBytes opens an index in memory.
func openBytes(ctx context.Context, b []byte, near bool) (*Index, error) {
	st := &storetest.Mem{}
	st.Put("x.holdall", b)
	obj, err := st.Open(ctx, "x.holdall")
	if err != nil {
		return nil, err
	}
	return Open(ctx, obj, "x.holdall", "dir/x", 2, tailGuess, near)
}

// anyEntries makes entries with names of every kind, in the order that a walk of a tree
// has, that of names, or none.
func anyEntries(rnd *rand.Rand, n int) ([]format.Entry, map[string][]format.Extent) {
	parts := []string{"a", "b", "a-b", "c", "ab", "a\x00", "ü", "\xff\xfe", "..", "a.b", " ", "0", "long-" + strings.Repeat("x", 70)}
	var entries []format.Entry
	xs := map[string][]format.Extent{}
	for i := range n {
		var name string
		for range 1 + rnd.IntN(4) {
			name += parts[rnd.IntN(len(parts))] + "/"
		}
		switch rnd.IntN(10) {
		case 0:
		case 1:
			name = "/" + name
		case 2:
			name = strings.Replace(name, "/", "//", 1)
		case 3:
			name = fmt.Sprintf("%sf%04d", name, i)
		default:
			name = strings.TrimSuffix(name, "/")
		}
		if rnd.IntN(200) == 0 {
			name = []string{"", ".", "/", "a/"}[rnd.IntN(4)]
		}
		e := format.Entry{Name: name, Size: int64(rnd.IntN(1000))}
		switch rnd.IntN(12) {
		case 0:
			e.Kind, e.Size = format.Dir, 0
		case 1:
			e.Kind, e.Size, e.Link = format.Symlink, 0, "to/"+name
		case 2:
			e.Attr = map[string]string{"k": name, "": "v"}
		case 3:
			e.Fault = &format.Problem{Code: format.BadData, Class: "c", Severity: format.Error, Volume: "dir/x", Off: -1, Entry: name, HasEntry: true, Message: "m"}
		case 4:
			e.Internal = true
		}
		if rnd.IntN(3) > 0 {
			e.HasMode, e.Mode = true, fs.FileMode(rnd.IntN(0o1000))|fs.ModeSetuid*fs.FileMode(rnd.IntN(2))
			e.ModTime = time.Unix(rnd.Int64N(1<<40)-1<<39, rnd.Int64N(1e9)).UTC()
			e.Owner, e.Group = parts[rnd.IntN(5)], parts[rnd.IntN(5)]
		}
		if rnd.IntN(2) == 0 {
			e.Digest = format.Digest{Algo: "blake3", Sum: strings.Repeat(string(rune('a'+i%26)), 32)}
		}
		entries = append(entries, e)
		delete(xs, name)
		if e.Size == 0 {
			continue
		}
		switch off := rnd.Int64N(1 << 40); rnd.IntN(6) {
		case 0:
			xs[name] = []format.Extent{{Size: e.Size, Object: "dir/x/7", Off: off, Len: 9, Codec: codec.Zstd, Skip: 5, Unit: 2000}}
		case 1:
			half := e.Size / 2
			xs[name] = []format.Extent{{Size: half, Object: "other", External: true, Off: off, Len: half}, {At: half, Size: e.Size - half, Codec: codec.Inline, Len: e.Size - half, Data: make([]byte, e.Size-half), Object: "dir/x"}}
		case 2: // zeros, and a hole
			if half := e.Size / 2; half > 0 {
				xs[name] = []format.Extent{{Size: half, Codec: codec.Zero}, {At: half, Size: 1, Object: "dir/x", Off: off, Len: 1}}
				break
			}
			xs[name] = []format.Extent{{At: e.Size - 1, Size: 1, Object: "dir/x", Off: off, Len: 1}}
		case 3:
			xs[name] = []format.Extent{{Size: e.Size, Object: "dir/x", Off: off, Len: 9, Codec: codec.Zstd, Unit: e.Size}}
		default:
			xs[name] = []format.Extent{{Size: e.Size, Object: "dir/x", Off: off, Len: e.Size}}
		}
	}
	switch rnd.IntN(3) {
	case 0:
		slices.SortFunc(entries, func(a, b format.Entry) int { return strings.Compare(a.Name, b.Name) })
	case 1:
		slices.SortFunc(entries, func(a, b format.Entry) int {
			return slices.Compare(strings.Split(a.Name, "/"), strings.Split(b.Name, "/"))
		})
	}
	return entries, xs
}

// all collects what is yielded. An error ends the collection, as its last element.
func all(seq iter.Seq2[format.Entry, error]) (found []any) {
	for e, err := range seq {
		if e.Ref = nil; err != nil {
			found = append(found, err.Error())
			break
		}
		found = append(found, e)
	}
	return found
}

func same(t *testing.T, what string, got, want []any) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("%s: %d, expected %d; at %d found\n%+v, expected\n%+v", what, len(got), len(want), i, got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}

// sameAnswers compares all answers of an index and the archive it is of.
func sameAnswers(t *testing.T, x *Index, l *listed, rnd *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	want := all(l.Entries(ctx))
	same(t, "entries", all(x.Entries(ctx)), want)
	names := []string{".", "", "a", "a/", "nothing", "a/nothing", "a//b", "..", "a-b/c"}
	for range 3 + 20_000/(len(want)+300) {
		if len(want) > 0 {
			name := want[rnd.IntN(len(want))].(format.Entry).Name
			for k := range strings.SplitSeq(name, "/") {
				names = append(names, name, strings.TrimSuffix(name, "/"+k), k)
			}
		}
	}
	for i, name := range names {
		got, gotErr := x.Lookup(ctx, name)
		e, err := l.Lookup(ctx, name)
		if fmt.Sprint(gotErr) != fmt.Sprint(err) || err != nil && !errors.Is(gotErr, fs.ErrNotExist) {
			t.Fatalf("lookup of %q: found %v, expected %v", name, gotErr, err)
		}
		x1, x2 := extents(x, got), extents(l, e)
		if e.Fault == nil && !reflect.DeepEqual(x1, x2) {
			t.Fatalf("%q lies in %+v, expected %+v", name, x1, x2)
		}
		if run, ok := x.Run(got); ok != (e.Fault == nil && len(x2) == 1 && isPlain(&x2[0], e.Size)) || ok && !reflect.DeepEqual(run, x2[0]) {
			t.Fatalf("%q is the run %+v (%v), expected %+v", name, run, ok, x2)
		}
		if got.Ref, e.Ref = nil, nil; !reflect.DeepEqual(got, e) {
			t.Fatalf("lookup of %q: found %+v, expected %+v", name, got, e)
		}
		if naming.ValidPath(name) {
			same(t, fmt.Sprintf("what is in %q", name), all(x.ReadDir(ctx, name)), all(l.ReadDir(ctx, name)))
			var below []any
			for _, w := range want {
				if name != "." && strings.HasPrefix(w.(format.Entry).Name, name+"/") {
					below = append(below, w)
				}
			}
			if name != "." {
				same(t, fmt.Sprintf("what is below %q", name), all(x.EntriesBelow(ctx, name)), below)
			}
		}
		if i < 12 {
			same(t, fmt.Sprintf("from %q on", name), all(x.EntriesFrom(ctx, name)), all(l.EntriesFrom(ctx, name)))
		}
	}
}

func extents(r interface {
	Extents(context.Context, format.Entry, int64, int64) iter.Seq2[format.Extent, error]
}, e format.Entry) (xs []format.Extent) {
	for x, err := range r.Extents(context.Background(), e, 0, e.Size) {
		if err != nil {
			panic(err)
		}
		xs = append(xs, x)
	}
	return xs
}

func TestAnIndexAnswersAsTheArchive(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, n := range []int{0, 1, 2, 10, 100, 3000, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if n == 10_000 {
				testkit.Long(t)
			}
			for _, open := range []func(testing.TB, []byte) *Index{opened, openedNear, openedFile} {
				entries, xs := anyEntries(rnd, n)
				l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
				b, head := build(t, l, Head{Format: "list"}, Options{Memory: int64(rnd.IntN(10)) << 20})
				if again, _ := build(t, l, Head{Format: "list"}, Options{}); !bytes.Equal(b, again) {
					t.Fatal("other bytes the second time")
				}
				x := open(t, b)
				if !reflect.DeepEqual(x.Head, head) {
					t.Fatalf("head %+v, expected %+v", x.Head, head)
				}
				sameAnswers(t, x, l, rnd)
			}
		})
	}
}

// TestDigestsAreThoseOfTheirPieces has rows in a different order than the archive, and entries
// that are at fault, which have no digests.
func TestDigestsAreThoseOfTheirPieces(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, n := range []int{1, 40, 2000} {
		entries, xs := anyEntries(rnd, n)
		for i := range entries {
			if entries[i].Kind.HasContent() {
				entries[i].Size = rnd.Int64N(5 * MinChunk)
				delete(xs, entries[i].Name)
			}
		}
		l := &listed{kit.NewIndex(kit.Entries(entries)), xs}
		sum := func(name string, piece int64) (d [DigestLen]byte) {
			copy(d[:], fmt.Sprintf("%d %s", piece, name))
			return d
		}
		b, _ := build(t, l, Head{Format: "list", Chunk: MinChunk}, Options{Digests: func(yield func([DigestLen]byte, error) bool) {
			for e := range l.Entries(t.Context()) {
				for i := range Pieces(&e, MinChunk) {
					if !yield(sum(e.Name, i), nil) {
						return
					}
				}
			}
		}})
		x := opened(t, b)
		sameAnswers(t, x, l, rnd)
		for e, err := range x.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all := Pieces(&e, MinChunk)
			from := rnd.Int64N(all + 1)
			got, err := x.Digests(t.Context(), e, from, all-from)
			if err != nil || int64(len(got)) != all-from {
				t.Fatalf("%s: %d digests of %d from %d: %v", e.Name, len(got), all, from, err)
			}
			for i, d := range got {
				if d != sum(e.Name, from+int64(i)) {
					t.Fatalf("%s: digest %d is that of %q", e.Name, from+int64(i), d)
				}
			}
			if _, err := x.Digests(t.Context(), e, from, all-from+1); err == nil {
				t.Fatalf("%s: more digests than pieces", e.Name)
			}
		}
	}
}

// regular is an archive of n files in folders of a thousand.
func regular(n int) *listed {
	entries := make([]format.Entry, n)
	for i := range entries {
		entries[i] = format.Entry{Name: fmt.Sprintf("data/%04d/member_%07d.txt", i/1000, i), Size: 100, Ref: i}
	}
	return &listed{Index: kit.NewIndex(kit.Entries(entries))}
}

func (l *listed) Can() format.Abilities {
	can := l.Index.Can()
	can.Run = l.Run
	return can
}

func (l *listed) Run(e format.Entry) (format.Extent, bool) {
	i, ok := e.Ref.(int)
	return format.Extent{Size: e.Size, Len: e.Size, Object: "dir/x", Off: int64(i) * 100}, ok
}

// TestUnusedSheetsLeaveMemory checks that an index that is not used keeps no rows in memory, and
// still answers after that.
func TestUnusedSheetsLeaveMemory(t *testing.T) {
	b, _ := build(t, regular(20_000), Head{}, Options{})
	x := openedNear(t, b)
	x.sheets.rest = time.Millisecond
	for range 2 {
		if e, err := x.Lookup(t.Context(), "data/0001/member_0001001.txt"); err != nil || e.Size == 0 {
			t.Fatalf("%+v, %v", e, err)
		}
		testkit.Until(t, "no sheet is kept", func() bool {
			x.sheets.mu.Lock()
			defer x.sheets.mu.Unlock()
			return len(x.sheets.byOff) == 0 && x.sheets.idle == nil
		})
	}
}

// TestAWalkOfANearIndexHoldsFewRows checks that a walk whose caller waits takes little memory.
func TestAWalkOfANearIndexHoldsFewRows(t *testing.T) {
	testkit.Serial(t)
	b, _ := build(t, regular(100_000), Head{}, Options{})
	x, rows := openedNear(t, b), int64(0)
	for s, err := range x.stretches(t.Context(), 0, x.count()) {
		n := int64(0)
		for _, r := range s.refs {
			n += r.items
		}
		if rows += n; err != nil || n > pageRows {
			t.Fatalf("%d rows at once, %v", n, err)
		}
	}
	if rows != x.count() {
		t.Errorf("%d rows of %d", rows, x.count())
	}
}

func BenchmarkBuild(b *testing.B) {
	l := regular(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		build(b, l, Head{Format: "list"}, Options{})
	}
}

func BenchmarkEntries(b *testing.B) {
	idx, _ := build(b, regular(1_000_000), Head{Format: "list"}, Options{})
	x := opened(b, idx)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range x.Entries(b.Context()) {
			if n++; err != nil {
				b.Fatal(err)
			}
		}
	}
}
