package codec

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
)

func TestParallelKeepsTheOrder(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		var got bytes.Buffer
		var most, now atomic.Int64
		p := NewParallel(workers, func(worker int, dst, src []byte) ([]byte, error) {
			if worker < 0 || worker >= workers {
				t.Errorf("worker %d of %d", worker, workers)
			}
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			for range len(src) % 3 {
				runtime.Gosched()
			}
			return append(append(dst, '<'), src...), nil
		}, func(src, out []byte) error {
			if len(out) != len(src)+1 {
				t.Errorf("%q became %q", src, out)
			}
			got.Write(out)
			return nil
		})
		var want bytes.Buffer
		for i := range 500 {
			b := fmt.Appendf(p.Buffer(), "%d", i*i)
			fmt.Fprintf(&want, "<%s", b)
			if err := p.Add(b); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				if err := p.Wait(); err != nil || got.Len() != want.Len() {
					t.Errorf("after waiting there are %d bytes of %d: %v", got.Len(), want.Len(), err)
				}
			}
		}
		if err := p.Close(); err != nil || got.String() != want.String() {
			t.Errorf("%d workers: %v, or out of order", workers, err)
		}
		if most.Load() > int64(workers) {
			t.Errorf("%d at once on %d workers", most.Load(), workers)
		}
	}
}

func TestParallelStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	for _, inTake := range []bool{false, true} {
		taken := 0
		p := NewParallel(3, func(_ int, dst, src []byte) ([]byte, error) {
			if !inTake && src[0] == 20 {
				return nil, broken
			}
			return append(dst, src...), nil
		}, func(src, _ []byte) error {
			taken++
			if inTake && src[0] == 20 {
				return broken
			}
			return nil
		})
		var err error
		for i := range 200 {
			if err = p.Add([]byte{byte(i)}); err != nil {
				break
			}
		}
		if !errors.Is(err, broken) {
			t.Errorf("in take %v: Add: %v", inTake, err)
		}
		if err := p.Wait(); !errors.Is(err, broken) {
			t.Errorf("in take %v: Wait: %v", inTake, err)
		}
		if err := p.Close(); !errors.Is(err, broken) || taken > 21 {
			t.Errorf("in take %v: Close: %v, %d taken", inTake, err, taken)
		}
	}
}
