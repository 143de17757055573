package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// nth lets fault answer the k-th request that is of the kind.
func nth(k int32, kind func(*http.Request) bool, fault func(w http.ResponseWriter, r *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	var seen atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) bool {
		return kind(r) && seen.Add(1) == k && fault(w, r)
	}
}

func slowDown(w http.ResponseWriter, r *http.Request) bool {
	s3test.Refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	return true
}

func TestBodyThatBreaksOffIsResumedAtTheByte(t *testing.T) {
	quiet(t)
	want := testkit.Numbered(100_000)
	s := s3test.New("bucket")
	s.Put("bucket", "x", want)
	s.Hook = nth(1, func(r *http.Request) bool { return r.Method == http.MethodGet }, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Range", "bytes 10-99999/100000")
		w.Header().Set("Content-Length", "99990")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(want[10:7010]) // the client sees what came
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	st := serve(t, s, "", Options{})
	p := make([]byte, 99_990)
	if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, 10); err != nil || !bytes.Equal(p, want[10:]) {
		t.Errorf("expected the bytes, found others or %v", err)
	}
	if got, want := s.Took(), []string{"GET /bucket/x bytes=10-99999", "GET /bucket/x bytes=7010-99999"}; !slices.Equal(got, want) {
		t.Errorf("requests: expected %q, found %q", want, got)
	}
}

func TestBusyServerIsAskedAgain(t *testing.T) {
	any := func(*http.Request) bool { return true }
	for name, do := range map[string]func(t *testing.T, st *Store) error{
		"read": func(t *testing.T, st *Store) error {
			return storetest.Open(t, st, "x").ReadAt(t.Context(), make([]byte, 3), 1)
		},
		"list": func(t *testing.T, st *Store) error {
			for _, err := range st.List(t.Context(), "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"write":  func(t *testing.T, st *Store) error { return storetest.Put(t.Context(), st, "y", testkit.Numbered(100)) },
		"remove": func(t *testing.T, st *Store) error { return st.Remove(t.Context(), "x") },
		"upload": func(t *testing.T, st *Store) error {
			return storetest.Put(t.Context(), st, "y", testkit.Numbered(firstPart+1))
		},
	} {
		for k := range int32(4) {
			t.Run(fmt.Sprintf("%s, request %d", name, k+1), func(t *testing.T) {
				quiet(t)
				s := s3test.New("bucket")
				s.Put("bucket", "x", testkit.Numbered(100))
				s.Hook = nth(k+1, any, slowDown)
				if err := do(t, serve(t, s, "", Options{})); err != nil {
					t.Error(err)
				}
				if n := s.Uploads(); n != 0 {
					t.Errorf("%d uploads left over", n)
				}
			})
		}
	}
}

func TestServerThatStaysBusyIsGivenUp(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = slowDown
	st := serve(t, s, "", Options{Tries: 2})
	err := storetest.Put(t.Context(), st, "x", testkit.Numbered(10))
	if !storekit.Temporary(err) || !strings.Contains(err.Error(), "commit s3://bucket/x: 503 SlowDown") {
		t.Errorf("write: found %v", err)
	}
	err = storetest.Open(t, st, "x").ReadAt(t.Context(), make([]byte, 3), 0)
	if !storekit.Temporary(err) || !strings.HasPrefix(err.Error(), "read s3://bucket/x 3 bytes at 0: 503") {
		t.Errorf("read: found %v", err)
	}
}

func TestObjectThatChangesBetweenRequestsIsTold(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Put("bucket", "x", []byte("0123456789"))
	st := serve(t, s, "", Options{})
	o := storetest.Open(t, st, "x")
	p := make([]byte, 4)
	if err := o.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	s.Put("bucket", "x", []byte("abcdefghij"))
	if err := o.ReadAt(t.Context(), p, 4); !errors.Is(err, store.ErrChanged) {
		t.Errorf("expected ErrChanged, found %v", err)
	}
}

func TestRegionThatTheServerNamesIsTaken(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, st *Store) error{
		"read": func(t *testing.T, st *Store) error {
			return storetest.Open(t, st, "x").ReadAt(t.Context(), make([]byte, 3), 1)
		},
		"write": func(t *testing.T, st *Store) error { return storetest.Put(t.Context(), st, "y", testkit.Numbered(100)) },
		"upload": func(t *testing.T, st *Store) error {
			return storetest.Put(t.Context(), st, "y", testkit.Numbered(firstPart+1))
		},
		"remove": func(t *testing.T, st *Store) error { return st.Remove(t.Context(), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			s.Region = "eu-west-1"
			s.Put("bucket", "x", testkit.Numbered(100))
			if err := do(t, serve(t, s, "", Options{})); err != nil {
				t.Error(err)
			}
		})
	}
}

// amazon sends all requests to one server and notes what hosts they are for.
type amazon struct {
	to    string
	hosts []string
}

func (a *amazon) RoundTrip(r *http.Request) (*http.Response, error) {
	a.hosts = append(a.hosts, r.URL.Scheme+"://"+r.URL.Host)
	c := r.Clone(r.Context())
	c.Host = r.URL.Host
	c.URL.Scheme, c.URL.Host = "http", a.to
	return http.DefaultTransport.RoundTrip(c)
}

func TestAmazonIsAskedAtTheServerOfTheRegion(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Region = "eu-west-1"
	s.Put("bucket", "dir/x", testkit.Numbered(100))
	srv := httptest.NewServer(s)
	defer srv.Close()
	a := &amazon{to: srv.Listener.Addr().String()}
	st, name, err := At("s3://bucket/dir/x", Options{Client: &http.Client{Transport: a}})
	if err != nil {
		t.Fatal(err)
	}
	if err := storetest.Open(t, st, name).ReadAt(t.Context(), make([]byte, 3), 1); err != nil {
		t.Fatal(err)
	}
	want := []string{"https://bucket.s3.us-east-1.amazonaws.com", "https://bucket.s3.eu-west-1.amazonaws.com"}
	if !slices.Equal(a.hosts, want) {
		t.Errorf("reading: expected %q, found %q", want, a.hosts)
	}
	a.hosts = nil
	if err := storetest.Put(t.Context(), st, "y", testkit.Numbered(100)); err != nil {
		t.Fatal(err)
	}
	if want := want[1:]; !slices.Equal(a.hosts, want) {
		t.Errorf("writing: expected %q, found %q", want, a.hosts)
	}
}

func TestSignatureIsNotSentToWhereTheServerRedirects(t *testing.T) {
	quiet(t)
	t.Setenv("AWS_SESSION_TOKEN", "session-token")
	var got http.Header
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer other.Close()
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
		return true
	}
	_, err := storetest.Open(t, serve(t, s, "", Options{}), "x").Info(t.Context())
	if err != nil && got == nil {
		t.Fatal(err)
	}
	for k := range got {
		if k == "Authorization" || strings.HasPrefix(k, "X-Amz-") {
			t.Errorf("%s was sent along", k)
		}
	}
}

