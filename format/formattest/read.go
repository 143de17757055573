package formattest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
)

func (a *archive) reader(t *testing.T, o format.OpenOptions) format.Reader {
	t.Helper()
	return a.open(t, a.st, a.name, o)
}

// collect returns what seq yields; an error ends the test.
func collect[T any](t *testing.T, what string, seq iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		list = append(list, v)
	}
	return list
}

// testNamesAgree compares Lookup and ReadDir with Entries, for an archive opened for all entries
// and for a few lookups.
func testNamesAgree(t *testing.T, a *archive) {
	entries := collect(t, "entries", a.reader(t, format.OpenOptions{}).Entries(t.Context()))
	byName := map[string]format.Entry{}
	for _, e := range entries {
		if _, twice := byName[e.Name]; twice {
			t.Errorf("entries: %q is repeated", e.Name)
		}
		if e.Size < 0 || !e.Kind.HasContent() && e.Kind != format.Symlink && e.Size != 0 {
			t.Errorf("entries: %q, a %v, has %d bytes", e.Name, e.Kind, e.Size)
		}
		byName[e.Name] = e
	}
	children := expectedChildren(entries)
	for _, few := range []bool{false, true} {
		for _, e := range entries {
			r, err := a.f.Open(t.Context(), a.st, a.name, format.OpenOptions{FewLookups: few})
			if err != nil {
				t.Fatal(err)
			}
			// The second and third answers may come from elsewhere than the first.
			for range 3 {
				got, err := r.Lookup(t.Context(), e.Name)
				if err != nil || !sameEntry(got, e) {
					t.Errorf("lookup %q, few lookups %v: %+v, %v; entries has %+v", e.Name, few, got, err, e)
				}
			}
			if err := r.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		r := a.reader(t, format.OpenOptions{FewLookups: few})
		for _, n := range absentNames(byName, children) {
			if e, err := r.Lookup(t.Context(), n); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("lookup %q, few lookups %v: expected fs.ErrNotExist, found %q, %v", n, few, e.Name, err)
			}
			got := 0
			for _, err := range r.ReadDir(t.Context(), n) {
				if got++; got > 1 || !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("readdir %q: expected one fs.ErrNotExist, found %v", n, err)
				}
			}
			if got == 0 {
				t.Errorf("readdir %q: expected fs.ErrNotExist, found nothing", n)
			}
		}
	}
	r := a.reader(t, format.OpenOptions{})
	for _, dir := range sortedNames(children) {
		if e, err := r.Lookup(t.Context(), dir); err != nil || e.Kind != format.Dir && byName[dir].Name != dir {
			t.Errorf("lookup %q, an implied directory: %v, %v", dir, e.Kind, err)
		}
		got := map[string]format.Kind{}
		for e, err := range r.ReadDir(t.Context(), dir) {
			if err != nil {
				t.Fatalf("readdir %q: %v", dir, err)
			}
			if _, twice := got[e.Name]; twice {
				t.Errorf("readdir %q: %q is repeated", dir, e.Name)
			}
			got[e.Name] = e.Kind
			if own, ok := byName[e.Name]; ok && !sameEntry(own, e) {
				t.Errorf("readdir %q: %+v, entries has %+v", dir, e, own)
			}
		}
		if !reflect.DeepEqual(got, children[dir]) {
			t.Errorf("readdir %q: expected %v, found %v", dir, children[dir], got)
		}
	}
	for _, e := range entries {
		if children[e.Name] != nil || e.Kind == format.Dir || !naming.ValidPath(e.Name) {
			continue
		}
		failed := false
		for _, err := range r.ReadDir(t.Context(), e.Name) {
			failed = failed || err != nil
		}
		if !failed {
			t.Errorf("readdir %q, which is a %v: expected an error", e.Name, e.Kind)
		}
	}
}

// testOnce iterates over the archive with Once: the entries must be the same, the last of equal
// names counts, and each can be read when it is yielded.
func testOnce(t *testing.T, a *archive) {
	r := a.reader(t, format.OpenOptions{})
	want := collect(t, "entries", r.Entries(t.Context()))
	once := a.reader(t, format.OpenOptions{Once: true})
	last := map[string]format.Entry{}
	contents := map[string][]byte{}
	for e, err := range once.Entries(t.Context()) {
		if err != nil {
			t.Fatalf("entries: %v", err)
		}
		last[e.Name] = e
		if e.Kind.HasContent() && e.Fault == nil {
			if contents[e.Name], err = read(t.Context(), a.st, once, e, 0, e.Size); err != nil {
				t.Errorf("%q, in one pass: %v", e.Name, err)
			}
		}
	}
	if len(last) != len(want) {
		t.Errorf("%d names, in one pass %d", len(want), len(last))
	}
	for _, e := range want {
		if !sameEntry(last[e.Name], e) {
			t.Errorf("%q: %+v, in one pass %+v", e.Name, e, last[e.Name])
		}
		if !e.Kind.HasContent() || e.Fault != nil {
			continue
		}
		if b, err := read(t.Context(), a.st, r, e, 0, e.Size); err != nil || !bytes.Equal(b, contents[e.Name]) {
			t.Errorf("%q: one pass gives other content: %v", e.Name, err)
		}
		if found, err := once.Lookup(t.Context(), e.Name); err != nil || !sameEntry(found, e) {
			t.Errorf("lookup %q, after one pass: %+v, %v", e.Name, found, err)
		}
	}
}

