package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// retiring is the result of a retirement and its reports.
type retiring struct {
	Retired
	going, gone []string
	kept        map[string]Keeping
	err         error
}

func (s *site) retireAs(ctx context.Context, spec Spec, o RetireOptions) (did retiring) {
	s.T.Helper()
	p, err := s.C.Plan(s.T.Context(), spec.Target)
	if err != nil {
		s.T.Fatal(err)
	}
	did.kept = map[string]Keeping{}
	o.Going = func(all []Retirement) error {
		for _, x := range all {
			did.going = append(did.going, x.Path)
		}
		return nil
	}
	o.Gone = func(x Retirement) { did.gone = append(did.gone, x.Path) }
	o.Kept = func(k Keeping) { did.kept[k.Path] = k }
	did.Retired, did.err = Retire(ctx, s.C, p, o)
	return did
}

func (s *site) retire(o RetireOptions) retiring {
	s.T.Helper()
	did := s.retireAs(s.T.Context(), spec, o)
	if did.err != nil {
		s.T.Fatal(did.err)
	}
	return did
}

// packed fills a site with n files of a size, and packs all of them.
func (s *site) packed(n, size int) {
	s.T.Helper()
	s.some(n, size)
	s.plan(spec)
	s.work(WorkOptions{})
}

// wantMarks compares the recorded marks of the originals.
func (s *site) wantMarks(want Originals) {
	s.T.Helper()
	p, err := s.C.Plan(s.T.Context(), spec.Target)
	if err != nil {
		s.T.Fatal(err)
	}
	if is, err := OriginalsOf(s.T.Context(), s.C, p); err != nil || *is != want {
		s.T.Errorf("%+v, %v, want %+v", is, err, want)
	}
}

// wantOnly requires the source to have exactly these objects.
func (s *site) wantOnly(want ...string) {
	s.T.Helper()
	slices.Sort(want)
	if is := s.keys("from"); !slices.Equal(is, want) {
		s.T.Errorf("the source has %q, want %q", is, want)
	}
}

func TestProvenOriginalsGo(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		const n = retireBatch + 10
		s.packed(n, 1000)
		s.Put("parts", []byte(strings.Repeat("0123456789abcdef", 3<<16)))
		s.S3.PutParts("from", "parts", s.Want["parts"], 2<<20)
		s.plan(spec)
		s.work(WorkOptions{})
		if did := s.retire(RetireOptions{DryRun: true}); did.Objects != n+1 || len(did.going) != 0 || len(did.gone) != n+1 {
			t.Errorf("dry: %+v", did.Retired)
		}
		if left := len(s.keys("from")); left != n+1 {
			t.Errorf("a dry run left %d", left)
		}
		s.wantMarks(Originals{Stay: n + 1})
		did := s.retire(RetireOptions{})
		empty := int64(0)
		for _, content := range s.Want {
			if len(content) == 0 {
				empty++
			}
		}
		if did.Objects != n+1 || len(did.Left) != 0 || !slices.Equal(did.going, did.gone) ||
			!maps.Equal(did.Proven, map[string]int64{"md5": n - empty, "md5_of_parts": 1, "size": empty}) {
			t.Errorf("%+v", did.Retired)
		}
		s.wantOnly()
		s.wantMarks(Originals{Retired: n + 1})
		s.reads()

		// None of these counts as new, or as gone.
		if p := s.plan(spec); p.Objects != 0 {
			t.Errorf("planned again %+v", p)
		}
		if again := s.retire(RetireOptions{}); again.Objects+again.Finished != 0 || len(again.Left) != 0 {
			t.Errorf("again: %+v", again.Retired)
		}
		if done := s.compact(CompactOptions{}); done.Gone != 0 {
			t.Errorf("%+v", done)
		}
		s.reads()
	})
}

