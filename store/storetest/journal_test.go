package storetest

import (
	"bytes"
	"context"
	"testing"
)

// A journal's states are those that a crash can leave, and no others.
func TestJournalStates(t *testing.T) {
	ctx := context.Background()
	m := &Mem{}
	start := bytes.Repeat([]byte("."), 2048)
	m.Put("x", start)
	j := NewJournal(m)
	a, err := j.Amend(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return a.WriteAt(ctx, bytes.Repeat([]byte("a"), 1000), 100) }, // may be torn
		func() error { return a.Sync(ctx) },
		func() error { return a.WriteAt(ctx, bytes.Repeat([]byte("b"), 512), 512) }, // one sector
		func() error { return a.Truncate(ctx, 1500) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if j.Ops() != 4 {
		t.Errorf("%d ops", j.Ops())
	}
	torn, half, short := 0, 0, 0
	last := []byte(nil)
	for label, b := range j.States(1) {
		as, bs := bytes.Count(b, []byte("a")), bytes.Count(b, []byte("b"))
		switch {
		case bs > 0 && bs != 512:
			t.Errorf("%s: a sector is torn: %d", label, bs)
		case bs == 512 && as != 100+1000-1024+512-100:
			t.Errorf("%s: what comes after a sync is there without what comes before: %d", label, as)
		case bs == 0 && as > 0 && as < 1000 && len(b) == 2048:
			torn++
		case bs == 512 && len(b) == 2048:
			half++
		case bs == 0 && len(b) == 1500:
			short++
		}
		last = b
	}
	if torn == 0 || half == 0 || short == 0 {
		t.Errorf("%d torn, %d with the second write alone, %d with the last alone", torn, half, short)
	}
	if !bytes.Equal(last, m.Get("x")) {
		t.Error("the last state is not what is there")
	}
}
