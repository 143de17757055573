package rows

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func about(id ArchiveID) (Archive, bool) {
	return Archive{Address: fmt.Sprintf("photos-%v.caf", id), Format: "caf", Size: 1 << 40, Version: `"etag"`}, id.Ordinal%7 != 6
}

// A page is not much longer because its rows have long headers, which are all different.
func TestPagesWithLongHeaders(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b, 100, about)
	for i := range 100 {
		r := Row{Name: fmt.Sprintf("%03d", i), Headers: fmt.Sprintf("%03d%s", i, strings.Repeat("x", 10_000))}
		if err := w.Add(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range w.refs[:len(w.refs)-1] {
		if r.n < pageSize || r.n > pageSize+11_000 {
			t.Errorf("a page of %d bytes", r.n)
		}
	}
}

// randomRows are rows in their order, without repetition.
func randomRows(rnd *rand.Rand, n int) []Row {
	var all []Row
	for range n {
		r := Row{Name: fmt.Sprintf("photos/%04d/%06d.jpg", rnd.IntN(20), rnd.IntN(2*n)), Seq: rnd.Int64N(5), Archive: ArchiveID{rnd.Int64N(3), rnd.IntN(30)}}
		switch rnd.IntN(12) {
		case 0:
			r.Name = strings.Repeat("é", rnd.IntN(300))
		case 1:
			r.Name = string([]byte{byte(rnd.IntN(256)), byte(rnd.IntN(256))})
		case 2:
			r.What, r.Archive = Delete, ArchiveID{}
			all = append(all, r)
			continue
		case 3, 4:
			r.What, r.Archive, r.Of, r.Original = Fate, ArchiveID{}, 1+rnd.Int64N(9), Original(rnd.IntN(5))
			all = append(all, r)
			continue
		}
		r.Size, r.Raw = rnd.Int64N(1<<rnd.IntN(40)), rnd.IntN(5) > 0
		if r.Raw {
			r.Off = rnd.Int64N(1 << 40)
		}
		if n := len(all); n > 0 && rnd.IntN(2) == 0 && r.Raw {
			r.Archive, r.Off = all[n-1].Archive, all[n-1].Off+all[n-1].Size
		}
		if rnd.IntN(4) > 0 {
			r.Digest = format.Digest{Algo: []string{"blake3", "sha256"}[rnd.IntN(2)], Sum: strings.Repeat(string(rune('a'+rnd.IntN(20))), 32)}
		}
		if rnd.IntN(4) > 0 {
			r.Time = time.Unix(rnd.Int64N(1<<32), rnd.Int64N(2)*rnd.Int64N(1e9)).UTC()
		}
		switch rnd.IntN(3) {
		case 0:
			r.ETag = fmt.Sprintf(`"%x"`, md5.Sum([]byte(r.Name)))
		case 1:
			r.ETag = `"other-12"`
		}
		if rnd.IntN(2) == 0 {
			r.Headers = fmt.Sprintf(`{"content-type":"image/%d"}`, rnd.IntN(4))
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Row) int { return a.Compare(&b) })
	return slices.CompactFunc(all, func(a, b Row) bool { return a.Compare(&b) == 0 })
}

func written(t testing.TB, all []Row) ([]byte, Summary, []byte) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, int64(len(all)), about)
	if len(all) > 2000 {
		w.nodes = 3 + len(all)%5 // so that there are some
	}
	for i := range all {
		if err := w.Add(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	s, tail, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if s.Size != int64(out.Len()) || !bytes.HasSuffix(out.Bytes(), tail) || s.Rows != int64(len(all)) {
		t.Fatalf("%+v of %d bytes", s, out.Len())
	}
	return out.Bytes(), s, tail
}

func opened(t testing.TB, b []byte, s Summary, tail []byte) (*Run, error) {
	st := &storetest.Mem{}
	st.Put("runs/7-x", b)
	return Open(t.Context(), object(t, st), "runs/7-x", 7, s, tail, false, NewCache(1<<20))
}

func object(t testing.TB, st store.Store) store.Object {
	t.Helper()
	o, err := st.Open(t.Context(), "runs/7-x")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func gathered(ctx context.Context, r *Run, from string) (all []Row, err error) {
	for x, err := range r.From(ctx, from) {
		if err != nil {
			return all, err
		}
		all = append(all, x.Row)
	}
	return all, nil
}

// What was written is read: all of it, and from each name on.
func TestARunHasItsRows(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, n := range []int{0, 1, 15, 16, 17, 300, 5000} {
		all := randomRows(rnd, n)
		b, s, tail := written(t, all)
		if rnd.IntN(2) == 0 {
			tail = nil
		}
		r, err := opened(t, b, s, tail)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(all)
		for i := range want {
			want[i].in(7)
		}
		got, err := gathered(t.Context(), r, "")
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d rows: %d, %v", len(want), len(got), err)
		}
		for range 50 {
			name := fmt.Sprintf("photos/%04d/%06d.jpg", rnd.IntN(20), rnd.IntN(2*n+1))
			if len(want) > 0 && rnd.IntN(2) == 0 {
				name = want[rnd.IntN(len(want))].Name
			}
			i, _ := slices.BinarySearchFunc(want, name, func(r Row, name string) int { return strings.Compare(r.Name, name) })
			got, err := gathered(t.Context(), r, name)
			if err != nil || !slices.Equal(got, want[i:]) {
				t.Fatalf("from %q: %d rows, expected %d: %v", name, len(got), len(want)-i, err)
			}
			if i < len(want) && want[i].Name == name {
				if may, err := r.MayHave(t.Context(), name, false); err != nil || !may {
					t.Errorf("%q: %v, %v", name, may, err)
				}
			}
		}
		for x, err := range r.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if a, known := about(ArchiveID{Ordinal: x.Archive.Ordinal}); x.About != nil && (x.What != Put || !known || x.About.Format != a.Format) {
				t.Fatalf("%+v is in %+v", x.Row, x.About)
			}
		}
	}
}

