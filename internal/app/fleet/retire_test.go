package fleet

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// retiring is the result of a retirement.
type retiring struct {
	Retired
	going []string // as the log says
	kept  map[string]Keeping
	err   error
}

// retireAs retires without a queue, which takes a while to start.
func (s *site) retireAs(ctx context.Context, name string, o RetireOptions) (did retiring) {
	s.T.Helper()
	r, err := newRetirer(ctx, s.f, s.planOf(name), o)
	if err == nil {
		err = r.run(ctx, func(ctx context.Context, jobs []queue.Job) (err error) {
			for _, k := range jobs {
				err = cmp.Or(err, newWorker(s.f, WorkOptions{}).do(ctx, k))
			}
			return err
		})
	}
	return s.retired(r.j.plan, r.done, err)
}

func (s *site) retired(p Plan, is Retired, err error) (did retiring) {
	s.T.Helper()
	did = retiring{Retired: is, kept: map[string]Keeping{}, err: err}
	for _, k := range did.Kept {
		did.kept[k.Path] = k
	}
	for r, err := range RetirementLog(s.T.Context(), s.f, p, did.Run) {
		if err != nil {
			s.T.Fatal(err)
		}
		did.going = append(did.going, r.Path)
	}
	slices.Sort(did.going)
	return did
}

func (s *site) retire(o RetireOptions) retiring {
	s.T.Helper()
	did := s.retireAs(s.T.Context(), spec.Target, o)
	if did.err != nil {
		s.T.Fatal(did.err)
	}
	return did
}

// wantOriginals compares what is recorded of the originals.
func (s *site) wantOriginals(want Originals) {
	s.T.Helper()
	if is, err := OriginalsOf(s.T.Context(), s.B, s.planOf(spec.Target)); err != nil || *is != want {
		s.T.Errorf("%+v, %v, want %+v", is, err, want)
	}
}

// wantOnly requires the source to have exactly these objects.
func (s *site) wantOnly(want ...string) {
	s.T.Helper()
	slices.Sort(want)
	if is := s.originals(); !slices.Equal(is, want) {
		s.T.Errorf("the source has %q, want %q", is, want)
	}
}