func TestRefusalsAreToldInOurOwnWords(t *testing.T) {
	for _, c := range []struct {
		what string
		set  func(t *testing.T, s *s3test.Server)
		is   error
		want string
	}{
		{"another secret", func(t *testing.T, _ *s3test.Server) { t.Setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret") },
			fs.ErrPermission, "the secret key does not match the access key"},
		{"another access key", func(t *testing.T, _ *s3test.Server) { t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER") },
			fs.ErrPermission, "unknown access key"},
		{"another token", func(t *testing.T, s *s3test.Server) { s.Token = "another-token" }, fs.ErrPermission, "the session token is not valid"},
		{"nobody", func(t *testing.T, _ *s3test.Server) { t.Setenv("HOLDALL_S3_ANONYMOUS", "1") },
			fs.ErrPermission, "AccessDenied; requested without credentials"},
		{"a clock", func(t *testing.T, s *s3test.Server) {
			s.Clock = func() time.Time { return time.Now().Add(20*time.Minute + 30*time.Second) }
		}, fs.ErrPermission, "the local clock differs from the server's by 20m"},
		{"no bucket", func(t *testing.T, s *s3test.Server) { *s = *s3test.New("other") }, fs.ErrNotExist, "no such bucket"},
		{"server's own code", func(t *testing.T, s *s3test.Server) {
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				s3test.Refuse(w, r, http.StatusConflict, "SomethingOfItsOwn")
				return true
			}
		}, nil, "409 SomethingOfItsOwn"},
	} {
		t.Run(c.what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			c.set(t, s)
			st := serve(t, s, "", Options{Tries: 2})
			_, info := storetest.Open(t, st, "x").Info(t.Context())
			var list error
			for _, err := range st.List(t.Context(), "") {
				list = err
			}
			for op, err := range map[string]error{"info": info, "list": list, "write": storetest.Put(t.Context(), st, "x", testkit.Numbered(10)),
				"upload": storetest.Put(t.Context(), st, "x", testkit.Numbered(firstPart+1))} {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "s3://bucket/") ||
					c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s: expected %q, found %v", op, c.want, err)
				}
				for _, secret := range []string{s3test.Secret, s3test.AccessKey, "not-the-secret", "AKIAOTHER", "another-token", "own words"} {
					if err != nil && strings.Contains(err.Error(), secret) {
						t.Errorf("%s: %q is shown: %v", op, secret, err)
					}
				}
			}
		})
	}
}

