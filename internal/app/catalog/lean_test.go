package catalog

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// For packed members the catalogue keeps only what the archive's locations do
// not have.

var twoRoots = RootsOf([]Root{{"a/", "s3://one/"}, {"b/", "s3://two/"}})

// etagged are members with ETags, those below b/ of the second source.
func etagged(paths ...string) (all []Member) {
	for _, path := range paths {
		all = append(all, Member{Path: path, Origin: boolean(strings.HasPrefix(path, "b/")), Size: 10, Version: `"` + hex.EncodeToString([]byte(fmt.Sprintf("%016d", len(path)))) + `"`})
	}
	return all
}

// as returns an archive with the members of a chunk as they were planned.
func as(k Chunk, roots Roots, all ...Member) *Addition {
	a := into(k)
	a.Roots = roots
	a.Rows = func(yield func(Location, error) bool) {
		for _, m := range all {
			if !yield(Location{Path: m.Path, Size: m.Size, ETag: m.Version, Modified: time.Unix(1_700_000_000, 5)}, nil) {
				return
			}
		}
	}
	return a
}

// rowsLeft counts the members that are rows.
func rowsLeft(t *testing.T, c *Catalog) int64 {
	t.Helper()
	n, err := read(t.Context(), c, numberIn, "SELECT count(*) FROM members")
	if err != nil {
		t.Fatal(err)
	}
	return n[0]
}

func packedAs(all []Member) []Member {
	all = slices.Clone(all)
	for i := range all {
		all[i].Outcome = Packed
	}
	return all
}

// untimed returns members without the times that only locations have.
func untimed(all []Member) []Member {
	for i := range all {
		all[i].Modified = time.Time{}
	}
	return all
}

