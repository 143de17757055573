package fleet

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// packs plans and packs.
func (s *site) packs(spec Spec) {
	s.T.Helper()
	s.plan(spec)
	s.work(WorkOptions{})
}

// breaksOff has the fourth page of a listing of the source refused.
func (s *site) breaksOff() {
	s.S3.Page = 50
	var pages atomic.Int64
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("list-type") != "" && r.URL.Path == "/from/" && pages.Add(1) == 4 {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
}

// originals are the keys of the source, without markers.
func (s *site) originals() []string {
	return slices.DeleteFunc(s.S3.Keys("from"), book.IsMarker)
}

// keptAt is when objects that were put back were written.
var keptAt = time.Now().Add(-time.Hour)

// kept keeps objects of both buckets as they are, and returns a function that puts them back.
func (s *site) kept(which func(bucket, key string) bool) (back func()) {
	was := map[[2]string][]byte{}
	all := func(do func(bucket, key string)) {
		for _, bucket := range []string{"from", "out"} {
			for _, key := range s.S3.Keys(bucket) {
				if which(bucket, key) {
					do(bucket, key)
				}
			}
		}
	}
	all(func(bucket, key string) { was[[2]string{bucket, key}] = s.S3.Get(bucket, key) })
	return func() {
		all(s.S3.Remove)
		for at, content := range was {
			s.S3.Put(at[0], at[1], content)
			s.S3.Touch(at[0], at[1], keptAt)
		}
		s.reopen()
	}
}

// reopen opens the catalogue as another process does.
func (s *site) reopen() {
	s.T.Helper()
	s.B = s.Open()
	s.f.Book = s.B
}

// catalogue is for kept.
func catalogue(_, key string) bool { return strings.HasPrefix(key, "set.catalog") }

// killed calls do with a context that ends at the request number n of those that change something: that request
// and all later ones fail, or it is done and all later ones fail. It reports whether there were so many.
func (s *site) killed(n int, done bool, do func(context.Context) error) (dead bool, err error) {
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	var mu sync.Mutex
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			if dead {
				panic(http.ErrAbortHandler)
			}
			return false
		}
		if n--; n > 0 {
			return false
		}
		cancel()
		if !dead && done { // nobody hears of it
			dead = true
			return false
		}
		dead = true
		panic(http.ErrAbortHandler)
	})
	err = do(ctx)
	s.Meet(nil)
	return dead, err
}

// sees calls see with each request that do sends, one after the other.
func (s *site) sees(see func(*http.Request), do func()) {
	var mu sync.Mutex
	s.Meet(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		see(r)
		return false
	})
	defer s.Meet(nil)
	do()
}
