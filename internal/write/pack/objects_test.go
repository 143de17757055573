package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all" // addresses are opened
	"github.com/holdall/holdall/store/bucket"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func TestObjectIsReadByOneRequestForEachSixteenMegabytes(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	s, source, target := buckets(t)
	s.Page = 7
	want := map[string][]byte{"large": numbered(33<<20, 1), "edge": numbered(16<<20, 2), "empty": nil}
	for i := range 60 {
		want[fmt.Sprintf("dir/%02d", i)] = numbered(10_000+i, i)
	}
	for name, content := range want {
		s.Put("source", name, content)
	}
	s.Put("source", "folder/", nil)
	sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats})
	if err != nil || sum.Entries != int64(len(want)) || sum.Dropped["dir"] != 1 {
		t.Fatalf("found %+v, %v", sum, err)
	}
	gets := map[string]int{}
	for _, r := range s.Took() {
		method, path, _ := strings.Cut(r, " ")
		if method == http.MethodHead && path != "/source/empty" {
			t.Errorf("found %s", r)
		}
		if name, ok := strings.CutPrefix(path, "/source/"); ok && !strings.HasPrefix(name, "?") {
			name, _, _ = strings.Cut(name, " ")
			gets[name]++
		}
	}
	for name, content := range want {
		if n := max(1, (len(content)+16<<20-1)/(16<<20)); gets[name] != n {
			t.Errorf("%s: expected %d requests, found %d", name, n, gets[name])
		}
	}
	holds(t, target, "x.caf", want)
}

func TestObjectThatIsNotWhatWasListedIsReportedAndLeftOut(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"caf", "tar"} {
		t.Run(f, func(t *testing.T) {
			s, source, target := buckets(t)
			keys := []string{"a", "changed", "gone", "odd/../key", "shorter", "z//y", "zz\x01", "large changed"}
			for i, key := range keys {
				s.Put("source", key, numbered(1000+i, i))
			}
			s.Put("source", "large changed", numbered(19<<20, 1))
			var listed []store.Info
			for info, err := range source.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, info)
			}
			s.Put("source", "changed", numbered(1001, 7))
			s.Put("source", "shorter", numbered(7, 7))
			s.Put("source", "large changed", numbered(19<<20, 2))
			if err := source.Remove(t.Context(), "gone"); err != nil {
				t.Fatal(err)
			}
			failed := map[string]error{}
			sum, err := pack.Objects(t.Context(), target, "x."+f, objectsOf(source, func(yield func(store.Info, error) bool) {
				for _, info := range listed {
					if !yield(info, nil) {
						return
					}
				}
			}), pack.Options{Formats: objectFormats, OnError: func(name string, err error) { failed[name] = err }})
			if err != nil {
				t.Fatal(err)
			}
			for name, is := range map[string]error{"changed": store.ErrChanged, "shorter": store.ErrChanged, "large changed": store.ErrChanged,
				"gone": fs.ErrNotExist} {
				if !errors.Is(failed[name], is) {
					t.Errorf("%q: expected %v, found %v", name, is, failed[name])
				}
			}
			if _, refused := failed["odd/../key"]; refused != (f == "tar") { // whose names are paths
				t.Errorf("%v", failed["odd/../key"])
			}
			if sum.Failed != int64(len(failed)) || sum.Entries+sum.Failed != int64(len(keys)) || failed["a"] != nil {
				t.Errorf("found %+v, %v", sum, failed)
			}
		})
	}
}

func TestServerThatIsDownEndsThePackOfObjects(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		status int
		code   string
		want   string
	}{"busy": {503, "SlowDown", "/100"}, "forbidden": {403, "AccessDenied", "more than 100 objects"}} {
		t.Run(what, func(t *testing.T) {
			s, source, target := buckets(t)
			for i := range 300 {
				s.Put("source", fmt.Sprintf("%03d", i), numbered(100, i))
			}
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				down := strings.HasPrefix(r.URL.Path, "/source/") && r.URL.Path >= "/source/100"
				if down {
					s3test.Refuse(w, r, c.status, c.code)
				}
				return down
			}
			_, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")),
				pack.Options{Formats: objectFormats, OnError: func(string, error) {}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("expected %q, found %v", c.want, err)
			}
			if s.Get("target", "x.caf") != nil || s.Uploads() > 0 {
				t.Error("something is left")
			}
		})
	}
}

