package bucket

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

const smallPart = 64 << 10

// small is serve with parts so short that tests take no time.
func small(t *testing.T, s *s3test.Server, prefix string) *Store {
	t.Helper()
	s.MinPart = smallPart
	st := serve(t, s, prefix, Options{})
	st.part = smallPart
	return st
}

// wished begins an object, which is aborted in the end unless it is committed or kept.
func wished(t *testing.T, st *Store, name string, wish store.Wishes) *writer {
	t.Helper()
	w, err := st.CreateAs(t.Context(), name, wish)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Errorf("abort: %v", err)
		}
	})
	return w.(*writer)
}

func write(t *testing.T, w store.Writer, p []byte) {
	t.Helper()
	if _, err := w.Write(p); err != nil {
		t.Fatal(err)
	}
}

// keep writes an object that is not finished.
func keep(t *testing.T, st *Store, name string, content []byte) {
	t.Helper()
	w := wished(t, st, name, store.Wishes{})
	write(t, w, content)
	if _, err := w.Keep(); err != nil {
		t.Fatal(err)
	}
}

// sent sums up the parts that were sent since the last call.
func sent(s *s3test.Server) (parts int) {
	for _, r := range s.Took() {
		if strings.HasPrefix(r, "PUT ") && strings.Contains(r, "partNumber=") {
			parts++
		}
	}
	return parts
}

func TestOfWhatWasKeptOnlyWhatDiffersIsSent(t *testing.T) {
	want := testkit.Numbered(3*smallPart + 100)
	early, late, short := bytes.Clone(want), bytes.Clone(want), bytes.Clone(want[:2*smallPart+1])
	early[7]++
	late[2*smallPart]++
	for what, c := range map[string]struct {
		kept [][]byte
		sent int
		left int
	}{
		"all":                            {[][]byte{want}, 1, 0},
		"the first parts":                {[][]byte{short}, 2, 0},
		"a part that differs":            {[][]byte{late}, 2, 0},
		"another's":                      {[][]byte{early}, 4, 1},
		"nothing":                        {nil, 4, 0},
		"several, and the longest":       {[][]byte{short, want, short}, 1, 2},
		"several, another's the longest": {[][]byte{append(bytes.Clone(early), early...), short}, 2, 1},
		"more than is written":           {[][]byte{append(bytes.Clone(want), want...)}, 1, 0},
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			s.Page = 2
			st := small(t, s, "p/")
			for _, p := range c.kept {
				keep(t, st, "x", p)
			}
			keep(t, st, "x y", want) // its key begins like that of x
			sent(s)
			w := wished(t, st, "x", store.Wishes{Resume: true})
			write(t, w, want)
			info, err := w.Commit(t.Context())
			if err != nil || info.Size != int64(len(want)) || !bytes.Equal(s.Get("bucket", "p/x"), want) {
				t.Fatalf("found other bytes, or %v", err)
			}
			if n := sent(s); n != c.sent {
				t.Errorf("expected %d parts to be sent, found %d", c.sent, n)
			}
			if n := s.Uploads() - 1; n != c.left {
				t.Errorf("expected %d uploads of others, found %d", c.left, n)
			}
		})
	}
}

func TestServerThatDoesNotTellItsUploadsIsSentEverything(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Query().Has("uploads") {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	st := small(t, s, "")
	want := testkit.Numbered(smallPart + 1)
	w := wished(t, st, "x", store.Wishes{Resume: true})
	write(t, w, want)
	if _, err := w.Commit(t.Context()); err != nil || !bytes.Equal(s.Get("bucket", "x"), want) {
		t.Errorf("found other bytes, or %v", err)
	}
}

func TestPartsThatALiarClaimsToHaveAreNotBelieved(t *testing.T) {
	for what, list := range map[string]string{
		"size":  `<Part><PartNumber>1</PartNumber><Size>65536</Size><ETag>"00000000000000000000000000000000"</ETag></Part>`,
		"order": `<Part><PartNumber>2</PartNumber><Size>1</Size></Part><Part><PartNumber>1</PartNumber><Size>1</Size></Part>`,
		"range": `<Part><PartNumber>10001</PartNumber><Size>1</Size></Part>`,
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			var lies atomic.Bool
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				if lies.Load() && r.Method == http.MethodGet && r.URL.Query().Has("uploadId") {
					_, _ = w.Write([]byte("<ListPartsResult>" + list + "</ListPartsResult>"))
					return true
				}
				return false
			}
			st := small(t, s, "")
			want := testkit.Numbered(2 * smallPart)
			keep(t, st, "x", want)
			lies.Store(true)
			w := wished(t, st, "x", store.Wishes{Resume: true})
			write(t, w, want)
			if _, err := w.Commit(t.Context()); err != nil || !bytes.Equal(s.Get("bucket", "x"), want) {
				t.Errorf("found other bytes, or %v", err)
			}
		})
	}
}

