package testkit

import (
	"iter"
	"slices"
	"testing"
)

// All reports whether a test tries everything, as HOLDALL_LONG wants it, and not only a sample.
func All(t testing.TB) bool {
	t.Helper()
	return Rounds(t, 1) > 1
}

// Some returns n elements of a list at random, in their order, and with HOLDALL_LONG the list.
func Some[T any](t testing.TB, n int, list ...T) (some []T) {
	t.Helper()
	if All(t) || n >= len(list) {
		return list
	}
	picked := Rand(t).Perm(len(list))[:n]
	slices.Sort(picked)
	for _, i := range picked {
		some = append(some, list[i])
	}
	return some
}

// Few returns a list, but with the race detector only n elements of it, as Some does: all make
// the same goroutines.
func Few[T any](t testing.TB, n int, list ...T) []T {
	t.Helper()
	if !Race() {
		return list
	}
	return Some(t, n, list...)
}

// Steps gives the steps after which a test cuts its work off, until the test ends it: some at
// random, on average each far-th, and all of them with HOLDALL_LONG. With the race detector there
// are a quarter as many.
func Steps(t testing.TB, far int) iter.Seq[int] {
	t.Helper()
	most, rnd := 2*far-1, Rand(t)
	switch {
	case All(t):
		most = 1
	case Race():
		most *= 4
	}
	return func(yield func(int) bool) {
		for n := rnd.IntN(most); yield(n); n += 1 + rnd.IntN(most) {
		}
	}
}
