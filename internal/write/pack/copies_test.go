package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

var copyOptions = pack.Options{Formats: objectFormats, Format: "caf", Copy: true}

func TestLargeObjectsAreCopiedByTheServer(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s, source, target := buckets(t)
	want := map[string][]byte{}
	for i := range 12 {
		want[fmt.Sprintf("%02d", i)] = numbered(6<<20+i*777_777, i) // of 6 to 14 MiB
	}
	want["02 small"], want["07 small"], want["07 empty"] = numbered(1000, 90), numbered(200_000, 91), nil
	for name, content := range want {
		s.Put("source", name, content)
	}
	n := copying(s, nil)
	var by []string
	o := copyOptions
	o.Proven = func(p string) { by = append(by, p) }
	sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), o)
	if err != nil || sum.Entries != int64(len(want)) || len(by) != len(want) || by[0] != "copied" {
		t.Fatalf("%+v, %v, %q", sum, err, by)
	}
	for name, k := range traffic(s, "source") {
		// What comes behind a small one lends it its beginning, or is read if it is short,
		// until what was read is enough for a part.
		switch after := slices.Index([]string{"02%20small", "03", "04", "07%20small"}, name) >= 0; {
		case after && k == len(want[strings.ReplaceAll(name, "%20", " ")]):
		case k < 5<<20 && (name == "05" || name == "08"):
		default:
			t.Errorf("%d bytes of %s were read", k, name)
		}
	}
	if n.Load() < 10 || sum.Copied < 80<<20 {
		t.Errorf("%d copies, %+v", n.Load(), sum)
	}
	a := holds(t, target, "x.caf", want)
	if e := archivetest.Lookup(t, a, "01"); e.Digest.Algo != "" {
		t.Errorf("%+v", e)
	}
	if e := archivetest.Lookup(t, a, "02 small"); e.Digest.Algo != "blake3" {
		t.Errorf("%+v", e)
	}
	// Nothing is copied of what is to have parity, nor into what cannot take it.
	for _, o := range []pack.Options{{Protect: 0.1, Copy: true}, {Format: "tar", Copy: true}, {}} {
		n.Store(0)
		o.Formats = objectFormats
		if _, err := pack.Objects(t.Context(), target, "y.caf", objectsOf(source, source.List(t.Context(), "00")), o); err != nil || n.Load() != 0 {
			t.Errorf("%d copies, %v", n.Load(), err)
		}
	}
}

func TestObjectBetweenSmallOnesLendsItsBeginning(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	want := map[string][]byte{"a": numbered(1<<20, 1), "b": numbered(70<<20, 2), "c": numbered(10, 3)}
	for name, content := range want {
		s.Put("source", name, content)
	}
	n := copying(s, nil)
	objects := func(yield func(pack.Object, error) bool) {
		for x, err := range objectsOf(source, source.List(t.Context(), "")) {
			x.Digest = format.Digest{Algo: "blake3", Sum: strings.Repeat("x", 32)} // only ranges come with one
			if !yield(x, err) {
				return
			}
		}
	}
	if _, err := pack.Objects(t.Context(), target, "x.caf", objects, copyOptions); err != nil {
		t.Fatal(err)
	}
	if read := traffic(s, "source"); read["b"] != 4<<20 || n.Load() != 3 {
		t.Errorf("%v was read, in %d copies", read, n.Load())
	}
	holds(t, target, "x.caf", want)
}

func TestObjectThatChangesWhileItIsCopiedIsLeftOut(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	for _, careless := range []bool{false, true} {
		s, source, target := buckets(t)
		s.Careless = careless
		want := map[string][]byte{"a": numbered(100, 1), "d": numbered(100, 2)}
		for i, name := range []string{"b", "c", "e"} {
			want[name] = numbered(12<<20, 10+i)
		}
		for name, content := range want {
			s.Put("source", name, content)
		}
		var changed, gone atomic.Bool
		copying(s, func(_ int32, _ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.Header.Get("X-Amz-Copy-Source"), "/c") && !changed.Swap(true) {
				s.Put("source", "c", numbered(12<<20, 77))
			}
			if strings.HasSuffix(r.Header.Get("X-Amz-Copy-Source"), "/e") && !gone.Swap(true) {
				s.Remove("source", "e")
			}
			return false
		})
		failed := map[string]error{}
		o := copyOptions
		o.OnError = func(name string, err error) { failed[name] = err }
		sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), o)
		if err != nil || sum.Failed != 2 || !errors.Is(failed["c"], store.ErrChanged) || !errors.Is(failed["e"], fs.ErrNotExist) {
			t.Fatalf("careless %v: %+v, %v, %v", careless, sum, err, failed)
		}
		if !changed.Load() || !gone.Load() {
			t.Error("nothing was copied")
		}
		delete(want, "c")
		delete(want, "e")
		holds(t, target, "x.caf", want)
	}
}

