package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/read/root"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/fleettest"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

// A site is a server with objects to be packed, a catalogue, and a queue.
type site struct {
	*fleettest.Site
	f    Fleet
	last Spec // that was planned

	past  time.Duration // by which commits were moved
	times map[string]time.Time
}

func newSite(t testing.TB) *site { return newSiteOn(t, filepath.Join(t.TempDir(), "jobs.db")) }

func newSiteOn(t testing.TB, db string) *site {
	s := fleettest.New(t, db)
	return &site{Site: s, f: Fleet{s.B, s.Q}, times: map[string]time.Time{}}
}

// put stores an object with bytes from a seed.
func (s *site) put(name string, n int) {
	content := make([]byte, n)
	seed := [32]byte{}
	copy(seed[:], fmt.Sprintf("%d %s", len(s.Want), name))
	rand.NewChaCha8(seed).Read(content)
	s.Put(name, content)
}

// some puts n objects of up to size bytes.
func (s *site) some(n, size int) {
	for i := range n {
		s.put(fmt.Sprintf("data/%03d/%05d", i%7, i), i*7919%size)
	}
}

var spec = Spec{Sources: []string{"s3://from"}, Target: "s3://out/set.caf", ChunkSize: 100_000}

func (s *site) plan(spec Spec) Planned {
	s.T.Helper()
	s.last = spec
	p, err := MakePlan(s.T.Context(), s.f, spec, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	return p
}

func (s *site) work(o WorkOptions) Worked {
	s.T.Helper()
	sum, err := Work(s.T.Context(), s.f, o)
	if err != nil {
		s.T.Fatal(err)
	}
	return sum
}

// job opens the plan.
func (s *site) job() *job {
	s.T.Helper()
	p, err := PlanNamed(s.T.Context(), s.B, spec.Target)
	var j *job
	if err == nil {
		j, err = open(s.T.Context(), p)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	return j
}

func (s *site) status() Status { return s.statusOf(s.planOf(spec.Target)) }

func (s *site) statusOf(p Plan) Status {
	s.T.Helper()
	is, err := StatusOf(s.T.Context(), s.f, p)
	if err != nil {
		s.T.Fatal(err)
	}
	return is
}

func TestEveryObjectIsPackedOnce(t *testing.T) {
	s := newSite(t)
	s.some(200, 5000)
	p := s.plan(spec)
	if p.Objects != 200 || p.Chunks < 4 || p.Known != 0 {
		t.Errorf("planned %+v", p)
	}
	sum := s.work(WorkOptions{Workers: 3})
	if sum.Done != p.Chunks || sum.Objects != 200 || sum.Bytes != p.Bytes || sum.Failed != 0 {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	s.Check()
	if again := s.plan(spec); again.Chunks != 0 || again.Known != 200 {
		t.Errorf("planned again %+v", again)
	}
}

// TestSourcesAreStringPrefixes checks that a source may be all keys with a
// prefix that ends anywhere.
func TestSourcesAreStringPrefixes(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, name := range []string{"logs/2025-12/a", "logs/2026-01/a", "logs/2026-02/b", "logs/2026", "logs/20260", "other/x"} {
		s.put(name, 100)
	}
	p := s.plan(Spec{Sources: []string{"s3://from/logs/2026-*"}, Target: "s3://out/a.caf"})
	if p.Objects != 2 {
		t.Errorf("planned %+v", p)
	}
	if p = s.plan(Spec{Sources: []string{"s3://from/logs/2026*", "s3://from/other"}, Target: "s3://out/b.caf"}); p.Objects != 5 {
		t.Errorf("planned %+v", p)
	}
	if sum := s.work(WorkOptions{}); sum.Objects != 7 {
		t.Errorf("worked %+v", sum)
	}
	for path, there := range map[string]bool{"2026-01/a": true, "logs/20260": true, "other/x": true, "logs/2025-12/a": false} {
		if _, err := s.B.Newest(t.Context(), path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, source := range []string{"s3://from*", "s3://from/nothing*"} {
		if _, err := MakePlan(t.Context(), s.f, Spec{Sources: []string{source}, Target: "s3://out/c.caf"}, nil); err == nil {
			t.Errorf("%s is planned", source)
		}
	}
}

// TestArchivesBelowTheSourceAreNotPacked checks that plans may write archives
// into a folder of their source bucket: no plan packs them again.
func TestArchivesBelowTheSourceAreNotPacked(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(50, 5000)
	s.Put("data/", nil)
	s.put("packed/a letter", 100)
	below := Spec{Sources: []string{"s3://from"}, Target: "s3://from/packed/set.caf", ChunkSize: 100_000, Protect: 0.1}
	planned := s.plan(below)
	if planned.Objects != 51 || planned.Skipped != (Skipped{Markers: 1}) {
		t.Errorf("planned %+v", planned)
	}
	if again := s.plan(below); again.Chunks != 0 || again.Known != 51 || again.Archives != 0 {
		t.Errorf("planned again, before anything is packed: %+v", again)
	}
	if sum := s.work(WorkOptions{}); sum.Objects != 51 {
		t.Errorf("worked %+v", sum)
	}
	made := 2 * int64(planned.Chunks) // with parity
	all, err := s.B.Archives(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, end := range []string{kept.Suffix, root.Suffix} {
		s.put(strings.TrimPrefix(all[0].Address, "s3://from/")+end, 100)
		made++
	}
	if again := s.plan(below); again.Chunks != 0 || again.Known != 51 || again.Archives != made {
		t.Errorf("planned again: %+v, expected %d archives", again, made)
	}
	bundle := Spec{Sources: []string{"s3://from"}, Target: "s3://from/packed/set.bundle", Format: "databundle", ChunkSize: 100_000}
	if p := s.plan(bundle); p.Objects != 0 || p.Known != 51 || p.Archives != made { // a catalogue has each object once
		t.Errorf("another plan: %+v, expected %d archives", p, made)
	}
}

// TestArchivesOfThreeNightsAreNotPacked plans a growing source every night,
// and packs it into a folder of its own.
func TestArchivesOfThreeNightsAreNotPacked(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	nightly := Spec{Sources: []string{"s3://from"}, Target: "s3://from/packed/x%20y.caf", Protect: 0.1}
	for night := range int64(3) {
		s.put(fmt.Sprintf("night %d", night), 1000)
		if p := s.plan(nightly); p.Objects != 1 || p.Known != night || p.Archives != 2*night || p.Chunks != 1 {
			t.Errorf("night %d: %+v", night, p)
		}
		if sum := s.work(WorkOptions{}); sum.Objects != 1 {
			t.Errorf("night %d: %+v", night, sum)
		}
	}
	s.Check()

	// A new catalogue has no record of the archives. They are recognised and are not packed.
	st, _, err := store.OpenAddress(t.Context(), "s3://out/x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := book.Create(t.Context(), st, "fresh.catalog")
	if err != nil {
		t.Fatal(err)
	}
	fresh := Fleet{b, s.Q}
	if _, err := MakePlan(t.Context(), fresh, nightly, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("planned over archives that are there: %v", err)
	}
	for _, name := range s.S3.Keys("from") {
		if strings.HasSuffix(name, ".caf") {
			s.S3.Remove("from", name) // and their parity stays behind
		}
	}
	nightly.Name = "again"
	if p, err := MakePlan(t.Context(), fresh, nightly, nil); err != nil || p.Objects != 3 || p.Archives != 3 {
		t.Errorf("beside what is left of archives: %+v, %v", p, err)
	}
}

// A plan that was interrupted goes on: what is listed waits, and is not planned twice.
func TestAnInterruptedPlanGoesOn(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(300, 3000)
	s.breaksOff()
	first, err := MakePlan(t.Context(), s.f, spec, nil)
	if err == nil || first.Chunks == 0 {
		t.Fatalf("planned %+v, %v", first, err)
	}
	s.Meet(nil)
	// The queue is lost, too.
	p, err := PlanNamed(t.Context(), s.B, spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Q.Cancel(t.Context(), p.Name); err != nil || n != first.Chunks {
		t.Fatal(n, err)
	}
	if again := s.plan(spec); again.Objects != 300-first.Objects || again.Known != first.Objects {
		t.Errorf("planned %+v, and then %+v", first, again)
	}
	if sum := s.work(WorkOptions{}); sum.Objects != 300 {
		t.Errorf("worked %+v", sum)
	}
	s.Check()
}

func TestPlanningAgainAddsWhatIsNew(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(100, 4000)
	s.plan(spec)
	s.put("data/000/00000x", 10)
	s.put("zzz", 20)
	p := s.plan(spec)
	if p.Objects != 2 || p.Chunks != 1 || p.Known != 100 {
		t.Errorf("planned again %+v", p)
	}
	s.work(WorkOptions{})
	s.Check()

	other := spec
	other.ChunkSize *= 2
	if _, err := MakePlan(t.Context(), s.f, other, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another plan of the name: %v", err)
	}
}

func TestWhatVanishedOrChangedIsRecordedAsSuch(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(50, 4000)
	s.plan(spec)
	gone, other := "data/001/00001", "data/002/00002"
	delete(s.Want, gone)
	s.S3.Remove("from", gone)
	s.put(other, 77)
	changed := s.Want[other]
	delete(s.Want, other)
	if sum := s.work(WorkOptions{Workers: 2}); sum.Objects != 48 || sum.Failed != 0 {
		t.Errorf("worked %+v", sum)
	}
	s.Check()
	if is := s.status(); is.Left[Vanished] != 1 || is.Left[Changed] != 1 || is.Objects != 48 {
		t.Errorf("%+v", is)
	}
	// Planning again packs the changed objects.
	s.Want[other] = changed
	if p := s.plan(spec); p.Objects != 1 {
		t.Errorf("planned again %+v", p)
	}
	s.work(WorkOptions{})
	s.Check()
}

func TestAChunkWithNothingLeftIsDoneWithoutAnArchive(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a", 10)
	s.put("kept", 200_000)
	s.plan(spec)
	s.S3.Remove("from", "a")
	delete(s.Want, "a")
	if sum := s.work(WorkOptions{}); sum.Done != 2 || sum.Objects != 1 {
		t.Errorf("worked %+v", sum)
	}
	s.Check()
}

func TestASourceThatIsGoneIsNoLossOfItsObjects(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(20, 400)
	s.plan(spec)
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/from/") {
			s3test.Refuse(w, r, http.StatusNotFound, "NoSuchBucket")
			return true
		}
		return false
	})
	if sum := s.work(WorkOptions{Tries: 2}); sum.SetAside != 1 || sum.Done != 0 {
		t.Errorf("worked %+v", sum)
	}
	s.Meet(nil)
	if n, err := s.Q.Retry(t.Context(), spec.Target); n != 1 || err != nil {
		t.Errorf("retried %d, %v", n, err)
	}
	s.work(WorkOptions{})
	s.Check()
}

func TestAnObjectThatCannotBeReadIsSetAsideInTheEnd(t *testing.T) {
	testkit.Serial(t)
	for _, status := range []int{http.StatusForbidden, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			s := newSite(t)
			s.some(20, 400)
			s.plan(spec)
			const poison = "data/003/00003"
			var asked atomic.Int64
			s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && r.URL.Path == "/from/"+poison {
					asked.Add(1)
					s3test.Refuse(w, r, status, "Poison")
					return true
				}
				return false
			})
			var events []Event
			sum := s.work(WorkOptions{Tries: 2, Tell: func(e Event) { events = append(events, e) }})
			failed := 1
			if status == http.StatusForbidden { // it is requested again by itself, and is still refused
				failed = 0
			}
			if sum.Failed != failed || sum.Done != 1 || sum.Objects != 19 || asked.Load() < 2 || failed == 0 && asked.Load() != 2 {
				t.Errorf("worked %+v after %d requests", sum, asked.Load())
			}
			if err := events[1].Err; failed > 0 && (err == nil || !strings.Contains(err.Error(), poison)) {
				t.Errorf("the first try failed with %v", err)
			}
			delete(s.Want, poison)
			s.Check()
			if is := s.status(); is.Left[SetAside] != 1 {
				t.Errorf("%+v", is)
			}
		})
	}
}

func TestAnArchiveOfAnEarlierTryIsRecorded(t *testing.T) {
	s := newSite(t)
	s.some(30, 3000)
	s.plan(spec)
	// The first try writes the archive, and its worker dies before it commits that.
	var name string
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/commits/") {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".caf") {
			name = strings.TrimPrefix(r.URL.Path, "/out/")
		}
		return false
	})
	gone := "data/000/00000"
	s.S3.Remove("from", gone)
	delete(s.Want, gone)
	if sum := s.work(WorkOptions{Tries: 1}); sum.SetAside != 1 || name == "" {
		t.Fatalf("worked %+v, archive %q", sum, name)
	}
	s.Meet(nil)
	before := s.S3.Get("out", name)
	if n, err := s.Q.Retry(t.Context(), spec.Target); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if sum := s.work(WorkOptions{}); sum.Failed != 0 || sum.Objects != 29 {
		t.Errorf("worked %+v", sum)
	}
	if !bytes.Equal(before, s.S3.Get("out", name)) {
		t.Error("the archive was replaced")
	}
	s.Check()
	if is := s.status(); is.Left[Vanished] != 1 || is.Left[SetAside] != 0 {
		t.Errorf("%+v", is)
	}
}

