package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// ages moves all commits into the past.
func (s *site) ages(by time.Duration) {
	s.T.Helper()
	s.past += by
	for _, name := range s.S3.Keys("out") {
		if strings.Contains(name, ".catalog/commits/") {
			if _, ok := s.times[name]; !ok {
				s.times[name] = time.Now().Add(s.past - by)
			}
			s.S3.Touch("out", name, s.times[name].Add(-s.past))
		}
	}
}

// finds lists the originals and compacts, and compares the numbers of files that are gone and missing.
func (s *site) finds(what string, gone, missing int64) {
	s.T.Helper()
	s.looks(s.last)
	done, err := Compact(s.T.Context(), s.f, s.planOf(s.last.Target), CompactOptions{})
	if err != nil || done.Gone != gone || done.Missing != missing {
		s.T.Errorf("%s: %+v, %v, expected %d gone and %d missing", what, done, err, gone, missing)
	}
	if dry, err := Compact(s.T.Context(), s.f, s.planOf(s.last.Target), CompactOptions{DryRun: true}); err != nil || dry.Gone != 0 || dry.Missing != missing {
		s.T.Errorf("%s, dry: %+v, %v", what, dry, err)
	}
	s.work(WorkOptions{})
	for range gone {
		delete(s.Want, "b")
	}
	s.reads()
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// fill puts the objects a, b and others, and packs them.
func (s *site) fill() {
	s.some(20, 1000)
	s.put("a", 900)
	s.put("b", 900)
	s.plan(spec)
	s.work(WorkOptions{})
}

// TestAFileIsGoneOnlyAfterTwoListings checks when a file counts as deleted by
// its owner.
func TestAFileIsGoneOnlyAfterTwoListings(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.fill()
		s.finds("at first", 0, 0)
		b := s.S3.Get("from", "b")
		s.S3.Remove("from", "b")
		s.finds("missing", 0, 1)
		s.finds("missing again at once", 0, 1)
		s.ages(week - time.Minute)
		s.finds("missing for less than a week", 0, 1)
		s.S3.Put("from", "b", b)
		s.finds("back", 0, 0)
		s.finds("and found again, if it was packed again", 0, 0)
		s.ages(2 * week)
		s.S3.Remove("from", "b")
		s.finds("missing anew", 0, 1)
		for range 6 {
			s.ages(day)
			s.finds("for some days", 0, 1)
		}
		s.ages(day - time.Minute)
		s.finds("for less than a week", 0, 1)
		s.ages(2 * time.Minute)
		s.finds("for a week", 1, 0)
		s.finds("afterwards", 0, 0)
		s.Want["b"] = b
		s.S3.Put("from", "b", b)
		if p := s.plan(spec); p.Objects != 1 {
			t.Errorf("%+v", p)
		}
		s.work(WorkOptions{})
		s.finds("packed again", 0, 0)
	})
}

// TestAnOriginalThatWasNeverFoundIsNotGone checks files whose originals no
// listing found after they were packed: nobody knows whether their owner deleted
// them or a catalogue that is lost retired them.
func TestAnOriginalThatWasNeverFoundIsNotGone(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.fill()
		s.S3.Remove("from", "b")
		for range 4 {
			s.finds("never found", 0, 1)
			s.ages(4 * week)
		}
		// A rewritten archive knows no more.
		a, err := s.B.Newest(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		p := s.planOf(spec.Target)
		if done, err := Compact(t.Context(), s.f, p, CompactOptions{Dead: -1}); err != nil || done.Chunks == 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		s.work(WorkOptions{})
		b, err := s.B.Newest(t.Context(), "b")
		if err != nil || b.Archive == a.Archive {
			t.Fatalf("%+v, %v", b, err)
		}
		for range 3 {
			s.ages(4 * week)
			s.finds("rewritten", 0, 1)
		}
		// An archive that is added again was not listed since.
		if _, err := s.B.Add(t.Context(), catalog.Addition{Archive: b.In, Rows: s.B.Locations(t.Context(), b.In)}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.finds("added again", 0, 1)
			s.ages(4 * week)
		}
	})
}

