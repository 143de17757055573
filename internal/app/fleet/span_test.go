package fleet

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
)

// TestSpansAreSetsOfNames compares what is done with spans with the same on each name.
func TestSpansAreSetsOfNames(t *testing.T) {
	r := testkit.Rand(t)
	names := []string{""}
	for _, a := range []string{"a", "b", "\xff", "/"} {
		for _, b := range []string{"", "a", "/", "/a", "\xff"} {
			names = append(names, a+b)
		}
	}
	name := func() string { return names[r.IntN(len(names))] }
	for range 3000 {
		var of []string
		for range 1 + r.IntN(3) {
			of = append(of, name())
		}
		all := spansOf(of)
		cut := span{name(), name()}
		if cut.before != "" && cut.before <= cut.from {
			cut.before = ""
		}
		folder := []string{"", "a/", "b"}[r.IntN(3)]
		for _, n := range names {
			is := slices.ContainsFunc(of, func(p string) bool { return strings.HasPrefix(n, p) })
			if haveName(all, n) != is {
				t.Fatalf("%q has %q: %v, as prefixes of %q: %v", all, n, !is, of, is)
			}
			if left := without(all, cut); haveName(left, n) != (is && !cut.has(n)) {
				t.Fatalf("%q without %q is %q: %q", all, cut, left, n)
			}
			if cut.has(n) && (!strings.HasPrefix(n, cut.prefix()) || !cut.meets(span{n, n + "\x00"})) {
				t.Fatalf("%q in %q, whose prefix is %q", n, cut, cut.prefix())
			}
			in, some := cut.within(folder)
			if cut.has(folder+n) != (some && in.has(n)) {
				t.Fatalf("%q below %q is %q, %v: %q", cut, folder, in, some, n)
			}
		}
	}
}

// TestSpansAreListed compares listings of spans with those of everything.
func TestSpansAreListed(t *testing.T) {
	s := newSite(t)
	r := testkit.Rand(t)
	s.S3.Page = 7
	for i := range 300 {
		s.S3.Put("from", fmt.Sprintf("%c/%c/%03d", 'a'+i%3, 'a'+i%7, i), nil)
	}
	st, err := storekit.OpenFolder(t.Context(), "s3://from")
	if err != nil {
		t.Fatal(err)
	}
	keys := s.S3.Keys("from")
	for range 40 {
		of := span{keys[r.IntN(len(keys))], keys[r.IntN(len(keys))]}
		if of.before < of.from {
			of.before = ""
		}
		var want, got []string
		for _, key := range keys {
			if of.has(key) {
				want = append(want, key)
			}
		}
		for info, err := range (origin{st: st}).objects(t.Context(), []span{of}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Name)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("%q: listed %d objects, expected %d", of, len(got), len(want))
		}
	}
}

// quiet puts an object that was always written at the same time.
func (s *site) quiet(key string) {
	s.Put(key, []byte(key))
	s.S3.Touch("from", key, keptAt)
}

// A sighting is what listings have told of a packed file.
type sighting struct {
	packed, since         int64
	seen, missing, unseen bool
}

// TestAListingOfAPartTellsOnlyOfThat plans parts of a source in any order while objects come and go, and compares
// what is recorded of each file with what the listings saw that had its name.
func TestAListingOfAPartTellsOnlyOfThat(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	r := testkit.Rand(t)
	var keys []string
	for _, a := range []string{"a/", "a/b/", "ab", "c/"} {
		for i := range 6 {
			keys = append(keys, fmt.Sprintf("%s%d", a, i))
			s.quiet(keys[len(keys)-1])
		}
	}
	with := spec
	with.Gone = 1
	parts := [][]string{nil, {"a/"}, {"a/b/"}, {"a"}, {"c/", "a/b/"}, {"a/b/3", "c/0", "c"}, {"nothing/"}}
	is := map[string]*sighting{}
	there := map[string]bool{}
	for _, key := range keys {
		there[key] = true
	}
	rounds := 60
	if testkit.Race() {
		rounds = 10
	}
	for range rounds {
		for range 4 {
			key := keys[r.IntN(len(keys))]
			if there[key] = !there[key]; there[key] {
				s.quiet(key)
			} else {
				s.S3.Remove("from", key)
			}
		}
		with.Only = parts[r.IntN(len(parts))]
		s.packs(with)
		state, err := s.B.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		number := slices.MaxFunc(listings(s.job().listingsOf(state, []span{{}})), func(a, b book.Listing) int { return int(a.Number - b.Number) }).Number
		for _, key := range keys {
			x := is[key]
			switch {
			case !haveName(spansOf(with.Only), key):
			case x == nil && there[key]:
				is[key] = &sighting{packed: number}
			case x == nil:
			case there[key]:
				x.seen, x.missing, x.unseen, x.since = true, false, false, number
			case !x.missing:
				x.missing, x.unseen, x.since = true, !x.seen, number
			}
		}
		found := 0
		for l, err := range s.B.Between(t.Context(), "", "", nil) {
			if err != nil {
				t.Fatal(err)
			}
			found++
			x := is[l.Path]
			if x == nil || l.Seq != x.packed || l.Missing != x.missing || l.Unseen != x.unseen || x.missing && l.Since != x.since {
				t.Fatalf("after %q: %s is %+v, expected %+v", with.Only, l.Path, l, x)
			}
		}
		if found != len(is) {
			t.Fatalf("%d files, expected %d", found, len(is))
		}
		for _, n := range []string{"", "a/", "a/b/2", "ab", "zz"} {
			all := listings(s.job().listingsOf(state, []span{{}}))
			if all.whole() > all.of(n) {
				t.Fatalf("%q is older than the whole", n)
			}
		}
	}
}