// After an old copy of the catalogue was put back, archives that it does not know have the names of its next ones.
func TestAnArchiveOfOtherObjectsIsNotTakenOver(t *testing.T) {
	testkit.Serial(t)
	for what, change := range map[string]func(*site){
		"another version": func(s *site) { s.put("b", 900) },
		"more objects":    func(s *site) { s.S3.Remove("from", "b") },
	} {
		s := newSite(t)
		s.put("0", 900)
		s.packs(spec)
		old := s.kept(catalogue)
		s.put("a", 900)
		s.put("b", 900)
		s.packs(spec)
		old()
		change(s)
		s.plan(spec)
		if sum := s.work(WorkOptions{Tries: 1}); sum.SetAside != 1 {
			t.Errorf("%s: %+v", what, sum)
		}
		if all, err := s.B.Archives(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: %+v, %v", what, all, err)
		}
	}
}

// A job that is handed out again after its commit does nothing.
func TestAJobThatIsDoneTwiceCommitsOnce(t *testing.T) {
	s := newSite(t)
	s.some(30, 3000)
	s.plan(spec)
	var jobs []queue.Job
	for k, err := range s.Q.Jobs(t.Context(), spec.Target) {
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, k.Job)
	}
	s.work(WorkOptions{})
	done, err := s.B.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	j := s.job()
	for _, k := range jobs {
		c, ok := chunkNamed(k.Name)
		if !ok {
			t.Fatal(k.Name)
		}
		if err := s.f.enqueue(t.Context(), j, c); err != nil {
			t.Fatal(err)
		}
	}
	if sum := s.work(WorkOptions{}); sum.Done != len(jobs) || sum.Objects != 0 {
		t.Errorf("worked %+v", sum)
	}
	if is, err := s.B.State(t.Context()); err != nil || is.Number != done.Number {
		t.Errorf("commit %d after %d, %v", is.Number, done.Number, err)
	}
	s.Check()
}

