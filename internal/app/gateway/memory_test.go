package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/serve"
)

func TestMemoryIsBounded(t *testing.T) {
	ctx, w := t.Context(), newWorld(t, false)
	// Larger contents wait until there is room. Small ones, and those that are archives of their own, do not.
	if err := w.g.memory.Acquire(ctx, mostMemory); err != nil {
		t.Fatal(err)
	}
	waits := entry{data: strings.Repeat("x", small+1)}
	gone, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("the client has gone"))
	if _, err := w.b.Put(gone, "waits", upload(waits, serve.Condition{})); err == nil || err.Error() != "the client has gone" {
		t.Fatal(err)
	}
	for key, n := range map[string]int{"small": small, "large": large} {
		if err := w.put(key, entry{data: strings.Repeat("x", n)}, serve.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() { done <- w.put("waits", waits, serve.Condition{}) }()
	w.g.memory.Release(mostMemory)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !w.g.memory.TryAcquire(mostMemory) {
		t.Fatal("not all of it is free again")
	}
	w.g.memory.Release(mostMemory)
	// Rows go when a commit has them, and clients wait if too many have to wait.
	if err := w.g.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	b := w.b.(*bucket)
	over := *b.over.Load()
	if len(over.live) > 0 || len(over.sunk) == 0 {
		t.Fatalf("%d layers, %d that have sunk", len(over.live), len(over.sunk))
	}
	for _, l := range over.sunk {
		if n := l.len(); n > 0 {
			t.Errorf("a layer that has sunk has %d rows", n)
		}
	}
	w.look()
	if n := w.g.rows.Load(); n != 0 {
		t.Fatalf("%d names are left", n)
	}
	w.g.rows.Add(mostUnsealedRows + 1)
	if err := w.put("k", entry{data: "x"}, serve.Condition{}); !errors.Is(err, serve.ErrBusy) {
		t.Fatal(err)
	}
	w.g.rows.Add(-mostUnsealedRows - 1)
	if err := w.put("k", entry{data: "x"}, serve.Condition{}); err != nil {
		t.Fatal(err)
	}
	w.look()
	// What waits counts again after a start, and not any more after the end.
	if w.end(); w.g.rows.Load() != 0 {
		t.Fatalf("%d names are left", w.g.rows.Load())
	}
	if w.start(); w.g.rows.Load() != 1 {
		t.Fatalf("%d names wait", w.g.rows.Load())
	}
	// If others have many, a segment is full earlier.
	if err := w.put("new", entry{data: "x"}, serve.Condition{}); err != nil { // what was there is being sealed
		t.Fatal(err)
	}
	w.g.rows.Add(mostUnsealedRows * 3 / 4)
	b = w.b.(*bucket)
	for i := range mostRows/8 - 1 {
		b.over.Load().live[0].put(&brief{name: strconv.Itoa(i)})
		if b.isFull() != (i == mostRows/8-2) {
			t.Fatal(i)
		}
	}
}