func TestServerThatDoesNotCopyIsRead(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	want := map[string][]byte{"a": numbered(17<<20, 1), "b": numbered(5<<20, 2), "c": numbered(10, 3), "d": numbered(6<<20, 4)}
	for what, refuse := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"501": func(w http.ResponseWriter, r *http.Request) bool {
			s3test.Refuse(w, r, 501, "NotImplemented")
			return true
		},
		"403": func(w http.ResponseWriter, r *http.Request) bool {
			s3test.Refuse(w, r, 403, "AccessDenied")
			return true
		},
		"empty answer": func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = fmt.Fprint(w, "<CopyPartResult></CopyPartResult>")
			return true
		},
		"elsewhere": nil,
	} {
		t.Run(what, func(t *testing.T) {
			s, source, target := buckets(t)
			for name, content := range want {
				s.Put("source", name, content)
			}
			if refuse == nil { // the target is on another server
				other := s3test.New("target")
				srv := httptest.NewServer(other)
				t.Cleanup(srv.Close)
				var err error
				if target, err = bucket.New("target", "", bucket.Options{Endpoint: srv.URL, Client: srv.Client()}); err != nil {
					t.Fatal(err)
				}
			} else {
				copying(s, func(_ int32, w http.ResponseWriter, r *http.Request) bool { return refuse(w, r) })
			}
			sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), copyOptions)
			if err != nil || sum.Copied != 0 || sum.Proven["md5"] != 4 {
				t.Fatalf("%+v, %v", sum, err)
			}
			a := holds(t, target, "x.caf", want)
			if e := archivetest.Lookup(t, a, "a"); e.Digest.Algo != "blake3" {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestServerThatRefusesCopiesIsNotAskedForEver(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	s, source, target := buckets(t)
	want := map[string][]byte{}
	for i := range 10 {
		want[fmt.Sprintf("%02d", i)] = numbered(10<<20+i, i)
	}
	for name, content := range want {
		s.Put("source", name, content)
	}
	n := copying(s, func(_ int32, w http.ResponseWriter, r *http.Request) bool {
		s3test.Refuse(w, r, 403, "AccessDenied")
		return true
	})
	sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), copyOptions)
	if err != nil || sum.Proven["md5"] != 10 || n.Load() != 8 {
		t.Errorf("%+v, %v, %d copies", sum, err, n.Load())
	}
	holds(t, target, "x.caf", want)
}

// ranges cuts an object into pieces of n bytes, of which those that live are ranges of it.
func ranges(st store.Store, info store.Info, content []byte, n int, live func(i int) bool, digests bool) (iter.Seq2[pack.Object, error], map[string][]byte) {
	var all []pack.Object
	want := map[string][]byte{}
	for i := 0; i*n < len(content); i++ {
		if !live(i) {
			continue
		}
		b := content[i*n : min(len(content), i*n+n)]
		x := pack.Object{From: st, Info: info, Name: fmt.Sprintf("%s %05d", info.Name, i), Range: true, Off: int64(i * n), Size: int64(len(b)), Attr: map[string]string{"caf.json": `"n":1`}}
		if digests {
			sum := blake3.Sum256(b)
			x.Digest = format.Digest{Algo: "blake3", Sum: string(sum[:])}
		}
		all, want[x.Name] = append(all, x), b
	}
	return func(yield func(pack.Object, error) bool) {
		for _, x := range all {
			if !yield(x, nil) {
				return
			}
		}
	}, want
}