func TestProvenOriginalsGo(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(60, 1000)
	s.put("parts", 3<<20)
	s.S3.PutParts("from", "parts", s.Want["parts"], 2<<20)
	s.packs(spec)
	all := slices.Sorted(maps.Keys(s.Want))
	if did := s.retire(RetireOptions{DryRun: true}); did.Objects != 61 || len(did.going) != 0 || did.Proven["md5_of_parts"] != 1 {
		t.Errorf("dry: %+v", did.Retired)
	}
	s.wantOnly(all...)
	s.wantOriginals(Originals{Stay: 61})
	p := s.planOf(spec.Target)
	is, err := Retire(t.Context(), s.f, p, RetireOptions{})
	did := s.retired(p, is, err)
	if err != nil || did.Objects != 61 || len(did.Left) != 0 || !slices.Equal(did.going, all) || !maps.Equal(did.Proven, map[string]int64{"md5": 59, "md5_of_parts": 1, "size": 1}) {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly()
	s.wantOriginals(Originals{Retired: 61})
	s.reads()
	// None of these counts as new, or as missing.
	if p := s.plan(spec); p.Objects != 0 || p.Missing != 0 {
		t.Errorf("planned again %+v", p)
	}
	if again := s.retire(RetireOptions{}); again.Objects+again.Finished != 0 || len(again.Left) != 0 {
		t.Errorf("again: %+v", again.Retired)
	}
}

// What an earlier run has handed out is not done by a dry run, which removes nothing.
func TestADryRunRemovesNothingForAnother(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(5, 1000)
	s.packs(spec)
	_, _, jobs := s.ranged(RetireOptions{})
	if _, err := s.f.Queue.Add(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	_, err := Retire(t.Context(), s.f, s.planOf(spec.Target), RetireOptions{DryRun: true})
	if e, is := errors.AsType[*RetiringError](err); !is || e.Jobs != len(jobs) || len(jobs) == 0 {
		t.Errorf("%v, with %d jobs", err, len(jobs))
	}
	s.wantOnly(slices.Sorted(maps.Keys(s.Want))...)
}

// A retirement ends an interrupted one, and tells what that one did.
func TestAnInterruptedRetirementIsTold(t *testing.T) {
	testkit.Serial(t)
	defer func(was int64) { rangeObjects = was }(rangeObjects)
	rangeObjects = 10
	s := newSite(t)
	s.some(25, 1000)
	s.packs(spec)
	r, _, jobs := s.ranged(RetireOptions{Limit: 20})
	if _, err := s.f.Queue.Add(t.Context(), jobs...); err != nil || len(jobs) != 2 {
		t.Fatal(err, len(jobs))
	}
	if err := newWorker(s.f, WorkOptions{}).do(t.Context(), jobs[0]); err != nil { // by a worker that is killed before its queue knows
		t.Fatal(err)
	}
	did, err := Retire(t.Context(), s.f, s.planOf(spec.Target), RetireOptions{})
	if err != nil || did.Objects+did.Finished != 25 || !slices.Equal(did.Earlier, []string{r.done.Run}) {
		t.Errorf("%+v, %v", did, err)
	}
	told := map[string]bool{}
	for _, run := range append(did.Earlier, did.Run) {
		for x, err := range RetirementLog(t.Context(), s.f, s.planOf(spec.Target), run) {
			if err != nil {
				t.Fatal(err)
			}
			told[x.Path] = true
		}
	}
	if len(told) != 25 {
		t.Errorf("%d told", len(told))
	}
	s.wantOnly()
}

// rot changes one byte of a file in its archive.
func (s *site) rot(name string) {
	s.T.Helper()
	l, err := s.B.Newest(s.T.Context(), name)
	if err != nil || !l.Raw {
		s.T.Fatalf("%+v, %v", l, err)
	}
	s.S3.Rot("out", strings.TrimPrefix(l.In.Address, "s3://out/"), int(l.Off+l.Size/2))
}

func TestWhatIsNotProvenStays(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(60, 5000)
	s.packs(spec)
	in := map[int64][]string{}
	var ids []int64
	for _, name := range slices.Sorted(maps.Keys(s.Want)) {
		l, err := s.B.Newest(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, l.Archive) {
			ids = append(ids, l.Archive)
		}
		if len(s.Want[name]) > 0 { // the others need not be read
			in[l.Archive] = append(in[l.Archive], name)
		}
	}
	if len(ids) < 2 {
		t.Fatalf("%d archives", len(ids))
	}
	rotten, replaced, gone := in[ids[0]][3], in[ids[0]][5], in[ids[0]][7]
	s.rot(rotten)
	s.S3.Put("from", replaced, []byte("another"))
	s.S3.Remove("from", gone)
	lost, err := s.B.ArchiveOf(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimPrefix(lost.Address, "s3://out/")
	archive := s.S3.Get("out", key)
	want := append([]string{rotten, replaced}, in[ids[1]]...)
	changed := int64(len(in[ids[1]]))
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
		if k := did.kept[rotten]; k.Why != ArchiveDamaged || k.Note == "" || !strings.HasPrefix(k.Archive, "s3://out/set-") || !k.Why.Fault() || k.Going {
			t.Errorf("%+v", k)
		}
		s.wantOnly(slices.Clone(want)...)
	}
	// What was gone is not said to be retired.
	s.wantOriginals(Originals{Stay: int64(len(want)) + 1, Retired: int64(len(s.Want)-len(want)) - 1})
	s.S3.Put("out", key, archive)
	if did := s.retire(RetireOptions{}); did.Objects != changed {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly(rotten, replaced)
}

// TestACopyOfDamageIsNoProof checks a packed file that is sound but differs from the checksum of the original's
// service.
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
	if did.Objects != 3 || did.kept["2"].Why != Differs || !strings.Contains(did.kept["2"].Note, "md5") {
		t.Errorf("%+v", did)
	}
	s.wantOnly("2")
}

// TestOriginalsWithoutChecksumAreReadAgain checks that originals without a checksum are compared byte by byte, or
// stay.
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

// TestCopiedOriginalsAreProven checks that files that the server copied, which have no digest, are proven by the
// original's checksum.
func TestCopiedOriginalsAreProven(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i, name := range []string{"sound", "rotten"} {
		s.Want[name] = []byte(strings.Repeat(fmt.Sprintf("%08d", i), 6<<17))
		s.S3.PutParts("from", name, s.Want[name], 5<<20)
	}
	large := spec
	large.ChunkSize = 20 << 20
	s.packs(large)
	l, err := s.B.Newest(t.Context(), "rotten")
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
	s.packs(spec)
	if did := s.retire(RetireOptions{OlderThan: time.Hour}); did.Objects != 0 || did.Left[TooYoung] != 10 {
		t.Errorf("%+v", did.Retired)
	}
	if did := s.retire(RetireOptions{Limit: 3}); !slices.Equal(did.going, []string{"0", "1", "2"}) || !did.Limited {
		t.Errorf("%+v", did)
	}
	s.rot("3")
	if did := s.retire(RetireOptions{Limit: 2}); !slices.Equal(did.going, []string{"4", "5"}) || did.Left[ArchiveDamaged] != 1 || !did.Limited {
		t.Errorf("%+v", did)
	}
	if did := s.retire(RetireOptions{LimitBytes: 2500, OlderThan: time.Nanosecond}); !slices.Equal(did.going, []string{"6", "7"}) || !did.Limited {
		t.Errorf("%+v", did)
	}
	if did := s.retire(RetireOptions{Limit: 2}); len(did.going) != 2 || did.Limited {
		t.Errorf("%+v", did)
	}
	s.wantOnly("3")
}

// TestOriginalsWaitForTheirLog checks that all originals stay if the log cannot be written, and that none of them
// is forgotten.
func TestOriginalsWaitForTheirLog(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(5, 1000)
	s.packs(spec)
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, logSuffix) {
			s3test.Refuse(w, r, 403, "AccessDenied")
			return true
		}
		return false
	})
	if did, err := Retire(t.Context(), s.f, s.planOf(spec.Target), RetireOptions{Tries: 1}); !errors.Is(err, fs.ErrPermission) || did.Objects != 0 {
		t.Errorf("%+v, %v", did, err)
	}
	s.Meet(nil)
	s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
	s.wantOriginals(Originals{Retired: 5})
	// Its job, which was set aside, finishes it.
	if n, err := s.Q.Retry(t.Context(), spec.Target); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if sum := s.work(WorkOptions{}); sum.Done != 1 {
		t.Errorf("%+v", sum)
	}
	s.wantOnly()
	s.reads()
}

