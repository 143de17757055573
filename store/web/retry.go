package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// The n-th wait is a random time up to firstWait<<n, at most longestWait:
	// clients that failed together do not come back together.
	firstWait   = 200 * time.Millisecond
	longestWait = 10 * time.Second

	// longestAfter bounds what a server may ask for with Retry-After.
	longestAfter = time.Minute

	// enough is how much an attempt has to bring to be no failure. A server
	// that breaks off each answer is borne as long as reading advances.
	enough = 64 << 10
)

// A retrier decides how often, and when, a request is sent again.
type retrier struct {
	st     *Store
	failed int
}

// again waits until the next attempt after one that brought gained bytes and
// err. It returns the error to give up with if there is to be none.
func (r *retrier) again(ctx context.Context, err error, gained int) error {
	t, ok := errors.AsType[*transient](err)
	if !ok {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if gained >= enough {
		r.failed = 0
	}
	r.failed++
	if r.failed >= r.st.tries {
		if r.failed > 1 {
			return &transient{err: fmt.Errorf("%w (tried %d times)", t.err, r.failed)}
		}
		return err
	}
	if t.now {
		return nil
	}
	most := longestWait
	if shift := r.failed - 1; shift < 10 {
		most = min(most, firstWait<<shift)
	}
	timer := time.NewTimer(max(r.st.jitter(most), min(t.after, longestAfter)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryAfter returns what a Retry-After header, seconds or a date, asks to
// wait; 0 if it asks for nothing that makes sense.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
