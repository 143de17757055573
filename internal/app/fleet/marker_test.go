package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// backup returns the address of a copy of the catalogue in its present state.
func (s *site) backup() (address string) {
	s.T.Helper()
	ctx := s.T.Context()
	if err := s.C.Close(); err != nil {
		s.T.Fatal(err)
	}
	if u, err := url.Parse(s.DB); err == nil && u.Scheme == "postgres" {
		name := strings.TrimPrefix(u.Path, "/")
		u.Path = "/postgres"
		conn, err := pgx.Connect(ctx, u.String())
		if err != nil {
			s.T.Fatal(err)
		}
		defer conn.Close(ctx)
		// The server may not have noticed yet that the catalogue is closed.
		if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
			s.T.Fatal(err)
		}
		u.Path = fmt.Sprintf("/%s_%d", name, copies.Add(1))
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+u.Path[1:]+" TEMPLATE "+name); err != nil {
			s.T.Fatal(err)
		}
		address = u.String()
	} else {
		b, err := os.ReadFile(s.DB)
		address = filepath.Join(s.T.TempDir(), "backup.db")
		if err = errors.Join(err, os.WriteFile(address, b, 0o666)); err != nil {
			s.T.Fatal(err)
		}
	}
	s.C = s.Open(catalog.Options{})
	return address
}

var copies atomic.Int64

// on returns the site with another catalogue.
func (s *site) on(address string) *site {
	s.T.Helper()
	other := &site{&fleettest.Site{T: s.T, S3: s.S3, DB: address, Want: s.Want}}
	other.C = other.Open(catalog.Options{})
	return other
}

func (s *site) planOf(target string) catalog.Plan {
	s.T.Helper()
	p, err := s.C.Plan(s.T.Context(), target)
	if err != nil {
		s.T.Fatal(err)
	}
	return p
}

// everything returns what there is in both buckets.
func (s *site) everything() map[string]string {
	all := map[string]string{}
	for _, bucket := range []string{"from", "out"} {
		for _, key := range s.S3.Keys(bucket) {
			all[bucket+"/"+key] = string(s.S3.Get(bucket, key))
		}
	}
	return all
}

// deleting are the verbs that delete.
func (s *site) deleting(target string) map[string]error {
	ctx, p, all := s.T.Context(), s.planOf(target), map[string]error{}
	_, all["retire"] = Retire(ctx, s.C, p, RetireOptions{})
	_, all["retire, dry"] = Retire(ctx, s.C, p, RetireOptions{DryRun: true})
	_, all["compact"] = Compact(ctx, s.C, p, CompactOptions{Gone: 1, GoneAfter: 1})
	_, all["compact, unlisted"] = Compact(ctx, s.C, p, CompactOptions{Unlisted: true})
	_, all["repair"] = Repair(ctx, s.C, p, RepairOptions{})
	_, _, all["tidy"] = Tidy(ctx, s.C, p, 0)
	return all
}

// wantBehind checks that no verb deletes anything, because of a marker.
func (s *site) wantBehind(target, marker string, known, found int64) {
	s.T.Helper()
	before := s.everything()
	for verb, err := range s.deleting(target) {
		behind, ok := errors.AsType[*BehindError](err)
		if !ok || !strings.HasPrefix(behind.Marker, marker) || !catalog.IsMarker(behind.Marker) || behind.Known != known || behind.Found != found || !strings.Contains(err.Error(), behind.Marker) {
			s.T.Errorf("%s: %v, expected a marker at %s with number %d, not %d", verb, err, marker, found, known)
		}
	}
	s.work(WorkOptions{})
	if !maps.Equal(before, s.everything()) {
		s.T.Error("something is deleted, or new")
	}
}