// TestRetiredOriginalsStayRetired checks that rewritten archives keep the
// marks of their files, and that an object that comes back is new.
func TestRetiredOriginalsStayRetired(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(100, 3000)
		names := slices.Sorted(maps.Keys(s.Want))
		s.looks(spec.Target)
		if did := s.retire(RetireOptions{Limit: 50}); did.Objects != 50 || !did.Limited || !slices.Equal(did.gone, names[:50]) {
			t.Errorf("%+v", did)
		}
		for i, name := range names {
			if i >= 50 && i%2 == 0 {
				s.S3.Remove("from", name)
				delete(s.Want, name)
			}
		}
		if done := s.compact(CompactOptions{Dead: 0.01}); done.Gone != 25 || done.Chunks == 0 || done.Removed == 0 {
			t.Errorf("%+v", done)
		}
		s.wantMarks(Originals{Stay: 25, Retired: 50})
		s.reads()
		if done := s.compact(CompactOptions{Dead: 0.01}); done.Gone != 0 {
			t.Errorf("again: %+v", done)
		}
		s.put(names[3], 777)
		if p := s.plan(spec); p.Objects != 1 {
			t.Errorf("what came back was planned as %+v", p)
		}
		// No archive proves the new version yet.
		if did := s.retire(RetireOptions{Limit: 1}); did.Objects != 1 || slices.Contains(did.gone, names[3]) {
			t.Errorf("%+v", did)
		}
		s.work(WorkOptions{})
		s.reads()
		if did := s.retire(RetireOptions{}); did.Objects != 25 || !slices.Contains(did.gone, names[3]) {
			t.Errorf("%+v", did)
		}
		s.wantOnly()
		s.reads()
	})
}

// rot changes one byte of a file in its archive.
func (s *site) rot(name string) {
	s.T.Helper()
	l, err := s.C.Newest(s.T.Context(), name)
	if err != nil || !l.Raw {
		s.T.Fatalf("%+v, %v", l, err)
	}
	s.S3.Rot("out", strings.TrimPrefix(l.In.Address, "s3://out/"), int(l.Off+l.Size/2))
}

func TestWhatIsNotProvenStays(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(60, 5000)
		names := slices.Sorted(maps.Keys(s.Want))
		in := map[int64][]string{}
		var ids []int64
		for _, name := range names {
			l, err := s.C.Newest(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if in[l.Archive] == nil {
				ids = append(ids, l.Archive)
			}
			in[l.Archive] = append(in[l.Archive], name)
		}
		if len(ids) < 2 {
			t.Fatalf("%d archives", len(ids))
		}
		nth := func(id int64, n int) string {
			for _, name := range in[id] {
				if n -= min(1, len(s.Want[name])); n < 0 {
					return name
				}
			}
			t.Fatalf("archive %d has too few", id)
			return ""
		}
		rotten, replaced, gone := nth(ids[0], 3), nth(ids[0], 5), nth(ids[0], 7)
		s.rot(rotten)
		s.S3.Put("from", replaced, []byte("another"))
		s.S3.Remove("from", gone)
		lost, err := s.C.ArchiveOf(t.Context(), ids[1])
		if err != nil {
			t.Fatal(err)
		}
		key := strings.TrimPrefix(lost.Address, "s3://out/")
		archive := s.S3.Get("out", key)
		want := []string{rotten, replaced}
		for _, name := range in[ids[1]] {
			if len(s.Want[name]) > 0 { // the others need not be read
				want = append(want, name)
			}
		}
		changed := int64(len(want) - 2)
		for _, c := range []struct {
			what string
			do   func()
		}{
			{"lost", func() { s.S3.Remove("out", key) }},
			{"replaced", func() { s.S3.Put("out", key, append(slices.Clone(archive), 0)) }},
			{"of the same length", func() {
				other := slices.Clone(archive)
				other[len(other)/2] ^= 1
				s.S3.Put("out", key, other)
			}},
		} {
			c.do()
			did := s.retire(RetireOptions{})
			if !maps.Equal(did.Left, map[Reason]int64{ArchiveDamaged: 1, OriginalChanged: 1, OriginalGone: 1, ArchiveChanged: changed}) {
				t.Errorf("%s: %+v", c.what, did.Retired)
			}
			if k := did.kept[rotten]; k.Why != ArchiveDamaged || k.Err == nil || !strings.HasPrefix(k.Archive, "s3://out/set-") || !k.Why.Fault() {
				t.Errorf("%+v", k)
			}
			s.wantOnly(slices.Clone(want)...)
		}
		s.S3.Put("out", key, archive)
		if did := s.retire(RetireOptions{}); did.Objects != changed {
			t.Errorf("%+v", did.Retired)
		}
		s.wantOnly(rotten, replaced)
	})
}

