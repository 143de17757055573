package far

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/store/storekit"
)

// With patience, requests are sent again until that time is over. It begins with the first failure after a success.
func TestPatience(t *testing.T) {
	for _, d := range []time.Duration{0, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx := storekit.Patient(t.Context(), d)
			r := &Retrier{Tries: 3, Jitter: func(most time.Duration) time.Duration { return most }}
			down := &Passing{Err: errors.New("down")}
			for range 2 {
				start, n := time.Now(), 0
				var err error
				for gained := Enough; err == nil; gained = 0 {
					n++
					err = r.Again(ctx, down, gained)
				}
				took := time.Since(start)
				if !errors.Is(err, down.Err) || n < 3 || took < d || took > d+longestWait {
					t.Errorf("patience %v: %d tries in %v, %v", d, n, took, err)
				}
			}
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			if err := r.Again(ctx, down, Enough); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}