func TestMissingKeyIsNotExist(t *testing.T) {
	quiet(t)
	st := serve(t, s3test.New("bucket"), "", Options{})
	if _, err := storetest.Open(t, st, "dir/x").Info(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "info s3://bucket/dir/x: no such key") {
		t.Errorf("found %v", err)
	}
}

func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}

func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

func TestPartThatFailsEndsTheUploadAndLeavesNothing(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if !isPart(r) || r.URL.Query().Get("partNumber") != "2" {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body) // a connection with the rest of it in it would be cut
		s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
		return true
	}
	st := serve(t, s, "", Options{})
	w := storetest.Create(t, st, "x")
	var err error
	for range 20 {
		if _, err = w.Write(make([]byte, firstPart)); err != nil {
			break
		}
	}
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "part 2: ") {
		t.Errorf("expected the error of part 2, found %v", err)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("commit of half an object: expected an error")
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if n := s.Uploads(); n != 0 || s.Get("bucket", "x") != nil {
		t.Errorf("%d uploads left over, object %v", n, s.Get("bucket", "x") != nil)
	}
}

func TestContextThatEndsStopsTheUploadAndAbortStillCleans(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := storekit.Create(ctx, st, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 2*firstPart)); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = w.Write(make([]byte, 20*firstPart))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("expected context.Canceled, found %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if n := s.Uploads(); n != 0 {
		t.Errorf("%d uploads left over", n)
	}
}

func TestAnswerThatWasLostOfACompletedUploadIsFoundOut(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	lost := &losing{next: http.DefaultTransport}
	st := serve(t, s, "", Options{Client: &http.Client{Transport: lost}})
	want := testkit.Numbered(2*firstPart + 5)
	if err := storetest.Put(t.Context(), st, "x", want); err != nil {
		t.Error(err)
	}
	if !lost.did || !bytes.Equal(s.Get("bucket", "x"), want) {
		t.Errorf("an answer was lost: %v; the object is there: %v", lost.did, s.Get("bucket", "x") != nil)
	}
}

// losing does the first completion and drops its answer.
type losing struct {
	next http.RoundTripper
	did  bool
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil && isComplete(r) && !l.did {
		l.did = true
		_, _ = io.Copy(io.Discard, resp.Body) // it was sent, whatever came back
		_ = resp.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return resp, err
}

// A listing goes on where an answer was cut off, and ends if nothing more comes.
func TestListingsGoOn(t *testing.T) {
	for _, googles := range []bool{false, true} {
		listingsGoOn(t, googles)
	}
}

func listingsGoOn(t *testing.T, googles bool) {
	t.Helper()
	quiet(t)
	hmacKeys(t)
	rnd := testkit.Rand(t)
	s := s3test.New("bucket")
	s.Google = googles
	var want []string
	for i := range 2500 {
		want = append(want, fmt.Sprintf("dir/%05d", i))
		s.Put("bucket", want[i], nil)
	}
	cut := &cutting{http.DefaultTransport, func(body []byte) []byte {
		if rnd.IntN(2) == 0 {
			return body
		}
		return body[:rnd.IntN(len(body))]
	}}
	st := serve(t, s, "", Options{Client: &http.Client{Transport: cut}, Tries: 20, Google: googles})
	var got []string
	for info, err := range st.List(t.Context(), "dir/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d objects, expected %d", len(got), len(want))
	}
	cut.change = func(body []byte) []byte { return body[:len(body)/2] }
	st.tries = 2
	for _, err := range st.List(t.Context(), "dir/") {
		if err == nil || !strings.Contains(err.Error(), "tried 2 times") || !storekit.Temporary(err) {
			t.Errorf("found %v", err)
		}
	}
}