// TestRefusedOriginalsStay checks that an original stays if it is replaced after the check, or if removing it is
// refused.
func TestRefusedOriginalsStay(t *testing.T) {
	testkit.Serial(t)
	for _, many := range []string{"", "NotImplemented"} {
		refusedOriginals(t, many)
	}
}

func refusedOriginals(t *testing.T, many string) {
	s := newSite(t)
	s.S3.Many = many
	for i := range 6 {
		s.put(fmt.Sprint(i), 1000)
	}
	s.packs(spec)
	batches := 0
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost && r.URL.Query().Has("delete"):
			if batches++; batches == 1 || many != "" { // what tries it
				return false
			}
			s.S3.Put("from", "2", []byte("another"))
			for _, key := range []string{"0", "4", "5"} {
				s.S3.Remove("from", key)
			}
			_, _ = w.Write([]byte("<DeleteResult><Deleted><Key>0</Key></Deleted><Deleted><Key>5</Key></Deleted><Error><Key>2</Key><Code>PreconditionFailed</Code></Error>" +
				"<Error><Key>3</Key><Code>AccessDenied</Code></Error><Error><Key>4</Key><Code>NoSuchKey</Code></Error></DeleteResult>")) // nothing about 1
			return true
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
	if did.Objects != 4 || did.kept["2"].Why != OriginalChanged || did.kept["3"].Why != Refused || !did.kept["3"].Going || did.Window <= 0 {
		t.Errorf("%+v", did)
	}
	s.Meet(nil)
	s.wantOnly("2", "3")
	s.wantOriginals(Originals{Lingers: 2, Retired: 4})
	if p := s.plan(spec); p.Objects != 1 || p.Missing != 0 {
		t.Errorf("planned again %+v", p)
	}
	if did := s.retire(RetireOptions{}); !slices.Equal(did.going, []string{"3"}) || did.Left[OriginalChanged] != 1 {
		t.Errorf("%+v", did)
	}
	s.work(WorkOptions{})
	s.Want["2"] = []byte("another")
	s.reads()
	if did := s.retire(RetireOptions{}); !slices.Equal(did.going, []string{"2"}) {
		t.Errorf("%+v", did)
	}
}

// TestAServerWithoutTheConditionIsRefused checks that a server which ignores the condition of a request that
// deletes is found out before anything is lost.
func TestAServerWithoutTheConditionIsRefused(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, name := range []string{"a", "b", "c"} {
		s.put(name, 1000)
	}
	s.packs(spec)
	heads := map[string]int{}
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		switch name := strings.TrimPrefix(r.URL.Path, "/from/"); {
		case r.Method == http.MethodDelete:
			bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			s.S3.Remove(bucket, key)
			w.WriteHeader(http.StatusNoContent)
			return true
		case r.Method == http.MethodHead && name == "b": // it is replaced between the proof and the deletion
			if heads[name]++; heads[name] == 2 {
				s.S3.Put("from", "b", []byte("another"))
			}
		}
		return false
	})
	did := s.retireAs(t.Context(), spec.Target, RetireOptions{})
	if careless, ok := errors.AsType[*CarelessError](did.err); !ok || careless.Place != "s3://from" || did.Objects > 0 {
		t.Errorf("%+v", did)
	}
	s.wantOnly("a", "b", "c")
	s.wantOriginals(Originals{Stay: 3})
	if n := len(s.S3.Keys("from")); n != 4 {
		t.Errorf("%d objects with the marker", n)
	}
	if did := s.retire(RetireOptions{Unconditional: true}); did.Objects != 2 || did.kept["b"].Why != OriginalChanged {
		t.Errorf("%+v", did)
	}
	s.wantOnly("b")
}