// sameEntry compares two entries except for the reader's Ref.
func sameEntry(a, b format.Entry) bool {
	a.Ref, b.Ref = nil, nil
	if !a.ModTime.Equal(b.ModTime) {
		return false
	}
	a.ModTime = b.ModTime
	return reflect.DeepEqual(a, b)
}

// expectedChildren returns what is in each directory, whether it has an entry or is implied.
// Names that are not paths are in the root.
func expectedChildren(entries []format.Entry) map[string]map[string]format.Kind {
	dirs := map[string]map[string]format.Kind{".": {}}
	for _, e := range entries {
		if !naming.ValidPath(e.Name) {
			dirs["."][e.Name] = e.Kind
			continue
		}
		if e.Kind == format.Dir && dirs[e.Name] == nil {
			dirs[e.Name] = map[string]format.Kind{}
		}
		if e.Name == "." {
			continue
		}
		for n, k := e.Name, e.Kind; n != "."; n, k = path.Dir(n), format.Dir {
			parent := path.Dir(n)
			if dirs[parent] == nil {
				dirs[parent] = map[string]format.Kind{}
			}
			if _, known := dirs[parent][n]; !known || n == e.Name {
				dirs[parent][n] = k
			}
		}
	}
	return dirs
}

// absentNames returns names that are similar to existing ones.
func absentNames(there map[string]format.Entry, dirs map[string]map[string]format.Kind) (absent []string) {
	near := []string{"no/such/name", "no", "\xff", "."}
	for n := range there {
		near = append(near, n+"x", n+"/", n+"/x", "./"+n, "/"+n, n+"\x00", strings.ToUpper(n))
		if n != "" {
			near = append(near, n[:len(n)-1])
		}
	}
	slices.Sort(near)
	for _, n := range slices.Compact(near) {
		if _, ok := there[n]; !ok && dirs[n] == nil {
			absent = append(absent, n)
		}
	}
	return absent
}

// testRanges reads parts of each content.
func testRanges(t *testing.T, a *archive) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := a.reader(t, format.OpenOptions{})
	for _, e := range collect(t, "entries", r.Entries(t.Context())) {
		if !e.Kind.HasContent() || e.Fault != nil {
			continue
		}
		whole, err := read(t.Context(), a.st, r, e, 0, e.Size)
		if err != nil {
			t.Errorf("%q: %v", e.Name, err)
			continue
		}
		if run := r.Can().Run; run != nil {
			if x, ok := run(e); ok {
				all := collect(t, "extents", r.Extents(t.Context(), e, 0, e.Size))
				if len(all) != 1 || !reflect.DeepEqual(all[0], x) || x.Codec != "" || x.Size != e.Size {
					t.Errorf("%q: Run gives %+v, Extents %+v", e.Name, x, all)
				}
			}
		}
		ranges := [][2]int64{{0, 0}, {e.Size, 0}, {0, min(1, e.Size)}, {max(0, e.Size-1), min(1, e.Size)}}
		for range 10 {
			off := rnd.Int64N(e.Size + 1)
			ranges = append(ranges, [2]int64{off, rnd.Int64N(e.Size - off + 1)})
		}
		for _, x := range ranges {
			got, err := read(t.Context(), a.st, r, e, x[0], x[1])
			if err != nil {
				t.Errorf("%q: bytes %d+%d of %d: %v", e.Name, x[0], x[1], e.Size, err)
			} else if want := whole[x[0]:][:x[1]]; !bytes.Equal(got, want) {
				t.Errorf("%q: bytes %d+%d of %d: %s", e.Name, x[0], x[1], e.Size, differ(got, want))
			}
		}
	}
}

// claim is a run of stored bytes from an extent or a region.
type claim struct {
	off, n int64
	what   string
}

