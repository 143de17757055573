package fleet

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit"
)

// repair repairs, works and tidies. It returns what was damaged, and what was
// left out.
func (s *site) repair(o RepairOptions) (done Repaired, left []string) {
	s.T.Helper()
	ctx := s.T.Context()
	p := s.planOf(spec.Target)
	done, err := Repair(ctx, s.f, p, o)
	if err != nil {
		s.T.Fatal(err)
	}
	s.work(WorkOptions{Tries: 2, Tell: func(e Event) {
		for _, m := range e.Chunk.Left {
			left = append(left, m.Path+" "+string(m.Outcome))
		}
	}})
	if _, _, err := Tidy(ctx, s.f, p, 0); err != nil {
		s.T.Fatal(err)
	}
	return done, left
}

func TestLostAndDamagedArchivesAreMadeAgain(t *testing.T) {
	on(t, func(t *testing.T, s *site) {
		s.some(120, 5000)
		s.plan(spec)
		s.work(WorkOptions{})
		keys := s.keys("out")
		s.S3.Remove("out", keys[0])
		s.S3.Rot("out", keys[1], 100)
		if done, _ := s.repair(RepairOptions{}); done.Damaged != 2 || done.Chunks == 0 {
			// A rotten object gets another ETag in this server only if it is put again.
			if done.Damaged != 1 {
				t.Errorf("%+v", done)
			}
		}
		done, left := s.repair(RepairOptions{Contents: true})
		if len(left) > 0 {
			t.Errorf("%+v, left %q", done, left)
		}
		s.reads()
		if done, _ := s.repair(RepairOptions{Contents: true}); done.Damaged != 0 {
			t.Errorf("again: %+v", done)
		}
		if got := s.S3.Keys("out"); slices.Contains(got, keys[0]) || slices.Contains(got, keys[1]) {
			t.Errorf("old archives are left: %q", got)
		}
	})
}

// TestRepairWithoutOriginalsTakesWhatIsLeft checks that files without
// originals are taken from the archive where it is readable, and that files
// that are lost are reported.
func TestRepairWithoutOriginalsTakesWhatIsLeft(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(60, 3000)
	one := spec
	one.ChunkSize = 1 << 30
	s.plan(one)
	s.work(WorkOptions{})
	ctx := t.Context()
	// Retired originals are gone from the source, but not from the catalogue.
	var retired []catalog.Location
	for l, err := range s.B.Below(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		retired = append(retired, l)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Want)) {
		s.S3.Remove("from", name)
	}
	s.leaving(retired...)
	bad := retired[30]
	name := s.keys("out")[0]
	s.S3.Rot("out", name, int(bad.Off))
	done, left := s.repair(RepairOptions{Contents: true})
	if done.Damaged != 1 || !slices.Equal(left, []string{bad.Path + " damaged"}) {
		t.Errorf("%+v, left %q", done, left)
	}
	// The damaged file is still visible in its old place; the others are in sound
	// archives.
	found, err := s.B.Newest(ctx, bad.Path)
	if err != nil || found.In.Address != "s3://out/"+name {
		t.Errorf("%+v, %v", found, err)
	}
	delete(s.Want, bad.Path)
	for l, err := range s.B.Below(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if l.Original != catalog.OriginalLeaving || (l.Path != bad.Path) == (l.Archive == found.Archive) {
			t.Errorf("%+v", l)
		}
	}
	if n, err := s.B.Delete(ctx, []string{bad.Path}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	s.reads()
}

// TestWhatCannotBeRepairedIsNamedAtOnce checks that files that are neither in
// originals nor in archives are reported at the first try: another try cannot
// help.
func TestWhatCannotBeRepairedIsNamedAtOnce(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.some(120, 5000)
		s.plan(spec)
		s.work(WorkOptions{})
		s.looks(spec)
		ctx := t.Context()
		all, err := s.B.Archives(ctx)
		if err != nil || len(all) < 3 {
			t.Fatalf("%d archives, %v", len(all), err)
		}
		one := func(a catalog.Archive) (found catalog.Location) {
			for l, err := range s.B.Locations(ctx, a) {
				if err != nil {
					t.Fatal(err)
				}
				if l.Size > 100 {
					found = l
				}
			}
			s.S3.Remove("from", found.Path)
			delete(s.Want, found.Path)
			return found
		}
		key := func(a catalog.Archive) string { return strings.TrimPrefix(a.Address, "s3://out/") }
		none, bad := one(all[0]), one(all[1])
		s.S3.Remove("out", key(all[0]))
		s.S3.Rot("out", key(all[1]), int(bad.Off+bad.Size/2))
		p := s.planOf(spec.Target)
		done, err := Repair(ctx, s.f, p, RepairOptions{Contents: true})
		if err != nil || done.Damaged != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		left := map[string]Outcome{}
		s.work(WorkOptions{Tries: 5, Tell: func(e Event) {
			if e.Err != nil {
				t.Errorf("%s: %v", e.What, e.Err)
			}
			for _, m := range e.Chunk.Left {
				left[m.Path] = m.Outcome
			}
		}})
		if want := map[string]Outcome{none.Path: Vanished, bad.Path: Damaged}; !maps.Equal(left, want) {
			t.Errorf("left %v, expected %v", left, want)
		}
		s.compact(CompactOptions{})
		s.reads()
	})
}
