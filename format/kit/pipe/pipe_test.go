package pipe

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("broken")

// numbers yields 0 to n-1, without end if n is -1; then the error, if any.
func numbers(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := 0; i != n; i++ {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// fates counts what becomes of each value.
type fates struct {
	mu                       sync.Mutex
	prepared, taken, dropped map[int]int
}

func newFates() *fates {
	return &fates{prepared: map[int]int{}, taken: map[int]int{}, dropped: map[int]int{}}
}

func (f *fates) note(m map[int]int, v int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m[v]++
}

// check makes sure that whatever was prepared was taken or dropped, once.
func (f *fates) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for v, n := range f.prepared {
		if n != 1 || f.taken[v]+f.dropped[v] != 1 {
			t.Errorf("%d: prepared %d times, taken %d, dropped %d", v, n, f.taken[v], f.dropped[v])
		}
	}
	for v := range f.taken {
		if f.prepared[v] != 1 {
			t.Errorf("%d is taken, but was not prepared", v)
		}
	}
}

// A bubble of synctest ends in a panic if a goroutine is left in it: none of
// these tests leaves one.
func TestOrderedTakesInOrderWhatIsPreparedInAny(t *testing.T) {
	for _, n := range []int{1, 2, 7} {
		for _, count := range []int{0, 1, 2, n, 2 * n, 200} {
			synctest.Test(t, func(t *testing.T) {
				f := newFates()
				var order []int
				err := Ordered(t.Context(), numbers(count, nil), n, func(_ context.Context, v int) {
					time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
					f.note(f.prepared, v)
				}, func(v int) error {
					f.note(f.taken, v)
					order = append(order, v)
					return nil
				}, func(v int) { f.note(f.dropped, v) })
				if err != nil || len(order) != count || !slices.IsSorted(order) || len(f.dropped) > 0 {
					t.Errorf("%d on %d: %v, %v, dropped %v", count, n, order, err, f.dropped)
				}
				f.check(t)
			})
		}
	}
}

func TestOrderedKeepsNoMoreThanItsBoundUnderWay(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			under, most, running, mostRunning := 0, 0, 0, 0
			err := Ordered(t.Context(), numbers(100, nil), n, func(context.Context, int) {
				mu.Lock()
				under++
				running++
				most, mostRunning = max(most, under), max(mostRunning, running)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				running--
				mu.Unlock()
			}, func(int) error {
				time.Sleep(10 * time.Millisecond) // slower, so that things pile up
				mu.Lock()
				under--
				mu.Unlock()
				return nil
			}, func(int) {})
			if err != nil || most > 2*n || mostRunning > n || n > 1 && mostRunning < 2 {
				t.Errorf("on %d: %d under way, %d at once, %v", n, most, mostRunning, err)
			}
		})
	}
}

func TestOrderedEndsWithItsFirstError(t *testing.T) {
	for _, c := range []struct {
		what string
		run  func(ctx context.Context, cancel func(), f *fates) error
		want error
		took int // at most
	}{
		{"from take", func(ctx context.Context, _ func(), f *fates) error {
			return Ordered(ctx, numbers(-1, nil), 3, func(_ context.Context, v int) { f.note(f.prepared, v) }, func(v int) error {
				f.note(f.taken, v)
				if v == 10 {
					return errBroken
				}
				return nil
			}, func(v int) { f.note(f.dropped, v) })
		}, errBroken, 11},
		{"from the sequence", func(ctx context.Context, _ func(), f *fates) error {
			return Ordered(ctx, numbers(10, errBroken), 3, func(_ context.Context, v int) { f.note(f.prepared, v) }, func(v int) error {
				time.Sleep(time.Second)
				f.note(f.taken, v)
				return nil
			}, func(v int) { f.note(f.dropped, v) })
		}, errBroken, 10},
		{"cancelled in take", func(ctx context.Context, cancel func(), f *fates) error {
			return Ordered(ctx, numbers(-1, nil), 3, func(_ context.Context, v int) { f.note(f.prepared, v) }, func(v int) error {
				f.note(f.taken, v)
				if v == 10 {
					cancel()
				}
				return nil
			}, func(v int) { f.note(f.dropped, v) })
		}, context.Canceled, 11},
		{"cancelled while preparing", func(ctx context.Context, cancel func(), f *fates) error {
			time.AfterFunc(time.Second, cancel)
			return Ordered(ctx, numbers(-1, nil), 3, func(ctx context.Context, v int) {
				f.note(f.prepared, v)
				<-ctx.Done()
			}, func(v int) error {
				f.note(f.taken, v)
				return nil
			}, func(v int) { f.note(f.dropped, v) })
		}, context.Canceled, 0},
		{"cancelled before", func(ctx context.Context, cancel func(), f *fates) error {
			cancel()
			return Ordered(ctx, numbers(-1, nil), 3, func(_ context.Context, v int) { f.note(f.prepared, v) }, func(v int) error {
				f.note(f.taken, v)
				return nil
			}, func(v int) { f.note(f.dropped, v) })
		}, context.Canceled, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					f := newFates()
					if err := c.run(ctx, cancel, f); err != c.want {
						t.Errorf("expected %v, found %v", c.want, err)
					}
					if len(f.taken) > c.took {
						t.Errorf("%d were taken, expected at most %d", len(f.taken), c.took)
					}
					f.check(t)
				})
			}
		})
	}
}