// TestACopyOfDamageIsNoProof checks a packed file that is sound but differs
// from the checksum of the original's service.
func TestACopyOfDamageIsNoProof(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 4 {
		s.put(fmt.Sprint(i), 3000)
	}
	s.S3.Rot("from", "2", 100)
	s.plan(spec)
	s.work(WorkOptions{NoVerify: true})
	did := s.retire(RetireOptions{})
	if did.Objects != 3 || did.kept["2"].Why != Differs || !strings.Contains(did.kept["2"].Err.Error(), "md5") {
		t.Errorf("%+v", did)
	}
	s.wantOnly("2")
}

// TestOriginalsWithoutChecksumAreReadAgain checks that originals without a
// checksum are compared byte by byte, or stay.
func TestOriginalsWithoutChecksumAreReadAgain(t *testing.T) {
	s := newSite(t)
	s.S3.Encrypts = true
	for i := range 5 {
		s.put(fmt.Sprint(i), 3000*i)
	}
	s.put("long", 3<<20+1)
	s.plan(spec)
	s.work(WorkOptions{NoCopy: true})
	s.S3.Rot("from", "3", 100)
	s.S3.Rot("from", "long", 3<<20)
	if did := s.retire(RetireOptions{NoReread: true}); did.Objects != 1 || did.Left[NoChecksum] != 5 || did.Proven["size"] != 1 {
		t.Errorf("%+v", did.Retired)
	}
	did := s.retire(RetireOptions{})
	if did.Objects != 3 || did.Proven["bytes"] != 3 || did.Left[Differs] != 2 {
		t.Errorf("%+v", did)
	}
	s.wantOnly("3", "long")
}

// TestCopiedOriginalsAreProven checks that files that the server copied, which
// have no digest, are proven by the original's checksum.
func TestCopiedOriginalsAreProven(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i, name := range []string{"sound", "rotten"} {
		s.Want[name] = []byte(strings.Repeat(fmt.Sprintf("%08d", i), 6<<17))
		s.S3.PutParts("from", name, s.Want[name], 5<<20)
	}
	spec := spec
	spec.ChunkSize = 20 << 20
	s.plan(spec)
	s.work(WorkOptions{})
	l, err := s.C.Newest(t.Context(), "rotten")
	if err != nil || l.Digest.Algo != "" {
		t.Fatalf("%+v, %v", l, err)
	}
	s.rot("rotten")
	did := s.retire(RetireOptions{})
	if did.Objects != 1 || did.Proven["md5_of_parts"] != 1 || did.kept["rotten"].Why != Differs {
		t.Errorf("%+v", did)
	}
	s.wantOnly("rotten")
}

func TestRetirementsAreLimited(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 10 {
		s.put(fmt.Sprint(i), 1000)
	}
	s.plan(spec)
	s.work(WorkOptions{})
	if did := s.retire(RetireOptions{OlderThan: time.Hour}); did.Objects != 0 || did.Left[TooYoung] != 10 {
		t.Errorf("%+v", did.Retired)
	}
	if did := s.retire(RetireOptions{Limit: 3}); !slices.Equal(did.gone, []string{"0", "1", "2"}) || !did.Limited {
		t.Errorf("%+v", did)
	}
	s.rot("3")
	if did := s.retire(RetireOptions{Limit: 2}); !slices.Equal(did.gone, []string{"4", "5"}) || did.Left[ArchiveDamaged] != 1 {
		t.Errorf("%+v", did)
	}
	if did := s.retire(RetireOptions{LimitBytes: 2500, OlderThan: time.Nanosecond}); !slices.Equal(did.gone, []string{"6", "7"}) || !did.Limited {
		t.Errorf("%+v", did)
	}
	if did := s.retire(RetireOptions{Limit: 2}); len(did.gone) != 2 || did.Limited {
		t.Errorf("%+v", did)
	}
	s.wantOnly("3")
}

// TestARunThatIsKilledIsFinishedByTheNext checks that the next run finishes a
// run that was killed between the mark and the end of the removals.
func TestARunThatIsKilledIsFinishedByTheNext(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(50, 3000)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		n, late := 0, []string(nil)
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodDelete {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if n++; n <= 10 {
				return false
			}
			cancel()
			key := strings.TrimPrefix(r.URL.Path, "/from/")
			if n%2 == 0 {
				late = append(late, key)
			}
			s3test.Refuse(w, r, 503, "SlowDown")
			return true
		})
		did := s.retireAs(ctx, spec, RetireOptions{Jobs: 2})
		if !errors.Is(did.err, context.Canceled) || len(did.going) != 50 {
			t.Errorf("%+v", did)
		}
		s.Meet(nil)
		for _, key := range late { // removed, but the response was lost
			s.S3.Remove("from", key)
		}
		left := len(s.keys("from"))
		s.wantMarks(Originals{Leaving: 50 - int64(len(did.gone)), Retired: int64(len(did.gone))})
		s.reads()
		if done := s.compact(CompactOptions{}); done.Gone != 0 {
			t.Errorf("%+v", done)
		}
		// The server may have been removing one more when the keys were listed.
		if again := s.retire(RetireOptions{}); int(again.Objects) > left || int(again.Objects) < left-1 || int(again.Objects+again.Finished) != 50-len(did.gone) || len(again.Left) != 0 {
			t.Errorf("%+v after %+v, %d were left", again, did, left)
		}
		s.wantOnly()
		s.wantMarks(Originals{Retired: 50})
		s.reads()
	})
}