// TestAServerThatDeletesManyCarelesslyIsFoundOut replaces an original when it is about to be deleted. There is a marker at
// any time.
func TestAServerThatDeletesManyCarelesslyIsFoundOut(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 1000)
	s.packs(spec)
	s.retire(RetireOptions{Limit: 3})
	s.S3.Many = "careless"
	name := s.originals()[3]
	var batches atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if !slices.ContainsFunc(s.S3.Keys("from"), book.IsMarker) {
			t.Errorf("no marker at %s %s", r.Method, r.URL)
		}
		if r.Method == http.MethodPost && r.URL.Query().Has("delete") {
			batches.Add(1)
		}
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, logSuffix) {
			s.S3.Put("from", name, []byte("another"))
		}
		return false
	})
	if did := s.retire(RetireOptions{}); did.Objects != 6 || did.kept[name].Why != OriginalChanged || batches.Load() != 1 {
		t.Errorf("%+v, %d batches", did, batches.Load())
	}
	s.wantOnly(name)
	if keys := s.S3.Keys("from"); len(keys) != 2 {
		t.Errorf("%q", keys)
	}
}

// TestOlderVersionsOfOriginalsStay retires originals of a bucket that keeps versions.
func TestOlderVersionsOfOriginalsStay(t *testing.T) {
	testkit.Serial(t)
	for _, many := range []string{"", "NotImplemented"} {
		s := newSite(t)
		s.S3.Versions, s.S3.Many = true, many
		s.some(20, 1000)
		s.packs(spec)
		if did := s.retire(RetireOptions{}); did.Objects != 20 {
			t.Errorf("%+v", did)
		}
		s.wantOnly()
		var older []string
		for _, at := range s.S3.Older() {
			if key, ok := strings.CutPrefix(at, "from/"); ok && !book.IsMarker(key) {
				older = append(older, key)
			}
		}
		if want := slices.Sorted(maps.Keys(s.Want)); !slices.Equal(older, want) {
			t.Errorf("the bucket keeps %q", older)
		}
	}
}

// TestOldAnswersAreAskedAgain replaces headers after an original was asked for, and before it is removed.
func TestOldAnswersAreAskedAgain(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b"} {
		s.put(name, 1000)
		s.S3.Touch("from", name, time.Now().Add(-time.Hour))
	}
	s.packs(spec)
	defer func(was time.Duration) { mostAsked = was }(mostAsked)
	mostAsked = 0
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, logSuffix) {
			s.S3.Describe("from", "b", map[string]string{"Content-Type": "text/html"})
			s.S3.Touch("from", "b", time.Now())
		}
		return false
	})
	did := s.retire(RetireOptions{})
	s.Meet(nil)
	if did.Objects != 1 || did.kept["b"].Why != HeadersChanged || !did.kept["b"].Going {
		t.Errorf("%+v", did)
	}
	s.wantOnly("b")
	s.wantOriginals(Originals{Lingers: 1, Retired: 1})
	if p := s.plan(spec); p.Objects != 1 {
		t.Errorf("%+v", p)
	}
}