func TestTheFilterKnowsMostNamesThatAreNotThere(t *testing.T) {
	all := randomRows(testkit.Rand(t), 20_000)
	b, s, tail := written(t, all)
	r, err := opened(t, b, s, tail)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range 10_000 {
		may, err := r.MayHave(t.Context(), fmt.Sprintf("photos/0003/%d.png", i), false)
		if err != nil {
			t.Fatal(err)
		}
		if may {
			n++
		}
	}
	if n > 300 {
		t.Errorf("%d of 10,000", n)
	}
}

// Runs that are read together are read like one, and one with all rows has the same.
func TestRunsAreMerged(t *testing.T) {
	rnd := testkit.Rand(t)
	var runs []*Run
	var want []Row
	for range 5 {
		all := randomRows(rnd, 500)
		b, s, tail := written(t, all)
		r, err := opened(t, b, s, tail)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
		got, err := gathered(t.Context(), r, "")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, got...)
	}
	slices.SortStableFunc(want, func(a, b Row) int { return a.Compare(&b) })
	for _, i := range []int{0, 1, len(want) / 2, len(want) - 1} {
		var got []Row
		for x, err := range Merged(t.Context(), runs, want[i].Name) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, x.Row)
		}
		from := slices.IndexFunc(want, func(r Row) bool { return r.Name == want[i].Name })
		if rest := want[from:]; !slices.EqualFunc(got, rest, func(a, b Row) bool { return a.Compare(&b) == 0 }) {
			t.Fatalf("from %q: %d rows, expected %d", want[i].Name, len(got), len(rest))
		}
	}
}

