package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// setClock replaces the clock by which leases end in a catalogue.
func setClock(c *Catalog, now func() time.Time) {
	switch db := c.db.(type) {
	case *sqliteDB:
		db.now = now
	case *postgresDB:
		db.now = now
	}
}

func newPlan(t testing.TB, c *Catalog, name string) Plan {
	t.Helper()
	p, err := c.AddPlan(t.Context(), Plan{Name: name, Format: "caf", Target: "s3://out/x\xff", Settings: []byte(`{"a":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func members(paths ...string) iter.Seq2[Member, error] {
	all := make([]Member, len(paths))
	for i, p := range paths {
		all[i] = Member{Path: p, Size: 10, Version: "\"v\xff" + p + "\""}
	}
	return these(all...)
}

func these(all ...Member) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func addChunks(t testing.TB, c *Catalog, p Plan, all ...NewChunk) []Chunk {
	t.Helper()
	added, err := c.AddChunks(t.Context(), p.ID, all)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func claim(t testing.TB, c *Catalog, r Request) Chunk {
	t.Helper()
	if r.Lease == 0 {
		r.Lease = time.Hour
	}
	k, err := c.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func none(t testing.TB, c *Catalog, r Request) {
	t.Helper()
	if k, err := c.Claim(t.Context(), r); !errors.Is(err, ErrNone) {
		t.Errorf("%+v, %v", k, err)
	}
}

func gather[T any](t testing.TB, seq iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for x, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

// into is the archive of a chunk.
func into(k Chunk, paths ...string) *Addition {
	return &Addition{Archive: Archive{Address: k.Name, Format: "caf", Size: 1 << 30}, Rows: files(paths...)}
}

func outcomesOf(all []Member) (got []string) {
	for _, m := range all {
		got = append(got, fmt.Sprintf("%s %v", m.Path, m.Outcome))
	}
	return got
}

func TestAPlanIsKeptAsItWas(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		p := newPlan(t, c, "a")
		if _, err := c.AddPlan(t.Context(), Plan{Name: "a"}); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		for _, bad := range []string{"", "a\x00", "\xff"} {
			if _, err := c.AddPlan(t.Context(), Plan{Name: bad}); err == nil {
				t.Errorf("%q", bad)
			}
			if _, err := c.Plan(t.Context(), bad); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		added := addChunks(t, c, p, NewChunk{Name: "n\xff0", Members: members("", "a\x00", "b\xff")}, NewChunk{Name: "n1", Part: true})
		added = append(added, addChunks(t, c, p, NewChunk{Name: "n2", Last: true})...)
		if added[0].Objects != 3 || added[0].Bytes != 30 || added[2].Number != 2 {
			t.Errorf("%+v", added)
		}
		c.Close()
		c = open(t, address)
		got, err := c.Plan(t.Context(), "a")
		if err != nil || fmt.Sprint(got) != fmt.Sprint(p) || got.ID == 0 || time.Since(got.Created) > time.Hour {
			t.Errorf("%+v, %v, want %+v", got, err, p)
		}
		if all, err := c.Plans(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		if got := gather(t, c.Chunks(t.Context(), p.ID)); !slices.Equal(got, added) {
			t.Errorf("%+v, want %+v", got, added)
		}
		want := gather(t, members("", "a\x00", "b\xff"))
		if got := gather(t, c.Members(t.Context(), added[0].ID)); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
	})
}

func TestBadPlansLeaveNothing(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "taken"})
		broken := errors.New("the listing broke off")
		for name, bad := range map[string]NewChunk{
			"taken":    {Name: "taken"},
			"nameless": {},
			"both":     {Name: "x", Part: true, Last: true},
			"unsorted": {Name: "x", Members: members("b", "a")},
			"twice":    {Name: "x", Members: members("a", "a")},
			"negative": {Name: "x", Members: these(Member{Path: "a", Size: -1})},
			"overflow": {Name: "x", Members: these(Member{Path: "a", Size: 1 << 62}, Member{Path: "b", Size: 1 << 62})},
			"origin":   {Name: "x", Members: these(Member{Path: "a", Origin: -1})},
			"broken":   {Name: "x", Members: func(yield func(Member, error) bool) { yield(Member{}, broken) }},
		} {
			_, err := c.AddChunks(t.Context(), p.ID, []NewChunk{{Name: "good", Members: members("a")}, bad})
			if err == nil || name == "broken" && !errors.Is(err, broken) || name == "taken" && !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := c.AddChunks(t.Context(), 99, nil); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if got := gather(t, c.Chunks(t.Context(), p.ID)); len(got) != 1 {
			t.Errorf("%+v", got)
		}
		addChunks(t, c, p, NewChunk{Name: "good", Members: members("a")})
	})
}

func TestPlannedIsInOrderAndTheLastOfEachPath(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		want := map[string]string{}
		for i := range 12 {
			var in []Member
			for k, at := 0, rnd.IntN(5000); k < 1+rnd.IntN(600); k++ {
				at += 1 + rnd.IntN(3)
				m := Member{Path: fmt.Sprintf("%06d", at), Version: fmt.Sprint(i)}
				want[m.Path] = m.Version
				in = append(in, m)
			}
			addChunks(t, c, p, NewChunk{Name: fmt.Sprint(i), Members: these(in...)})
		}
		last := ""
		for m, err := range c.Planned(t.Context(), p.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Path <= last || want[m.Path] != m.Version {
				t.Fatalf("%+v after %q, want version %q", m, last, want[m.Path])
			}
			delete(want, m.Path)
			last = m.Path
		}
		if len(want) > 0 {
			t.Errorf("%d are missing", len(want))
		}
	})
}

// TestPlannedReadsInPages plans chunks with overlapping ranges, each with more
// members than one page.
func TestPlannedReadsInPages(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		const each = 4200
		for i := range 2 {
			addChunks(t, c, p, NewChunk{Name: fmt.Sprint(i), Members: func(yield func(Member, error) bool) {
				for k := range each {
					if !yield(Member{Path: fmt.Sprintf("%06d", 2*k+i)}, nil) {
						return
					}
				}
			}})
		}
		n := 0
		for m, err := range c.Planned(t.Context(), p.ID) {
			if err != nil || m.Path != fmt.Sprintf("%06d", n) {
				t.Fatalf("%d: %+v, %v", n, m, err)
			}
			n++
		}
		if n != 2*each {
			t.Error(n)
		}
	})
}

func TestAChunkIsClaimedOnceAndTakenOverWhenItsLeaseEnds(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		setClock(c, func() time.Time { return now })
		p := newPlan(t, c, "a")
		added := addChunks(t, c, p, NewChunk{Name: "0", Members: members("a")}, NewChunk{Name: "1", Members: members("b")})
		first := claim(t, c, Request{Owner: "one\xff", Lease: time.Minute})
		if first.ID != added[0].ID || first.State != ChunkLeased || first.Owner != "one\ufffd" || first.Attempts != 1 || first.Fence != 1 || first.LeaseUntil != now.Add(time.Minute) || first.Started != now {
			t.Errorf("%+v", first)
		}
		none(t, c, Request{Chunk: first.ID})
		none(t, c, Request{Plan: p.ID + 1})
		if second := claim(t, c, Request{Plan: p.ID}); second.ID != added[1].ID {
			t.Errorf("%+v", second)
		}
		none(t, c, Request{})
		now = now.Add(50 * time.Second)
		if err := c.Renew(t.Context(), first, time.Minute, 7); err != nil {
			t.Error(err)
		}
		now = now.Add(59 * time.Second)
		none(t, c, Request{})
		none(t, c, Request{Lapsed: true})
		now = now.Add(time.Second)
		late := addChunks(t, c, p, NewChunk{Name: "late"})[0]
		over := claim(t, c, Request{Owner: "two", Lease: time.Minute, Lapsed: true})
		none(t, c, Request{Lapsed: true}) // a chunk that was never leased has not lapsed
		if is, err := c.Chunk(t.Context(), over.ID); err != nil || is != over {
			t.Errorf("%+v, %v, want %+v", is, err, over)
		}
		if _, err := c.Chunk(t.Context(), 99); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		claim(t, c, Request{Chunk: late.ID, Lease: 10_000 * time.Hour})
		if over.ID != first.ID || over.Fence != 2 || over.Attempts != 2 || over.Owner != "two" || over.BytesDone != 0 {
			t.Errorf("%+v", over)
		}
		for what, err := range map[string]error{
			"renew":   c.Renew(t.Context(), first, time.Minute, 8),
			"release": c.Release(t.Context(), first, "", 0, false),
			"finish":  second(c.Finish(t.Context(), first, into(first, "a"), nil)),
		} {
			if !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all, err := c.Archives(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		// A released chunk is due after a while.
		if err := c.Release(t.Context(), over, "no\x00 luck", time.Minute, false); err != nil {
			t.Error(err)
		}
		none(t, c, Request{Chunk: over.ID})
		got := gather(t, c.Chunks(t.Context(), p.ID))[0]
		if got.State != ChunkPlanned || got.NotBefore != now.Add(time.Minute) || got.Problem != "no\ufffd luck" {
			t.Errorf("%+v", got)
		}
		now = now.Add(time.Minute)
		third := claim(t, c, Request{Chunk: over.ID})
		if third.Attempts != 3 {
			t.Errorf("%+v", third)
		}
		if err := c.Release(t.Context(), third, "poison", 0, true); err != nil {
			t.Error(err)
		}
		now = now.Add(1000 * time.Hour)
		none(t, c, Request{Chunk: third.ID})
		if n, err := c.RetryPlan(t.Context(), p.ID); n != 1 || err != nil {
			t.Error(n, err)
		}
		if again := claim(t, c, Request{Chunk: third.ID}); again.Attempts != 1 || again.Fence != 4 {
			t.Errorf("%+v", again)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestFinishRecordsEachMemberOnce(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "0", Members: members("a", "b", "c", "d", "e")}, NewChunk{Name: "1", Members: members("f")}, NewChunk{Name: "2", Members: members("g")})
		k := claim(t, c, Request{})
		left := func() iter.Seq2[Member, error] {
			return these(Member{Path: "b", Outcome: Vanished, Note: "404\x00"}, Member{Path: "c", Outcome: Changed}, Member{Path: "d", Outcome: SetAside},
				Member{Path: "e", Outcome: Packed, Size: 11, Version: "new"})
		}
		broken := errors.New("the archive cannot be read any further")
		for name, bad := range map[string]struct {
			a    *Addition
			left iter.Seq2[Member, error]
		}{
			"missing":       {into(k, "a"), left()},
			"without cause": {into(k, "a", "e"), nil},
			"not planned":   {into(k, "a", "e", "x"), left()},
			"vanished":      {into(k, "a", "b", "e"), left()},
			"no archive":    {nil, left()},
			"no member":     {into(k, "a", "e"), these(Member{Path: "x", Outcome: Vanished})},
			"pending":       {into(k, "a"), these(Member{Path: "b"})},
			"outcome":       {into(k, "a"), these(Member{Path: "b", Outcome: 9})},
			"no address":    {&Addition{Archive: Archive{}, Rows: files("a", "e")}, left()},
			"broken":        {into(k, "a"), func(yield func(Member, error) bool) { yield(Member{}, broken) }},
		} {
			if done, err := c.Finish(t.Context(), k, bad.a, bad.left); err == nil || name == "broken" && !errors.Is(err, broken) {
				t.Errorf("%s: %+v, %v", name, done, err)
			}
			if all, err := c.Archives(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%s: %+v, %v", name, all, err)
			}
			if got := outcomesOf(gather(t, c.Members(t.Context(), k.ID))); !slices.Equal(got, []string{"a pending", "b pending", "c pending", "d pending", "e pending"}) {
				t.Errorf("%s: %q", name, got)
			}
		}
		done, err := c.Finish(t.Context(), k, into(k, "e", "a"), left())
		if err != nil || done.Entries != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if again, err := c.Finish(t.Context(), k, into(k, "e", "a"), left()); err != nil || again.Archive != done.Archive {
			t.Errorf("%+v, %v", again, err)
		}
		if got, err := c.Newest(t.Context(), "a"); err != nil || got.In != done.Archive {
			t.Errorf("%+v, %v", got, err)
		}
		// Its worker may not know yet that it is finished.
		if err := c.Renew(t.Context(), k, time.Hour, 7); err != nil {
			t.Error(err)
		}
		older := k
		older.Fence--
		if err := c.Renew(t.Context(), older, time.Hour, 7); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		in := gather(t, c.Members(t.Context(), k.ID))
		if got := outcomesOf(in); !slices.Equal(got, []string{"a packed", "b vanished", "c changed", "d set aside", "e packed"}) {
			t.Errorf("%q", got)
		}
		if in[1].Note != "404\ufffd" || in[1].Version != "\"v\xffb\"" || in[1].Size != 10 || in[4].Size != 11 || in[4].Version != "new" {
			t.Errorf("%+v", in)
		}
		now := gather(t, c.Chunks(t.Context(), p.ID))[0]
		if now.State != ChunkDone || now.Archive != done.ID || now.Left != (Left{1, 1, 1, 0}) || now.Finished.IsZero() || now.BytesDone != 50 {
			t.Errorf("%+v", now)
		}
		// An archive of another chunk is not replaced.
		k = claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, &Addition{Archive: done.Archive, Rows: files("f")}, nil); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
		// If nothing is left of the chunk, there is no archive.
		if done, err := c.Finish(t.Context(), k, nil, these(Member{Path: "f", Outcome: Vanished})); err != nil || done != (Added{}) {
			t.Errorf("%+v, %v", done, err)
		}
		claim(t, c, Request{})
		got, err := c.Totals(t.Context(), p.ID)
		want := Totals{}
		want.States[ChunkDone], want.States[ChunkLeased] = Tally{2, 6, 60}, Tally{1, 1, 10}
		want.Outcomes = [outcomes]int64{Pending: 1, Packed: 2, Vanished: 2, Changed: 1, SetAside: 1}
		if err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		sound(t, c)
	})
}

func TestPartsAreInTheArchiveOfTheLast(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "0", Part: true, Members: members("a", "b")}, NewChunk{Name: "1", Part: true, Members: members("b", "c")}, NewChunk{Name: "all", Last: true})
		one, two := claim(t, c, Request{}), claim(t, c, Request{})
		none(t, c, Request{})
		if _, err := c.Finish(t.Context(), one, into(one, "a", "b"), nil); err == nil {
			t.Error("an archive of a part")
		}
		for _, k := range []Chunk{one, two} {
			none(t, c, Request{})
			if _, err := c.Finish(t.Context(), k, nil, these(gather(t, members())...)); err != nil {
				t.Fatal(err)
			}
		}
		last := claim(t, c, Request{})
		for _, paths := range [][]string{{"a", "b"}, {"a", "b", "c", "d"}, nil} {
			if _, err := c.Finish(t.Context(), last, into(last, paths...), nil); err == nil {
				t.Errorf("%q", paths)
			}
		}
		if _, err := c.Finish(t.Context(), last, nil, nil); err == nil {
			t.Error("no archive")
		}
		done, err := c.Finish(t.Context(), last, into(last, "a", "b", "c"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range gather(t, c.Chunks(t.Context(), p.ID)) {
			if k.Archive != done.ID || k.State != ChunkDone {
				t.Errorf("%+v", k)
			}
		}
		// A later batch has its own last chunk.
		addChunks(t, c, p, NewChunk{Name: "2", Part: true, Members: members("d")}, NewChunk{Name: "more", Last: true})
		part := claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), part, nil, nil); err != nil {
			t.Fatal(err)
		}
		last = claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), last, into(last, "d"), nil); err != nil {
			t.Error(err)
		}
		none(t, c, Request{})
		sound(t, c)
	})
}

func TestACancelledPlanIsPackedNoMore(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "0", Members: members("a")}, NewChunk{Name: "1", Members: members("b")}, NewChunk{Name: "2"})
		done, under := claim(t, c, Request{}), claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), done, into(done, "a"), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.CancelPlan(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		none(t, c, Request{})
		if err := c.Renew(t.Context(), under, time.Hour, 0); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if _, err := c.Finish(t.Context(), under, into(under, "b"), nil); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if _, err := c.AddChunks(t.Context(), p.ID, []NewChunk{{Name: "3"}}); !errors.Is(err, ErrCancelled) {
			t.Error(err)
		}
		if got, err := c.Plan(t.Context(), "a"); err != nil || !got.Cancelled {
			t.Errorf("%+v, %v", got, err)
		}
		if n, err := c.RetryPlan(t.Context(), p.ID); err != nil || n != 2 {
			t.Error(n, err)
		}
		if err := c.Renew(t.Context(), under, time.Hour, 0); !errors.Is(err, ErrLost) {
			t.Errorf("the claim from before it was cancelled: %v", err)
		}
		if again := claim(t, c, Request{}); again.ID != under.ID || again.Fence <= under.Fence {
			t.Errorf("%+v", again)
		}
		for _, err := range []error{c.CancelPlan(t.Context(), 99), second(c.RetryPlan(t.Context(), 99))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
}

func TestManyClaimAndEachChunkIsDoneOnce(t *testing.T) {
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		p := newPlan(t, c, "a")
		const chunks = 40
		var all []NewChunk
		for i := range chunks {
			all = append(all, NewChunk{Name: fmt.Sprint("n", i), Members: members(fmt.Sprintf("%03d/a", i), fmt.Sprintf("%03d/b", i))})
		}
		addChunks(t, c, p, all...)
		var mu sync.Mutex
		seen := map[int64]int{}
		var wg sync.WaitGroup
		for w := range 8 {
			own := c
			if w%2 == 0 {
				own = open(t, address) // open in another process
			}
			wg.Go(func() {
				for {
					k, err := own.Claim(t.Context(), Request{Owner: fmt.Sprint(w), Lease: time.Hour})
					if errors.Is(err, ErrNone) {
						return
					} else if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[k.ID]++
					mu.Unlock()
					if _, err := own.Finish(t.Context(), k, into(k, fmt.Sprintf("%03d/a", k.Number), fmt.Sprintf("%03d/b", k.Number)), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for id, n := range seen {
			if n != 1 {
				t.Errorf("chunk %d: claimed %d times", id, n)
			}
		}
		if got, err := c.Totals(t.Context(), p.ID); err != nil || len(seen) != chunks || got.Outcomes[Packed] != 2*chunks {
			t.Errorf("%d chunks, %+v, %v", len(seen), got, err)
		}
		if n := len(collect(t, c.Below(t.Context(), ""))); n != 2*chunks {
			t.Errorf("%d paths", n)
		}
		sound(t, c)
	})
}

func damaged(t testing.TB, c *Catalog, p Plan) []Member {
	t.Helper()
	return gather(t, c.LeftOut(t.Context(), p.ID, Damaged))
}

func TestDamageAndProofsAreKeptOfEachMember(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "0", Members: members("a", "b", "c", "d", "e")}, NewChunk{Name: "1", Members: members("f", "g")}, NewChunk{Name: "2", Members: members("h")})
		k := claim(t, c, Request{})
		k.Proven = "md5:2 crc32c_of_parts:1"
		if _, err := c.Finish(t.Context(), k, into(k, "a", "b", "e"), these(Member{Path: "b", Outcome: Packed, Size: 10, Version: "v", Proof: "crc32c_of_parts"},
			Member{Path: "c", Outcome: Damaged, Note: "expected md5 00"}, Member{Path: "d", Outcome: Vanished})); err != nil {
			t.Fatal(err)
		}
		k = claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, into(k, "f"), these(Member{Path: "g", Outcome: Damaged})); err != nil {
			t.Fatal(err)
		}
		in := gather(t, c.Members(t.Context(), 1))
		if in[0].Proof != "" || in[1].Proof != "crc32c_of_parts" || in[2].Note != "expected md5 00" {
			t.Errorf("%+v", in)
		}
		all := gather(t, c.Chunks(t.Context(), p.ID))
		if all[0].Proven != "md5:2 crc32c_of_parts:1" || all[1].Proven != "" || all[0].Left != (Left{Vanished: 1, Damaged: 1}) {
			t.Errorf("%+v", all)
		}
		got, err := c.Totals(t.Context(), p.ID)
		if want := [outcomes]int64{Pending: 1, Packed: 4, Vanished: 1, Damaged: 2}; err != nil || got.Outcomes != want {
			t.Errorf("%+v, %v", got.Outcomes, err)
		}
		if got := outcomesOf(damaged(t, c, p)); !slices.Equal(got, []string{"c damaged", "g damaged"}) {
			t.Errorf("%q", got)
		}
		if left := gather(t, c.LeftOut(t.Context(), p.ID, Vanished, Damaged)); !slices.Equal(outcomesOf(left), []string{"c damaged", "d vanished", "g damaged"}) || left[0].Note != "expected md5 00" {
			t.Errorf("%+v", left)
		}
		// An object that is planned again is no longer left out, whatever happens to
		// it.
		addChunks(t, c, p, NewChunk{Name: "3", Members: members("bb", "c", "k")})
		if got := outcomesOf(damaged(t, c, p)); !slices.Equal(got, []string{"g damaged"}) {
			t.Errorf("%q", got)
		}
		claim(t, c, Request{})
		k = claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, into(k, "bb", "k"), these(Member{Path: "c", Outcome: Damaged, Note: "again"})); err != nil {
			t.Fatal(err)
		}
		left := damaged(t, c, p)
		if got := outcomesOf(left); !slices.Equal(got, []string{"g damaged", "c damaged"}) || left[1].Note != "again" {
			t.Errorf("%+v", left)
		}
		sound(t, c)
	})
}

// TestPlansAreForgotten checks that a plan can be forgotten when no worker can
// work on it any more, and that its archives stay.
func TestPlansAreForgotten(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		empty, p, other := newPlan(t, c, "empty"), newPlan(t, c, "a"), newPlan(t, c, "b")
		addChunks(t, c, p, NewChunk{Name: "0", Members: members("a", "b")}, NewChunk{Name: "1", Members: members("c")})
		addChunks(t, c, other, NewChunk{Name: "2", Members: members("d")})
		k := claim(t, c, Request{Plan: p.ID})
		if _, err := c.Finish(t.Context(), k, into(k, "a", "b"), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.ForgetPlan(t.Context(), p.ID); !errors.Is(err, ErrOpen) {
			t.Errorf("a plan with a chunk to be packed: %v", err)
		}
		if now, err := c.Plan(t.Context(), p.Name); err != nil || now.Cancelled {
			t.Errorf("%+v, %v", now, err)
		}
		if err := c.CancelPlan(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		for _, id := range []int64{empty.ID, p.ID} {
			if err := c.ForgetPlan(t.Context(), id); err != nil {
				t.Error(err)
			}
			if err := c.ForgetPlan(t.Context(), id); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("forgotten twice: %v", err)
			}
		}
		if all, err := c.Plans(t.Context()); err != nil || len(all) != 1 || all[0].Name != "b" {
			t.Errorf("%+v, %v", all, err)
		}
		if left := gather(t, c.Members(t.Context(), k.ID)); len(left) > 0 {
			t.Errorf("%+v", left)
		}
		if all, err := c.Archives(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		claim(t, c, Request{Plan: other.ID})
		sound(t, c)
	})
}

// TestPlansOfOlderSchemasAreGoneOnWith checks that plans from before the
// outcome Damaged can still be worked on.
func TestPlansOfOlderSchemasAreGoneOnWith(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		p := newPlan(t, c, "a")
		addChunks(t, c, p, NewChunk{Name: "0", Members: members("a", "b")}, NewChunk{Name: "1", Members: members("c", "d")})
		k := claim(t, c, Request{})
		if _, err := c.Finish(t.Context(), k, into(k, "a"), these(Member{Path: "b", Outcome: SetAside})); err != nil {
			t.Fatal(err)
		}
		k = claim(t, c, Request{})
		// The first version with plans had this schema.
		if err := c.db.write(t.Context(), nil, func(s session) error {
			for _, sql := range []string{"ALTER TABLE chunks DROP COLUMN damaged", "ALTER TABLE chunks DROP COLUMN proven", "ALTER TABLE members DROP COLUMN proof",
				"DROP VIEW file_locations", "ALTER TABLE chunks DROP COLUMN from_locations", "DROP INDEX chunks_archive", "ALTER TABLE archives DROP COLUMN roots", "ALTER TABLE locations DROP COLUMN object", "DROP TABLE headers", "ALTER TABLE archives DROP COLUMN dead", "DROP TABLE removals", "DROP TABLE identity", "ALTER TABLE archives DROP COLUMN listed"} {
				if _, err := s.exec(t.Context(), sql); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if kind, rest := scheme(address); kind == "sqlite" {
			setVersion(t, rest, 3)
		} else {
			must(t, past(t, address), "UPDATE holdall.catalogue SET holdall_schema = 1")
		}
		if _, err := Open(t.Context(), address, Options{ReadOnly: true}); err == nil {
			t.Error("an older schema was opened for reading only")
		}
		c = open(t, address)
		if done := gather(t, c.Chunks(t.Context(), p.ID))[0]; done.Left != (Left{SetAside: 1}) || done.Proven != "" {
			t.Errorf("%+v", done)
		}
		k.Proven = "nothing:1"
		if _, err := c.Finish(t.Context(), k, into(k, "c"), these(Member{Path: "d", Outcome: Damaged})); err != nil {
			t.Fatal(err)
		}
		if got := outcomesOf(damaged(t, c, p)); !slices.Equal(got, []string{"d damaged"}) {
			t.Errorf("%q", got)
		}
		sound(t, c)
	})
}
