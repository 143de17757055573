package parity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
)

// scribble writes an object as formats do: on, back, and over what was written. It stays
// within what an encoder follows, or goes beyond.
func scribble(rnd *rand.Rand, w store.Writer, size int, beyond bool) error {
	ctx := context.Background()
	at := int64(0)
	if rnd.IntN(2) == 0 { // room in front
		n, err := w.Write(make([]byte, rnd.IntN(size+1)))
		if at = int64(n); err != nil {
			return err
		}
	}
	for range size / 50_000 {
		b := testkit.Noise(rnd, rnd.IntN(100_000))
		n, err := w.Write(b)
		if at += int64(n); err != nil {
			return err
		}
		can := w.Can()
		switch {
		case rnd.IntN(3) == 0:
			to := at - int64(rnd.IntN(min(len(b), 500)+1))
			if beyond {
				to = rnd.Int64N(at + 1)
			}
			if err := can.Rewind(to); err != nil {
				return err
			}
			at = min(at, to)
		case rnd.IntN(3) == 0 && at > 100:
			off := rnd.Int64N(min(at, 200_000) - 99)
			if beyond {
				off = rnd.Int64N(at - 99)
			}
			if err := can.Patch(ctx, testkit.Noise(rnd, 100), off); err != nil {
				return err
			}
		}
	}
	return nil
}

// Whatever way an archive is written, its parity is of what is there then.
func TestParityIsRecordedWhileAnArchiveIsWritten(t *testing.T) {
	ctx := context.Background()
	rnd := testkit.Rand(t)
	followed := 0
	for round := range testkit.Rounds(t, 40) {
		st := local.New(t.TempDir())
		st.NoSync = true
		stage := storekit.NewStage(st)
		size, beyond := 60_000+rnd.IntN(3<<20), rnd.IntN(4) == 0
		names := []string{"x.caf"}
		switch rnd.IntN(3) {
		case 0:
			names = []string{"x-00001.caf", "x-00002.caf", "x-00003.caf"}
		case 1:
			names = []string{"x.caf/a", "x.caf/b/c"}
		}
		expect := int64(size*len(names)*11/10) + 1<<16
		if rnd.IntN(4) == 0 {
			expect /= 20
		}
		r := Record(ctx, stage, "x.caf", expect, 0.05)
		var open []store.Writer
		for i, name := range names {
			w, err := storekit.Create(ctx, r.Store(), name)
			if err == nil {
				err = scribble(rnd, w, size, beyond)
			}
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && rnd.IntN(3) == 0 { // one that comes to nothing
				if err := w.Abort(); err != nil {
					t.Fatal(err)
				}
				if w, err = storekit.Create(ctx, r.Store(), name); err == nil {
					_, err = w.Write([]byte("x"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			open = append(open, w)
			if rnd.IntN(4) == 0 {
				continue // it is finished at the end
			}
			for _, w := range open {
				if _, err := w.Commit(ctx); err != nil {
					t.Fatal(err)
				}
			}
			open = nil
		}
		for _, w := range open {
			if rnd.IntN(3) == 0 {
				if _, err := w.Write([]byte("an end")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		}
		err := errors.Join(r.Finish(ctx), stage.Publish(ctx))
		if !r.behind {
			followed++
		}
		var info store.Info
		if err == nil {
			info, err = r.Commit(ctx)
		}
		if r.Close(); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("round %d: %v of %d bytes, behind: %v", round, names, size, r.behind)
		name := "x.caf"
		if names[0] == "x-00001.caf" {
			name = names[2]
		}
		g, err := Seek(ctx, st, name, "", nil)
		if err != nil || g == nil || g.Suits != nil {
			t.Fatalf("%s: %v, %v, %+v", what, g, err, info)
		}
		for _, p := range g.objs {
			if !p.same {
				t.Errorf("%s: %s is not known to be what it was without reading it", what, p.name)
			}
		}
		report, err := g.Check(ctx, false, nil)
		if err != nil || report.Damaged > 0 || report.ParityBroken > 0 || len(g.objs) != len(names) {
			t.Fatalf("%s: %+v, %v", what, report, err)
		}
		g.Close()
	}
	if followed == 0 && !testkit.Race() { // which has too few rounds to be sure of one
		t.Error("all was read again")
	}
	t.Logf("%d were followed", followed)
}