// TestChunksHaveTheirParity checks that each archive has its parity before its
// chunk is done, and that the packing worker writes it without reading the
// archive back.
func TestChunksHaveTheirParity(t *testing.T) {
	s := newSite(t)
	s.some(200, 5000)
	spec := spec
	spec.Protect = 0.05
	p := s.plan(spec)
	var again atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if whole := r.Header.Get("Range") == "bytes=0-0"; r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/out/set-") && !whole {
			again.Add(1)
		}
		return false
	})
	sum := s.work(WorkOptions{Workers: 3})
	if sum.Done != p.Chunks || sum.Failed != 0 {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	if n := again.Load(); n > 3*int64(p.Chunks) { // its index is read, and the end of its parity
		t.Errorf("%d reads of %d archives", n, p.Chunks)
	}
	s.Meet(nil)
	s.Check()
	s.wantParity(p)
}

func (s *site) wantParity(p Planned) {
	s.T.Helper()
	st, _, err := store.OpenAddress(s.T.Context(), "s3://out/x")
	if err != nil {
		s.T.Fatal(err)
	}
	for _, name := range s.S3.Keys("out") {
		if !strings.HasSuffix(name, ".caf") {
			continue
		}
		g, err := parity.Seek(s.T.Context(), st, name, "", nil)
		if err != nil || g == nil || !g.Same {
			s.T.Fatalf("%s: found %v, %v", name, g, err)
		}
		if r, err := g.Check(s.T.Context(), false, nil); err != nil || r.Damaged > 0 || r.Blocks == 0 {
			s.T.Errorf("%s: found %+v, %v", name, r, err)
		}
		g.Close()
		p.Chunks--
	}
	if p.Chunks != 0 {
		s.T.Errorf("%d archives are missing", p.Chunks)
	}
}