// TestOriginalsWithOtherHeadersStay checks that headers, metadata and the time belong to the proof, although the
// version remains when they are replaced. What was replaced is planned again.
func TestOriginalsWithOtherHeadersStay(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	was, before := map[string]string{"Content-Type": "text/plain", "X-Amz-Meta-Owner": "me"}, time.Now().Add(-time.Hour)
	for _, name := range []string{"as it was", "copied", "empty", "metadata", "time", "type", "unlisted"} {
		switch name {
		case "empty":
			s.put(name, 0)
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
	s.packs(wide)
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
	for _, dry := range []bool{true, false} {
		did := s.retire(RetireOptions{DryRun: dry})
		if did.Objects != 1 || !maps.Equal(did.Left, map[Reason]int64{HeadersChanged: 6}) || did.kept["type"].Why.Fault() {
			t.Errorf("%+v", did.Retired)
		}
	}
	s.wantOnly("copied", "empty", "metadata", "time", "type", "unlisted")
	s.wantOriginals(Originals{Stay: 6, Retired: 1}) // nothing more is said to be leaving
	if p := s.plan(wide); p.Objects != 5 || p.Known != 1 {
		t.Errorf("planned again %+v", p)
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
	l, err := s.B.Newest(t.Context(), "type")
	if err != nil {
		t.Fatal(err)
	}
	if headers, err := s.B.HeadersOf(t.Context(), l.Location); err != nil || headers["content-type"] != "text/html" || headers["x-amz-meta-owner"] != "me" {
		t.Errorf("%q, %v", headers, err)
	}
}

// TestWhatArchivesDoNotKeepStays checks that originals with something that no archive keeps stay, unless that is
// named.
func TestWhatArchivesDoNotKeepStays(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for name, header := range map[string][2]string{
		"tagged": {"X-Amz-Tagging-Count", "2"}, "empty": {"X-Amz-Tagging-Count", "1"}, "untagged": {"X-Amz-Tagging-Count", "0"},
		"cold": {"X-Amz-Storage-Class", "STANDARD_IA"}, "usual": {"X-Amz-Storage-Class", "STANDARD"}, "page": {"X-Amz-Website-Redirect-Location", "/x"},
		"locked": {"X-Amz-Object-Lock-Mode", "GOVERNANCE"}, "held": {"X-Amz-Object-Lock-Legal-Hold", "ON"}, "free": {"X-Amz-Object-Lock-Legal-Hold", "OFF"},
	} {
		if s.put(name, 1000); name == "empty" {
			s.put(name, 0)
		}
		s.S3.Describe("from", name, map[string]string{header[0]: header[1]})
	}
	s.packs(spec)
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

// TestOriginalsThatOthersMayReadStay has lists of access that are read, and then some that must not be read.
func TestOriginalsThatOthersMayReadStay(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for _, name := range []string{"own", "shared", "secret"} {
		s.put(name, 1000)
	}
	s.packs(spec)
	s.S3.Ownership, s.S3.Grants = "ObjectWriter", map[string]string{"shared": "<Grant><Grantee><URI>AllUsers</URI></Grantee><Permission>READ</Permission></Grant>"}
	if did := s.retire(RetireOptions{}); did.Objects != 2 || did.kept["shared"].Why != ACL || did.kept["shared"].Note != "" {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly("shared")
	s.S3.Ownership, s.S3.Grants["shared"] = "AccessDenied", "AccessDenied"
	if did := s.retire(RetireOptions{}); did.Left[ACL] != 1 || !strings.Contains(did.kept["shared"].Note, "s3:GetObjectAcl") || ACL.Fault() {
		t.Errorf("%+v", did.Retired)
	}
	s.S3.Took()
	if did := s.retire(RetireOptions{Without: []Reason{ACL}}); did.Objects != 1 {
		t.Errorf("%+v", did.Retired)
	}
	for _, r := range s.S3.Took() {
		if strings.Contains(r, "acl") || strings.Contains(r, "ownership") {
			t.Error(r)
		}
	}
	s.wantOnly()
}

// TestARetirementTakesOneRequestForEachOriginal counts all requests, also those of the catalogue. It takes two where a
// request cannot delete many safely.
func TestARetirementTakesOneRequestForEachOriginal(t *testing.T) {
	testkit.Serial(t)
	for _, many := range []string{"", "careless", "NotImplemented"} {
		s := newSite(t)
		s.S3.Sums, s.S3.Encrypts, s.S3.Many = []string{"crc64nvme"}, many == "careless", many
		const n = 2000
		for i := range n {
			s.put(fmt.Sprintf("d/%04d", i), 100)
		}
		one := spec
		one.ChunkSize = 1 << 30
		s.packs(one)
		s.S3.Took()
		did := s.retire(RetireOptions{})
		kinds := map[string]int{}
		took := s.S3.Took()
		for _, r := range took {
			method, path, _ := strings.Cut(r, " ")
			if strings.HasPrefix(path, "/from/d/") {
				kinds[method]++
			}
		}
		each, alone := 1, 0
		if many != "" {
			each, alone = 2, n
		}
		if did.Objects != n || kinds["HEAD"] != n || kinds["DELETE"] != alone || len(kinds) != each || len(took) > n*each*105/100 {
			t.Errorf("%+v, %v of %d requests", did.Retired, kinds, len(took))
		}
		t.Logf("%.3f requests for each of %d originals, %v", float64(len(took))/n, n, did.Proven)
		s.reads()
	}
}

// TestOriginalsOfABundleAreRetired checks that a shard of a bundle is read by its own index, and that its format keeps
// no headers.
func TestOriginalsOfABundleAreRetired(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(30, 3000)
	whole := spec
	whole.Format, whole.Target, whole.Param = "databundle", "s3://out/set.bundle", map[string]string{"compression": "zstd"}
	s.packs(whole)
	if did := s.retireAs(t.Context(), whole.Target, RetireOptions{}); did.err != nil || !maps.Equal(did.Left, map[Reason]int64{Headers: 30}) {
		t.Errorf("%+v", did)
	}
	if did := s.retireAs(t.Context(), whole.Target, RetireOptions{Without: []Reason{Headers}}); did.err != nil || did.Objects != 30 {
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
	local := spec
	local.Sources = []string{folder}
	s.packs(local)
	if err := os.WriteFile(filepath.Join(folder, "2"), []byte("another"), 0o666); err != nil {
		t.Fatal(err)
	}
	did := s.retireAs(t.Context(), spec.Target, RetireOptions{})
	if did.err != nil || !slices.Equal(did.going, []string{"0", "1", "3"}) || did.kept["2"].Why != OriginalChanged || did.Proven["bytes"] != 2 || did.Proven["size"] != 1 {
		t.Errorf("%+v", did)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 || !strings.HasPrefix(left[0].Name(), ".holdall-catalogue-") {
		t.Errorf("%v, %v", left, err)
	}
}

// ranged cuts what a retirement would hand out into jobs.
func (s *site) ranged(o RetireOptions) (*retirer, []retireArgs, []queue.Job) {
	s.T.Helper()
	r, err := newRetirer(s.T.Context(), s.f, s.planOf(spec.Target), o)
	if err != nil {
		s.T.Fatal(err)
	}
	ranges, _, _, err := r.cut(s.T.Context(), "")
	if err != nil {
		s.T.Fatal(err)
	}
	jobs, err := r.jobs(s.T.Context(), ranges)
	if err != nil {
		s.T.Fatal(err)
	}
	return r, ranges, jobs
}

// TestOtherWorkersRetire has workers do the ranges of a retirement.
func TestOtherWorkersRetire(t *testing.T) {
	testkit.Serial(t)
	defer func(was int64) { rangeObjects = was }(rangeObjects)
	rangeObjects = 10
	s := newSite(t)
	s.some(55, 1000)
	s.packs(spec)
	r, ranges, jobs := s.ranged(RetireOptions{})
	if _, err := s.Q.Add(t.Context(), jobs...); err != nil || len(jobs) != 6 {
		t.Fatalf("%d, %v", len(jobs), err)
	}
	if sum := s.work(WorkOptions{Workers: 3}); sum.Done != 6 || sum.Failed != 0 {
		t.Errorf("%+v", sum)
	}
	if err := r.sum(t.Context(), ranges); err != nil || r.done.Objects != 55 || r.done.Proven["md5"] != 54 {
		t.Errorf("%+v, %v", r.done, err)
	}
	s.wantOnly()
	s.reads()
	if err := s.B.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	logs := func() (n int) {
		for _, key := range s.S3.Keys("out") {
			if strings.HasPrefix(key, "set.catalog/retired/") {
				n++
			}
		}
		return n
	}
	if _, err := s.B.GC(t.Context(), 0, false); err != nil || logs() != 12 {
		t.Errorf("%v, %d logs", err, logs())
	}
}

// TestWhereverAJobIsKilledTheNextAttemptEndsIt kills a job at each request that changes something.
func TestWhereverAJobIsKilledTheNextAttemptEndsIt(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 5 {
		s.put(fmt.Sprintf("sound %d", i), 1000*i)
	}
	s.put("rotten", 3000)
	s.put("replaced", 3000)
	for _, key := range s.S3.Keys("from") {
		s.S3.Touch("from", key, keptAt)
	}
	s.packs(spec)
	all := s.kept(func(string, string) bool { return true })
	for _, done := range []bool{false, true} {
		kills := 0
		for n := 1; ; n++ {
			all()
			s.S3.Put("from", "replaced", []byte("another"))
			s.rot("rotten")
			r, ranges, jobs := s.ranged(RetireOptions{Jobs: 2})
			dead, err := s.killed(n, done, func(ctx context.Context) error { return newWorker(s.f, WorkOptions{}).do(ctx, jobs[0]) })
			if !dead {
				if err != nil {
					t.Error(err)
				}
				break
			}
			kills++
			s.reopen() // as another process
			r.f = s.f
			if err := newWorker(s.f, WorkOptions{}).do(t.Context(), jobs[0]); err != nil {
				t.Errorf("kill %d: %v", n, err)
			}
			if err := r.sum(t.Context(), ranges); err != nil || r.done.Objects+r.done.Finished != 5 || r.done.Left[ArchiveDamaged] != 1 || r.done.Left[OriginalChanged] != 1 {
				t.Errorf("kill %d: %+v, %v", n, r.done, err)
			}
			s.wantOnly("replaced", "rotten")
			s.wantOriginals(Originals{Stay: 2, Retired: 5})
			logged := map[string]bool{}
			for x, err := range RetirementLog(t.Context(), s.f, r.j.plan, r.done.Run) {
				if logged[x.Path] = true; err != nil {
					t.Error(err)
				}
			}
			if len(logged) != 5 {
				t.Errorf("kill %d: %d in the log", n, len(logged))
			}
			if err := s.B.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
				t.Error(err)
			}
			if p := s.plan(spec); p.Missing != 0 || p.Objects != 1 {
				t.Errorf("kill %d: %+v", n, p)
			}
		}
		if kills < 10 {
			t.Errorf("%d kills", kills)
		}
	}
}

// TestWhatAListingFindsBeforeItsRemovalIsNotMissing lists between the commit that originals are leaving and their
// removal.
func TestWhatAListingFindsBeforeItsRemovalIsNotMissing(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 1000)
	s.packs(spec)
	s.plan(spec) // has seen them all
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, logSuffix) {
			if p, err := MakePlan(context.WithoutCancel(r.Context()), Fleet{s.Open(), s.Q}, spec, nil); err != nil || p.Known != 10 {
				t.Errorf("%+v, %v", p, err)
			}
		}
		return false
	})
	if did := s.retire(RetireOptions{}); did.Objects != 10 {
		t.Errorf("%+v", did)
	}
	s.Meet(nil)
	s.wantOnly()
	s.wantOriginals(Originals{Lingers: 10})
	for range 3 {
		if p := s.plan(spec); p.Missing != 0 || p.Objects != 0 {
			t.Errorf("%+v", p)
		}
	}
	for l, err := range s.B.Below(t.Context(), "") {
		if err != nil || l.Missing || l.Unseen || l.Original != catalog.OriginalLingers {
			t.Errorf("%+v, %v", l, err)
		}
	}
	// It is there again, and goes again.
	again := "data/003/00003"
	s.S3.Put("from", again, s.Want[again])
	s.packs(spec)
	if did := s.retire(RetireOptions{}); !slices.Equal(did.going, []string{again}) || did.Finished != 9 || len(did.Left) > 0 {
		t.Errorf("%+v", did)
	}
	s.wantOriginals(Originals{Retired: 10})
	s.wantOnly()
	s.reads()
}

// TestTwoRetirersOfOnePlan has two processes retire the same at the same time.
func TestTwoRetirersOfOnePlan(t *testing.T) {
	defer func(was int64) { rangeObjects = was }(rangeObjects)
	rangeObjects = 7
	s := newSite(t)
	s.some(60, 2000)
	s.packs(spec)
	p := s.planOf(spec.Target)
	var wg sync.WaitGroup
	for range 2 {
		f := Fleet{s.Open(), s.Q}
		wg.Go(func() {
			if did, err := Retire(t.Context(), f, p, RetireOptions{Workers: 2}); err != nil {
				t.Errorf("%+v, %v", did, err)
			}
		})
	}
	wg.Wait()
	s.wantOnly()
	s.wantOriginals(Originals{Retired: 60})
	s.reads()
}

// TestArchivesThatAreRewrittenMeanwhileProveNothing moves the files of an archive to another one while they are
// read back, or packs them again.
func TestArchivesThatAreRewrittenMeanwhileProveNothing(t *testing.T) {
	testkit.Serial(t)
	for _, what := range []string{"moved", "moved, and gone", "packed again"} {
		s := newSite(t)
		for i := range 5 {
			s.put(fmt.Sprint(i), 1000)
		}
		s.packs(spec)
		was, err := s.B.Newest(t.Context(), "0")
		if err != nil {
			t.Fatal(err)
		}
		key := strings.TrimPrefix(was.In.Address, "s3://out/")
		var once sync.Once
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && r.URL.Path == "/out/"+key {
				once.Do(func() {
					ctx, b := context.WithoutCancel(r.Context()), s.Open()
					s.S3.Put("out", "other.caf", s.S3.Get("out", key))
					now := was.In
					now.Address = "s3://out/other.caf"
					step := book.Step{Add: []catalog.Addition{{Archive: now, Rows: b.Locations(ctx, was.In)}}}
					if what == "packed again" {
						was := step.Add[0].Rows
						step.Add[0].Rows = func(yield func(catalog.Location, error) bool) {
							for l, err := range was {
								if l.Seq = 0; !yield(l, err) {
									return
								}
							}
						}
					} else {
						step.Instead = []int64{was.Archive}
					}
					if _, err := b.Do(ctx, step); err != nil {
						t.Error(err)
					}
					if what == "moved, and gone" {
						s.S3.Remove("out", key)
					}
				})
			}
			return false
		})
		did := s.retire(RetireOptions{})
		if did.Objects != 0 || !maps.Equal(did.Left, map[Reason]int64{Moved: 5}) {
			t.Errorf("%s: %+v", what, did.Retired)
		}
		s.Meet(nil)
		s.wantOnly(slices.Collect(maps.Keys(s.Want))...)
		if did := s.retire(RetireOptions{}); did.Objects != 5 {
			t.Errorf("%+v", did.Retired)
		}
		s.wantOnly()
		s.reads()
	}
}