// TestWhatAnEarlierRunLeftIsProvenAgain checks that an original that was about
// to be removed is proven again, and stays if the proof fails.
func TestWhatAnEarlierRunLeftIsProvenAgain(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 3 {
		s.put(fmt.Sprint(i), 1000)
	}
	s.plan(spec)
	s.work(WorkOptions{})
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	p, err := s.C.Plan(ctx, spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Retire(ctx, s.C, p, RetireOptions{Going: func([]Retirement) error { cancel(); return nil }}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s.Meet(nil)
	s.wantMarks(Originals{Leaving: 3})
	s.rot("1")
	s.S3.Put("from", "2", []byte("another"))
	if did := s.retire(RetireOptions{}); !slices.Equal(did.gone, []string{"0"}) || !maps.Equal(did.Left, map[Reason]int64{ArchiveDamaged: 1, OriginalChanged: 1}) {
		t.Errorf("%+v", did)
	}
	s.wantOnly("1", "2")
}

// TestOriginalsWaitForTheirLog checks that if the log fails, all originals
// stay, and that none of them is forgotten.
func TestOriginalsWaitForTheirLog(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.packed(5, 1000)
	p, err := s.C.Plan(t.Context(), spec.Target)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	if did, err := Retire(t.Context(), s.C, p, RetireOptions{Going: func([]Retirement) error { return full }}); err != full || did.Objects != 0 {
		t.Errorf("%+v, %v", did, err)
	}
	s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
	s.wantMarks(Originals{Stay: 5})
}

// TestRefusedOriginalsStay checks that an original stays if it is replaced
// after the check, or if removing it is refused.
func TestRefusedOriginalsStay(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		for i := range 6 {
			s.put(fmt.Sprint(i), 1000)
		}
		s.plan(spec)
		s.work(WorkOptions{})
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method != http.MethodDelete:
			case r.URL.Path == "/from/2":
				s.S3.Put("from", "2", []byte("another")) // after it was requested
			case r.URL.Path == "/from/3":
				s3test.Refuse(w, r, 403, "AccessDenied")
				return true
			case r.URL.Path == "/from/4": // an earlier try succeeded
				s.S3.Remove("from", "4")
			}
			return false
		})
		did := s.retire(RetireOptions{})
		if did.Objects != 4 || did.kept["2"].Why != OriginalChanged || did.kept["3"].Why != Refused || !did.kept["3"].Going {
			t.Errorf("%+v", did)
		}
		s.Meet(nil)
		s.wantOnly("2", "3")
		s.wantMarks(Originals{Stay: 2, Retired: 4})
		if p := s.plan(spec); p.Objects != 1 {
			t.Errorf("planned again %+v", p)
		}
		if did := s.retire(RetireOptions{}); !slices.Equal(did.gone, []string{"3"}) || did.Left[NotPacked] != 1 {
			t.Errorf("%+v", did)
		}
	})
}

