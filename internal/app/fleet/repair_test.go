package fleet

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
)

// repair repairs, works and tidies. It returns what was left out, too.
func (s *site) repair(o RepairOptions) (done Repaired, left []catalog.Member) {
	s.T.Helper()
	ctx := s.T.Context()
	p, err := s.C.Plan(ctx, spec.Target)
	if err != nil {
		s.T.Fatal(err)
	}
	if done, err = Repair(ctx, s.C, p, o); err != nil {
		s.T.Fatal(err)
	}
	failed := 0
	s.work(WorkOptions{Tell: func(e Event) {
		left = append(left, e.Left...)
		if e.Err != nil {
			failed++
			s.T.Logf("%s: %v", e.What, e.Err)
		}
	}})
	if failed > 0 {
		s.T.Errorf("%d tries failed", failed)
	}
	if _, _, err = Tidy(ctx, s.C, p, 0); err != nil {
		s.T.Fatal(err)
	}
	return done, left
}

// What is lost or damaged is made again of the originals, and what has none is named, at once.
func TestLostAndDamagedArchivesAreMadeAgain(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		s.some(120, 5000)
		s.plan(spec)
		s.work(WorkOptions{})
		ctx := t.Context()
		all, err := s.C.Archives(ctx)
		if err != nil || len(all) < 3 {
			t.Fatalf("%d archives, %v", len(all), err)
		}
		nth := func(a catalog.Archive) (l catalog.Location) {
			n := 0
			for x, err := range s.C.Locations(ctx, a) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; x.Size > 100 && n < 9 {
					l = x
				}
			}
			return l
		}
		key := func(a catalog.Archive) string { return strings.TrimPrefix(a.Address, "s3://out/") }
		none, bad := nth(all[0]), nth(all[1])
		s.S3.Remove("out", key(all[0]))
		s.S3.Rot("out", key(all[1]), int(bad.Off+bad.Size/2))
		for _, l := range []catalog.Location{none, bad} {
			s.S3.Remove("from", l.Path)
			delete(s.Want, l.Path)
		}
		done, left := s.repair(RepairOptions{Contents: true})
		if done.Damaged != 2 || done.Chunks == 0 {
			t.Errorf("%+v", done)
		}
		var named []string
		for _, m := range left {
			named = append(named, m.Path)
			t.Logf("%s: %v: %s", m.Path, m.Outcome, m.Note)
		}
		slices.Sort(named)
		want := []string{none.Path, bad.Path}
		slices.Sort(want)
		if !slices.Equal(named, want) {
			t.Errorf("named %q, expected %q", named, want)
		}
		s.compact(CompactOptions{})
		s.reads()
		if done, left := s.repair(RepairOptions{Contents: true}); done.Damaged+len(left) != 0 {
			t.Errorf("again: %+v, %v", done, left)
		}
	})
}
