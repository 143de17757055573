package fleet

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A plan that began earlier finds a newer version than one that began later, since its listing is slow. While the
// newer version is packed and retired, a worker is about to record the older one, as that of the later listing.
func TestAVersionThatALaterListingMayHideIsNotRetired(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.put("a", 900)
	s.put("b", 900)
	s.packs(spec)
	s.put("a", 901)
	packs := func(ctx context.Context, f Fleet, listing int64) {
		for k, err := range s.Q.Jobs(ctx, spec.Target) {
			c, ok := chunkNamed(k.Name)
			if err != nil || !ok {
				t.Errorf("%s: %v", k.Name, err)
			} else if c.Listing == listing {
				if k.Args, err = json.Marshal(c); err == nil {
					err = newWorker(f, WorkOptions{}).do(ctx, k.Job)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	}
	const slow, fast = 5, 6 // the commits that begin their listings
	begun, goes, planned := make(chan bool), make(chan bool), make(chan error)
	var lists, commits atomic.Bool
	lists.Store(true)
	s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/from/" && lists.CompareAndSwap(true, false):
			close(begun)
			<-goes
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/commits/") && commits.CompareAndSwap(true, false):
			s.put("a", 902)
			close(goes)
			if err := <-planned; err != nil {
				t.Error(err)
			}
			ctx, f := context.WithoutCancel(r.Context()), Fleet{s.Open(), s.Q}
			packs(ctx, f, slow)
			if did, err := Retire(ctx, f, s.planOf(spec.Target), RetireOptions{}); err != nil || did.Objects != 1 || did.Left[Moved] != 1 {
				t.Errorf("%+v, %v", did, err)
			}
		}
		return false
	})
	go func() {
		_, err := MakePlan(t.Context(), Fleet{s.Open(), s.Q}, spec, nil)
		planned <- err
	}()
	<-begun
	s.plan(spec)
	commits.Store(true)
	packs(t.Context(), s.f, fast)
	s.Meet(nil)
	if a, err := s.B.Newest(t.Context(), "a"); err != nil || a.Size != 901 || commits.Load() {
		t.Errorf("%+v, %v", a, err)
	}
	s.wantOnly("a")
	if p := s.plan(spec); p.Objects != 1 {
		t.Errorf("%+v", p)
	}
	s.work(WorkOptions{})
	s.retire(RetireOptions{})
	s.wantOnly()
	s.reads()
}
