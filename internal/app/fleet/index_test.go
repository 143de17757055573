package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
)

// acceptsIndexes makes the largest index that is read much smaller.
func acceptsIndexes(t *testing.T, most int64) {
	was := maxIndex
	maxIndex = most
	t.Cleanup(func() { maxIndex = was })
}

// indexes checks that all archives can be read with an index of at most so many
// bytes, and returns how many there are.
func (s *site) indexes() (n int) {
	s.T.Helper()
	archives, err := s.B.Archives(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	for _, a := range archives {
		in, err := holdall.Open(s.T.Context(), a.Address, holdall.OpenOptions{Limits: format.Limits{Index: maxIndex}})
		if err != nil {
			s.T.Errorf("%s: %v", a.Address, err)
			continue
		}
		in.Close()
	}
	return len(archives)
}

// TestChunksAreCutByTheirIndex checks that small objects make more archives, so
// that each can be read, and that a dry run knows that.
func TestChunksAreCutByTheirIndex(t *testing.T) {
	testkit.Serial(t)
	acceptsIndexes(t, 32<<10)
	s := newSite(t)
	for i := range 300 {
		s.put(fmt.Sprintf("%03d %s \u65e5\u672c", i, strings.Repeat("long", i%40)), i)
	}
	// Shards have no index of their own.
	bundle := spec
	bundle.Format, bundle.Target = "databundle", "s3://out/set.bundle"
	if e := s.dry(s.B, bundle, 0); e.Chunks != 2 {
		t.Errorf("%+v", e.Planned)
	}
	e := s.dry(s.B, spec, 0)
	p := s.plan(spec)
	if p.Chunks < 8 || p.Chunks != e.Chunks || p.Objects != 300 {
		t.Errorf("planned %+v, dry %+v", p, e.Planned)
	}
	if sum := s.work(WorkOptions{}); sum.Done != p.Chunks || sum.Objects != 300 {
		t.Errorf("%+v", sum)
	}
	if n := s.indexes(); n != p.Chunks {
		t.Errorf("%d archives of %d chunks", n, p.Chunks)
	}
	s.Check()
	// Archives that are full of index are not joined again and again.
	for range 2 {
		if done := s.compact(CompactOptions{}); done.Chunks != 0 || int(done.Archives) != p.Chunks {
			t.Errorf("%+v", done)
		}
	}
}

// TestNothingIsUploadedThatCannotBeRecorded checks objects with more metadata
// than a plan expects. What does not fit into an archive is planned again, and
// all archives can be read.
func TestNothingIsUploadedThatCannotBeRecorded(t *testing.T) {
	testkit.Serial(t)
	acceptsIndexes(t, 64<<10)
	on(t, func(t *testing.T, s *site) {
		long := strings.Repeat("metadata", 256)
		for i := range 120 {
			name := fmt.Sprintf("%03d", i)
			s.put(name, 100)
			s.S3.Describe("from", name, map[string]string{"X-Amz-Meta-Long": long, "X-Amz-Meta-Number": name})
		}
		left, rounds := int64(120), 0
		for ; left > 0 && rounds < 10; rounds++ {
			aside := int64(0)
			if p := s.plan(spec); p.Objects != left {
				t.Fatalf("round %d: planned %+v, expected %d", rounds, p, left)
			}
			s.work(WorkOptions{Tell: func(e Event) {
				if e.Err != nil {
					t.Errorf("%s: %v", e.What, e.Err)
				}
				for _, m := range e.Chunk.Left {
					if aside++; m.Outcome != SetAside || !strings.Contains(m.Note, "index") {
						t.Errorf("%+v", m)
					}
				}
			}})
			if left = aside; rounds == 0 && left == 0 {
				t.Error("all of them fit")
			}
			s.indexes()
		}
		if left > 0 {
			t.Errorf("%d are left after %d rounds", left, rounds)
		}
		s.Check()
		// A compaction knows the metadata, and leaves nothing out.
		p := s.planOf(spec.Target)
		before := s.keys("out")
		if done, err := Compact(t.Context(), s.f, p, CompactOptions{Dead: -1}); err != nil || done.Chunks < 4 {
			t.Fatalf("%+v, %v", done, err)
		}
		s.work(WorkOptions{Tell: func(e Event) {
			if e.Err != nil || len(e.Chunk.Left) > 0 {
				t.Errorf("%s: %v, %d left out", e.What, e.Err, len(e.Chunk.Left))
			}
		}})
		if _, removed, err := Tidy(t.Context(), s.f, p, 0); err != nil || removed != len(before) {
			t.Errorf("%d removed of %d, %v", removed, len(before), err)
		}
		n := s.indexes()
		s.Check()
		for range 3 {
			s.compact(CompactOptions{})
		}
		if now := s.indexes(); now > n {
			t.Errorf("%d archives, before %d", now, n)
		}
		if done := s.compact(CompactOptions{}); done.Chunks != 0 {
			t.Errorf("there is always something to compact: %+v", done)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(s.Want)), s.names()) {
			t.Error("names are lost")
		}
	})
}

// names returns the visible names.
func (s *site) names() (all []string) {
	s.T.Helper()
	for l, err := range s.B.Below(s.T.Context(), "") {
		if err != nil {
			s.T.Fatal(err)
		}
		all = append(all, l.Path)
	}
	return all
}
