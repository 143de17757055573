package pack_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// What a bucket keeps with objects is in the archive, and takes one request for each, the
// read itself; also of those that were listed without a time, long ago.
func TestWhatBucketsKeepWithObjectsIsPacked(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for _, stale := range []bool{false, true} {
		s, source, _ := buckets(t)
		written := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
		want := map[string]map[string]string{}
		for i, size := range []int{0, 1, 100, 100_000, 9 << 20} {
			name := fmt.Sprintf("%d.jpg", i)
			s.Put("source", name, numbered(size, i))
			s.Touch("source", name, written.Add(time.Duration(i)*time.Hour))
			want[name] = map[string]string{"content-type": "image/jpeg", "content-encoding": "gzip", "cache-control": "no-store",
				"x-amz-meta-number": fmt.Sprint(i), "x-amz-meta-odd": "a \" b"}
			s.Describe("source", name, want[name])
		}
		objects := func(yield func(pack.Object, error) bool) {
			for info, err := range source.List(t.Context(), "") {
				if info.ModTime = (time.Time{}); err == nil {
					want[info.Name]["etag"] = info.Version
				}
				if !yield(pack.Object{From: source, Info: info, Name: info.Name}, err) {
					return
				}
			}
		}
		var mem storetest.Mem
		sum, err := pack.Objects(t.Context(), &mem, "x.caf", objects, pack.Options{Formats: objectFormats, Stale: stale})
		if err != nil || sum.Entries != 5 {
			t.Fatalf("%+v, %v", sum, err)
		}
		asked := map[string]int{}
		for _, r := range s.Took() {
			method, path, _ := strings.Cut(r, " ")
			name, _, _ := strings.Cut(strings.TrimPrefix(path, "/source/"), " ")
			if asked[name]++; (method == http.MethodHead) != (name == "0.jpg") && !strings.Contains(path, "list-type") {
				t.Error(r)
			}
		}
		for _, name := range []string{"0.jpg", "1.jpg", "2.jpg", "3.jpg"} {
			if asked[name] != 1 {
				t.Errorf("stale %v, %s: %d requests", stale, name, asked[name])
			}
		}
		see := func(name, copied string) {
			t.Helper()
			a := archivetest.Open(t, &mem, name)
			n := 0
			for _, e := range archivetest.Entries(t, a) {
				hours := time.Duration(e.Name[0] - '0')
				if !maps.Equal(e.Attr, want[e.Name]) || !e.ModTime.Equal(written.Add(hours*time.Hour)) {
					t.Errorf("%s, %s: %q at %v", name, e.Name, e.Attr, e.ModTime)
				}
				n++
			}
			for to, lose := range map[string]string{copied + ".caf": "", copied + ".tar": "headers of objects"} {
				sum, err := pack.Convert(t.Context(), a, &mem, to, pack.Options{Formats: objectFormats})
				if err != nil || strings.Join(sum.Lost, "; ") != lose || n != 5 {
					t.Errorf("%s: %+v, %v", to, sum, err)
				}
			}
		}
		see("x.caf", "y")
		see("y.caf", "z")
	}
}

// A service that fails to say what it keeps fails the object.
func TestObjectWhoseHeadersCannotBeHadIsNotPacked(t *testing.T) {
	t.Parallel()
	s, source, _ := buckets(t)
	s.Put("source", "empty", nil)
	s.Put("source", "much", numbered(10, 0))
	s.Describe("source", "much", map[string]string{"x-amz-meta-a": strings.Repeat("a", storekit.MaxHeaders)})
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusForbidden)
		}
		return r.Method == http.MethodHead
	}
	failed := map[string]string{}
	o := pack.Options{Formats: objectFormats, OnError: func(name string, err error) { failed[name] = err.Error() }}
	sum, err := pack.Objects(t.Context(), &storetest.Mem{}, "x.caf", objectsOf(source, source.List(t.Context(), "")), o)
	if err != nil || sum.Failed != 2 || !strings.Contains(failed["empty"], "permission denied") || !strings.Contains(failed["much"], "at most 65536") {
		t.Errorf("%+v, %v: %q", sum, err, failed)
	}
}
