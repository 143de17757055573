package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// times notes when requests come, since the first.
type times struct {
	mu sync.Mutex
	at []time.Time
}

func (ts *times) note() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.at = append(ts.at, time.Now())
	return len(ts.at)
}

func (ts *times) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var got []time.Duration
	for _, at := range ts.at {
		got = append(got, at.Sub(ts.at[0]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests: expected at %v, found at %v", want, got)
	}
}

func TestTroubleIsTriedAgainWithLongerAndLongerWaits(t *testing.T) {
	for _, status := range []int{408, 429, 500, 502, 503, 504, 507} {
		synctest.Test(t, func(t *testing.T) {
			var ts times
			st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				ts.note()
				w.WriteHeader(status)
			}), Options{Tries: 9})
			defer stop()
			_, err := read(t, storetest.Open(t, st, "object"), 0, 1)
			if !storekit.Temporary(err) || !strings.Contains(err.Error(), http.StatusText(status)+" (tried 9 times)") {
				t.Errorf("%d: expected a temporary error after 9 tries, found %v", status, err)
			}
			const ms = time.Millisecond
			// Each wait is the longest that chance allows; 10 s is the most.
			ts.want(t, 0, 200*ms, 600*ms, 1400*ms, 3000*ms, 6200*ms, 12600*ms, 22600*ms, 32600*ms)
		})
	}
}

func TestWhatWillNotPassIsNotTriedAgain(t *testing.T) {
	for _, status := range []int{400, 401, 404, 405, 412, 418, 501} {
		synctest.Test(t, func(t *testing.T) {
			var ts times
			st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				ts.note()
				w.WriteHeader(status)
			}), Options{})
			defer stop()
			if _, err := read(t, storetest.Open(t, st, "object"), 0, 1); err == nil || storekit.Temporary(err) {
				t.Errorf("%d: expected an error that is not temporary, found %v", status, err)
			}
			ts.want(t, 0)
		})
	}
}

func TestTroubleThatPassesIsNotSeen(t *testing.T) {
	for op, ask := range map[string]func(*testing.T, store.Object){
		"read": func(t *testing.T, o store.Object) { wantRead(t, o, 2, "234") },
		"tail": func(t *testing.T, o store.Object) { wantTail(t, o, 3, "789") },
		"info": func(t *testing.T, o store.Object) { wantSize(t, o, 10) },
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ts times
				st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch ts.note() {
					case 1:
						// On a new connection net/http does not try again by
						// itself what was closed unanswered.
						panic(http.ErrAbortHandler)
					case 2:
						w.WriteHeader(http.StatusServiceUnavailable)
					default:
						plain(w, r, "0123456789")
					}
				}), Options{})
				defer stop()
				ask(t, storetest.Open(t, st, "object"))
				ts.want(t, 0, 200*time.Millisecond, 600*time.Millisecond)
			})
		})
	}
}

func TestWaitsAreRandomUpToTheirLimit(t *testing.T) {
	// With full jitter two clients that failed together seldom return so.
	st := below(t, "http://host.test/", Options{})
	random := New(st.base, Options{}).jitter
	var longest, shortest time.Duration = 0, time.Hour
	for range 1000 {
		d := random(time.Second)
		longest, shortest = max(longest, d), min(shortest, d)
	}
	if shortest < 0 || shortest > 100*time.Millisecond || longest > time.Second || longest < 900*time.Millisecond {
		t.Errorf("expected waits from 0 to 1 s, found from %v to %v", shortest, longest)
	}
}

func TestRetryAfterIsHonouredUpToACap(t *testing.T) {
	for name, c := range map[string]struct {
		header func() string
		want   time.Duration
	}{
		"seconds": {func() string { return "7" }, 7 * time.Second},
		"date":    {func() string { return time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat) }, 9 * time.Second},
		"a date in the past leaves the usual wait":  {func() string { return servedAt.AddDate(-30, 0, 0).Format(http.TimeFormat) }, far.FirstWait},
		"less than the usual wait":                  {func() string { return "0" }, far.FirstWait},
		"more than the cap":                         {func() string { return "86400" }, far.LongestAfter},
		"more than fits":                            {func() string { return "99999999999999999999" }, far.FirstWait},
		"nonsense":                                  {func() string { return "soon" }, far.FirstWait},
		"a negative number leaves the usual wait":   {func() string { return "-5" }, far.FirstWait},
		"a date far away is no longer than the cap": {func() string { return "Fri, 31 Dec 9999 23:59:59 GMT" }, far.LongestAfter},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ts times
				st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if ts.note() == 1 {
						w.Header().Set("Retry-After", c.header())
						w.WriteHeader(http.StatusTooManyRequests)
						return
					}
					plain(w, r, "0123456789")
				}), Options{})
				defer stop()
				wantRead(t, storetest.Open(t, st, "object"), 0, "0")
				ts.want(t, 0, c.want)
			})
		})
	}
}

func TestCancellingAWaitEndsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts times
		st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			ts.note()
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusServiceUnavailable)
		}), Options{})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		start := time.Now()
		o := storetest.Open(t, st, "object")
		if err := o.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.Canceled) || storekit.Temporary(err) {
			t.Errorf("expected context.Canceled, found %v", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("expected the end after 5 s, found %v", took)
		}
		ts.want(t, 0)
	})
}

// cutting answers each range with at most step bytes of its body, then closes
// the connection.
func cutting(content string, step int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, last := isRange(r)
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(content)))
		w.Header().Set("Content-Length", fmt.Sprint(last-first+1))
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, content[first:min(last+1, first+step)])
		if last-first+1 > step {
			breakOff(w)
		}
	})
}

func TestBodyThatBreaksOffIsResumedWhereItStopped(t *testing.T) {
	content := text(1000)
	for proto, serve := range map[string]func(*testing.T, http.Handler) *Store{"HTTP/1.1": serve, "HTTP/2.0": serveHTTP2} {
		t.Run(proto, func(t *testing.T) {
			s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
				cutting(content, 300).ServeHTTP(w, r)
				return true
			}}
			wantRead(t, storetest.Open(t, serve(t, &s), "object"), 50, content[50:])
			for i, r := range s.took() {
				if want := fmt.Sprintf("bytes=%d-999", 50+300*i); r.Header.Get("Range") != want {
					t.Errorf("request %d: expected %s, found %s", i, want, r.Header.Get("Range"))
				}
				if want := []string{"", `"v1"`, `"v1"`, `"v1"`}[i]; r.Header.Get("If-Match") != want {
					t.Errorf("request %d: expected If-Match %q, found %q", i, want, r.Header.Get("If-Match"))
				}
				if r.Proto != proto {
					t.Errorf("request %d: by %s", i, r.Proto)
				}
			}
		})
	}
}

func TestCancellingABodyEndsItWithoutAnotherTry(t *testing.T) {
	for _, tries := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			var ts times
			st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ts.note()
				w.Header().Set("Content-Range", "bytes 0-9/10")
				w.WriteHeader(http.StatusPartialContent)
				io.WriteString(w, "012")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}), Options{Tries: tries})
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel) // the body is being read by then
			o := storetest.Open(t, st, "object")
			err := o.ReadAt(ctx, make([]byte, 10), 0)
			if !errors.Is(err, context.Canceled) || storekit.Temporary(err) {
				t.Errorf("expected context.Canceled, not temporary, found %v", err)
			}
			ts.want(t, 0)
		})
	}
}

func TestConnectionClosedUnansweredIsNotTheEndOfTheObject(t *testing.T) {
	s := site{hook: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }}
	for _, serve := range []func(*testing.T, http.Handler) *Store{serve, serveHTTP2} {
		_, err := read(t, storetest.Open(t, serve(t, &s), "object"), 0, 1)
		if !storekit.Temporary(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("expected a temporary error that is no EOF, found %v", err)
		}
	}
}

func TestTransportErrorsThatWillNotPassAreNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		err   error
		tries int
	}{
		{&net.DNSError{Err: "no such host", IsNotFound: true}, 1},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, 3},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, 1},
		{http.ErrSchemeMismatch, 1},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, 1},
		{syscall.ECONNRESET, 3},
	} {
		n := 0
		st := below(t, "http://host.test/", Options{Tries: 3, Client: &http.Client{
			Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				n++
				return nil, c.err
			}),
		}})
		_, err := read(t, storetest.Open(t, st, "object"), 0, 1)
		if n != c.tries || storekit.Temporary(err) != (c.tries > 1 || far.Refused(c.err)) || !errors.Is(err, c.err) {
			t.Errorf("%v: expected it after %d tries, found %v after %d", c.err, c.tries, err, n)
		}
	}
}

