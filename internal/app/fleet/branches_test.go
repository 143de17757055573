package fleet

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// listing returns the objects of a source.
func listing(t *testing.T, all iter.Seq2[store.Info, error]) (infos []store.Info) {
	t.Helper()
	for info, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	return infos
}

// TestListingInParallelIsTheSame checks that parallel and sequential listings
// of trees of any shape are equal.
func TestListingInParallelIsTheSame(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"a", "a-", "a0", "b", "é", "..", "", "x y", "\xff", "c%2F", "~"}
	rounds := 12
	if testkit.Race() {
		rounds = 3
	}
	for round := range rounds {
		s := newSite(t)
		s.S3.Page = 1 + r.IntN(20)
		for range r.IntN(30 * s.S3.Page) {
			name := ""
			for range r.IntN(4) {
				name += parts[r.IntN(len(parts))] + "/"
			}
			s.S3.Put("from", name+fmt.Sprint(parts[r.IntN(len(parts))], r.IntN(40)), []byte{1})
		}
		st, err := storekit.OpenFolder(t.Context(), "s3://from")
		if err != nil {
			t.Fatal(err)
		}
		most := []int{0, 50, listHeld}[round%3]
		for _, prefix := range []string{"", "a", "a/b", "b/a/"} {
			want := listing(t, storekit.List(t.Context(), st, prefix))
			got := listing(t, branches(t.Context(), st, prefix, span{}, s.S3.Page, most))
			if !slices.EqualFunc(want, got, func(a, b store.Info) bool {
				return a.Name == b.Name && a.Size == b.Size && a.Version == b.Version && a.ModTime.Equal(b.ModTime)
			}) {
				t.Fatalf("round %d, %q, pages of %d: expected %d objects in order, found %d, or others", round, prefix, s.S3.Page, len(want), len(got))
			}
		}
	}
}

// TestListingInParallelAsksForSeveralAtOnce checks that slow requests run in
// parallel.
func TestListingInParallelAsksForSeveralAtOnce(t *testing.T) {
	s := newSite(t)
	s.S3.Page = 20
	for i := range 2000 {
		s.S3.Put("from", fmt.Sprintf("logs/2026/%02d/%02d/%04d", i%12, i/12%28, i), nil)
	}
	var now, most atomic.Int64
	s.Meet(func(http.ResponseWriter, *http.Request) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond) // as long as it takes
		return false
	})
	st, err := storekit.OpenFolder(t.Context(), "s3://from")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(listing(t, branches(t.Context(), st, "", span{}, 20, listHeld))); n != 2000 {
		t.Errorf("listed %d objects", n)
	}
	if most.Load() < 8 {
		t.Errorf("at most %d requests were under way at once", most.Load())
	}
}

// TestListingInParallelEndsInOrder checks that a listing that fails midway
// yields everything before the error, and that a listing that is stopped early
// leaves nothing running.
func TestListingInParallelEndsInOrder(t *testing.T) {
	s := newSite(t)
	s.S3.Page = 10
	for i := range 600 {
		s.S3.Put("from", fmt.Sprintf("%02d/%03d", i/20, i), nil)
	}
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		if q := r.URL.Query(); q.Get("prefix") == "17/" {
			s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	})
	st, err := storekit.OpenFolder(t.Context(), "s3://from")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err = range branches(t.Context(), st, "", span{}, 10, 0) {
		if err != nil {
			break
		}
		n++
	}
	if err == nil || n != 17*20 {
		t.Errorf("listed %d objects, and then %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range branches(ctx, st, "", span{}, 10, 0) {
		break
	}
	cancel()
	for _, err = range branches(ctx, st, "", span{}, 10, 0) {
	}
	if err == nil {
		t.Error("a listing that was cancelled ends as if that were all")
	}
}