func TestPackedMembersAreNoRowsOfTheirOwn(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		all := etagged("a/1", "a/22", "a/333", "a/4444", "a/odd", "b/1", "b/left", "b/proof")
		all[4].Version = `W/"weak"`
		addChunks(t, c, p, NewChunk{Name: "0", Members: these(all...)}, NewChunk{Name: "1", Members: these(etagged("c")...)})
		k := claim(t, c, Request{})
		k.Proven = "md5:6 nothing:1"
		in := slices.Clone(all)
		in[3].Version = `"other"` // than was planned
		in = slices.Delete(in, 6, 7)
		proof := all[7]
		proof.Outcome, proof.Proof = Packed, "nothing"
		done, err := c.Finish(t.Context(), k, as(k, twoRoots, in...), these(Member{Path: "b/left", Outcome: Damaged, Note: "no"}, proof))
		if err != nil {
			t.Fatal(err)
		}
		// a/4444, b/left, b/proof, and the members that are not packed.
		if n := rowsLeft(t, c); n != 4 {
			t.Errorf("%d rows", n)
		}
		for _, m := range gather(t, c.Members(t.Context(), k.ID)) {
			if m.Modified.IsZero() != (m.Path == "b/left") {
				t.Errorf("%+v", m)
			}
		}
		want := packedAs(all)
		want[6].Outcome, want[6].Note, want[7].Proof = Damaged, "no", "nothing"
		members := func() []Member { return untimed(gather(t, c.Members(t.Context(), k.ID))) }
		if got := members(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		want = append(want, etagged("c")...)
		planned := func() []Member { return untimed(gather(t, c.Planned(t.Context(), p.ID))) }
		if got := planned(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		if got := outcomesOf(damaged(t, c, p)); !slices.Equal(got, []string{"b/left damaged"}) {
			t.Errorf("%q", got)
		}
		totals := func(objects int64) {
			t.Helper()
			got, err := c.Totals(t.Context(), p.ID)
			if err != nil || got.States[ChunkDone] != (Tally{1, objects, 10 * objects}) || got.Outcomes[Packed] != objects-1 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		totals(8)
		// A deleted path counts as not planned. One of the two has a row, the other
		// has not.
		if n, err := c.Delete(t.Context(), twoRoots, []string{"a/22", "a/4444", "a/none"}, 0); err != nil || n != 2 {
			t.Error(n, err)
		}
		want = slices.Delete(slices.Delete(want, 3, 4), 1, 2)
		totals(6)
		if n, err := c.Delete(t.Context(), twoRoots, []string{"a/22"}, 0); err != nil || n != 0 {
			t.Error(n, err)
		}
		totals(6)
		if got := planned(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		// Its archive may be removed or replaced; the plan still has its members.
		other := done.Archive
		other.Size++
		add(t, c, other, files("x"))
		if got := planned(); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		if n := rowsLeft(t, c); n != 7 {
			t.Errorf("%d rows", n)
		}
		sound(t, c)
	})
}

func TestAnArchiveThatIsRemovedLeavesItsMembers(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		all := etagged("a/1", "a/2", "b/1")
		addChunks(t, c, p, NewChunk{Name: "0", Members: these(all...)})
		k := claim(t, c, Request{})
		done, err := c.Finish(t.Context(), k, as(k, twoRoots, all...), nil)
		if n := rowsLeft(t, c); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		if _, err := c.Remove(t.Context(), done.Address); err != nil {
			t.Fatal(err)
		}
		if got := untimed(gather(t, c.Planned(t.Context(), p.ID))); !slices.Equal(got, packedAs(all)) {
			t.Errorf("%+v", got)
		}
		// After its archive was dropped, as none of its files is visible, the plan has
		// no members any more.
		addChunks(t, c, p, NewChunk{Name: "1", Members: these(all...)})
		k = claim(t, c, Request{})
		if done, err = c.Finish(t.Context(), k, as(k, twoRoots, all...), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Delete(t.Context(), twoRoots, []string{"a/1", "a/2", "b/1"}, 0); err != nil {
			t.Fatal(err)
		}
		if err := c.Spare(t.Context(), []int64{done.ID}, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Drop(t.Context(), done.ID, 0); err != nil {
			t.Fatal(err)
		}
		if got := untimed(gather(t, c.Members(t.Context(), k.ID))); len(got) > 0 {
			t.Errorf("%+v", got)
		}
		sound(t, c)
	})
}

// TestWhatALaterChunkHasIsNotLeftOut checks that a path that was left out no
// longer counts as left out when a later chunk has it, as a row or not.
func TestWhatALaterChunkHasIsNotLeftOut(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		all := etagged("a/1", "a/2")
		addChunks(t, c, p, NewChunk{Name: "0", Members: these(all...)}, NewChunk{Name: "1", Members: these(all[1])})
		k := claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, as(k, twoRoots, all[0]), these(Member{Path: "a/2", Outcome: Damaged})); err != nil {
			t.Fatal(err)
		}
		k = claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, as(k, twoRoots, all[1]), nil); err != nil {
			t.Fatal(err)
		}
		if n := rowsLeft(t, c); n != 1 {
			t.Errorf("%d rows", n)
		}
		if got := damaged(t, c, p); len(got) > 0 {
			t.Errorf("%+v", got)
		}
		if _, err := c.Delete(t.Context(), twoRoots, []string{"a/2"}, 0); err != nil {
			t.Fatal(err)
		}
		if got := damaged(t, c, p); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestPlannedIsWholeWhileChunksAreFinished checks that a reader of planned
// members sees each one, even while chunks are finished and all rows are
// removed.
func TestPlannedIsWholeWhileChunksAreFinished(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		const each = 5000
		var all []Member
		for i := range 3 * each {
			all = append(all, etagged(fmt.Sprintf("a/%06d", i))...)
		}
		for i := range 3 {
			addChunks(t, c, p, NewChunk{Name: fmt.Sprint(i), Members: these(all[i*each : (i+1)*each]...)})
		}
		n := 0
		for m, err := range c.Planned(t.Context(), p.ID) {
			if err != nil || m.Path != all[n].Path || m.Version != all[n].Version {
				t.Fatalf("%d: %+v, %v", n, m, err)
			}
			if n == 100 || n == 7000 {
				k := claim(t, c, Request{})
				if _, err := c.Finish(t.Context(), k, as(k, twoRoots, all[k.Number*each:(k.Number+1)*each]...), nil); err != nil {
					t.Fatal(err)
				}
			}
			n++
		}
		if n != len(all) {
			t.Error(n)
		}
		if n := rowsLeft(t, c); n != each {
			t.Errorf("%d rows", n)
		}
		if got := untimed(gather(t, c.Planned(t.Context(), p.ID))); len(got) != len(all) {
			t.Error(len(got))
		}
	})
}