// Two that go on with one upload at the same time make the object of one of them, or
// none; never one of both.
func TestTwoWritersOfOneUploadNeverMixTheirBytes(t *testing.T) {
	one := testkit.Numbered(3*smallPart + 9)
	other := bytes.Clone(one)
	other[2*smallPart+5]++ // the first part is the same, so both go on with the upload
	for what, theirs := range map[string][]byte{"same bytes": one, "other bytes": other} {
		for _, once := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				quiet(t)
				s := s3test.New("bucket")
				st := small(t, s, "")
				keep(t, st, "x", one[:smallPart+1])
				a, b := wished(t, st, "x", store.Wishes{Resume: true, Once: once}), wished(t, st, "x", store.Wishes{Resume: true, Once: once})
				write(t, a, one[:smallPart+1])
				write(t, b, theirs[:smallPart+1])
				if a.upload != b.upload {
					t.Fatal("expected both to adopt one upload")
				}
				var wg sync.WaitGroup
				errs := make([]error, 2)
				wg.Go(func() { write(t, a, one[smallPart+1:]); _, errs[0] = a.Commit(t.Context()) })
				wg.Go(func() { write(t, b, theirs[smallPart+1:]); _, errs[1] = b.Commit(t.Context()) })
				wg.Wait()
				got := s.Get("bucket", "x")
				switch {
				case what == "same bytes" && (errs[0] != nil || errs[1] != nil || !bytes.Equal(got, one)):
					t.Errorf("expected both to have made it, found %v, %v", errs[0], errs[1])
				case got != nil && !bytes.Equal(got, one) && !bytes.Equal(got, other):
					t.Error("the object is neither's")
				case errs[0] == nil && errs[1] == nil && !bytes.Equal(one, theirs):
					t.Error("both say that they made it")
				}
			})
		}
	}
}

// before lets do happen before the first request of a kind.
func before(kind func(*http.Request) bool, do func()) func(http.ResponseWriter, *http.Request) bool {
	return nth(1, kind, func(http.ResponseWriter, *http.Request) bool {
		do()
		return false
	})
}

func TestLoserFindsOutWhatIsThere(t *testing.T) {
	long, short := testkit.Numbered(2*smallPart+3), testkit.Numbered(100)
	for what, c := range map[string]struct {
		mine, theirs []byte
		is           error
	}{
		"long and the same":     {long, long, nil},
		"short and the same":    {short, short, nil},
		"long and another's":    {long, testkit.Numbered(2*smallPart + 4), fs.ErrExist},
		"short and another's":   {short, testkit.Numbered(99), fs.ErrExist},
		"long, another's short": {long, short, fs.ErrExist},
		"same in other parts":   {long, append(bytes.Clone(long[1:]), 0), fs.ErrExist},
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			st := small(t, s, "")
			if err := storetest.Put(t.Context(), st, "x", c.theirs); err != nil {
				t.Fatal(err)
			}
			w := wished(t, st, "x", store.Wishes{Once: true})
			write(t, w, c.mine)
			if _, err := w.Commit(t.Context()); !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
				t.Errorf("expected %v, found %v", c.is, err)
			}
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(s.Get("bucket", "x"), c.theirs) || s.Uploads() != 0 {
				t.Errorf("the object has changed, or %d uploads are left", s.Uploads())
			}
		})
	}
}

func TestUploadThatIsGoneIsNoHarmIfTheObjectIsThere(t *testing.T) {
	want := testkit.Numbered(3 * smallPart)
	other := append(bytes.Clone(want[1:]), 1)
	isPart := func(r *http.Request) bool {
		return r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == "2"
	}
	for what, c := range map[string]struct {
		when   func(*http.Request) bool
		theirs []byte
		wish   store.Wishes
		ok     bool
		is     error
	}{
		"at the end, same":           {isComplete, want, store.Wishes{}, true, nil},
		"at the end, another's":      {isComplete, other, store.Wishes{}, false, errNoUpload},
		"at the end, none":           {isComplete, nil, store.Wishes{Once: true}, false, errNoUpload},
		"at a part, same":            {isPart, want, store.Wishes{Once: true}, true, nil},
		"at a part, another's, once": {isPart, other, store.Wishes{Once: true}, false, fs.ErrExist},
		"at a part, another's":       {isPart, other, store.Wishes{Resume: true}, false, errNoUpload},
		"at a part, no wishes":       {isPart, want, store.Wishes{}, false, errNoUpload},
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			st := small(t, s, "")
			var w *writer
			s.Hook = before(c.when, func() {
				if c.theirs != nil {
					if err := storetest.Put(t.Context(), st, "x", c.theirs); err != nil {
						t.Error(err)
					}
				}
				if err := st.abandon(t.Context(), "x", w.upload); err != nil {
					t.Error(err)
				}
			})
			w = wished(t, st, "x", c.wish)
			_, err := w.Write(want)
			if err == nil {
				_, err = w.Commit(t.Context())
			}
			if (err == nil) != c.ok || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("found %v", err)
			}
		})
	}
}