// testEveryByte checks that extents and regions together cover each stored byte of each object
// once, and nothing else. Contents may share a unit or a run if they share all of it.
func testEveryByte(t *testing.T, a *archive) {
	r := a.reader(t, format.OpenOptions{})
	claims := map[string][]claim{}
	shared := map[string]map[[2]int64]bool{}
	for _, e := range collect(t, "entries", r.Entries(t.Context())) {
		if !e.Kind.HasContent() || e.Fault != nil {
			continue
		}
		for _, x := range collect(t, e.Name, r.Extents(t.Context(), e, 0, e.Size)) {
			if err := sane(x); err != nil {
				t.Errorf("%q: %v", e.Name, err)
			}
			at := [2]int64{x.Off, x.Len}
			if !stored(x) || x.Len == 0 || shared[x.Object][at] {
				continue
			}
			if shared[x.Object] == nil {
				shared[x.Object] = map[[2]int64]bool{}
			}
			shared[x.Object][at] = true
			claims[x.Object] = append(claims[x.Object], claim{x.Off, x.Len, fmt.Sprintf("content of %q", e.Name)})
		}
	}
	for _, g := range collect(t, "regions", r.Regions(t.Context())) {
		if g.Len <= 0 || g.Use > format.Unknown {
			t.Errorf("region %+v lacks a length or a use", g)
		}
		claims[g.Object] = append(claims[g.Object], claim{g.Off, g.Len, fmt.Sprintf("%v %q", g.Use, g.Label)})
	}
	all := objects(t, a.st)
	for _, name := range sortedNames(claims) {
		if _, ok := all[name]; !ok {
			t.Errorf("%d regions are in %q, which is missing", len(claims[name]), name)
		}
	}
	for _, name := range sortedNames(all) {
		list, size, end, last := claims[name], int64(len(all[name])), int64(0), "the beginning"
		slices.SortFunc(list, func(a, b claim) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.n, b.n)) })
		for _, c := range append(list, claim{size, 0, "the end"}) {
			switch {
			case c.off > end:
				t.Errorf("%s: bytes %d to %d, between %s and %s, have no use", name, end, c.off, last, c.what)
			case c.off < end:
				t.Errorf("%s: %s begins at %d, but %s ends at %d", name, c.what, c.off, last, end)
			}
			if c.off < 0 || c.off+c.n > size {
				t.Errorf("%s: %s, bytes %d to %d, is outside its %d bytes", name, c.what, c.off, c.off+c.n, size)
			}
			end, last = max(end, c.off+c.n), c.what
		}
	}
	about, err := r.About(t.Context())
	if err != nil {
		t.Fatalf("about: %v", err)
	}
	if v := slices.Sorted(slices.Values(about.Volumes)); !slices.Equal(v, sortedNames(all)) {
		t.Errorf("about: expected volumes %q, found %q", sortedNames(all), v)
	}
	var stored int64
	for _, b := range all {
		stored += int64(len(b))
	}
	if about.Version == "" || about.IndexBytes < 0 || about.IndexBytes > stored {
		t.Errorf("about: version %q, %d bytes of index in %d", about.Version, about.IndexBytes, stored)
	}
}

// described is everything that an archive says about itself.
type described struct {
	Entries []format.Entry
	Extents map[string][]format.Extent
	Regions []format.Region
	About   format.About
}

func (a *archive) describe(t *testing.T) (d described) {
	t.Helper()
	r := a.reader(t, format.OpenOptions{})
	d.Entries = collect(t, "entries", r.Entries(t.Context()))
	d.Extents = map[string][]format.Extent{}
	for i, e := range d.Entries {
		if e.Kind.HasContent() && e.Fault == nil {
			xs := collect(t, e.Name, r.Extents(t.Context(), e, 0, e.Size))
			for i := range xs {
				if x := &xs[i]; x.Make != nil { // functions cannot be compared
					b, err := x.Inline(t.Context())
					if err != nil {
						t.Fatalf("%s: %v", e.Name, err)
					}
					x.Data, x.Make = b, nil
				}
			}
			d.Extents[e.Name] = xs
		}
		d.Entries[i].Ref = nil
	}
	d.Regions = collect(t, "regions", r.Regions(t.Context()))
	var err error
	if d.About, err = r.About(t.Context()); err != nil {
		t.Fatalf("about: %v", err)
	}
	return d
}

func testDeterministic(t *testing.T, a *archive) {
	first := a.describe(t)
	for range 3 {
		if again := a.describe(t); !reflect.DeepEqual(first, again) {
			t.Fatalf("first\n%+v\nthen\n%+v", first, again)
		}
	}
}