func TestPackThatBrokeOffGoesOnWithWhatWasSent(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	for i := range 22 {
		s.Put("source", fmt.Sprintf("%02d", i), numbered(1<<20, i))
	}
	var left atomic.Int32
	var onPart atomic.Pointer[context.CancelFunc]
	s.Hook = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && left.Add(-1) == 0 {
			(*onPart.Load())()
		}
		return false
	}
	pack := func(ctx context.Context, name string, resume bool) (pack.Summary, error) {
		return pack.Objects(ctx, target, name, objectsOf(source, source.List(ctx, "")), pack.Options{Formats: objectFormats, Resume: resume, ChunkSize: 12 << 20})
	}
	if _, err := pack(t.Context(), "whole.caf", false); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{true, false} {
		t.Run(fmt.Sprintf("resume %v", resume), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			left.Store(4)
			onPart.Store(&cancel)
			sum, err := pack(ctx, "x.caf", resume)
			if err == nil || (sum.Kept > 0) != resume || (s.Uploads() > 0) != resume {
				t.Fatalf("found %+v, %v, %d uploads", sum, err, s.Uploads())
			}
			kept := sum.Kept
			sum, err = pack(t.Context(), "x.caf", true)
			if err != nil || sum.Resumed < kept || resume && sum.Resumed == 0 || s.Uploads() != 0 {
				t.Errorf("%d bytes were kept, found %+v, %v, %d uploads", kept, sum, err, s.Uploads())
			}
			for i := range 2 {
				chunk := fmt.Sprintf("-%05d.caf", i+1)
				if !bytes.Equal(s.Get("target", "x"+chunk), s.Get("target", "whole"+chunk)) {
					t.Errorf("chunk %d differs", i+1)
				}
			}
		})
	}
}

// What is kept with an empty object takes a request; else there is none.
func TestManyEmptyObjectsArePackedWithoutReading(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	s, source, _ := buckets(t)
	const many = 2100 // more than are listed ahead
	var names []string
	for i := range many {
		names = append(names, fmt.Sprintf("d%02d/%04d", i%50, i))
		s.Put("source", names[i], nil)
	}
	asked := func() int {
		return len(slices.DeleteFunc(s.Took(), func(r string) bool { return strings.Contains(r, "list-type=2") }))
	}
	sum, err := pack.Objects(t.Context(), &storetest.Mem{}, "x.caf", objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats, Plain: true})
	if n := asked(); err != nil || sum.Entries != many || n > 0 {
		t.Errorf("found %+v, %v; %d requests for nothing", sum, err, n)
	}
	var mem storetest.Mem
	m := &meter.Meter{WantTotal: true}
	sum, err = pack.Objects(t.Context(), &mem, "x.caf", objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats, Meter: m, Once: true})
	if n := asked(); err != nil || sum.Entries != many || n != many {
		t.Fatalf("found %+v, %v, %d requests", sum, err, n)
	}
	if _, err := pack.Objects(t.Context(), &mem, "x.caf", objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats, Once: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("once more: found %v", err)
	}
}