// TestArchivesAreWrittenAnewMeanwhile checks that if an archive is rewritten
// while its originals are proven, they either stay or are marked in the new
// archive.
func TestArchivesAreWrittenAnewMeanwhile(t *testing.T) {
	onEachSite(t, func(t *testing.T, s *site) {
		s.packed(40, 3000)
		s.looks(spec.Target)
		names := slices.Sorted(maps.Keys(s.Want))
		for _, name := range names[:20] {
			s.S3.Remove("from", name)
			delete(s.Want, name)
		}
		p, err := s.C.Plan(t.Context(), spec.Target)
		if err != nil {
			t.Fatal(err)
		}
		// They are proven by archives that exist until then.
		j, err := open(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		r := &retirer{c: s.C, j: j, o: RetireOptions{Jobs: 4}, done: Retired{Proven: map[string]int64{}, Left: map[Reason]int64{}}}
		if r.scope, err = j.scope(t.Context(), s.C); err != nil {
			t.Fatal(err)
		}
		var all []*original
		for f, err := range j.live(t.Context(), s.C, r.scope.has) {
			if err != nil {
				t.Fatal(err)
			}
			if s.Want[f.Path] != nil {
				all = append(all, &original{liveFile: f, st: j.origins[0].st, name: f.Path})
			}
		}
		for _, x := range all {
			if err := r.ask(t.Context(), x); err != nil || x.why != "" {
				t.Errorf("%+v, %v", x, err)
			}
		}
		if err := r.prove(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if done := s.compact(CompactOptions{Dead: 0.01}); done.Chunks == 0 || done.Removed == 0 {
			t.Fatalf("%+v", done)
		}
		if r.scope, err = j.scope(t.Context(), s.C); err != nil {
			t.Fatal(err)
		}
		if err := r.remove(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			if x.gone || x.why != Moved {
				t.Errorf("%s: gone %v, %q", x.Path, x.gone, x.why)
			}
		}
		s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
		s.wantMarks(Originals{Stay: 20})
		if did := s.retire(RetireOptions{}); did.Objects != 20 {
			t.Errorf("%+v", did)
		}
		s.reads()
	})
}

// TestOriginalsOfABundleAreRetired checks that a shard of a bundle is read by
// its own index.
func TestOriginalsOfABundleAreRetired(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(30, 3000)
	spec := spec
	spec.Format, spec.Target, spec.Param = "databundle", "s3://out/set.bundle", map[string]string{"compression": "zstd"}
	s.plan(spec)
	s.work(WorkOptions{})
	did := s.retireAs(t.Context(), spec, RetireOptions{})
	if did.err != nil || did.Objects != 30 {
		t.Errorf("%+v", did)
	}
	s.wantOnly()
}

func TestOriginalsOfAFolderAreRetired(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	folder := t.TempDir()
	for i := range 4 {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(i)), []byte(strings.Repeat("x", 1000*i)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	spec := spec
	spec.Sources = []string{folder}
	s.plan(spec)
	s.work(WorkOptions{})
	if err := os.WriteFile(filepath.Join(folder, "2"), []byte("another"), 0o666); err != nil {
		t.Fatal(err)
	}
	did := s.retireAs(t.Context(), spec, RetireOptions{})
	if did.err != nil || !slices.Equal(did.gone, []string{"0", "1", "3"}) || did.kept["2"].Why != OriginalChanged || did.Proven["bytes"] != 2 {
		t.Errorf("%+v", did)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 || !strings.HasPrefix(left[0].Name(), catalog.Markers) {
		t.Errorf("%v, %v", left, err)
	}
}

// TestOriginalsWithOtherHeadersStay checks that headers, metadata and the time
// belong to the proof, although the version remains when they are replaced. What
// was replaced is planned again.
func TestOriginalsWithOtherHeadersStay(t *testing.T) {
	testkit.Serial(t)
	onEachSite(t, func(t *testing.T, s *site) {
		was, before := map[string]string{"Content-Type": "text/plain", "X-Amz-Meta-Owner": "me"}, time.Now().Add(-time.Hour)
		for _, name := range []string{"as it was", "copied", "empty", "metadata", "time", "type", "unlisted"} {
			switch name {
			case "empty":
				s.Put(name, nil)
			case "copied": // by the server
				s.put(name, 6<<20)
			default:
				s.put(name, 1000)
			}
			s.S3.Describe("from", name, was)
			s.S3.Touch("from", name, before)
		}
		wide := spec
		wide.ChunkSize = 1 << 30
		s.plan(wide)
		s.work(WorkOptions{})
		change := func(name string, after time.Duration, headers map[string]string) {
			s.S3.Describe("from", name, headers)
			s.S3.Touch("from", name, before.Add(after))
		}
		change("type", time.Minute, map[string]string{"Content-Type": "text/html", "X-Amz-Meta-Owner": "me"})
		change("metadata", time.Minute, map[string]string{"Content-Type": "text/plain", "X-Amz-Meta-Owner": "you"})
		change("copied", time.Minute, map[string]string{"Content-Type": "text/plain"})
		change("empty", time.Minute, map[string]string{"Content-Type": "text/plain", "X-Amz-Meta-Owner": "me", "Cache-Control": "no-store"})
		change("time", time.Minute, was)
		change("unlisted", 0, map[string]string{"Content-Type": "text/html"}) // as with some other service
		changed := []string{"copied", "empty", "metadata", "time", "type", "unlisted"}
		for _, dry := range []bool{true, false} {
			did := s.retire(RetireOptions{DryRun: dry})
			if did.Objects != 1 || !maps.Equal(did.Left, map[Reason]int64{HeadersChanged: 6}) || did.kept["type"].Why.Fault() {
				t.Errorf("%+v", did.Retired)
			}
		}
		s.wantOnly(changed...)
		if p := s.plan(wide); p.Objects != 5 || p.Known != 1 {
			t.Errorf("planned again %+v", p)
		}
		if did := s.retire(RetireOptions{}); did.Objects != 0 || did.Left[NotPacked] != 5 {
			t.Errorf("%+v", did.Retired)
		}
		s.work(WorkOptions{})
		if p := s.plan(wide); p.Objects != 0 || p.Known != 6 {
			t.Errorf("planned a third time %+v", p)
		}
		if did := s.retire(RetireOptions{}); did.Objects != 5 || !maps.Equal(did.Left, map[Reason]int64{HeadersChanged: 1}) {
			t.Errorf("%+v", did.Retired)
		}
		s.wantOnly("unlisted")
		s.reads()
		l, err := s.C.Newest(t.Context(), "type")
		if err != nil {
			t.Fatal(err)
		}
		if headers, err := s.C.Headers(t.Context(), l.Headers); err != nil || headers["content-type"] != "text/html" || headers["x-amz-meta-owner"] != "me" {
			t.Errorf("%q, %v", headers, err)
		}
	})
}

// TestHeadersThatChangeDuringTheProofStay replaces headers after an original was
// asked for, and before it is removed.
func TestHeadersThatChangeDuringTheProofStay(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b"} {
		s.put(name, 1000)
		s.S3.Touch("from", name, time.Now().Add(-time.Hour))
	}
	s.plan(spec)
	s.work(WorkOptions{})
	p, left := s.planOf(spec.Target), Reason("")
	did, err := Retire(t.Context(), s.C, p, RetireOptions{Going: func([]Retirement) error {
		s.S3.Describe("from", "b", map[string]string{"Content-Type": "text/html"})
		s.S3.Touch("from", "b", time.Now())
		return nil
	}, Kept: func(k Keeping) { left = k.Why }})
	if err != nil || did.Objects != 1 || left != OriginalChanged {
		t.Errorf("%+v, %v, %q", did, err, left)
	}
	s.wantOnly("b")
	s.wantMarks(Originals{Stay: 1, Retired: 1})
}

// TestWhatArchivesDoNotKeepStays checks that originals with something that no
// archive keeps stay, unless that is named.
func TestWhatArchivesDoNotKeepStays(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for name, header := range map[string][2]string{
		"tagged": {"X-Amz-Tagging-Count", "2"}, "empty": {"X-Amz-Tagging-Count", "1"}, "untagged": {"X-Amz-Tagging-Count", "0"},
		"cold": {"X-Amz-Storage-Class", "STANDARD_IA"}, "usual": {"X-Amz-Storage-Class", "STANDARD"}, "page": {"X-Amz-Website-Redirect-Location", "/x"},
		"locked": {"X-Amz-Object-Lock-Mode", "GOVERNANCE"}, "held": {"X-Amz-Object-Lock-Legal-Hold", "ON"}, "free": {"X-Amz-Object-Lock-Legal-Hold", "OFF"},
	} {
		if s.put(name, 1000); name == "empty" {
			s.Put(name, nil)
		}
		s.S3.Describe("from", name, map[string]string{header[0]: header[1]})
	}
	s.plan(spec)
	s.work(WorkOptions{})
	want := map[Reason]int64{Tags: 2, StorageClass: 1, Redirect: 1, Lock: 2}
	if did := s.retire(RetireOptions{}); did.Objects != 3 || !maps.Equal(did.Left, want) || did.kept["tagged"].Why.Fault() {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly("cold", "empty", "held", "locked", "page", "tagged")
	if did := s.retire(RetireOptions{Without: []Reason{StorageClass, Tags}}); did.Objects != 3 || !maps.Equal(did.Left, map[Reason]int64{Redirect: 1, Lock: 2}) {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly("held", "locked", "page")
}