// TestAnOlderCatalogueDeletesNothing restores a catalogue from a backup that is
// older than a retirement.
func TestAnOlderCatalogueDeletesNothing(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(100, 3000)
		s.looks(spec.Target)
		old := s.on(s.backup())
		if did := s.retire(RetireOptions{Limit: 40}); did.Objects != 40 {
			t.Fatalf("%+v", did.Retired)
		}
		old.wantBehind(spec.Target, "s3://from/", 0, 1)
		// A backup from the middle of a retirement is older, too.
		half := s.on(s.backup())
		half.wantBehindNot()
		s.retire(RetireOptions{Limit: 10})
		half.wantBehind(spec.Target, "s3://from/", 1, 2)
		// Either marker suffices.
		kept := s.everything()
		for _, bucket := range []string{"from", "out"} {
			for _, key := range s.S3.Keys(bucket) {
				if catalog.IsMarker(key) {
					s.S3.Remove(bucket, key)
				}
			}
			half.wantBehind(spec.Target, map[string]string{"from": "s3://out/", "out": "s3://from/"}[bucket], 1, 2)
			for name, content := range kept {
				if bucket, key, _ := strings.Cut(name, "/"); catalog.IsMarker(key) {
					s.S3.Put(bucket, key, []byte(content))
				}
			}
		}
		// The newest goes on, and nothing is lost.
		for verb, err := range s.deleting(spec.Target) {
			if err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
		s.work(WorkOptions{})
		s.reads()
		s.wantOnly()
		// Only the last marker is kept.
		is, err := s.C.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.S3.Keys("from")); n != 1 || is.Deletions < 3 {
			t.Errorf("%d markers after %d deletions", n, is.Deletions)
		}
	})
}

// wantBehindNot checks that the catalogue knows its last deletion.
func (s *site) wantBehindNot() {
	s.T.Helper()
	j, err := open(s.T.Context(), s.planOf(spec.Target))
	if err == nil {
		err = j.current(s.T.Context(), s.C, 0)
	}
	if err != nil {
		s.T.Error(err)
	}
}

// TestACatalogueOlderThanACompactionDeletesNothing restores a catalogue from a
// backup that is older than the removal of archives.
func TestACatalogueOlderThanACompactionDeletesNothing(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(60, 3000)
		old := s.on(s.backup())
		var paths []string
		for i, name := range slices.Sorted(maps.Keys(s.Want)) {
			if i%3 == 0 {
				paths = append(paths, name)
				delete(s.Want, name)
			}
		}
		if _, err := s.C.Delete(t.Context(), "", paths, 0); err != nil {
			t.Fatal(err)
		}
		if done := s.compact(CompactOptions{}); done.Removed == 0 {
			t.Fatalf("%+v", done)
		}
		is, err := s.C.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old.wantBehind(spec.Target, "s3://out/", 0, is.Deletions)
		s.wantBehindNot()
		s.reads()
		if keys := s.S3.Keys("from"); slices.ContainsFunc(keys, catalog.IsMarker) {
			t.Errorf("a compaction wrote to the source: %q", keys)
		}
	})
}

// TestNothingIsDeletedBeforeItsMarkers ends a retirement at each request that
// writes a marker. The next one goes on, with the same catalogue.
func TestNothingIsDeletedBeforeItsMarkers(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(10, 3000)
		for _, bucket := range []string{"from", "out"} {
			for _, how := range []string{"refused", "killed", "without an answer"} {
				ctx, cancel := context.WithCancel(t.Context())
				var deleted atomic.Int64
				s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
					switch {
					case r.Method == http.MethodDelete && !catalog.IsMarker(r.URL.Path):
						deleted.Add(1)
					case r.Method != http.MethodPut || !catalog.IsMarker(r.URL.Path) || !strings.HasPrefix(r.URL.Path, "/"+bucket+"/"):
					case how == "refused": // as in a bucket that may only be read
						s3test.Refuse(w, r, 403, "AccessDenied")
						return true
					case how == "killed":
						cancel()
						panic(http.ErrAbortHandler)
					default:
						s.S3.Put(bucket, strings.TrimPrefix(r.URL.Path, "/"+bucket+"/"), nil) // it is there, but its writer does not know
						cancel()
						panic(http.ErrAbortHandler)
					}
					return false
				})
				did := s.retireAs(ctx, spec, RetireOptions{})
				s.Meet(nil)
				if did.err == nil || how == "refused" && !errors.Is(did.err, fs.ErrPermission) || deleted.Load() > 0 || len(did.going) > 0 {
					t.Errorf("%s, %s: %v, %d deleted", bucket, how, did.err, deleted.Load())
				}
				s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
				s.wantMarks(Originals{Stay: 10})
				s.wantBehindNot()
				cancel()
			}
		}
		if did := s.retire(RetireOptions{}); did.Objects != 10 {
			t.Errorf("%+v", did.Retired)
		}
		s.wantOnly()
		s.reads()
	})
}