// TestParityThatWasNotWrittenIsWrittenByTheNextClaim checks that a chunk is
// not done while its parity is missing, and that the next claim writes it.
func TestParityThatWasNotWrittenIsWrittenByTheNextClaim(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(100, 5000)
	spec := spec
	spec.Protect = 0.05
	p := s.plan(spec)
	var refused atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".parity") && refused.Add(1) <= 2 {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	if sum := s.work(WorkOptions{}); sum.Done != p.Chunks || sum.Failed != 2 {
		t.Errorf("worked %+v of %+v", sum, p)
	}
	s.Meet(nil)
	s.Check()
	s.wantParity(p)
}

func TestAnArchiveThatIsNotOursIsNeitherRecordedNorReplaced(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 300)
	s.plan(spec)
	alien := []byte("an archive of somebody else")
	j := s.job()
	name := ""
	for k, err := range s.Q.Jobs(t.Context(), spec.Target) {
		c, ok := chunkNamed(k.Name)
		if err != nil || !ok {
			t.Fatal(k.Name, err)
		}
		name = j.chunk(c.Listing, c.Number)
	}
	s.S3.Put("out", name, alien)
	if sum := s.work(WorkOptions{Tries: 1}); sum.SetAside != 1 {
		t.Errorf("worked %+v", sum)
	}
	if !bytes.Equal(s.S3.Get("out", name), alien) {
		t.Error("it was replaced")
	}
	other := spec
	other.Name = "another"
	if _, err := MakePlan(t.Context(), s.f, other, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("planned over it: %v", err)
	}
}

