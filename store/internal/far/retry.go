package far

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/store/storekit"
)

const (
	// FirstWait is the most that is waited after the first failure. The n-th wait is a
	// random time up to FirstWait<<n, at most longestWait: clients that failed together
	// do not come back together.
	FirstWait   = 200 * time.Millisecond
	longestWait = 10 * time.Second

	// LongestAfter bounds what a server may ask for with Retry-After.
	LongestAfter = time.Minute

	// Enough is how much an attempt has to bring to be no failure. A server
	// that breaks off each answer is borne as long as reading advances.
	Enough = 64 << 10

	// DefaultTries is how often a request is sent by default.
	DefaultTries = 6
)

// Jitter is a random part of the longest wait.
func Jitter(most time.Duration) time.Duration { return rand.N(most + 1) }

// A Retrier decides how often, and when, a request is sent again.
type Retrier struct {
	Tries  int
	Jitter func(most time.Duration) time.Duration
	New    bool // the server has not answered yet; if it refuses connections, waiting is no use
	failed int
	since  time.Time // of the first failure
}

// Again waits until the next attempt after one that brought gained bytes and
// err. It returns the error to give up with if there is to be none.
func (r *Retrier) Again(ctx context.Context, err error, gained int) error {
	p, ok := errors.AsType[*Passing](err)
	if !ok {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if gained >= Enough {
		r.failed = 0
	}
	if r.failed == 0 {
		r.since = time.Now()
	}
	r.failed++
	if (r.failed >= r.Tries || r.New && Refused(p.Err)) && time.Since(r.since) >= storekit.Patience(ctx) {
		if r.failed > 1 {
			return &Passing{Err: fmt.Errorf("%w (tried %d times)", p.Err, r.failed)}
		}
		return err
	}
	if p.Now {
		return nil
	}
	most := longestWait
	if shift := r.failed - 1; shift < 10 {
		most = min(most, FirstWait<<shift)
	}
	timer := time.NewTimer(max(r.Jitter(most), min(p.After, LongestAfter)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RetryAfter returns what a Retry-After header, seconds or a date, asks to
// wait; 0 if it asks for nothing that makes sense.
func RetryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// MayPass reports whether status tells of a server in trouble, not of a
// request that it will never grant.
func MayPass(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented
}
