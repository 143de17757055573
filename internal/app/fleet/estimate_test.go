package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
)

func (s *site) dry(b *book.Book, spec Spec, measure int) Estimate {
	s.T.Helper()
	e, err := DryRun(s.T.Context(), b, spec, measure, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	return e
}

// took returns the number of requests since its last call, as a service
// charges for them.
func (s *site) took() (r Requests) {
	for _, line := range s.S3.Took() {
		method, at, _ := strings.Cut(line, " ")
		switch {
		case method == http.MethodDelete, method == http.MethodPost && strings.Contains(at, "?delete"):
		case method == http.MethodGet && (strings.Contains(at, "list-type=") || strings.Contains(at, "?") && strings.Contains(at, "uploads")):
			r.List++
		case method == http.MethodGet, method == http.MethodHead:
			r.Get++
		default:
			r.Put++
		}
	}
	return r
}

// TestADryRunSaysWhatAPlanAndItsWorkWillDo checks that the results of a dry
// run equal those of the plan, and the requests of its work.
func TestADryRunSaysWhatAPlanAndItsWorkWillDo(t *testing.T) {
	testkit.Serial(t)
	for _, f := range []string{"caf", "databundle"} {
		t.Run(f, func(t *testing.T) {
			s := newSite(t)
			s.some(300, 5000)
			s.put("empty", 0)
			s.S3.Put("from", "data/", nil)
			spec := spec
			spec.Format = f
			e := s.dry(s.B, spec, 0)
			if all, err := Plans(t.Context(), s.B); err != nil || len(all) != 0 {
				t.Errorf("a dry run left %v, %v", all, err)
			}
			if without := s.dry(nil, spec, 0); without.Requests != e.Requests || without.Chunks != e.Chunks {
				t.Errorf("without a catalogue %+v, with an empty one %+v", without, e)
			}
			p := s.plan(spec)
			if e.Objects != p.Objects || e.Bytes != p.Bytes || e.Chunks != p.Chunks || e.Skipped != p.Skipped || e.Objects != 301 || e.Markers != 1 {
				t.Errorf("dry %+v, planned %+v", e.Planned, p)
			}
			s.S3.Took()
			s.work(WorkOptions{})
			took := s.took()
			near := func(a, b int64) bool { return a >= b-b/10 && a <= b+b/10 }
			// Archives that are ready at the same time share commits: between none and all of them do.
			commits := 2 * int64(e.Chunks)
			if !near(took.Get, e.Requests.Get) || took.Put < e.Requests.Put-commits || took.Put > e.Requests.Put+commits || took.Copy != 0 {
				t.Errorf("took %+v, expected %+v", took, e.Requests)
			}
			s.put("later", 10)
			if e := s.dry(s.B, spec, 0); e.Objects != 1 || e.Known != 301 || e.Bytes != 10 || e.Chunks != s.plan(spec).Chunks {
				t.Errorf("dry again %+v", e)
			}
		})
	}
}

func TestADryRunRefusesWhatAPlanRefuses(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(3, 100)
	s.S3.Put("out", "set-00001-00001.caf", []byte("x"))
	if _, err := DryRun(t.Context(), nil, spec, 0, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over an archive that is there: %v", err)
	}
	if _, err := DryRun(t.Context(), s.B, Spec{Sources: []string{"s3://from/none"}, Target: spec.Target}, 0, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestLongObjectsAreCountedAsCopiedByTheServerThatHasThem(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("long", pack.LeastCopy)
	s.put("short", pack.LeastCopy-1)
	e := s.dry(nil, Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf"}, 0)
	if e.Copied != (Share{1, pack.LeastCopy}) || e.Small != (Share{1, pack.LeastCopy - 1}) || e.Through != pack.LeastCopy-1 || e.Requests.Copy != 1 || e.Requests.Put != 5 {
		t.Errorf("%+v", e)
	}
	if e = s.dry(nil, Spec{Sources: []string{"s3://from"}, Target: filepath.Join(t.TempDir(), "x.caf")}, 0); e.Copied.Objects != 0 || e.Small.Objects != 2 || e.Requests.Put != 0 {
		t.Errorf("to a disk: %+v", e)
	}
}

// TestCopiesAreCountedAsTheyAreMade checks that the number of copies in a dry
// run equals the number of copy requests.
func TestCopiesAreCountedAsTheyAreMade(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a", 70<<20)
	s.put("b", 6<<20)
	s.put("c", 40<<20)
	one := spec
	one.ChunkSize = 1 << 30
	e := s.dry(s.B, one, 0)
	s.plan(one)
	var copies atomic.Int64
	s.Meet(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("X-Amz-Copy-Source") != "" {
			copies.Add(1)
		}
		return false
	})
	s.S3.Took()
	s.work(WorkOptions{})
	took := s.took()
	if e.Copied.Objects != 3 || e.Requests.Copy != copies.Load() || took.Put-copies.Load() < e.Requests.Put || took.Put-copies.Load() > e.Requests.Put+2 {
		t.Errorf("%d copies, took %+v, expected %+v of %+v", copies.Load(), took, e.Requests, e.Copied)
	}
	if diff := took.Get - e.Requests.Get; diff < -4 || diff > 4 {
		t.Errorf("took %+v, expected %+v", took, e.Requests)
	}
}

// TestASampleIsRead checks that the sample is bounded, and favours the objects
// that take longest.
func TestASampleIsRead(t *testing.T) {
	s := newSite(t)
	s.some(500, 300)
	s.put("one long", 3*samplePiece)
	var got, bytes atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		var from, to int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil && strings.HasPrefix(r.URL.Path, "/from/") {
			got.Add(1)
			bytes.Add(to - from + 1)
		}
		return false
	})
	e := s.dry(nil, Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf", Format: "databundle"}, 4)
	if e.Sample.Objects != samplePieces || e.Sample.Bytes != bytes.Load() || got.Load() != samplePieces || e.Sample.Rate() <= 0 || e.Sample.Bytes > samplePieces*samplePiece {
		t.Errorf("%+v, %d requests for %d bytes", e.Sample, got.Load(), bytes.Load())
	}
	if none := s.dry(nil, Spec{Sources: []string{"s3://from"}, Target: "s3://out/x.caf"}, 0); none.Sample != (Sample{}) {
		t.Errorf("without a wish %+v", none.Sample)
	}
}

func TestRequestsAreAsLikelyToBeSampledAsOthers(t *testing.T) {
	testkit.Serial(t)
	long := 0
	for seed := range 400 {
		r := newReservoir(10)
		for range seed { // a different position in the random numbers
			r.rand.Float64()
		}
		for i := range 1000 {
			r.offer(Member{Path: fmt.Sprint(i)}, 1)
		}
		r.offer(Member{Path: "long"}, 100)
		if slices.ContainsFunc(r.all(), func(x lot) bool { return x.m.Path == "long" }) {
			long++
		}
	}
	// It has 100 of 1100 requests, so it is among 10 draws with probability
	// 1-(10/11)^10.
	if long < 200 || long > 300 {
		t.Errorf("the long one was drawn %d times of 400", long)
	}
}

func TestPricesAreReadStrictly(t *testing.T) {
	testkit.Serial(t)
	p, err := ReadPrices(strings.NewReader(`{"currency":"EUR","per_1000":{"get":0.5,"put":5,"copy":4,"list":3},"per_gb_month":2,"per_gb_out":1}`))
	if err != nil {
		t.Fatal(err)
	}
	e := Estimate{Requests: Requests{List: 1000, Get: 2000, Put: 3000, Copy: 4000}, ReadBefore: 1000, ReadAfter: 10, kept: gigabyte, out: 2 * gigabyte}
	e.Bytes = gigabyte
	if c := p.Cost(e); c != (Cost{Requests: 3 + 1 + 15 + 16, Out: 2, Month: 2, ReadBefore: 1.5, ReadAfter: 1.005}) {
		t.Errorf("%+v", c)
	}
	for _, bad := range []string{"", "{}", `{"currency":"EUR","per_gb_month":-1}`, `{"currency":"EUR","typo":1}`, `{"currency":"EUR"}{}`, `{"currency":"\u001b"}`, `{"currency":"` + strings.Repeat("x", maxPrices) + `"}`} {
		if _, err := ReadPrices(strings.NewReader(bad)); err == nil {
			t.Errorf("%.50s is believed", bad)
		}
	}
	if _, err := ReadPrices(strings.NewReader(`{"currency":"EUR","per_1000":{"get":1e999}}`)); err == nil {
		t.Error("an infinite price is believed")
	}
}

// TestADryRunSaysWhatARetirementTakes compares it with the requests of the retirement.
func TestADryRunSaysWhatARetirementTakes(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(1000, 60_000)
	s.put("parts", 3<<20)
	s.S3.PutParts("from", "parts", s.Want["parts"], 2<<20)
	s.put("left", 1000)
	large := spec
	large.ChunkSize = 20e6
	s.packs(large)
	s.S3.Describe("from", "left", map[string]string{"X-Amz-Tagging-Count": "1"})
	dry := s.retire(RetireOptions{DryRun: true})
	s.S3.Took()
	s.retire(RetireOptions{})
	took, e := s.took(), dry.Estimate()
	near := func(a, b int64) bool { return a >= b-b/10-1 && a <= b+b/10+1 }
	if !near(took.Get, e.Requests.Get) || !near(took.Put, e.Requests.Put) || !near(took.List, e.Requests.List) || dry.Left[Tags] != 1 {
		t.Errorf("took %+v, expected %+v", took, e.Requests)
	}
	prices := Prices{Currency: "X", PerGBMonth: gigabyte, PerGBOut: 2 * gigabyte}
	prices.Per1000.Get = 1000
	if cost := prices.Cost(e); cost.Month != float64(dry.Bytes) || cost.Out != 2*float64(dry.Bytes) || cost.Requests != float64(e.Requests.Get) {
		t.Errorf("%+v of %d bytes and %+v", cost, dry.Bytes, e.Requests)
	}
}
