package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func TestFaultReachesEveryKindOfRequest(t *testing.T) {
	injected := errors.New("injected")
	ctx := t.Context()
	for op, ask := range map[string]func(store.Store) error{
		"open": func(st store.Store) error { _, err := st.Open(ctx, "a"); return err },
		"info": func(st store.Store) error { o, _ := st.Open(ctx, "a"); _, err := o.Info(ctx); return err },
		"read": func(st store.Store) error {
			o, _ := st.Open(ctx, "a")
			return o.ReadAt(ctx, make([]byte, 1), 0)
		},
		"tail": func(st store.Store) error {
			o, _ := st.Open(ctx, "a")
			_, err := storekit.ReadTail(ctx, o, make([]byte, 1))
			return err
		},
		"head": func(st store.Store) error {
			o, _ := st.Open(ctx, "a")
			_, err := storekit.ReadHead(ctx, o, make([]byte, 1))
			return err
		},
		"list": func(st store.Store) error {
			for _, err := range storekit.List(ctx, st, "") {
				return err
			}
			return nil
		},
		"remove": func(st store.Store) error { return storekit.Remove(ctx, st, "a") },
		"create": func(st store.Store) error { _, err := storekit.Create(ctx, st, "b"); return err },
		"write": func(st store.Store) error {
			w, _ := storekit.Create(ctx, st, "b")
			_, err := w.Write([]byte("x"))
			return err
		},
		"rewind": func(st store.Store) error {
			w, _ := storekit.Create(ctx, st, "b")
			return w.Can().Rewind(0)
		},
		"commit": func(st store.Store) error {
			w, _ := storekit.Create(ctx, st, "b")
			_, err := w.Commit(ctx)
			return err
		},
		"abort": func(st store.Store) error { w, _ := storekit.Create(ctx, st, "b"); return w.Abort() },
		"patch": func(st store.Store) error {
			w, _ := storekit.Create(ctx, st, "b")
			_, err := w.Write([]byte("x"))
			return errors.Join(err, w.Can().Patch(ctx, []byte("y"), 0))
		},
		"amend": func(st store.Store) error {
			a, err := storekit.Amend(ctx, st, "a")
			if err != nil {
				return err
			}
			return a.Close()
		},
		"truncate": amending(ctx, func(a store.Amendment) error { return a.Truncate(ctx, 5) }),
		"sync":     amending(ctx, func(a store.Amendment) error { return a.Sync(ctx) }),
		"release":  amending(ctx, func(store.Amendment) error { return nil }),
	} {
		t.Run(op, func(t *testing.T) {
			var m Mem
			m.Put("a", []byte("bytes"))
			c := Count(Nth(op, 1, injected))
			st := Fault(&m, c.Inject)
			if err := c.Surfaced(ask(st)); err != nil {
				t.Error(err)
			}
			if n, _ := c.Injected(); n != 1 {
				t.Errorf("expected 1 error injected, found %d", n)
			}
			if m.Get("b") != nil {
				t.Error("an object appeared although its writer failed or never committed")
			}
			if string(m.Get("a")) != "bytes" {
				t.Error("the object there was touched")
			}
			if err := ask(st); err != nil {
				t.Errorf("second request, after the fault: %v", err)
			}
		})
	}
}

// amending returns a request that is part of an amendment of the object a.
func amending(ctx context.Context, do func(store.Amendment) error) func(store.Store) error {
	return func(st store.Store) error {
		a, err := storekit.Amend(ctx, st, "a")
		if err != nil {
			return err
		}
		return errors.Join(do(a), a.Close())
	}
}

func TestFaultStopsOrCutsWhatAnAmendmentReadsAndWrites(t *testing.T) {
	injected := errors.New("injected")
	ctx := t.Context()
	var m Mem
	m.Put("a", []byte("0123456789"))
	for _, c := range []struct {
		op         string
		err        error
		read, left string
	}{
		{"read", injected, "....", "0123456789"},
		{"read", &Cut{3, injected}, "234.", "0123456789"},
		{"write", injected, "2345", "0123456789"},
		{"write", &Cut{3, injected}, "2345", "01abc56789"},
	} {
		below := m.Clone()
		count := Count(Nth(c.op, 1, c.err))
		p := []byte("....")
		err := amending(ctx, func(a store.Amendment) error {
			err := a.ReadAt(ctx, p, 2)
			if err == nil && c.op == "write" {
				err = a.WriteAt(ctx, []byte("abcd"), 2)
			}
			return err
		})(Fault(below, count.Inject))
		if err := count.Surfaced(err); err != nil {
			t.Errorf("%s: %v", c.op, err)
		}
		if got := below.Get("a"); string(got) != c.left || string(p) != c.read {
			t.Errorf("%s, %v: expected %q to be read and %q to be left, found %q and %q", c.op, c.err, c.read, c.left, p, got)
		}
	}
}