// A byte of three objects in sixty is not what the service vouches for: they are left out
// and named, the others are packed, whatever kind of checksum it has.
func TestDamageAtTheSourceIsNotPacked(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		name      string
		sums      []string
		encrypts  bool
		google    bool
		noVerify  bool
		unnoticed bool
	}{
		{name: "md5"}, {name: "crc32", sums: []string{"crc32"}, encrypts: true}, {name: "crc32c", sums: []string{"crc32c"}, encrypts: true},
		{name: "sha1", sums: []string{"sha1"}, encrypts: true}, {name: "sha256", sums: []string{"sha256"}}, {name: "crc64nvme", sums: []string{"crc64nvme", "crc32"}},
		{name: "google", sums: []string{"crc32c"}, google: true}, {name: "google md5", sums: []string{"crc32c", "md5"}, google: true},
		{name: "encrypted, without sums", encrypts: true, unnoticed: true}, {name: "not compared", noVerify: true, unnoticed: true},
	} {
		t.Run(k.name, func(t *testing.T) {
			if k.name != "md5" {
				testkit.Serial(t)
			}
			s, open := served(t)
			s.Google, s.Public = k.google, k.google
			source := open("source", bucket.Options{Tries: 2, Google: k.google, Anonymous: k.google})
			s.Sums, s.Encrypts = k.sums, k.encrypts
			rotten := []string{"07", "33", "parts"}
			for i := range 58 {
				s.Put("source", fmt.Sprintf("%02d", i), numbered(1000*i+1, i))
			}
			s.PutParts("source", "parts", numbered(17<<20, 90), 5<<20)
			s.PutParts("source", "sound parts", numbered(6<<20+1, 91), 5<<20)
			for i, name := range rotten {
				s.Rot("source", name, 4000*i)
			}
			var left []string
			o := pack.Options{Formats: objectFormats, NoVerify: k.noVerify, OnError: func(name string, err error) {
				if _, ok := errors.AsType[*pack.SumError](err); !ok || !strings.Contains(err.Error(), "read twice") {
					t.Errorf("%s: %v", name, err)
				}
				left = append(left, name)
			}}
			sum, err := pack.Objects(t.Context(), &storetest.Mem{}, "x.caf", objectsOf(source, source.List(t.Context(), "")), o)
			slices.Sort(left)
			if k.unnoticed {
				rotten = nil
			}
			if err != nil || !slices.Equal(left, rotten) || sum.Entries != int64(60-len(rotten)) || sum.Failed != int64(len(rotten)) {
				t.Errorf("left out %q; %+v, %v", left, sum, err)
			}
		})
	}
}

// What was wrong once is read again, and may be right then.
func TestDamageOnTheWayIsReadAgain(t *testing.T) {
	t.Parallel()
	s, source, _ := buckets(t)
	want := map[string][]byte{"short": numbered(100_000, 1), "long": numbered(19<<20, 2)}
	s.Put("source", "short", want["short"])
	s.PutParts("source", "long", want["long"], 5<<20)
	var short, long atomic.Int32
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/source/short" && short.Add(1) <= 2:
			s.Rot("source", "short", 70_000)
		case r.Method == http.MethodGet && r.URL.Path == "/source/long" && strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") && long.Add(1) <= 2:
			s.Rot("source", "long", 70_000)
		}
		return false
	}
	to := &storetest.Mem{}
	sum, err := pack.Objects(t.Context(), to, "x.caf", objectsOf(source, source.List(t.Context(), "")), pack.Options{Formats: objectFormats, OnError: func(name string, err error) { t.Errorf("%s: %v", name, err) }})
	if err != nil || sum.Entries != 2 || short.Load() != 2 || long.Load() != 2 {
		t.Fatalf("%+v, %v; read %d and %d times", sum, err, short.Load(), long.Load())
	}
	holds(t, to, "x.caf", want)
}

