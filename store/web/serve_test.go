package web

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A site serves objects from memory as net/http serves files, and remembers
// the requests it got.
type site struct {
	// hook may answer a request instead; it returns false to leave it be.
	hook func(w http.ResponseWriter, r *http.Request) bool

	mu   sync.Mutex
	objs map[string]page
	puts int
	reqs []*http.Request
}

type page struct {
	content []byte
	etag    string
	mod     time.Time
}

func (s *site) put(name string, content []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objs == nil {
		s.objs = map[string]page{}
	}
	s.puts++
	s.objs[name] = page{bytes.Clone(content), fmt.Sprintf(`"v%d"`, s.puts), time.Now()}
	return nil
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.reqs = append(s.reqs, r.Clone(r.Context())) // a hook may change r
	p, ok := s.objs[strings.TrimPrefix(r.URL.Path, "/")]
	s.mu.Unlock()
	if s.hook != nil && s.hook(w, r) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", p.etag)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", p.mod, bytes.NewReader(p.content))
}

// took returns the requests since the last call.
func (s *site) took() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	reqs := s.reqs
	s.reqs = nil
	return reqs
}

// ranges returns the Range headers of the requests since the last call.
func (s *site) ranges() []string {
	var got []string
	for _, r := range s.took() {
		got = append(got, strings.TrimPrefix(r.Header.Get("Range"), "bytes="))
	}
	return got
}

func (s *site) wantRanges(t *testing.T, want ...string) {
	t.Helper()
	if got := s.ranges(); !slices.Equal(got, want) {
		t.Errorf("requests: expected %q, found %q", want, got)
	}
}

// serve starts s over HTTP/1.1 and returns a store of its objects.
func serve(t *testing.T, s http.Handler) *Store {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return below(t, srv.URL, Options{Client: srv.Client()})
}

// serveHTTP2 is serve over HTTP/2.
func serveHTTP2(t *testing.T, s http.Handler) *Store {
	t.Helper()
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return below(t, srv.URL, Options{Client: srv.Client()})
}

// below returns a store that does not wait between its tries.
func below(t *testing.T, base string, o Options) *Store {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	st := New(u, o)
	st.jitter = func(time.Duration) time.Duration { return 0 }
	return st
}

func read(t *testing.T, o store.Object, off int64, n int) (string, error) {
	t.Helper()
	p := make([]byte, n)
	err := o.ReadAt(t.Context(), p, off)
	return string(p), err
}

func wantRead(t *testing.T, o store.Object, off int64, want string) {
	t.Helper()
	if got, err := read(t, o, off, len(want)); err != nil || got != want {
		t.Errorf("read at %d+%d: expected %.50q, found %.50q, %v", off, len(want), want, got, err)
	}
}

func wantTail(t *testing.T, o store.Object, n int, want string) {
	t.Helper()
	p := make([]byte, n)
	if got, err := storekit.ReadTail(t.Context(), o, p); err != nil || string(p[:got]) != want {
		t.Errorf("tail %d: expected %.50q, found %.50q, %v", n, want, p[:got], err)
	}
}

func wantSize(t *testing.T, o store.Object, want int64) {
	t.Helper()
	if info, err := o.Info(t.Context()); err != nil || info.Size != want {
		t.Errorf("info: expected size %d, found %d, %v", want, info.Size, err)
	}
}

// breakOff sends what was written and closes the connection.
func breakOff(w http.ResponseWriter) {
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// text is n bytes in which every place can be told from its neighbours.
func text(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()[:n]
}

// piped starts h on connections in memory, for tests on a clock that runs by
// itself: inside a synctest bubble only such connections let it run.
func piped(t *testing.T, h http.Handler, o Options) (st *Store, stop func()) {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h}
	done := make(chan error)
	go func() { done <- srv.Serve(l) }()
	tr := &http.Transport{DialContext: l.dial}
	o.Client = &http.Client{Transport: tr}
	st = below(t, "http://host.test/", o)
	st.jitter = func(most time.Duration) time.Duration { return most }
	return st, func() {
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