// TestTwoCopiesOfACatalogueDoNotBothDelete has two copies begin to retire at the
// same time.
func TestTwoCopiesOfACatalogueDoNotBothDelete(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(20, 3000)
		other := s.on(s.backup())
		var met atomic.Bool
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && catalog.IsMarker(r.URL.Path) && !met.Swap(true) { // the other one is faster
				if did := other.retire(RetireOptions{Limit: 5}); did.Objects != 5 {
					t.Errorf("%+v", did.Retired)
				}
			}
			return false
		})
		did := s.retireAs(t.Context(), spec, RetireOptions{})
		s.Meet(nil)
		if behind, ok := errors.AsType[*BehindError](did.err); !ok || behind.Found != 1 || did.Objects > 0 || len(s.keys("from")) != 15 {
			t.Errorf("%+v, %v", did.Retired, did.err)
		}
		if did := other.retire(RetireOptions{}); did.Objects != 15 {
			t.Errorf("%+v", did.Retired)
		}
		s.wantBehind(spec.Target, "s3://from/", 1, 2)
	})
}

// TestSeveralProcessesRetireWithOneCatalogue has several retirements of one
// catalogue at the same time.
func TestSeveralProcessesRetireWithOneCatalogue(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(60, 3000)
		var wg sync.WaitGroup
		for range 3 {
			c := s.Open(catalog.Options{})
			wg.Go(func() {
				for range 6 {
					if _, err := Retire(t.Context(), c, s.planOf(spec.Target), RetireOptions{Limit: 10}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		s.retire(RetireOptions{})
		s.wantOnly()
		s.wantMarks(Originals{Retired: 60})
		s.wantBehindNot()
		s.reads()
	})
}

// TestAnotherCatalogueMayDelete checks that the markers of one catalogue do not
// stop another one.
func TestAnotherCatalogueMayDelete(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.packed(20, 3000)
	s.retire(RetireOptions{Limit: 10})
	db := filepath.Join(t.TempDir(), "other.db")
	if err := catalog.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	other := s.on(db)
	second := spec
	second.Target = "s3://out/second.caf"
	if p := other.plan(second); p.Objects != 10 {
		t.Errorf("%+v", p)
	}
	other.work(WorkOptions{})
	for verb, err := range other.deleting(second.Target) {
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	s.wantOnly()
	s.reads()
}

// TestMarkersAreNoFilesOfUsers checks that markers are neither planned nor
// served, wherever sources and archives are.
func TestMarkersAreNoFilesOfUsers(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	ctx := t.Context()
	for i := range 6 {
		s.put(fmt.Sprintf("logs/2026-%d", i), 1000)
	}
	s.put("logs/.holdall-catalogue-x", 100) // which only looks similar
	for _, spec := range []Spec{
		{Sources: []string{"s3://from"}, Target: "s3://from/packed/all.caf"},
		{Sources: []string{"s3://from/logs/2026-*"}, Target: "s3://from/logs.caf"},
	} {
		s.plan(spec)
		s.work(WorkOptions{})
		if did := s.retireAs(ctx, spec, RetireOptions{Limit: 2}); did.err != nil || did.Objects != 2 {
			t.Errorf("%+v, %v", did.Retired, did.err)
		}
	}
	markers := slices.DeleteFunc(s.S3.Keys("from"), func(key string) bool { return !catalog.IsMarker(key) })
	if len(markers) != 3 { // the archives of the second are beside the originals of the first
		t.Errorf("%q", markers)
	}
	third := Spec{Sources: []string{"s3://from"}, Target: "s3://out/third.caf"}
	if p := s.plan(third); p.Objects != int64(len(s.keys("from")))-2 || p.Archives != 2 {
		t.Errorf("%+v", p)
	}
	sh, err := shelf.New(ctx, s.C, shelf.Options{Through: []string{"s3://from"}})
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	in, err := holdall.Open(ctx, "buckets/s3/from", holdall.OpenOptions{Store: sh, Format: "catalog", Formats: []*format.Format{shelf.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	n := 0
	for e, err := range in.Entries(ctx) {
		if n++; err != nil || catalog.IsMarker(e.Name) {
			t.Errorf("%s is served, %v", e.Name, err)
		}
	}
	if _, err := in.Lookup(ctx, markers[0]); n < 7 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%d files, %v", n, err)
	}
	if e, err := in.Lookup(ctx, "logs/.holdall-catalogue-x"); err != nil || e.Size != 100 {
		t.Errorf("%+v, %v", e, err)
	} else if err := in.WriteContent(ctx, &bytes.Buffer{}, e); err != nil {
		t.Error(err)
	}
}