func TestObjectsAtAddressesArePacked(t *testing.T) {
	s := s3test.New("source", "target")
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s3test.Setenv(t, srv.URL)
	for i, name := range []string{"a", "d/b", "e/", "d/c.tmp", "f/", "f/g"} {
		s.Put("source", name, numbered(100*(i%2), i))
	}
	st := &storetest.Mem{}
	for what, c := range map[string]struct {
		name  string
		paths []string
		o     pack.Options
		want  string
	}{
		"a bucket":                  {"x.caf", []string{"s3://source"}, pack.Options{}, "a d/b d/c.tmp f/g"},
		"a bucket in a tar":         {"x.tar", []string{"s3://source"}, pack.Options{Meter: &meter.Meter{WantTotal: true}, Time: time.Unix(1, 0)}, "a d/b d/c.tmp e f/g"},
		"in order":                  {"x.rvn", []string{"s3://source/d"}, pack.Options{Protect: 0.1}, "b c.tmp"},
		"several, by their names":   {"x.caf", []string{"s3://source/d", "s3://source/a"}, pack.Options{}, "a d/b d/c.tmp"},
		"an object":                 {"x.caf", []string{"s3://source/d/b"}, pack.Options{}, "b"},
		"patterns":                  {"x.caf", []string{"s3://source/"}, pack.Options{Include: []string{"d"}, Exclude: []string{"*.tmp"}, Prefix: "p/"}, "p/d/b"},
		"only some":                 {"x.caf", []string{"s3://source/"}, pack.Options{Only: map[string]bool{"f/g": true}}, "f/g"},
		"without proof, one by one": {"x.caf", []string{"s3://source/"}, pack.Options{NoVerify: true, Jobs: 1}, "a d/b d/c.tmp f/g"},
	} {
		sum, err := pack.Pack(t.Context(), st, c.name, c.paths, c.o)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		src := archivetest.Open(t, st, c.name)
		names := namesIn(t, src)
		if slices.Sort(names); strings.Join(names, " ") != c.want || sum.Entries != int64(len(names)) {
			t.Errorf("%s: found %q, expected %s; %+v", what, names, c.want, sum)
		}
		if e := archivetest.Lookup(t, src, names[len(names)-1]); c.o.Protect == 0 && c.o.Include == nil && what != "several, by their names" && what != "an object" {
			if b, err := archivetest.Read(t, src, e); err != nil || !bytes.Equal(b, numbered(100, 5)) {
				t.Errorf("%s: %s: found %q, %v", what, e.Name, b, err)
			}
		}
		if by := sum.Proven["md5"] > 0; by == c.o.NoVerify {
			t.Errorf("%s: proven by %v", what, sum.Proven)
		}
	}
	local := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha"})
	for what, c := range map[string]struct {
		paths []string
		o     pack.Options
		is    error
	}{
		"files and addresses":  {[]string{"s3://source", local}, pack.Options{}, errors.ErrUnsupported},
		"a list":               {[]string{"s3://source"}, pack.Options{Listed: true}, errors.ErrUnsupported},
		"nothing at an object": {[]string{"s3://source/nothing"}, pack.Options{}, fs.ErrNotExist},
		"no such scheme":       {[]string{"s4://source/a"}, pack.Options{}, nil},
		"an unknown format":    {[]string{"s3://source"}, pack.Options{Format: "unknown"}, nil},
	} {
		if _, err := pack.Pack(t.Context(), st, "y.caf", c.paths, c.o); err == nil || c.is != nil && !errors.Is(err, c.is) || st.Get("y.caf") != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The archive of before, and its parity, lie within what is packed.
	target, err := bucket.New("source", "", bucket.Options{Endpoint: srv.URL, Client: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []pack.Options{{Protect: 0.1}, {ChunkSize: 150}} {
		for range 2 {
			sum, err := pack.Pack(t.Context(), target, "x.caf", []string{"s3://source"}, o)
			if err != nil {
				t.Fatal(err)
			}
			if n := sum.Entries; o.ChunkSize == 0 && n != 4 || o.ChunkSize > 0 && n != 6 { // what was no chunk is packed
				t.Errorf("%+v", sum)
			}
		}
	}
}

// The source of an object may fail again and again for a while.
func TestObjectsOfABusyServerAreLeftOutOnWish(t *testing.T) {
	t.Parallel()
	s, source, target := buckets(t)
	for i := range 3 {
		s.Put("source", fmt.Sprint(i), numbered(100, i))
	}
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		busy := r.URL.Path == "/source/1"
		if busy {
			s3test.Refuse(w, r, 503, "SlowDown")
		}
		return busy
	}
	for _, lenient := range []bool{true, false} {
		left := map[string]error{}
		o := pack.Options{Formats: objectFormats, Lenient: lenient, OnError: func(name string, err error) { left[name] = err }}
		sum, err := pack.Objects(t.Context(), target, "x.caf", objectsOf(source, source.List(t.Context(), "")), o)
		if lenient != (err == nil) || lenient && (sum.Entries != 2 || sum.Failed != 1 || !storekit.Temporary(left["1"])) {
			t.Errorf("lenient %v: %+v, %v, %v", lenient, sum, left, err)
		}
	}
}
