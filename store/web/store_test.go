package web

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
				var s site
				srv := httptest.NewUnstartedServer(&s)
				if proto == "HTTP/2.0" {
					srv.EnableHTTP2 = true
					srv.StartTLS()
				} else {
					srv.Start()
				}
				t.Cleanup(func() {
					for _, r := range s.took() {
						if r.Method != http.MethodGet || r.Proto != proto || r.Header.Get("Range") == "" ||
							r.Header.Get("Accept-Encoding") != "identity" {
							t.Errorf("expected a GET of a range by %s, found %s by %s with %v", proto, r.Method, r.Proto, r.Header)
						}
					}
					srv.Close()
				})
				return below(t, srv.URL, Options{Client: srv.Client()}), s.put
			})
		})
	}
}

func TestEachReadIsOneRequestAndInfoAfterItNone(t *testing.T) {
	ctx := t.Context()
	p := make([]byte, 4)
	for want, ask := range map[string]func(store.Object) error{
		"2-5": func(o store.Object) error { return o.ReadAt(ctx, p, 2) },
		"-4":  func(o store.Object) error { _, err := storekit.ReadTail(ctx, o, p); return err },
		"0-3": func(o store.Object) error { _, err := storekit.ReadHead(ctx, o, p); return err },
		"0-0": func(o store.Object) error { _, err := o.Info(ctx); return err },
	} {
		t.Run(want, func(t *testing.T) {
			var s site
			s.put("object", []byte("0123456789"))
			o := storetest.Open(t, serve(t, &s), "object")
			if err := ask(o); err != nil {
				t.Fatal(err)
			}
			s.wantRanges(t, want)
			wantSize(t, o, 10)
			s.wantRanges(t)
			wantTail(t, o, 4, "6789")
			wantTail(t, o, 99, "0123456789")
			wantRead(t, o, 1, "12")
			s.wantRanges(t, "6-9", "0-9", "1-2")
			if _, err := read(t, o, 7, 4); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("past the end: expected io.ErrUnexpectedEOF, found %v", err)
			}
			s.wantRanges(t)
		})
	}
}

func TestStatusBecomesTheErrorItMeans(t *testing.T) {
	for status, want := range map[int]error{404: fs.ErrNotExist, 410: fs.ErrNotExist, 401: fs.ErrPermission, 403: fs.ErrPermission} {
		s := site{hook: func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			return true
		}}
		st := serve(t, &s)
		_, err := read(t, storetest.Open(t, st, "dir/object"), 5, 3)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), http.StatusText(status)) {
			t.Errorf("%d: expected %v with the status, found %v", status, want, err)
		}
		e, ok := errors.AsType[*store.Error](err)
		if !ok || e.Op != "read" || e.Name != st.base.String()+"dir/object" || e.Off != 5 || e.Len != 3 || e.Retry {
			t.Errorf("%d: expected a store.Error that tells the request, found %+v", status, e)
		}
		s.wantRanges(t, "5-7")
		if _, err := storekit.ReadTail(t.Context(), storetest.Open(t, st, "object"), make([]byte, 3)); !errors.Is(err, want) {
			t.Errorf("%d to a tail: expected %v, found %v", status, want, err)
		}
		s.wantRanges(t, "-3")
	}
}

func TestSequentialReadsUseOneConnection(t *testing.T) {
	var s site
	content := text(10_000)
	s.put("object", []byte(content))
	for name, client := range map[string]func(*httptest.Server) *http.Client{
		"client of the program": (*httptest.Server).Client,
		"default client":        func(*httptest.Server) *http.Client { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var conns atomic.Int32
			srv := counted(t, &s, &conns)
			st := below(t, srv.URL, Options{Client: client(srv)})
			o := storetest.Open(t, st, "object")
			for i := range 100 {
				wantRead(t, o, int64(i*100), content[i*100:i*100+50])
				if i%10 == 0 {
					if _, err := read(t, storetest.Open(t, st, "missing"), 0, 1); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("missing: %v", err)
					}
				}
			}
			if n := conns.Load(); n != 1 {
				t.Errorf("expected 1 connection, found %d", n)
			}
		})
	}
}

func TestParallelConnectionsAreKept(t *testing.T) {
	const parallel = 24
	var s site
	s.put("object", []byte(text(1000)))
	var conns atomic.Int32
	// Each round is held until all its requests are in, so that it takes as
	// many connections as it has requests.
	var round atomic.Pointer[sync.WaitGroup]
	s.hook = func(http.ResponseWriter, *http.Request) bool {
		round.Load().Done()
		round.Load().Wait()
		return false
	}
	srv := counted(t, &s, &conns)
	o := storetest.Open(t, below(t, srv.URL, Options{Parallel: parallel}), "object")
	for range 5 {
		var in, wg sync.WaitGroup
		in.Add(parallel)
		round.Store(&in)
		for i := range parallel {
			wg.Go(func() { wantRead(t, o, int64(i), text(1000)[i:i+10]) })
		}
		wg.Wait()
	}
	if n := conns.Load(); n != parallel {
		t.Errorf("expected %d connections for 5 rounds of as many requests, found %d", parallel, n)
	}
}

func counted(t *testing.T, h http.Handler, conns *atomic.Int32) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func TestConcurrentFirstReadsAgreeOnOneVersion(t *testing.T) {
	// Two replicas hold different bytes: the first to answer is used, and the answers of the
	// other are refused.
	var n atomic.Int32
	s := site{hook: func(w http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("If-Match") // which replica is asked is known later
		replica := string('a' + rune(n.Add(1)%2))
		w.Header().Set("ETag", `"`+replica+`"`)
		http.ServeContent(w, r, "", servedAt, strings.NewReader(strings.Repeat(replica, 100)))
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	var (
		mu   sync.Mutex
		seen []string
		wg   sync.WaitGroup
	)
	for i := range 20 {
		wg.Go(func() {
			p := make([]byte, 10)
			err := o.ReadAt(t.Context(), p, int64(i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				seen = append(seen, string(p))
			} else if !errors.Is(err, store.ErrChanged) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.Sort(seen)
	if got := slices.Compact(seen); len(got) != 1 {
		t.Errorf("expected the bytes of one version, found %q", got)
	}
}

func TestCancellingAReadEndsIt(t *testing.T) {
	asked := make(chan struct{})
	s := site{hook: func(_ http.ResponseWriter, r *http.Request) bool {
		close(asked)
		<-r.Context().Done()
		return true
	}}
	o := storetest.Open(t, serve(t, &s), "object")
	cause := errors.New("the user's cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(cause)
	}()
	err := o.ReadAt(ctx, make([]byte, 1), 0)
	if !errors.Is(err, context.Canceled) || storekit.Temporary(err) {
		t.Errorf("expected context.Canceled, not temporary, found %v", err)
	}
	s.wantRanges(t, "0-0")
}
