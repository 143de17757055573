// Package pipe runs work on several goroutines and returns the results, in order or as they come.
// It bounds the number of waiting results, waits for all goroutines that it starts, and ends at
// the first error. It is for reading ahead and for work that takes processor time. Formats, which
// start no goroutines themselves, use it too: [Ordered] where the order counts, otherwise [Each].
package pipe

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// Ordered calls prepare for each of seq on n goroutines, and take for each, one
// by one and in order, once it is prepared. At most 2n are under way. take runs
// on the caller's goroutine; after an error, drop is called for what was
// prepared and not taken.
func Ordered[T any](ctx context.Context, seq iter.Seq2[T, error], n int, prepare func(context.Context, T), take func(T) error, drop func(T)) error {
	type job struct {
		v    T
		done chan struct{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo, queue := make(chan job), make(chan job, n)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range n {
		wg.Go(func() {
			for j := range todo {
				if ctx.Err() == nil {
					prepare(ctx, j.v)
				}
				close(j.done)
			}
		})
	}
	wg.Go(func() {
		defer close(queue)
		defer close(todo)
		for v, err := range seq {
			if err != nil {
				cancel(err)
				return
			}
			j := job{v, make(chan struct{})}
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
			select {
			case todo <- j:
			case <-ctx.Done():
				close(j.done)
				return
			}
		}
	})
	for j := range queue {
		<-j.done
		if ctx.Err() != nil {
			drop(j.v)
		} else if err := take(j.v); err != nil {
			cancel(err)
		}
	}
	return context.Cause(ctx)
}

// Each calls do for each of seq on n goroutines, in any order.
func Each[T any](ctx context.Context, seq iter.Seq2[T, error], n int, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan T)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for v := range todo {
				if ctx.Err() != nil {
					continue
				}
				if err := do(ctx, v); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for v, err := range seq {
		if err != nil {
			cancel(err)
			break
		}
		select {
		case todo <- v:
		case <-ctx.Done():
			break feed
		}
	}
	close(todo)
	wg.Wait()
	return context.Cause(ctx)
}

// Told is the sequence of what walk reports by calling tell. If tell returns an error, the
// consumer has stopped, and walk must return.
func Told[T any](walk func(tell func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := walk(func(v T) error {
			if stopped = stopped || !yield(v, nil); stopped {
				return errStopped
			}
			return nil
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

var errStopped = errors.New("stopped")

// All yields what a slice has.
func All[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}