// TestRewrittenArchivesKeepWhatListingsFound checks that a compaction does not
// begin anew with missing originals.
func TestRewrittenArchivesKeepWhatListingsFound(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.fill()
		s.finds("at first", 0, 0)
		s.S3.Remove("from", "b")
		s.ages(2 * week)
		s.finds("missing", 0, 1)
		if done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{Dead: -1}); err != nil || done.Chunks == 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		s.work(WorkOptions{})
		s.finds("rewritten", 0, 1)
		s.ages(week + time.Minute)
		s.finds("after a week", 1, 0)
	})
}

// TestJoinedArchivesKeepTheLaterListing joins an archive in which an original is
// missing with one that was listed at another time.
func TestJoinedArchivesKeepTheLaterListing(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		joins := func() {
			t.Helper()
			if done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{Dead: -1}); err != nil || done.Chunks != 1 {
				t.Fatalf("%+v, %v", done, err)
			}
			s.work(WorkOptions{})
		}
		s.fill()
		s.finds("at first", 0, 0)
		s.ages(5 * day)
		s.put("later", 1500)
		s.plan(spec)
		s.work(WorkOptions{})
		s.finds("with a second archive", 0, 0)
		s.ages(3 * day)
		s.S3.Remove("from", "b")
		s.finds("missing, 8 days after the first listing of one and 3 after that of the other", 0, 1)
		joins()
		s.ages(5 * day)
		s.finds("missing for 5 days", 0, 1)
		s.ages(3 * day)
		s.finds("missing for 8 days", 1, 0)
		// What was found before an archive was rewritten is not unseen in the new one.
		s.Want["b"] = []byte("again")
		s.S3.Put("from", "b", s.Want["b"])
		s.plan(spec)
		s.work(WorkOptions{})
		s.finds("back", 0, 0)
		joins()
		s.S3.Remove("from", "b")
		s.ages(8 * day)
		s.finds("missing since it was rewritten", 0, 1)
		s.ages(8 * day)
		s.finds("for 8 days", 1, 0)
		// An archive that no listing has looked at makes the new one such.
		s.Want["b"] = []byte("a third time")
		s.S3.Put("from", "b", s.Want["b"])
		s.plan(spec)
		s.work(WorkOptions{})
		s.S3.Remove("from", "b")
		if done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{Dead: -1}); err != nil || done.Chunks != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		s.work(WorkOptions{})
		for range 3 {
			s.ages(8 * day)
			s.finds("never found", 0, 1)
		}
	})
}

// TestAListingThatFailsRecordsNothing checks that a listing counts only if it is
// complete, and if most of the files are there.
func TestAListingThatFailsRecordsNothing(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		s.fill()
		s.finds("at first", 0, 0)
		s.ages(2 * week)
		all := map[string][]byte{}
		for _, key := range s.S3.Keys("from") {
			all[key] = s.S3.Get("from", key)
		}
		for _, how := range []func(){
			func() {
				s.S3.Page = 5
				var pages int
				s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Has("list-type") && r.URL.Path == "/from/" && r.URL.Query().Get("prefix") == "" {
						if pages++; pages > 2 {
							s3test.Refuse(w, r, 403, "AccessDenied")
							return true
						}
					}
					return false
				})
			},
			func() {
				for _, key := range s.S3.Keys("from")[5:] {
					s.S3.Remove("from", key)
				}
			},
			func() {
				for _, key := range s.S3.Keys("from") {
					s.S3.Remove("from", key)
				}
			},
		} {
			how()
			if p, err := MakePlan(t.Context(), s.f, spec, nil); err == nil {
				t.Errorf("%+v", p)
			}
			s.Meet(nil)
		}
		for l, err := range s.B.Below(t.Context(), "") {
			if err != nil || l.Missing || l.Unseen {
				t.Errorf("%+v, %v", l, err)
			}
		}
		for key, content := range all {
			s.S3.Put("from", key, content)
		}
		s.finds("with all of them", 0, 0)
	})
}

