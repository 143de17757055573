package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/testkit"
)

// ranged is a plan whose listing is handed out.
func ranged(n int) Spec {
	with := spec
	with.Ranges, with.ChunkSize = n, 5_000
	return with
}

// since returns a commit after which all names were listed.
func (s *site) since() int64 {
	s.T.Helper()
	state, err := s.B.State(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	return s.job().listingsOf(state, []span{{}}).whole()
}

// TestRangesAreListedByWorkers lists a source in ranges that are found by the source, and then by the catalogue.
func TestRangesAreListedByWorkers(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 300 {
		s.quiet(fmt.Sprintf("all/%02d/%d/%03d", i%25, i%3, i))
	}
	s.quiet("a first one")
	s.quiet("zz")
	p := s.plan(ranged(8))
	if p.Ranges != 8 || p.Chunks != 0 {
		t.Errorf("planned %+v", p)
	}
	if again := s.plan(ranged(5)); again.Ranges != 8 {
		t.Errorf("planned again %+v", again)
	}
	if jobs := s.status().Jobs[listKind][queue.Waiting]; jobs != 8 {
		t.Errorf("%d jobs", jobs)
	}
	found := int64(0)
	sum := s.work(WorkOptions{Workers: 4, Tell: func(e Event) {
		found += e.Chunk.Planned.Objects
	}})
	if sum.Objects != 302 || found != 302 || sum.Failed != 0 {
		t.Errorf("packed %+v, found %d", sum, found)
	}
	s.Check()
	first := s.since()
	if first == 0 {
		t.Error("some names were not listed")
	}
	s.S3.Remove("from", "all/07/1/007")
	for range 2 {
		p = s.plan(ranged(6))
		if p.Ranges != 6 {
			t.Errorf("planned %+v", p)
		}
		s.quiet(fmt.Sprintf("all/new/%d", len(s.Want)))
		if sum := s.work(WorkOptions{Workers: 3}); sum.Objects != 1 || sum.Failed != 0 {
			t.Errorf("packed %+v", sum)
		}
	}
	if last := s.since(); last <= first {
		t.Errorf("listed since %d, and before since %d", last, first)
	}
	l, err := s.B.Newest(t.Context(), "all/07/1/007")
	if err != nil || !l.Missing || !l.Unseen {
		t.Errorf("%+v, %v", l, err)
	}
	if p := s.plan(ranged(0)); p.Objects != 0 || p.Known != 303 || p.Missing != 1 {
		t.Errorf("listed as a whole: %+v", p)
	}
}

// TestARangeThatIsKilledIsListedAgain ends the listing of a range at each of its requests, and does it again, and
// once more.
func TestARangeThatIsKilledIsListedAgain(t *testing.T) {
	testkit.Serial(t)
	for n := 1; ; n++ {
		ended := false
		for _, done := range []bool{false, true} {
			s := newSite(t)
			for i := range 40 {
				s.quiet(fmt.Sprintf("%d/%03d", i%4, i))
			}
			with := ranged(2)
			with.ChunkSize = 60
			s.plan(with)
			args := listArgs{Since: s.planOf(spec.Target).first, Number: 0, Before: "2/"}
			b, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			job := queue.Job{Plan: spec.Target, Kind: listKind, Name: args.name(), Args: b, Attempt: 1}
			do := func(ctx context.Context) error { return newWorker(s.f, WorkOptions{}).do(ctx, job) }
			dead, err := s.killed(n, done, do)
			if !dead && err != nil {
				t.Fatal(err)
			}
			ended = ended || !dead
			s.reopen()
			for range 2 {
				if err := do(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if sum := s.work(WorkOptions{Workers: 2}); sum.Objects != 40 {
				t.Errorf("at request %d, %v: %+v", n, done, sum)
			}
			s.Check()
			if s.since() == 0 {
				t.Errorf("at request %d, %v: some names were not listed", n, done)
			}
			if left := s.S3.Keys("out"); slices.ContainsFunc(left, func(key string) bool { return strings.HasPrefix(key, path.Join("set.catalog", workKind)) }) {
				t.Errorf("at request %d, %v: %q", n, done, left)
			}
		}
		if ended {
			break
		}
	}
}

// TestARangeKnowsWhatWaits checks that a range does not plan again what waited when it was handed out, and that it
// hands that out if the queue was lost.
func TestARangeKnowsWhatWaits(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 60 {
		s.quiet(fmt.Sprintf("%d/%03d", i%6, i))
	}
	with := ranged(0)
	with.ChunkSize = 100
	first := s.plan(with)
	if _, err := s.Q.Cancel(t.Context(), spec.Target); err != nil {
		t.Fatal(err)
	}
	s.quiet("3/new")
	with.Ranges = 3
	s.plan(with)
	found, packed := int64(0), 0
	s.work(WorkOptions{Workers: 2, Tell: func(e Event) {
		found += e.Chunk.Planned.Objects
		if e.What == queue.Done && e.Job.Kind == packKind {
			packed++
		}
	}})
	if found != 1 || packed != first.Chunks+1 {
		t.Errorf("found %d, packed %d chunks", found, packed)
	}
	s.Check()
}

// TestARangeWithTooFewObjectsIsSetAside checks that a mistake in one range stops that range, and no other.
func TestARangeWithTooFewObjectsIsSetAside(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 40 {
		s.quiet(fmt.Sprintf("%d/%03d", i%4, i))
	}
	s.packs(ranged(2))
	for _, key := range s.S3.Keys("from") {
		if strings.HasPrefix(key, "0/") {
			s.S3.Remove("from", key)
		}
	}
	s.packs(ranged(4))
	status := s.status()
	if len(status.Problems) != 1 || !strings.Contains(status.Problems[0].Problem, "originals are missing") || status.Problems[0].Status != queue.SetAside {
		t.Errorf("%+v", status.Problems)
	}
	for l, err := range s.B.Between(t.Context(), "", "", nil) {
		if err != nil || l.Missing {
			t.Errorf("%+v, %v", l, err)
		}
	}
}

func TestWhatCannotBeListedInRanges(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.quiet("x")
	for _, bad := range []Spec{{Ranges: -1}, {Ranges: mostRanges + 1}, {Ranges: 1, Only: []string{"a"}}, {Ranges: 1, List: "x"}} {
		bad.Sources, bad.Target = spec.Sources, spec.Target
		if _, err := bad.planned(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	with := bundle
	with.Ranges = 2
	if _, err := MakePlan(t.Context(), s.f, with, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a bundle: %v", err)
	}
	if p := s.plan(ranged(5)); p.Ranges != 1 {
		t.Errorf("one object: %+v", p)
	}
	if err := newWorker(s.f, WorkOptions{}).do(t.Context(), queue.Job{Plan: spec.Target, Kind: listKind, Name: "list-1", Args: []byte("{}")}); err == nil {
		t.Error("another job is taken for a range")
	}
}