func listedAs(t *testing.T, st store.Store, name string) store.Info {
	t.Helper()
	for info, err := range storekit.List(t.Context(), st, name) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name == name {
			return info
		}
	}
	t.Fatalf("no %s", name)
	return store.Info{}
}

func TestRangesAreCopiedOrReadTogether(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	content := numbered(40<<20, 1)
	s.Put("source", "old.caf", content)
	info := listedAs(t, source, "old.caf")
	for what, c := range map[string]struct {
		live         func(i int) bool // of pieces of 100,000 bytes
		copy         bool
		copies, gets int
		by           string
	}{
		"all in one copy":         {func(int) bool { return true }, true, 2, 1, "copied"},
		"two runs":                {func(i int) bool { return i < 80 || i >= 120 && i < 220 }, true, 2, 2, "copied"},
		"runs too short to copy":  {func(i int) bool { return i%40 < 30 }, true, 0, 11, "blake3"},
		"not to be copied at all": {func(i int) bool { return i < 250 }, false, 0, 2, "blake3"},
	} {
		if testkit.Race() && (what == "all in one copy" || what == "not to be copied at all") {
			continue // the other two copy and read as well
		}
		t.Run(what, func(t *testing.T) {
			n := copying(s, nil)
			objects, want := ranges(source, info, content, 100_000, c.live, true)
			s.Took()
			o := copyOptions
			o.Copy = c.copy
			name := strings.ReplaceAll(what, " ", "-") + ".caf"
			sum, err := pack.Objects(t.Context(), target, name, objects, o)
			if err != nil || sum.Entries != int64(len(want)) || sum.Proven[c.by] != int64(len(want)) {
				t.Fatalf("%+v, %v", sum, err)
			}
			gets := 0
			for _, r := range s.Took() {
				if strings.HasPrefix(r, "GET /source/old.caf") {
					gets++
				}
			}
			// Of a run that is copied the version is asked for before.
			if int(n.Load()) != c.copies || gets != c.gets {
				t.Errorf("%d copies and %d reads, expected %d and %d", n.Load(), gets, c.copies, c.gets)
			}
			a := holds(t, target, name, want)
			for _, e := range archivetest.Entries(t, a) {
				sum := blake3.Sum256(want[e.Name])
				if e.Digest.Sum != string(sum[:]) || e.Attr["caf.json"] != `"n":1` {
					t.Fatalf("%+v", e)
				}
			}
		})
	}
}

func TestRangesThatAreWrongAreLeftOutByThemselves(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	s, source, target := buckets(t)
	content := numbered(40<<20, 1)
	s.Put("source", "old.caf", content)
	info := listedAs(t, source, "old.caf")
	for _, n := range []int{100_000, 18 << 20} { // many to a piece, and several pieces
		objects, want := ranges(source, info, content, n, func(int) bool { return true }, true)
		name := fmt.Sprintf("old.caf %05d", 1)
		failed := map[string]error{}
		o := copyOptions
		o.Copy, o.OnError = false, func(name string, err error) { failed[name] = err }
		sum, err := pack.Objects(t.Context(), target, "x.caf", func(yield func(pack.Object, error) bool) {
			for x, err := range objects {
				if x.Name == name {
					x.Digest.Sum = strings.Repeat("x", 32)
				}
				if !yield(x, err) {
					return
				}
			}
			yield(pack.Object{From: source, Info: info, Name: "beyond", Range: true, Off: 40<<20 - 5, Size: 6}, nil)
		}, o)
		if _, wrong := errors.AsType[*pack.SumError](failed[name]); err != nil || !wrong || sum.Failed != 2 || failed["beyond"] == nil {
			t.Fatalf("%d: %+v, %v, %v", n, sum, err, failed)
		}
		delete(want, name)
		holds(t, target, "x.caf", want)
	}
	// Of another version nothing is taken, copied or read.
	s.Put("source", "old.caf", numbered(40<<20, 2))
	for _, copy := range []bool{true, false} {
		objects, want := ranges(source, info, content, 1<<20, func(int) bool { return true }, true)
		o := copyOptions
		o.Copy, o.OnError = copy, func(name string, err error) {
			if !errors.Is(err, store.ErrChanged) {
				t.Error(err)
			}
			delete(want, name)
		}
		sum, err := pack.Objects(t.Context(), target, "y.caf", objects, o)
		if err != nil || sum.Failed != 40 || len(want) != 0 {
			t.Errorf("%+v, %v, %d are not left out", sum, err, len(want))
		}
	}
}