// TestRetiredObjectsThatComeBackAreNew checks that what comes back under a retired key is packed and retired like
// any other.
func TestRetiredObjectsThatComeBackAreNew(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 1000)
	s.packs(spec)
	s.retire(RetireOptions{})
	name := "data/003/00003"
	s.Want[name] = []byte("another")
	s.S3.Put("from", name, s.Want[name])
	if p := s.plan(spec); p.Objects != 1 || p.Missing != 0 {
		t.Errorf("%+v", p)
	}
	// No archive proves it yet.
	if did := s.retire(RetireOptions{}); did.Objects != 0 {
		t.Errorf("%+v", did)
	}
	s.work(WorkOptions{})
	s.wantOriginals(Originals{Stay: 1, Retired: 9})
	if did := s.retire(RetireOptions{}); !slices.Equal(did.going, []string{name}) {
		t.Errorf("%+v", did)
	}
	s.wantOnly()
	s.reads()
}

func FuzzRetirementLog(f *testing.F) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fmt.Fprintln(z, `{"path":"a","original":"s3://from/a","version":"\"1\"","size":1,"archive":"s3://out/a.caf","by":"md5"}`)
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, log []byte) {
		err := readLog(bytes.NewReader(log), "retired/x", func(Retirement) error { return nil })
		if err != nil && !strings.Contains(err.Error(), "retired/x") {
			t.Errorf("%v does not name the log", err)
		}
	})
}