// TestAFileIsGoneByListingsOfItsPart checks that two listings count for a file only if both had its name.
func TestAFileIsGoneByListingsOfItsPart(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 20 {
		s.quiet(fmt.Sprintf("%c/%02d", 'a'+i%2, i))
	}
	s.quiet("b/x")
	s.packs(spec)
	a, b := spec, spec
	a.Only, b.Only = []string{"a/"}, []string{"b/"}
	s.packs(spec)
	s.S3.Remove("from", "b/x")
	finds := func(what string, with Spec, gone, missing int64) {
		t.Helper()
		s.packs(with)
		done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{DryRun: true})
		if err != nil || done.Gone != gone || done.Missing != missing {
			t.Errorf("%s: %+v, %v, expected %d gone and %d missing", what, done, err, gone, missing)
		}
	}
	finds("another part", a, 0, 0)
	finds("its part", b, 0, 1)
	s.ages(2 * week)
	finds("another part, two weeks later", a, 0, 1)
	finds("all, two weeks later", spec, 1, 0)
	s.quiet("b/x")
	finds("its part, and it is back", b, 0, 0)
	s.S3.Remove("from", "b/x")
	finds("missing anew", spec, 0, 1)
	s.ages(2 * week)
	finds("all but its part", a, 0, 1)
	finds("its part", b, 1, 0)
}

