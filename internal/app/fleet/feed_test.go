package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/app/catalog"
)

// A told is a feed that announces chunks one after the other, and records the
// answers.
type told struct {
	chunks  []int64
	answers []answer
	then    func()
}

func (f *told) Feed(ctx context.Context, _ int64, _ int, work func(ctx context.Context, chunk int64) (time.Duration, error)) (func(), error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, k := range f.chunks {
			again, err := work(ctx, k)
			f.answers = append(f.answers, answer{again, err})
		}
		f.then()
	})
	return wg.Wait, nil
}

func TestWhatAFeedTellsOfIsPackedAtOnce(t *testing.T) {
	s := newSite(t)
	s.some(60, 20_000)
	p := s.plan(spec)
	var ids []int64
	for k, err := range s.C.Chunks(t.Context(), p.Plan.ID) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.ID)
	}
	slices.Reverse(ids) // an order in which polling never finds them
	ctx, stop := context.WithCancel(t.Context())
	f := &told{chunks: append(slices.Clone(ids), ids[1]), then: stop}
	var order []int64
	sum, err := Work(ctx, s.C, WorkOptions{Feed: f, Look: time.Hour, Tell: func(e Event) {
		if e.What == Done {
			order = append(order, e.Chunk.ID)
		}
	}})
	if err != nil || sum.Done != p.Chunks || !slices.Equal(order, ids) {
		t.Errorf("%+v, %v: packed %v of %v", sum, err, order, ids)
	}
	for i, a := range f.answers {
		if a != (answer{}) { // nor for the chunk that was done
			t.Errorf("chunk %d: %+v", f.chunks[i], a)
		}
	}
	s.Check()
}

func TestAFeedIsToldWhyAChunkIsNotPacked(t *testing.T) {
	s := newSite(t)
	s.some(4, 100)
	few := spec
	few.ChunkObjects = 1
	p := s.plan(few)
	var ids []int64
	for k, err := range s.C.Chunks(t.Context(), p.Plan.ID) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, k.ID)
	}
	claim := func(id int64) catalog.Chunk {
		k, err := s.C.Claim(t.Context(), catalog.Request{Owner: "another", Lease: 20 * time.Second, Chunk: id})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	claim(ids[0])
	if err := s.C.Release(t.Context(), claim(ids[1]), "poison", 0, true); err != nil {
		t.Fatal(err)
	}
	if err := s.C.Release(t.Context(), claim(ids[2]), "no luck", time.Hour, false); err != nil {
		t.Fatal(err)
	}
	run := func(ids ...int64) []answer {
		ctx, stop := context.WithCancel(t.Context())
		f := &told{chunks: ids, then: stop}
		if _, err := Work(ctx, s.C, WorkOptions{Feed: f, Look: 10 * time.Second, Lease: 30 * time.Second, Stay: true}); err != nil {
			t.Fatal(err)
		}
		return f.answers
	}
	a := run(ids[:3]...)
	if a[0].err != nil || a[0].again < 10*time.Second || a[0].again > 20*time.Second {
		t.Errorf("that somebody has: %+v", a[0])
	}
	if a[1].err == nil || a[1].err.Error() != "set aside: poison" {
		t.Errorf("that was set aside: %+v", a[1])
	}
	if a[2].err != nil || a[2].again != 30*time.Second {
		t.Errorf("that is not due: %+v", a[2])
	}
	if err := s.C.CancelPlan(t.Context(), p.Plan.ID); err != nil {
		t.Fatal(err)
	}
	if a := run(ids[3]); !errors.Is(a[0].err, catalog.ErrCancelled) {
		t.Errorf("that is cancelled: %+v", a[0])
	}
}

func TestWhoeverHasADeadWorkersChunkDoesNotWaitForItsFeed(t *testing.T) {
	s := newSite(t)
	s.some(60, 20_000)
	p := s.plan(spec)
	if _, err := s.C.Claim(t.Context(), catalog.Request{Owner: "dead", Lease: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	sum, err := Work(t.Context(), s.C, WorkOptions{Feed: &told{then: func() {}}, Workers: 2, Look: 20 * time.Millisecond})
	if err != nil || sum.Done != p.Chunks {
		t.Errorf("%+v of %d, %v", sum, p.Chunks, err)
	}
	s.Check()
}