// A range that was wrong once is read again, and may be right then.
func TestARangeThatIsDamagedOnTheWayIsReadAgain(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	s.Put("source", "old.caf", numbered(1<<20, 1))
	info := listedAs(t, source, "old.caf")
	for _, n := range []int{100_000, 1 << 20} {
		var reads atomic.Int32
		s.Hook = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && r.URL.Path == "/source/old.caf" && reads.Add(1) <= 2 {
				s.Rot("source", "old.caf", 250_000) // and back
			}
			return false
		}
		objects, want := ranges(source, info, numbered(1<<20, 1), n, func(int) bool { return true }, true)
		o := copyOptions
		o.Copy = false
		sum, err := pack.Objects(t.Context(), target, "x.caf", objects, o)
		if err != nil || sum.Entries != int64(len(want)) || reads.Load() != 2 {
			t.Errorf("%d: %+v, %v, %d reads", n, sum, err, reads.Load())
		}
		holds(t, target, "x.caf", want)
	}
}

// What was copied is copied again by who goes on, and what was sent is proven.
func TestPackThatBrokeOffAmongCopiesGoesOn(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	s, source, target := buckets(t)
	want := map[string][]byte{}
	for i := range 4 {
		want[fmt.Sprintf("%02d", i)] = numbered(8<<20, i)
		want[fmt.Sprintf("%02d small", i)] = numbered(3<<20, 20+i)
	}
	for name, content := range want {
		s.Put("source", name, content)
	}
	pack := func(ctx context.Context, name string) (pack.Summary, error) {
		o := copyOptions
		o.Resume, o.Once = true, true
		return pack.Objects(ctx, target, name, objectsOf(source, source.List(ctx, "")), o)
	}
	// Requests may be under way when the next try begins.
	var left atomic.Int32
	var ends atomic.Pointer[context.CancelFunc]
	copying(s, func(int32, http.ResponseWriter, *http.Request) bool {
		if left.Add(-1) == 0 {
			(*ends.Load())()
		}
		return false
	})
	if _, err := pack(t.Context(), "whole.caf"); err != nil {
		t.Fatal(err)
	}
	for at := int32(1); at <= 4; at++ {
		name := fmt.Sprintf("%d.caf", at)
		ctx, cancel := context.WithCancel(t.Context())
		ends.Store(&cancel)
		left.Store(at)
		if sum, err := pack(ctx, name); err == nil {
			t.Fatalf("%d: %+v", at, sum)
		}
		left.Store(0)
		sum, err := pack(t.Context(), name)
		if err != nil || sum.Entries != 8 || s.Uploads() != 0 {
			t.Errorf("%d: %+v, %v, %d uploads", at, sum, err, s.Uploads())
		}
		if !bytes.Equal(s.Get("target", name), s.Get("target", "whole.caf")) {
			t.Errorf("%d: other bytes", at)
		}
	}
	holds(t, target, "1.caf", want)
}

// What a store does not copy is read, and keeps what its bucket kept.
func TestWhatIsReadInsteadKeepsItsHeaders(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	s.Put("source", "large", numbered(6<<20, 1))
	s.Describe("source", "large", map[string]string{"Content-Type": "x/large"})
	copying(s, func(_ int32, w http.ResponseWriter, r *http.Request) bool {
		s3test.Refuse(w, r, http.StatusNotImplemented, "NotImplemented")
		return true
	})
	if _, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), copyOptions); err != nil {
		t.Fatal(err)
	}
	a := holds(t, target, "x.caf", map[string][]byte{"large": numbered(6<<20, 1)})
	if e := archivetest.Lookup(t, a, "large"); e.Attr["content-type"] != "x/large" {
		t.Errorf("%+v", e.Attr)
	}
}