// The cause of a cancel is what the caller gets to see.
func TestCauseOfACancelComesUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := Ordered(ctx, numbers(5, nil), 2, func(context.Context, int) {}, func(int) error { return nil }, func(int) {}); err != errBroken {
		t.Errorf("Ordered: %v", err)
	}
	if err := Each(ctx, numbers(5, nil), 2, func(context.Context, int) error { return nil }); err != errBroken {
		t.Errorf("Each: %v", err)
	}
}

func TestEachDoesAllOnSoManyGoroutines(t *testing.T) {
	for _, n := range []int{1, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			done := map[int]int{}
			running, most := 0, 0
			start := time.Now()
			err := Each(t.Context(), numbers(48, nil), n, func(_ context.Context, v int) error {
				mu.Lock()
				done[v]++
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			})
			if err != nil || len(done) != 48 || most != n || time.Since(start) != time.Duration(48/n)*time.Second {
				t.Errorf("on %d: %d done, %d at once, in %v, %v", n, len(done), most, time.Since(start), err)
			}
			for v, k := range done {
				if k != 1 {
					t.Errorf("%d is done %d times", v, k)
				}
			}
		})
	}
}

func TestEachEndsWithItsFirstError(t *testing.T) {
	for what, run := range map[string]func(ctx context.Context, did func(int)) error{
		"from do": func(ctx context.Context, did func(int)) error {
			return Each(ctx, numbers(-1, nil), 3, func(_ context.Context, v int) error {
				did(v)
				if v == 10 {
					return errBroken
				}
				time.Sleep(time.Second)
				return nil
			})
		},
		"from the sequence": func(ctx context.Context, did func(int)) error {
			return Each(ctx, numbers(10, errBroken), 3, func(_ context.Context, v int) error {
				did(v)
				time.Sleep(time.Second)
				return nil
			})
		},
		"told to the others": func(ctx context.Context, did func(int)) error {
			return Each(ctx, numbers(-1, nil), 3, func(ctx context.Context, v int) error {
				did(v)
				if v == 2 {
					return errBroken
				}
				<-ctx.Done()
				return fmt.Errorf("%d: %w", v, context.Cause(ctx))
			})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			n := 0
			err := run(t.Context(), func(int) {
				mu.Lock()
				defer mu.Unlock()
				n++
			})
			if err != errBroken || n > 14 {
				t.Errorf("%s: %d done, %v", what, n, err)
			}
		})
	}
}

func TestToldEndsItsWalkWhenNobodyWantsMore(t *testing.T) {
	for _, c := range []struct {
		most int // values that are wanted
		fail error
		want []int
		err  error
	}{
		{10, nil, []int{0, 1, 2}, nil},
		{10, errBroken, []int{0, 1, 2}, errBroken},
		{2, nil, []int{0, 1}, nil},
		{2, errBroken, []int{0, 1}, nil},
	} {
		var got []int
		var failed error
		seq := Told(func(tell func(int) error) error {
			for i := range 3 {
				if err := tell(i); err != nil {
					return errors.Join(tell(i), err) // it may be wrapped, and told of again
				}
			}
			return c.fail
		})
		for v, err := range seq {
			if failed = err; err != nil {
				break
			}
			if got = append(got, v); len(got) == c.most {
				break
			}
		}
		if !slices.Equal(got, c.want) || failed != c.err {
			t.Errorf("%+v: %v, %v", c, got, failed)
		}
	}
}