// TestWhatAnotherPlanPacksIsListedApart checks that the listing of one plan says
// nothing about the files of another one with the same paths.
func TestWhatAnotherPlanPacksIsListedApart(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.fill()
	s.S3.Put("out", "copy/b", s.Want["b"])
	other := Spec{Sources: []string{"s3://out/copy"}, Target: "s3://out/other.caf"}
	s.plan(other)
	s.work(WorkOptions{})
	s.last = spec
	s.finds("at first", 0, 0)
	s.S3.Remove("from", "b")
	s.ages(2 * week)
	s.finds("missing", 0, 1)
	all, err := s.B.Holders(t.Context(), "b")
	if err != nil || len(all) != 2 || all[0].Missing || !all[1].Missing {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestWhatAPlanExcludesIsNotListed checks that the listing of one plan says nothing of what it excludes to another
// plan of the same source.
func TestWhatAPlanExcludesIsNotListed(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.fill()
	other := spec
	other.Target, other.Exclude = "s3://out/other.caf", []string{"b"}
	s.plan(other)
	s.S3.Remove("from", "b")
	s.plan(spec)
	if b, err := s.B.Newest(t.Context(), "b"); err != nil || !b.Missing || !b.Unseen {
		t.Errorf("%+v, %v", b, err)
	}
	s.S3.Put("from", "b", s.Want["b"])
	s.packs(spec)
	s.packs(spec)
	s.S3.Remove("from", "b")
	s.plan(spec)
	s.ages(2 * week)
	s.plan(other)
	if done, err := Compact(t.Context(), s.f, s.planOf(spec.Target), CompactOptions{DryRun: true}); err != nil || done.Gone != 0 || done.Missing != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestMoreThanAFifthIsNotDeletedAtOnce checks that files which expire or are gone
// stay if they are many, unless that is confirmed.
func TestMoreThanAFifthIsNotDeletedAtOnce(t *testing.T) {
	testkit.Serial(t)
	on(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		for i := range 25 {
			name := fmt.Sprintf("%02d", i)
			s.put(name, 100)
			s.S3.Touch("from", name, time.Now().Add(-time.Duration(25-i)*day))
		}
		s.plan(spec)
		s.work(WorkOptions{})
		var retired []catalog.Location
		for l, err := range s.B.Below(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			if retired = append(retired, l); len(retired) == 10 {
				break
			}
		}
		s.leaving(retired...)
		s.looks(spec)
		for _, name := range []string{"22", "23"} {
			s.S3.Remove("from", name)
		}
		s.looks(spec)
		s.looks(spec)
		p := s.planOf(spec.Target)
		for _, dry := range []bool{false, true} {
			_, err := Compact(ctx, s.f, p, CompactOptions{Expire: 2 * time.Second, DryRun: dry}) // instead of 2h
			if _, ok := errors.AsType[*RecentError](err); !ok {
				t.Errorf("%v", err)
			}
		}
		for _, o := range []CompactOptions{
			{Expire: 20*day - time.Hour},
			{Expire: 22*day - time.Hour, GoneAfter: atOnce},
		} {
			done, err := Compact(ctx, s.f, p, o)
			much, ok := errors.AsType[*ShareError](err)
			if !ok || much.Of != 25 || much.Gone != done.Gone || much.Expired != done.Expired || done.Gone+done.Expired < 6 || !strings.Contains(err.Error(), fmt.Sprintf("%d gone and %d expired of 25", done.Gone, done.Expired)) {
				t.Errorf("%+v: %+v, %v", o, done, err)
			}
			s.reads()
		}
		if done, err := Compact(ctx, s.f, p, CompactOptions{Expire: 23*day - time.Hour, GoneAfter: atOnce}); err != nil || done.Gone != 2 || done.Expired != 3 {
			t.Errorf("%+v, %v", done, err)
		}
		for _, name := range []string{"00", "01", "02", "22", "23"} {
			if _, err := s.B.Newest(ctx, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
			delete(s.Want, name)
		}
		s.reads()
		if done, err := Compact(ctx, s.f, p, CompactOptions{Expire: 10 * day, Yes: true}); err != nil || done.Expired != 13 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
