// Package fleettest has a server with objects to pack and a catalogue of packed objects, and a queue,
// for tests of fleets. Only tests import it.
package fleettest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// A Site is a server with objects to be packed, in its bucket from, and a catalogue.
type Site struct {
	T    testing.TB
	S3   *s3test.Server
	B    *book.Book
	Q    *queue.Queue
	DB   string            // of the queue
	Want map[string][]byte // what is in the bucket from

	// hook is that of the server. Each request holds the lock until it is answered, even if its
	// client has gone.
	mu   sync.RWMutex
	hook func(http.ResponseWriter, *http.Request) bool
}

// Catalogue is the address of its catalogue.
const Catalogue = "s3://out/set.catalog"

// New makes a site with a new catalogue, and a queue in a database.
func New(t testing.TB, db string) *Site {
	t.Helper()
	s := &Site{T: t, S3: s3test.New("from", "out"), DB: db, Want: map[string][]byte{}}
	s.S3.Hook = func(w http.ResponseWriter, r *http.Request) bool {
		return s.hook != nil && s.hook(w, r)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		s.S3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s3test.Setenv(t, server.URL)
	st, name, err := store.OpenAddress(t.Context(), Catalogue)
	if err == nil {
		s.B, err = book.Create(t.Context(), st, name)
	}
	if err == nil {
		s.Q, err = queue.Open(t.Context(), db, queue.Options{Pause: time.Millisecond, Look: 5 * time.Millisecond})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Q.Close() })
	return s
}

// Meet has all requests meet a hook from now on, or none. It first waits until the requests that
// are under way have been answered.
func (s *Site) Meet(hook func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Open opens the catalogue once more.
func (s *Site) Open() *book.Book {
	s.T.Helper()
	st, name, err := store.OpenAddress(s.T.Context(), Catalogue)
	if err != nil {
		s.T.Fatal(err)
	}
	b, err := book.Open(s.T.Context(), st, name, book.Options{Write: true})
	if err != nil {
		s.T.Fatal(err)
	}
	return b
}

// Put makes an object to be packed.
func (s *Site) Put(name string, content []byte) {
	s.Want[name] = content
	s.S3.Put("from", name, content)
}

// Check compares what is recorded with what there was: each object in one archive
// that is recorded, with its bytes, and nothing else.
func (s *Site) Check() {
	s.T.Helper()
	ctx := s.T.Context()
	archives, err := s.B.Archives(ctx)
	if err != nil {
		s.T.Fatal(err)
	}
	found := map[string]int{}
	for _, a := range archives {
		in, err := holdall.Open(ctx, a.Address, holdall.OpenOptions{})
		if err != nil {
			s.T.Errorf("%s is recorded: %v", a.Address, err)
			continue
		}
		for l, err := range s.B.Locations(ctx, a) {
			if err != nil {
				s.T.Fatal(err)
			}
			found[l.Path]++
			e, err := in.Lookup(ctx, l.Path)
			if err != nil {
				s.T.Error(err)
				continue
			}
			var b bytes.Buffer
			r, err := in.OpenEntry(ctx, e)
			if err == nil {
				_, err = b.ReadFrom(r)
				r.Close()
			}
			if err != nil || !bytes.Equal(b.Bytes(), s.Want[l.Path]) {
				s.T.Errorf("%s of %s: found %d bytes (%v), want %d others", l.Path, a.Address, b.Len(), err, len(s.Want[l.Path]))
			}
		}
		in.Close()
	}
	for name := range s.Want {
		if found[name] != 1 {
			s.T.Errorf("%s is recorded %d times", name, found[name])
		}
	}
	if len(found) != len(s.Want) {
		s.T.Errorf("%d paths are recorded, of %d", len(found), len(s.Want))
	}
	if n := s.S3.Uploads(); n != 0 {
		s.T.Errorf("%d uploads are left", n)
	}
}
