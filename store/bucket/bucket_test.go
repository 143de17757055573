package bucket

import (
	"net/http/httptest"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// quiet unsets the environment variables about buckets of the user who runs the tests.
func quiet(t *testing.T) {
	t.Helper()
	s3test.Setenv(t, "")
}

// serve starts s and returns the store of a prefix of its bucket.
func serve(t *testing.T, s *s3test.Server, prefix string, o Options) *Store {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	if o.Endpoint == "" {
		o.Endpoint = srv.URL
	}
	if o.Client == nil {
		o.Client = srv.Client()
	}
	st, err := New("bucket", prefix, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestStoreKeepsTheContract(t *testing.T) {
	for _, prefix := range []string{"", "pre fix/+ü/"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			if prefix == "" {
				testkit.Serial(t) // the other has more parts at a time
			}
			quiet(t)
			storetest.Run(t, func(t *testing.T) (store.Store, func(string, []byte) error) {
				s := s3test.New("bucket")
				st := serve(t, s, prefix, Options{})
				if prefix != "" { // many parts
					s.MinPart, st.part = mib, mib
				}
				t.Cleanup(func() {
					if n := s.Uploads(); n != 0 {
						t.Errorf("expected no upload left over, found %d", n)
					}
				})
				return st, func(name string, content []byte) error {
					s.Put("bucket", prefix+name, content)
					return nil
				}
			})
		})
	}
}