// TestListingsAtOnceKeepWhatEachFound ends a listing of a part while one of everything is under way. The second
// one to end tells nothing of the part, whichever began first: a file that one of them found is not missing
// since before.
func TestListingsAtOnceKeepWhatEachFound(t *testing.T) {
	testkit.Serial(t)
	for _, order := range []string{"the part begins first", "the whole begins first"} {
		t.Run(order, func(t *testing.T) {
			s := newSite(t)
			for i := range 20 {
				s.quiet(fmt.Sprintf("%c/%02d", 'a'+i%2, i))
			}
			for range 2 {
				s.packs(spec)
			}
			begin := func(spans []span) *planner {
				done, err := s.B.Do(t.Context(), book.Step{Begins: true})
				if err != nil {
					t.Fatal(err)
				}
				pl, err := s.f.planner(t.Context(), s.job(), done.Number, spans, nil, &Planned{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pl.close)
				pl.most = 1
				return pl
			}
			lists := func(pl *planner) {
				if err := pl.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var part, whole *planner
			if order == "the part begins first" {
				part, whole = begin(spansOf([]string{"b/"})), begin([]span{{}})
			} else {
				whole, part = begin([]span{{}}), begin(spansOf([]string{"b/"}))
			}
			s.S3.Remove("from", "b/01") // the whole does not find it, and the part does
			s.S3.Remove("from", "a/02")
			lists(whole)
			s.quiet("b/01")
			lists(part)
			for _, pl := range []*planner{part, whole} {
				if err := pl.finish(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			missing := map[string]bool{}
			for l, err := range s.B.Between(t.Context(), "", "", nil) {
				if err != nil {
					t.Fatal(err)
				}
				if l.Missing {
					missing[l.Path] = true
				}
			}
			if !maps.Equal(missing, map[string]bool{"a/02": true}) {
				t.Errorf("missing: %v", missing)
			}
			state, err := s.B.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all := s.job().listingsOf(state, []span{{}})
			if all.of("a/02") != whole.listing || all.of("b/01") != part.listing || all.of("c") != whole.listing {
				t.Errorf("recorded %+v", all)
			}
		})
	}
}

// TestListingsThatOverlapNeverSayTooMuch begins, does and ends listings of parts in any order while objects come and
// go. If a file is missing, the listing that says so did not find it, and neither did those that count and began
// later. Unless it is unseen, one did.
func TestListingsThatOverlapNeverSayTooMuch(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	r := testkit.Rand(t)
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("%c/%02d", 'a'+i%3, i))
		s.quiet(keys[i])
	}
	s.packs(spec)
	type look struct {
		*planner
		found map[string]bool // nil before it has listed
	}
	type counted struct {
		span
		found map[string]bool
	}
	var open []*look
	ended := map[int64][]counted{} // by their numbers
	all := map[int64]*look{}
	names := func() (in map[string]bool) {
		in = map[string]bool{}
		for _, key := range s.originals() {
			in[key] = true
		}
		return in
	}
	for range testkit.Rounds(t, 300) {
		switch key := keys[r.IntN(len(keys))]; r.IntN(6) {
		case 0, 1:
			if s.S3.Get("from", key) != nil {
				s.S3.Remove("from", key)
			} else {
				s.quiet(key)
			}
		case 2:
			spans := [][]span{{{}}, {{}}, spansOf([]string{"a/"}), spansOf([]string{"b/", "a/0"}), {{"a/05", "b/04"}}}[r.IntN(5)]
			done, err := s.B.Do(t.Context(), book.Step{Begins: true})
			if err != nil {
				t.Fatal(err)
			}
			pl, err := s.f.planner(t.Context(), s.job(), done.Number, spans, nil, &Planned{})
			if err != nil {
				t.Fatal(err)
			}
			defer pl.close()
			pl.most = 2
			x := &look{planner: pl}
			open, all[pl.listing] = append(open, x), x
		default:
			if len(open) == 0 {
				continue
			}
			i := r.IntN(len(open))
			x := open[i]
			if x.found == nil {
				x.found = names()
				if err := x.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := x.finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			open = slices.Delete(open, i, i+1)
			state, err := s.B.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range state.Listings {
				if l.Number == x.listing {
					ended[l.Number] = append(ended[l.Number], counted{spanOf(l), x.found})
				}
			}
		}
		for l, err := range s.B.Between(t.Context(), "", "", nil) {
			if err != nil {
				t.Fatal(err)
			}
			if !l.Missing {
				continue
			}
			if all[l.Since].found[l.Path] {
				t.Fatalf("%s is missing since %d, which found it", l.Path, l.Since)
			}
			for n, some := range ended {
				for _, c := range some {
					if n > l.Since && c.has(l.Path) && c.found[l.Path] {
						t.Fatalf("%s is missing since %d, and %d found it", l.Path, l.Since, n)
					}
				}
			}
			seen := false
			for _, x := range all { // also one that did not count, because another ended meanwhile
				seen = seen || x.found[l.Path] && haveName(x.spans, l.Path)
			}
			if !seen && !l.Unseen {
				t.Fatalf("%s is missing since %d, and none found it before", l.Path, l.Since)
			}
		}
	}
}

// TestAPartCostsWhatItHas checks that the listing of a part asks for nothing else, neither at the source nor in
// the catalogue.
func TestAPartCostsWhatItHas(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	random := testkit.Rand(t)
	for i := range 3000 {
		s.quiet(fmt.Sprintf("%02d/%x", i%50, [4]uint64{random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64()}))
	}
	s.S3.Page = 100
	all := spec
	all.ChunkSize = 1 << 30
	s.packs(all)
	s.reopen()
	count := func(with Spec) (lists, bytes int) {
		s.sees(func(r *http.Request) {
			switch {
			case r.URL.Path == "/from/" && r.URL.Query().Has("list-type"):
				if lists++; len(with.Only) > 0 && !slices.Contains(with.Only, r.URL.Query().Get("prefix")) {
					t.Errorf("%s", r.URL)
				}
			case strings.Contains(r.URL.Path, "/runs/") && r.Header.Get("Range") != "":
				var from, to int
				if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
					bytes += to - from
				}
			}
		}, func() { s.plan(with) })
		s.reopen()
		return lists, bytes
	}
	lists, bytes := count(all)
	all.Only = []string{"07/", "31/"}
	fewLists, fewBytes := count(all)
	if lists < 30 || fewLists > 4 || fewBytes > bytes/4 {
		t.Errorf("%d requests and %d bytes for all, %d and %d for two parts of 50", lists, bytes, fewLists, fewBytes)
	}
	if e := s.dry(s.B, all, 0); e.Known != 120 || e.Objects != 0 {
		t.Errorf("%+v", e)
	}
}

// TestPartsOfSeveralSources checks that prefixes are those of names in the archives.
func TestPartsOfSeveralSources(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, key := range []string{"x/a/1", "x/a/2", "x/b/1", "y/a/1", "y/2026-01/1", "y/2026-02/1"} {
		s.quiet(key)
	}
	with := Spec{Sources: []string{"s3://from/x", "s3://from/y"}, Target: "s3://out/set.caf"}
	for _, c := range []struct {
		only []string
		n    int64
	}{{[]string{"x/a"}, 2}, {[]string{"y/2026-01/", "x/b"}, 2}, {[]string{"z"}, 0}, {[]string{"y"}, 2}} {
		with.Only = c.only
		if p := s.plan(with); p.Objects != c.n {
			t.Errorf("%q: %+v", c.only, p)
		}
	}
	starred := Spec{Sources: []string{"s3://from/y/2026-*"}, Target: "s3://out/other.caf", Only: []string{"2026-02/"}}
	if p := s.plan(starred); p.Objects != 1 {
		t.Errorf("%+v", p)
	}
	starred.Only = []string{"a"}
	if p := s.plan(starred); p.Objects != 0 {
		t.Errorf("%+v", p)
	}
	for _, bad := range []Spec{{Only: []string{""}}, {Only: []string{"a"}, List: "x"}, {Only: make([]string, mostOnly+1)}} {
		bad.Sources, bad.Target = spec.Sources, spec.Target
		if _, err := bad.planned(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
