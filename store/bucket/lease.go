package bucket

import (
	"context"
	"time"
)

// early is how long before its end what was leased is renewed. Google's own clients do it 4 minutes
// before. Amazon's services have new keys at least 5 minutes before.
const early = 4 * time.Minute

// lease is what a service gives for a while: keys, or a token. It is requested when it is needed, by
// one goroutine at a time.
type lease[T any] struct {
	renew func(context.Context) (value T, end time.Time, err error) // the zero time means that there is no end

	mu    chan struct{} // a lock that can be given up when a context ends
	known bool
	value T
	until time.Time
}

func newLease[T any](renew func(context.Context) (T, time.Time, error)) *lease[T] {
	return &lease[T]{renew: renew, mu: make(chan struct{}, 1)}
}

// fixed is a lease without an end.
func fixed[T any](value T) *lease[T] {
	return newLease(func(context.Context) (T, time.Time, error) { return value, time.Time{}, nil })
}

// get returns the value, which is valid for a while.
func (l *lease[T]) get(ctx context.Context) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	select {
	case l.mu <- struct{}{}:
		defer func() { <-l.mu }()
	case <-ctx.Done():
		return value, ctx.Err()
	}
	now := time.Now()
	if l.known && (l.until.IsZero() || now.Before(l.until)) {
		return l.value, nil
	}
	value, end, err := l.renew(ctx)
	if err != nil {
		return value, err
	}
	l.known, l.value, l.until = true, value, end
	if !end.IsZero() {
		l.until = end.Add(-min(early, end.Sub(now)/4))
	}
	return value, nil
}

// drop makes a value be requested again, if it is still the one that was refused.
func (l *lease[T]) drop(refused func(T) bool) {
	l.mu <- struct{}{}
	defer func() { <-l.mu }()
	l.known = l.known && !refused(l.value)
}