// A server that is started again refuses connections for a moment. One that never answered is asked once,
// unless someone waits for it.
func TestRefusedConnectionsAreTriedAgainOnceTheServerHasAnswered(t *testing.T) {
	for _, c := range []struct {
		answers int // before the server is gone
		patient time.Duration
		tries   int
	}{{0, 0, 1}, {1, 0, 3}, {0, time.Minute, 9}} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			st := below(t, "http://host.test/", Options{Tries: 3, Client: &http.Client{
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if n++; n > c.answers {
						return nil, syscall.ECONNREFUSED
					}
					w := httptest.NewRecorder()
					partial(w, 0, "0", "10")
					answer := w.Result()
					answer.Request = r
					return answer, nil
				}),
			}})
			st.jitter = func(most time.Duration) time.Duration { return most }
			o := storetest.Open(t, st, "object")
			for range c.answers {
				wantRead(t, o, 0, "0")
			}
			n = c.answers
			err := o.ReadAt(storekit.Patient(t.Context(), c.patient), make([]byte, 1), 0)
			if !errors.Is(err, syscall.ECONNREFUSED) || !storekit.Temporary(err) {
				t.Errorf("expected a temporary error, found %v", err)
			}
			if tries := n - c.answers; c.patient == 0 && tries != c.tries || tries < c.tries {
				t.Errorf("after %d answers, patient for %v: expected %d tries, found %d", c.answers, c.patient, c.tries, tries)
			}
		})
	}
}

func TestBodiesThatBreakOffAreBorneWhileReadingAdvances(t *testing.T) {
	content := text(20 * far.Enough)
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		cutting(content, far.Enough).ServeHTTP(w, r)
		return true
	}}
	wantRead(t, storetest.Open(t, serve(t, &s), "object"), 0, content)
	if n := len(s.took()); n < 20 || n > 40 {
		t.Errorf("expected about 20 requests, found %d", n)
	}

	// Ten bytes at a time are no advance.
	s.hook = func(w http.ResponseWriter, r *http.Request) bool {
		cutting(content, 10).ServeHTTP(w, r)
		return true
	}
	_, err := read(t, storetest.Open(t, serve(t, &s), "object"), 0, 1000)
	if !storekit.Temporary(err) || !strings.Contains(err.Error(), "body broke off after 10 of 950 bytes") {
		t.Errorf("expected a temporary error that tells where the last body broke off, found %v", err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v: must not be taken for the end of the object", err)
	}
}

func TestWholeObjectThatBreaksOffIsReadFromTheStart(t *testing.T) {
	content := text(1000)
	first := true
	s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
		if first {
			first = false
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, content[:400])
			breakOff(w)
		}
		whole(w, content)
		return true
	}}
	wantRead(t, storetest.Open(t, serve(t, &s), "object"), 0, content)
	s.wantRanges(t, "0-999", "0-999")
	first = true
	wantTail(t, storetest.Open(t, serve(t, &s), "object"), 2000, content)
	s.wantRanges(t, "-2000", "0-999")
}

func TestBodyThatStallsIsGivenUpAndResumed(t *testing.T) {
	content := text(1000)
	synctest.Test(t, func(t *testing.T) {
		var ts times
		st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ts.note() > 1 {
				plain(w, r, content)
				return
			}
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Range", "bytes 0-999/1000")
			w.WriteHeader(http.StatusPartialContent)
			for i := range 4 {
				// Slow, but it comes: no overall limit ends it.
				io.WriteString(w, content[i*100:][:100])
				w.(http.Flusher).Flush()
				time.Sleep(idleWait - time.Second)
			}
			<-r.Context().Done()
		}), Options{})
		defer stop()
		wantRead(t, storetest.Open(t, st, "object"), 0, content)
		ts.want(t, 0, 3*(idleWait-time.Second)+idleWait+far.FirstWait)
	})
}

func TestStalledBodyIsATemporaryError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, stop := piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-9/10")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), Options{Tries: 1})
		defer stop()
		_, err := read(t, storetest.Open(t, st, "object"), 0, 10)
		if !storekit.Temporary(err) || !errors.Is(err, errStalled) || errors.Is(err, context.Canceled) {
			t.Errorf("expected the stall as a temporary error, found %v", err)
		}
	})
}

func TestServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts times
		st, stop := piped(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ts.note()
			<-r.Context().Done()
		}), Options{Tries: 2})
		defer stop()
		_, err := read(t, storetest.Open(t, st, "object"), 0, 10)
		if !storekit.Temporary(err) || !errors.Is(err, errSilent) || errors.Is(err, context.Canceled) {
			t.Errorf("expected the silence as a temporary error, found %v", err)
		}
		ts.want(t, 0, headWait+far.FirstWait)
	})
}