// cutting changes the bodies of listings. What is missing of one is an error.
type cutting struct {
	next   http.RoundTripper
	change func([]byte) []byte
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || !r.URL.Query().Has("list-type") {
		return resp, err
	}
	all, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if is := c.change(all); len(is) < len(all) {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(is), iotest.ErrReader(io.ErrUnexpectedEOF)))
	} else {
		resp.Body = io.NopCloser(bytes.NewReader(all))
	}
	return resp, err
}

func TestCompletionThatFailsAfterItsStatusIsAnError(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		if isComplete(r) {
			s3test.Refuse(w, r, http.StatusOK, "InternalError")
			return true
		}
		return false
	}
	st := serve(t, s, "", Options{Tries: 2})
	if err := storetest.Put(t.Context(), st, "x", testkit.Numbered(2*firstPart)); err == nil || !strings.Contains(err.Error(), "InternalError") {
		t.Errorf("expected InternalError, found %v", err)
	}
	if n := s.Uploads(); n != 0 {
		t.Errorf("%d uploads left over", n)
	}
}

func TestPartWithoutAnETagIsNotBelieved(t *testing.T) {
	testkit.Long(t)
	quiet(t)
	s := s3test.New("bucket")
	s.Hook = func(w http.ResponseWriter, r *http.Request) bool { return isPart(r) }
	if err := storetest.Put(t.Context(), serve(t, s, "", Options{}), "x", testkit.Numbered(2*firstPart)); err == nil || !strings.Contains(err.Error(), "without an ETag") {
		t.Errorf("found %v", err)
	}
}

func TestObjectsOfAStageAppearTogether(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	stage := storekit.NewStage(serve(t, s, "", Options{}))
	sizes := map[string]int{"empty": 0, "small": 100, "large": 2*firstPart + 1}
	for name, n := range sizes {
		w := storetest.Create(t, stage, name)
		if _, err := w.Write(testkit.Numbered(n)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Get("bucket", name) != nil {
			t.Errorf("%s is there before it is published", name)
		}
	}
	if err := stage.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, n := range sizes {
		if got := s.Get("bucket", name); got == nil || !bytes.Equal(got, testkit.Numbered(n)) {
			t.Errorf("%s: expected %d bytes, found %d", name, n, len(got))
		}
	}
}

func TestPartsOfTheLargestObjectAreFewEnough(t *testing.T) {
	for _, c := range []struct {
		size  int64
		parts int
		last  int // at most, in MiB
	}{{30e9, 2900, 24}, {far.MaxSize, maxParts, 4096}} {
		n, written, size := 0, int64(0), 0
		for written < c.size {
			size = partSize(firstPart, written)
			written += int64(size)
			n++
		}
		if n > c.parts || size > c.last*mib {
			t.Errorf("%d bytes: expected at most %d parts of %d MiB, found %d of %d", c.size, c.parts, c.last, n, size/mib)
		}
	}
}

func TestPartsInMemoryAreBounded(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	block := make(chan struct{})
	var most, at atomic.Int32
	s.Hook = func(_ http.ResponseWriter, r *http.Request) bool {
		if isPart(r) {
			most.Store(max(most.Load(), at.Add(1)))
			<-block
			at.Add(-1)
		}
		return false
	}
	st := serve(t, s, "", Options{})
	w := storetest.Create(t, st, "x")
	done := make(chan error)
	go func() {
		_, err := w.Write(make([]byte, 12*firstPart))
		done <- err
	}()
	// What is sent when the writer waits is all that it sends without an answer.
	for range 5 {
		block <- struct{}{}
	}
	close(block)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := most.Load(); n > far.InMemory/firstPart {
		t.Errorf("expected at most %d parts on their way, found %d", far.InMemory/firstPart, n)
	}
}