func TestCutPatchReplacesOnlyItsFront(t *testing.T) {
	broken := errors.New("broken")
	var m Mem
	w, err := storekit.Create(t.Context(), Fault(&m, Nth("patch", 1, &Cut{Keep: 2, Err: broken})), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if err := w.Can().Patch(t.Context(), []byte("abc"), 4); !errors.Is(err, broken) {
		t.Errorf("found %v", err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.Get("a"); string(got) != "0123ab6789" {
		t.Errorf("found %q", got)
	}
}

func TestCounterTellsASwallowedError(t *testing.T) {
	injected := errors.New("injected")
	c := Count(Nth("", 2, injected))
	if err := c.Surfaced(nil); err == nil {
		t.Error("nothing injected: expected an error")
	}
	for range 3 {
		_ = c.Inject("read", "a", 0, 1)
	}
	if err := c.Surfaced(nil); err == nil {
		t.Error("swallowed: expected an error")
	}
	if err := c.Surfaced(io.EOF); err == nil {
		t.Error("another error came up: expected an error")
	}
	if err := c.Surfaced(fmt.Errorf("wrapped: %w", injected)); err != nil {
		t.Errorf("surfaced: %v", err)
	}
}

func TestCutWritesLetsThroughWhatFits(t *testing.T) {
	full := errors.New("disk full")
	var m Mem
	w, err := storekit.Create(t.Context(), Fault(&m, CutWrites(10, full)), "a")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("01234567")); n != 8 || err != nil {
		t.Errorf("write 8 of 10: wrote %d, %v", n, err)
	}
	if n, err := w.Write([]byte("89abc")); n != 2 || !errors.Is(err, full) {
		t.Errorf("write over the limit: expected 2 and the error, found %d, %v", n, err)
	}
	if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, full) {
		t.Errorf("write when full: expected 0 and the error, found %d, %v", n, err)
	}
	if err := w.Can().Rewind(9); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("y")); n != 1 || err != nil {
		t.Errorf("write after a rewind: expected room for 1, found %d, %v", n, err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.Get("a"); string(got) != "012345678y" {
		t.Errorf("expected what was let through, found %q", got)
	}
}

func TestCutReadFillsOnlyItsFront(t *testing.T) {
	broken := errors.New("broken")
	var m Mem
	m.Put("a", []byte("0123456789"))
	o, err := Fault(&m, Nth("read", 1, &Cut{Keep: 3, Err: broken})).Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p := []byte("......")
	if err := o.ReadAt(t.Context(), p, 2); !errors.Is(err, broken) || string(p) != "234..." {
		t.Errorf("expected 3 bytes and the error, found %q, %v", p, err)
	}
}

// replaceBoth publishes two objects that belong together and removes a third.
func replaceBoth(ctx context.Context, st store.Store) error {
	stage := storekit.NewStage(st)
	for _, name := range []string{"chunk", "index"} {
		w, err := storekit.Create(ctx, stage, name)
		if err != nil {
			return err
		}
		for _, part := range []string{"new ", name} {
			if _, err := w.Write([]byte(part)); err != nil {
				return err
			}
		}
		if _, err := w.Commit(ctx); err != nil {
			return err
		}
	}
	if err := stage.Publish(ctx); err != nil {
		return err
	}
	return storekit.Remove(ctx, st, "spare")
}

func TestCrashKeepsOnlyWhatWasCommitted(t *testing.T) {
	var before Mem
	before.Put("chunk", []byte("old chunk"))
	before.Put("index", []byte("old index"))
	before.Put("spare", []byte("spare"))
	var seen []string
	for steps := 0; ; steps++ {
		below := before.Clone()
		c := NewCrash(below, steps)
		err := replaceBoth(t.Context(), c)
		if c.Lost() != errors.Is(err, ErrPowerLost) {
			t.Errorf("after %d steps: power lost %v, but found %v", steps, c.Lost(), err)
		}
		seen = append(seen, fmt.Sprintf("%s, %s, %s", below.Get("chunk"), below.Get("index"), below.Get("spare")))
		if !c.Lost() {
			break
		}
		if _, err := c.Open(t.Context(), "chunk"); !errors.Is(err, ErrPowerLost) {
			t.Errorf("open after the crash: expected ErrPowerLost, found %v", err)
		}
		for _, err := range storekit.List(t.Context(), c, "") {
			if !errors.Is(err, ErrPowerLost) {
				t.Errorf("list after the crash: expected ErrPowerLost, found %v", err)
			}
		}
	}
	want := []string{
		"old chunk, old index, spare", // no step
		"old chunk, old index, spare", // four writes, which Publish has not committed
		"old chunk, old index, spare",
		"old chunk, old index, spare",
		"old chunk, old index, spare",
		"new chunk, old index, spare", // the commits, one after the other
		"new chunk, new index, spare",
		"new chunk, new index, ", // the removal
	}
	if !slices.Equal(seen, want) {
		t.Errorf("states after a crash:\nexpected %q\nfound    %q", want, seen)
	}
}

func TestCrashStopsAnAmendmentAndLetsOthersIn(t *testing.T) {
	var before Mem
	before.Put("a", []byte("0123456789"))
	ctx := t.Context()
	var seen []string
	for steps := 0; ; steps++ {
		below := before.Clone()
		c := NewCrash(below, steps)
		a, err := storekit.Amend(ctx, c, "a")
		if err != nil {
			t.Fatal(err)
		}
		err = a.WriteAt(ctx, []byte("abc"), 9)
		if err == nil {
			err = a.Sync(ctx)
		}
		if err == nil {
			err = a.Truncate(ctx, 2)
		}
		if err == nil {
			err = a.Close()
		}
		if c.Lost() != errors.Is(err, ErrPowerLost) {
			t.Errorf("after %d steps: power lost %v, but found %v", steps, c.Lost(), err)
		}
		if c.Lost() {
			if err := a.Close(); !errors.Is(err, ErrPowerLost) {
				t.Errorf("close after the crash: found %v", err)
			}
			if err := a.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, ErrPowerLost) {
				t.Errorf("read after the crash: found %v", err)
			}
			if _, err := storekit.Amend(ctx, c, "a"); !errors.Is(err, ErrPowerLost) {
				t.Errorf("amend after the crash: found %v", err)
			}
		}
		next, err := below.Amend(ctx, "a")
		if err != nil {
			t.Errorf("after %d steps: who comes next is told %v", steps, err)
		} else if err := next.Close(); err != nil {
			t.Error(err)
		}
		seen = append(seen, string(below.Get("a")))
		if !c.Lost() {
			break
		}
	}
	if want := []string{"0123456789", "012345678abc", "012345678abc", "01"}; !slices.Equal(seen, want) {
		t.Errorf("states after a crash:\nexpected %q\nfound    %q", want, seen)
	}
}

func TestCrashCountsAPatchAsAStep(t *testing.T) {
	var m Mem
	c := NewCrash(&m, 1)
	w, err := storekit.Create(t.Context(), c, "a")
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, []byte("0123456789"))
	if err := w.Can().Patch(t.Context(), []byte("x"), 0); !errors.Is(err, ErrPowerLost) {
		t.Errorf("found %v", err)
	}
	if m.Get("a") != nil {
		t.Error("an object appeared that was not committed")
	}
}

func TestCrashStopsObjectsThatAreOpen(t *testing.T) {
	var m Mem
	m.Put("a", []byte("bytes"))
	c := NewCrash(&m, 0)
	o, err := c.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
		t.Errorf("read before the crash: %v", err)
	}
	if err := storekit.Remove(t.Context(), c, "a"); !errors.Is(err, ErrPowerLost) {
		t.Errorf("remove: expected ErrPowerLost, found %v", err)
	}
	_, infoErr := o.Info(t.Context())
	_, tailErr := storekit.ReadTail(t.Context(), o, make([]byte, 1))
	_, headErr := storekit.ReadHead(t.Context(), o, make([]byte, 1))
	readErr := o.ReadAt(t.Context(), make([]byte, 1), 0)
	for op, err := range map[string]error{"read": readErr, "info": infoErr, "head": headErr, "tail": tailErr} {
		if !errors.Is(err, ErrPowerLost) {
			t.Errorf("%s after the crash: expected ErrPowerLost, found %v", op, err)
		}
	}
	if string(m.Get("a")) != "bytes" {
		t.Error("removed although the power was lost")
	}
}