func TestWhoIsToldToEndGivesItsChunkBack(t *testing.T) {
	s := newSite(t)
	s.some(30, 3000)
	s.plan(spec)
	ctx, stop := context.WithCancel(t.Context())
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == "/from/data/004/00004" {
			stop()
			<-r.Context().Done()
			return true
		}
		return false
	})
	var what []queue.What
	if _, err := Work(ctx, s.f, WorkOptions{Tell: func(e Event) { what = append(what, e.What) }}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(what, []queue.What{queue.Started, queue.GivenBack}) {
		t.Errorf("%q", what)
	}
	s.Meet(nil)
	s.work(WorkOptions{})
	s.Check()
}

func TestACancelledPlanIsNotPackedAndLeavesNoUploads(t *testing.T) {
	s := newSite(t)
	s.put("large", 20<<20)
	p := s.plan(spec)
	var once atomic.Bool
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") && once.CompareAndSwap(false, true) {
			if _, err := Cancel(context.WithoutCancel(r.Context()), s.f, p.Plan); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	sum := s.work(WorkOptions{})
	if sum.Done != 0 {
		t.Errorf("worked %+v", sum)
	}
	if n := s.S3.Uploads(); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
	if all, err := s.B.Archives(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("archives %v, %v", all, err)
	}
}