// TestEmptyOriginalsNeedTheirArchive loses an archive, and has another one in the place of a second.
func TestEmptyOriginalsNeedTheirArchive(t *testing.T) {
	s := newSite(t)
	small := spec
	small.ChunkObjects = 1
	for _, name := range []string{"lost", "other", "there"} {
		s.put(name, 0)
	}
	s.packs(small)
	keys := s.keys("out")
	s.S3.Remove("out", keys[0])
	s.S3.Put("out", keys[1], s.S3.Get("out", keys[2]))
	if did := s.retire(RetireOptions{}); did.Objects != 1 || did.Left[ArchiveChanged] != 2 {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly("lost", "other")
}

// TestTagsArePacked retires tagged originals, but none whose tags are others now.
func TestTagsArePacked(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	tag := func(name, tags string) {
		h := map[string]string{"Content-Type": "text/x"}
		if tags != "" {
			h["X-Amz-Tagging"] = tags
		}
		s.S3.Describe("from", name, h)
	}
	for _, name := range []string{"same", "order", "other", "lost", "new", "never"} {
		s.put(name, 1000)
		tag(name, "a=1&b=x%2Fy+z")
	}
	tag("new", "")
	tag("never", "")
	s.packs(spec)
	f, err := s.B.Newest(t.Context(), "same")
	if err != nil {
		t.Fatal(err)
	}
	if headers, err := s.B.HeadersOf(t.Context(), f.Location); err != nil || !maps.Equal(headers, map[string]string{"content-type": "text/x", "x-amz-tagging": "a=1&b=x%2Fy+z"}) {
		t.Errorf("%v, %v", headers, err)
	}
	tag("order", "b=x%2Fy+z&a=1")
	tag("other", "a=1&b=2")
	tag("lost", "")
	tag("new", "a=1")
	if did := s.retire(RetireOptions{}); did.Objects != 3 || !maps.Equal(did.Left, map[Reason]int64{HeadersChanged: 2, Tags: 1}) {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly("lost", "new", "other")
	if did := s.retire(RetireOptions{Without: []Reason{Tags}}); did.Objects != 3 {
		t.Errorf("%+v", did.Retired)
	}
	s.wantOnly()
}