// TestMembersOfPartsAreInTheArchiveOfTheLast checks that parts without common
// paths lose their rows like chunks with their own archives, and that other
// parts keep their rows.
func TestMembersOfPartsAreInTheArchiveOfTheLast(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		for i, parts := range [][][]Member{
			{etagged("a/1", "a/2"), etagged("a/3", "b/1")},
			{etagged("a/1", "a/2"), etagged("a/2", "b/1")},
		} {
			p := newPlan(t, c, fmt.Sprint(i))
			addChunks(t, c, p, NewChunk{Name: "0", Part: true, Members: these(parts[0]...)}, NewChunk{Name: "1", Part: true, Members: these(parts[1]...)}, NewChunk{Name: fmt.Sprint("all", i), Last: true})
			for range 2 {
				k := claim(t, c, Request{Plan: p.ID})
				if _, err := c.Finish(t.Context(), k, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			both := map[string]Member{}
			for _, m := range slices.Concat(parts...) {
				both[m.Path] = m
			}
			var want []Member
			for _, m := range both {
				want = append(want, m)
			}
			slices.SortFunc(want, func(a, b Member) int { return strings.Compare(a.Path, b.Path) })
			k := claim(t, c, Request{Plan: p.ID})
			if _, err := c.Finish(t.Context(), k, as(k, twoRoots, want...), nil); err != nil {
				t.Fatal(err)
			}
			if got := untimed(gather(t, c.Planned(t.Context(), p.ID))); !slices.Equal(got, packedAs(want)) {
				t.Errorf("%d: %+v", i, got)
			}
			if n := rowsLeft(t, c); n != int64(4*i) {
				t.Errorf("%d: %d rows", i, n)
			}
			for n, k := range gather(t, c.Chunks(t.Context(), p.ID))[:2] {
				if got := untimed(gather(t, c.Members(t.Context(), k.ID))); !slices.Equal(got, packedAs(parts[n])) {
					t.Errorf("%d: %d: %+v", i, n, got)
				}
			}
		}
		sound(t, c)
	})
}

// TestMembersAmongManyOthersAreRows checks that a few files that lie among
// very many others keep their rows, so that a reader need not skip the others.
func TestMembersAmongManyOthersAreRows(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf("a/%03d", i))
		}
		add(t, c, Archive{Address: "many"}, files(many...))
		p := newPlan(t, c, "a")
		all := etagged("a/000", "a/099")
		addChunks(t, c, p, NewChunk{Name: "0", Members: these(all...)})
		k := claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, as(k, twoRoots, all...), nil); err != nil {
			t.Fatal(err)
		}
		if n := rowsLeft(t, c); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestETagsAreReadByTheDatabases checks that the databases decode locations as
// the Go code does.
func TestETagsAreReadByTheDatabases(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		want := map[string]string{}
		var all []Location
		for i := range 300 {
			l := Location{Path: fmt.Sprintf("%04d", i)}
			if rnd.IntN(4) > 0 {
				l.Modified = time.Unix((rnd.Int64()>>rnd.IntN(63))*int64(1-2*rnd.IntN(2)), 0)
			}
			if rnd.IntN(2) > 0 {
				l.Modified = l.Modified.Add(time.Duration(rnd.IntN(1e9)))
			}
			if rnd.IntN(2) > 0 {
				l.HeaderText = HeaderText(map[string]string{"content-type": fmt.Sprint(i)})
			}
			switch rnd.IntN(3) {
			case 0:
				l.ETag = etagged(strings.Repeat("x", rnd.IntN(30)))[0].Version
			case 1:
				l.ETag = string([]byte{byte(rnd.IntN(256)), byte(rnd.IntN(256)), byte(rnd.IntN(256))}[:rnd.IntN(4)])
			}
			want[l.Path] = l.ETag
			all = append(all, l)
		}
		add(t, c, Archive{Address: "x"}, func(yield func(Location, error) bool) {
			for _, l := range all {
				if !yield(l, nil) {
					return
				}
			}
		})
		type pair struct{ path, etag string }
		got, err := read(t.Context(), c, func(p *pair) []any { return []any{(*blob)(&p.path), (*blob)(&p.etag)} }, "SELECT l.path, "+c.db.dialect().etag+" FROM locations AS l")
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d, %v", len(got), err)
		}
		for _, p := range got {
			if p.etag != want[p.path] {
				t.Errorf("%s: %q, want %q", p.path, p.etag, want[p.path])
			}
		}
	})
}