func TestWhatWasSentIsNotSentAgain(t *testing.T) {
	s := newSite(t)
	s.put("a", 18<<20)
	s.put("b", 3<<20)
	big := spec
	big.ChunkSize = 1 << 30
	s.plan(big)
	var puts atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == "/from/b" && puts.Load() == 0 {
			puts.Store(1)
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	var resent int64
	if sum := s.work(WorkOptions{NoCopy: true, Tell: func(e Event) { resent += e.Chunk.Resent }}); sum.Failed != 1 || sum.Done != 1 {
		t.Errorf("worked %+v", sum)
	}
	if resent < 8<<20 {
		t.Errorf("the store had %d bytes of the first try", resent)
	}
	s.Check()
}

func TestSourcesAreToldApart(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, n := range []string{"x-y/1", "x/1", "x/a/b", "z/x/1"} {
		s.S3.Put("from", n, []byte(n))
		s.Want[n] = []byte(n)
	}
	s.Want["y/1"] = s.Want["z/x/1"]
	several := spec
	several.Sources = []string{"s3://from/x", "s3://from/x-y"}
	s.plan(several)
	s.work(WorkOptions{})
	delete(s.Want, "z/x/1")
	delete(s.Want, "y/1")
	s.Check()
	several.Name, several.Target, several.Sources = "n", "s3://out/n.caf", []string{"s3://from/x", "s3://from/z/x/"}
	if _, err := MakePlan(t.Context(), s.f, several, nil); err == nil {
		t.Error("two sources of the same last name are planned together")
	}
}

func TestPlansThatCannotBeAreRefused(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for what, change := range map[string]func(*Spec){
		"no source":    func(s *Spec) { s.Sources = nil },
		"no target":    func(s *Spec) { s.Target = "" },
		"no format":    func(s *Spec) { s.Target = "s3://out/x" },
		"not chunked":  func(s *Spec) { s.Target = "s3://out/x.rvn" },
		"a password":   func(s *Spec) { s.Sources = []string{"https://user:secret@127.0.0.1/x"} },
		"below nought": func(s *Spec) { s.ChunkSize = -1 },
	} {
		wrong := spec
		change(&wrong)
		_, err := MakePlan(t.Context(), s.f, wrong, nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := Plans(t.Context(), s.B); len(all) != 0 || err != nil {
		t.Errorf("plans %v, %v", all, err)
	}
}

// TestAChunkTakesFewRequestsBesidesItsObjects checks that small objects take
// one request each, and their chunk few more.
func TestAChunkTakesFewRequestsBesidesItsObjects(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 600 {
		s.put(fmt.Sprintf("d/%04d", i), 8000)
	}
	one := spec
	one.ChunkSize = 1 << 30
	s.plan(one)
	s.S3.Took()
	s.work(WorkOptions{})
	objects, besides := 0, []string{}
	for _, r := range s.S3.Took() {
		switch {
		case strings.HasPrefix(r, "GET /from/d/"):
			objects++
		case strings.HasPrefix(r, "GET /out/set.catalog/commits/"): // how often it is asked for the next one depends on time
		default:
			besides = append(besides, r)
		}
	}
	if objects != 600 || len(besides) > 15 {
		t.Errorf("%d requests for objects, and %d besides:\n%s", objects, len(besides), strings.Join(besides, "\n"))
	}
}