// A run is not read before its names begin.
func TestLaterRunsAreNotRead(t *testing.T) {
	var runs []*Run
	for _, name := range []string{"a", "b"} {
		b, s, tail := written(t, []Row{{Name: name, Archive: ArchiveID{Commit: 1}}})
		b[len(magic)] ^= 1 // its page is damaged
		r, err := opened(t, b, s, tail)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	b, s, tail := written(t, []Row{{Name: "a0", Archive: ArchiveID{Commit: 1}}})
	sound, err := opened(t, b, s, tail)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for x, rerr := range Merged(t.Context(), []*Run{runs[1], sound}, "") {
		if err = rerr; err == nil {
			seen = append(seen, x.Name)
		}
	}
	if !slices.Equal(seen, []string{"a0"}) || err == nil {
		t.Fatalf("%q, then %v", seen, err)
	}
	for _, err = range Merged(t.Context(), []*Run{sound, runs[0]}, "") {
		break
	}
	if err == nil {
		t.Fatal("the first run is damaged, and nothing was said")
	}
}

// With any byte changed or missing there is an error, or the same rows.
func TestDamageIsNoticed(t *testing.T) {
	rnd := testkit.Rand(t)
	all := randomRows(rnd, 400)
	b, s, _ := written(t, all)
	for range 2000 {
		damaged := slices.Clone(b)
		if rnd.IntN(10) == 0 {
			damaged = damaged[:rnd.IntN(len(b))]
		} else {
			damaged[rnd.IntN(len(b))] ^= byte(1 + rnd.IntN(255))
		}
		r, err := opened(t, damaged, s, nil)
		var got []Row
		if err == nil {
			got, err = gathered(t.Context(), r, "")
		}
		if err == nil && len(got) != len(all) {
			t.Fatalf("%d rows, expected %d", len(got), len(all))
		}
		for i := range got {
			want := all[i]
			if want.in(7); got[i] != want {
				t.Fatalf("%+v, expected %+v", got[i], want)
			}
		}
	}
}

// Whoever replaces parts of a signed run by those of another one, with all the checksums that they need, changes
// no answer.
func TestForgedRunsChangeNothing(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, n := range []int{400, 60_000} { // with nodes, and a filter that is far
		all := randomRows(rnd, n)
		b, s, _ := written(t, all)
		changed := map[string]int{}
		try := func(what string, forged []byte, row *Row) {
			for _, signed := range []bool{false, true} {
				st := &storetest.Mem{}
				st.Put("runs/7-x", forged)
				r, err := Open(t.Context(), object(t, st), "runs/7-x", 7, s, nil, signed, NewCache(1<<20))
				if err != nil {
					continue
				}
				if may, err := r.MayHave(t.Context(), row.Name, false); err == nil && !may {
					if changed[what]++; signed {
						t.Errorf("%s: %q is hidden", what, row.Name)
					}
				}
				i, _ := slices.BinarySearchFunc(all, row.Name, func(r Row, name string) int { return strings.Compare(r.Name, name) })
				found := false
				for x, rerr := range r.From(t.Context(), row.Name) {
					if err = rerr; err != nil || i == len(all) || x.Name != row.Name {
						break
					}
					found = true
					want := all[i]
					if want.in(7); x.Row != want {
						if changed[what]++; signed {
							t.Errorf("%s: %+v, expected %+v", what, x.Row, want)
						}
					}
					i++
				}
				if err == nil && !found {
					if changed[what]++; signed {
						t.Errorf("%s: %q is not found", what, row.Name)
					}
				}
			}
		}
		plain, err := opened(t, b, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		filter, end := plain.root.Filter[0], s.Size-s.Tail // where pages end, and nodes
		for tries := 0; changed["all"] < 5 && tries < 200; tries++ {
			other := slices.Clone(all)
			row := &other[rnd.IntN(len(all))]
			if row.Digest.Sum == "" || row.What != Put {
				continue
			}
			row.Digest.Sum = string(testkit.Noise(rnd, len(row.Digest.Sum)))
			c, sum, _ := written(t, other)
			if sum.Size != s.Size || sum.Tail != s.Tail { // its compressed parts are longer
				continue
			}
			for what, upTo := range map[string]int64{"pages": filter, "nodes": end, "all": s.Size} {
				try(what, slices.Concat(c[:upTo], b[upTo:]), row)
			}
			forged := slices.Clone(b)
			for at := filter; at < filter+plain.root.Filter[1]*filterBlock; at += filterBlock {
				copy(forged[at:], sealed(make([]byte, filterBlock-crcLen, filterBlock)))
			}
			try("filter", forged, row)
		}
		parts := []string{"pages", "nodes", "all", "filter"}
		if plain.root.Levels == 2 { // a node says that a page begins before it does
			parts = append(parts, "node")
			for tries := 0; changed["node"] == 0 && tries < 1000; tries++ {
				x := plain.refs[rnd.IntN(len(plain.refs))]
				refs, err := plain.node(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				refs = slices.Clone(refs)
				k := rnd.IntN(len(refs))
				i, _ := slices.BinarySearchFunc(all, refs[k].first, func(r Row, name string) int { return strings.Compare(r.Name, name) })
				last := []byte(refs[k].first)
				if k == 0 || len(last) == 0 {
					continue
				}
				last[len(last)-1]--
				if refs[k].first = string(last); refs[k].first <= refs[k-1].first || all[i-1].Name < refs[k].first || all[i-1].Name == all[i].Name {
					continue
				}
				if node := sealed(Pack(appendRefs(nil, refs))); len(node) == x.n {
					forged := slices.Clone(b)
					copy(forged[x.off:], node)
					try("node", forged, &all[i-1])
				}
			}
		}
		for _, what := range parts {
			if changed[what] == 0 {
				t.Errorf("%d rows: nothing was forged in %s that a run without digests shows", n, what)
			}
		}
	}
}

// A run that was written before there were digests is read, and is never signed.
func TestOldRuns(t *testing.T) {
	b, err := os.ReadFile("testdata/without-sums.run")
	if err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("runs/7-x", b)
	r, err := OpenAlone(t.Context(), object(t, st), "runs/7-x")
	if err != nil {
		t.Fatal(err)
	}
	all, err := gathered(t.Context(), r, "")
	if err != nil || int64(len(all)) != r.root.Rows || len(all) == 0 {
		t.Fatalf("%d rows of %d, %v", len(all), r.root.Rows, err)
	}
	s := Summary{Size: int64(len(b)), Tail: int64(len(b)) - r.start, Rows: r.root.Rows}
	for _, s.Sum = range []string{"", hex.EncodeToString(sumOf(b[r.start:]))} {
		if _, err := Open(t.Context(), object(t, st), "runs/7-x", 7, s, nil, true, NewCache(1<<20)); err == nil {
			t.Errorf("signed with the digest %q", s.Sum)
		}
	}
}

func FuzzPage(f *testing.F) {
	all := randomRows(rand.New(rand.NewPCG(1, 2)), 40)
	var w pageWriter
	for i := range all {
		w.add(&all[i])
	}
	b := w.page(about)
	f.Add(b[:len(b)-crcLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePage(sealed(slices.Clone(b)))
		if err != nil {
			return
		}
		for _, name := range []string{"", "photos/0003"} {
			w := &walk{name: name, Walk: Walk{X: Item{Run: &Run{}}}, pages: []*page{p}}
			err := w.seek()
			for more := true; more && err == nil; {
				more, err = w.row()
			}
		}
	})
}

func FuzzTail(f *testing.F) {
	all := randomRows(rand.New(rand.NewPCG(1, 2)), 400)
	b, s, tail := written(f, all)
	f.Add(tail[:len(tail)-footerLen], s.Rows)
	f.Fuzz(func(t *testing.T, tail []byte, rows int64) {
		r := &Run{}
		_ = r.parseTail(tail, Summary{Size: s.Size, Tail: int64(len(tail)), Rows: rows})
		if refs, err := parseRefs(&scan.Scanner{B: tail}, 0, 0, int64(len(b))); err == nil {
			find(refs, "photos/0003")
		}
	})
}

func benchRows(n int) func(yield func(*Row) bool) {
	return func(yield func(*Row) bool) {
		rnd, off := rand.New(rand.NewPCG(3, 4)), int64(0)
		for i := range n {
			sum := make([]byte, 48)
			for k := range sum {
				sum[k] = byte(rnd.Uint32())
			}
			r := Row{Name: fmt.Sprintf("2026/%03d/photo-%08d.jpg", i/1000, i*7), Archive: ArchiveID{Ordinal: i / 1000}, Raw: true, Off: off, Size: int64(rnd.IntN(200_000)),
				Digest: format.Digest{Algo: "blake3", Sum: string(sum[:32])}, ETag: fmt.Sprintf(`"%x"`, sum[32:]), Time: time.Unix(1_790_000_000+int64(rnd.IntN(1e7)), 0).UTC(), Headers: `{"content-type":"image/jpeg"}`}
			if off += r.Size; i%1000 == 999 {
				off = 0
			}
			if !yield(&r) {
				return
			}
		}
	}
}

func benchRun(b *testing.B, n int) (*Run, Summary) {
	var out bytes.Buffer
	w := NewWriter(&out, int64(n), about)
	for r := range benchRows(n) {
		if err := w.Add(r); err != nil {
			b.Fatal(err)
		}
	}
	s, tail, err := w.Close()
	if err != nil {
		b.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("runs/7-x", out.Bytes())
	r, err := Open(b.Context(), object(b, st), "runs/7-x", 7, s, tail, false, NewCache(64<<20))
	if err != nil {
		b.Fatal(err)
	}
	return r, s
}

func BenchmarkWrite(b *testing.B) {
	for b.Loop() {
		_, s := benchRun(b, 100_000)
		b.ReportMetric(float64(s.Size)/float64(s.Rows), "bytes/row")
		b.ReportMetric(float64(s.Tail), "tail")
	}
}

func BenchmarkLookup(b *testing.B) {
	const n = 1_000_000
	r, s := benchRun(b, n)
	rnd := rand.New(rand.NewPCG(5, 6))
	b.ReportMetric(float64(s.Size)/float64(s.Rows), "bytes/row")
	b.ReportMetric(float64(s.Tail), "tail")
	b.ResetTimer()
	for b.Loop() {
		i := rnd.IntN(n)
		name := fmt.Sprintf("2026/%03d/photo-%08d.jpg", i/1000, i*7)
		for x, err := range r.From(b.Context(), name) {
			if err != nil || x.Name != name {
				b.Fatal(x, err)
			}
			break
		}
	}
}