func testViews(t *testing.T, a *archive) {
	opened := 0
	for _, v := range a.f.Views {
		// A part of an archive may not be enough for some views.
		_, err := a.readAll(t.Context(), a.st, a.name, format.OpenOptions{View: v})
		if err == nil {
			opened++
		} else if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("view %s: %v", v, err)
		}
	}
	if opened == 0 {
		t.Error("no view opens")
	}
	if f := a.f.Overview; f != "" && !slices.Contains(a.f.Views, f) {
		t.Errorf("the overview %q is not a view", f)
	}
	if r, err := a.f.Open(t.Context(), a.st, a.name, format.OpenOptions{View: "no such view"}); err == nil {
		r.Close()
		t.Error("a view that does not exist opens")
	}
}

// testEarlyStop breaks each loop after its first round. An iterator that yields again panics.
func testEarlyStop(t *testing.T, a *archive) {
	r := a.reader(t, format.OpenOptions{})
	for e := range r.Entries(t.Context()) {
		for range r.Extents(t.Context(), e, 0, e.Size) {
			break
		}
		break
	}
	for range r.ReadDir(t.Context(), ".") {
		break
	}
	for range r.ReadDir(t.Context(), "no such directory") {
		break
	}
	for range r.Regions(t.Context()) {
		break
	}
}

// testParallel uses one reader from many goroutines, for the race detector.
func testParallel(t *testing.T, a *archive) {
	for _, few := range []bool{false, true} {
		want := a.describe(t)
		r := a.reader(t, format.OpenOptions{FewLookups: few})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				ctx := t.Context()
				for k := range want.Entries {
					e := want.Entries[(k+i*5)%len(want.Entries)]
					got, err := r.Lookup(ctx, e.Name)
					if err != nil || !sameEntry(got, e) {
						t.Errorf("lookup %q: %+v, %v", e.Name, got, err)
						continue
					}
					if e.Kind.HasContent() && e.Fault == nil {
						if _, err := read(ctx, a.st, r, got, 0, e.Size); err != nil {
							t.Errorf("read %q: %v", e.Name, err)
						}
					}
				}
				n := 0
				for _, err := range r.Entries(ctx) {
					if n++; err != nil {
						t.Errorf("entries: %v", err)
					}
				}
				if n != len(want.Entries) {
					t.Errorf("%d entries, expected %d", n, len(want.Entries))
				}
				for _, err := range r.ReadDir(ctx, ".") {
					if err != nil {
						t.Errorf("readdir: %v", err)
					}
				}
				for _, err := range r.Regions(ctx) {
					if err != nil {
						t.Errorf("regions: %v", err)
					}
				}
				if _, err := r.About(ctx); err != nil {
					t.Errorf("about: %v", err)
				}
			})
		}
		wg.Wait()
	}
}

// testLimits opens with a very small limit for the index. Formats without an index may ignore it.
func testLimits(t *testing.T, a *archive) {
	r, err := a.f.Open(t.Context(), a.st, a.name, format.OpenOptions{Limits: format.Limits{Index: 1}})
	if err == nil {
		n := int64(0)
		for _, g := range collect(t, "regions", r.Regions(t.Context())) {
			if g.Use == format.IndexData {
				n += g.Len
			}
		}
		if n > 1 {
			t.Errorf("an index of %d bytes is accepted with a limit of 1", n)
		}
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		return
	}
	if c, ok := errors.AsType[*format.CorruptError](err); !ok || c.Code != format.Limit {
		t.Errorf("expected a *format.CorruptError with code %q, found %v", format.Limit, err)
	}
}

func testVerifyClean(t *testing.T, a *archive) {
	err := a.f.Verify(t.Context(), a.st, a.name, format.OpenOptions{}, func(p format.Problem) {
		if p.Severity == format.Error {
			t.Errorf("verify: %s %s: %s", p.Code, p.Class, p.Message)
		}
	})
	if err != nil {
		t.Errorf("verify: %v", err)
	}
}

func testCancelledRead(t *testing.T, a *archive) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := a.f.Open(gone, a.st, a.name, format.OpenOptions{}); err == nil {
		// Opening need not send a request; reading must.
		_, err = r.About(gone)
		for _, e := range r.Entries(gone) {
			err = errors.Join(err, e)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("open, about, entries: expected context.Canceled, found %v", err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("open: expected context.Canceled, found %v", err)
	}
	for what, check := range a.checks() {
		if err := check(gone, a.st, a.name, func(format.Problem) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: expected context.Canceled, found %v", what, err)
		}
	}
	r := a.reader(t, format.OpenOptions{})
	n := 0
	for range r.Entries(t.Context()) {
		n++
	}
	var err error
	for _, e := range r.Entries(gone) {
		err = errors.Join(err, e)
	}
	if n > 0 && !errors.Is(err, context.Canceled) {
		t.Errorf("entries: expected context.Canceled, found %v", err)
	}
}