func TestWriterThatIsFinishedHoldsNothing(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := small(t, s, "")
	w := wished(t, st, "x", store.Wishes{})
	want := testkit.Numbered(2*smallPart + 100)
	write(t, w, want)
	if _, err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Buf != nil || s.Get("bucket", "x") != nil {
		t.Errorf("%d bytes are held, or the object is there", len(w.Buf))
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write: found %v", err)
	}
	if _, err := w.Commit(t.Context()); err != nil || !bytes.Equal(s.Get("bucket", "x"), want) {
		t.Errorf("found other bytes, or %v", err)
	}
}

func TestWriterThatIsInterruptedKeepsWhatWasSent(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := small(t, s, "")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := st.CreateAs(ctx, "x", store.Wishes{Resume: true})
	if err != nil {
		t.Fatal(err)
	}
	want := testkit.Numbered(4 * smallPart)
	write(t, w, want[:3*smallPart+1])
	w.(*writer).Wait()
	cancel()
	if n, err := storekit.Keep(w); n != 3*smallPart || err != nil {
		t.Errorf("kept %d bytes, %v", n, err)
	}
	sent(s)
	v := wished(t, st, "x", store.Wishes{Resume: true})
	write(t, v, want)
	if _, err := v.Commit(t.Context()); err != nil || !bytes.Equal(s.Get("bucket", "x"), want) || sent(s) != 1 {
		t.Errorf("found other bytes, or more was sent, or %v", err)
	}
}

func begunBefore(at time.Time) func(store.Upload) bool {
	return func(u store.Upload) bool { return u.Begun.Before(at) }
}

func TestUploadsAreListedAndAbandonedByAge(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	var later atomic.Int64
	now := time.Now()
	s.Clock = func() time.Time { return now.Add(time.Duration(later.Load())) }
	s.Page = 2
	st := small(t, s, "p/")
	for _, name := range []string{"a/1", "a/1", "a/1", "a/ü&+", "b"} {
		keep(t, st, name, testkit.Numbered(smallPart+1))
	}
	later.Store(int64(time.Minute))
	keep(t, st, "a/new", testkit.Numbered(smallPart+1))
	names := map[string]int{}
	for u, err := range st.Unfinished(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		names[u.Name]++
	}
	if len(names) != 3 || names["a/1"] != 3 || names["a/ü&+"] != 1 || names["a/new"] != 1 {
		t.Errorf("found %v", names)
	}
	if n, err := storekit.Abandon(t.Context(), st, "a/", begunBefore(now.Add(time.Second))); n != 4 || err != nil {
		t.Errorf("abandoned %d, %v", n, err)
	}
	if s.Uploads() != 2 {
		t.Errorf("expected 2 to be left, found %d", s.Uploads())
	}
}

func TestListOfUploadsThatGoesRoundEnds(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write([]byte("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>" +
			"<Upload><Key>k</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>"))
		return true
	}
	_, err := storekit.Abandon(t.Context(), small(t, s, ""), "", begunBefore(time.Time{}))
	if err == nil || !strings.Contains(err.Error(), "continues its list") {
		t.Errorf("found %v", err)
	}
}

func TestErrorAtTheEndIsNoneIfTheObjectIsThere(t *testing.T) {
	want := testkit.Numbered(2*smallPart + 1)
	for what, c := range map[string]struct {
		theirs []byte
		ok     bool
	}{"made": {want, true}, "not made": {nil, false}, "another's": {testkit.Numbered(2 * smallPart), false}} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			var stumbles atomic.Bool
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				if !stumbles.Load() || !isComplete(r) {
					return false
				}
				s3test.Refuse(w, r, http.StatusInternalServerError, "InternalError")
				return true
			}
			s.MinPart = smallPart
			st := serve(t, s, "", Options{Tries: 1})
			st.part = smallPart
			if c.theirs != nil {
				if err := storetest.Put(t.Context(), st, "x", c.theirs); err != nil {
					t.Fatal(err)
				}
			}
			stumbles.Store(true)
			w := wished(t, st, "x", store.Wishes{})
			write(t, w, want)
			if _, err := w.Commit(t.Context()); (err == nil) != c.ok || err != nil && !storekit.Temporary(err) {
				t.Errorf("found %v", err)
			}
			if err := w.Abort(); err != nil || s.Uploads() != 0 {
				t.Errorf("%d uploads left, %v", s.Uploads(), err)
			}
		})
	}
}
