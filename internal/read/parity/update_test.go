package parity

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// Parity that is brought up to date heals what the archive is now, and is computed without
// reading what was not changed.
func TestParityOfWhatIsChangedInPlace(t *testing.T) {
	testkit.Long(t)
	ctx := context.Background()
	rnd := testkit.Rand(t)
	alone := 0
	for round := range testkit.Rounds(t, 30) {
		st := &storetest.Mem{}
		st.Put("a.tar", testkit.Noise(rnd, 500_000+rnd.IntN(3<<20)))
		protect(t, st, 0.03+rnd.Float64()*0.1, "a.tar")
		for i := range 3 {
			var log bytes.Buffer
			k, err := Keep(ctx, storetest.Trace(st, &log), "a.tar")
			if err != nil || k == nil {
				t.Fatal(k, err)
			}
			log.Reset()
			if err := change(rnd, k.Store()); err != nil {
				t.Fatal(err)
			}
			note, err := k.Update(ctx)
			if err != nil {
				t.Fatal(err)
			}
			k.Close()
			size := len(st.Get("a.tar"))
			what := fmt.Sprintf("round %d.%d: %d bytes, %s", round, i, size, note)
			if note == "" {
				alone++
			}
			wantHealed(t, rnd, st, what)
		}
	}
	if alone == 0 {
		t.Error("all was read again")
	}
	t.Logf("%d were brought up to date by what was changed", alone)
}

// change writes here and there, and at the end.
func change(rnd *rand.Rand, st store.Store) error {
	ctx := context.Background()
	a, err := storekit.Amend(ctx, st, "a.tar")
	if err != nil {
		return err
	}
	defer a.Close()
	for range rnd.IntN(4) {
		if err := a.WriteAt(ctx, testkit.Noise(rnd, rnd.IntN(10_000)), rnd.Int64N(a.Size()-10_000)); err != nil {
			return err
		}
	}
	for range rnd.IntN(3) {
		if err := a.WriteAt(ctx, testkit.Noise(rnd, rnd.IntN(60_000)), a.Size()); err != nil {
			return err
		}
		if rnd.IntN(3) == 0 {
			if err := a.Truncate(ctx, a.Size()-rnd.Int64N(30_000)); err != nil {
				return err
			}
		}
	}
	return a.Sync(ctx)
}

// wantHealed damages as much as the parity can repair, and leaves the archive unchanged.
func wantHealed(t *testing.T, rnd *rand.Rand, st *storetest.Mem, what string) {
	t.Helper()
	ctx := context.Background()
	want := st.Get("a.tar")
	bad := st.Clone()
	g := wantBound(t, bad)
	if g.Suits != nil || !g.Same {
		t.Fatalf("%s: it is not of this version: %v", what, g.Suits)
	}
	r, err := g.Check(ctx, false, nil)
	if err != nil || r.Damaged > 0 || r.ParityBroken > 0 || float64(r.Spare) < float64(r.Blocks)*g.f.Loss {
		t.Fatalf("%s: %+v, %v", what, r, err)
	}
	block := g.f.h.block
	g.Close()
	b := slices.Clone(want)
	at := rnd.IntN(len(b))
	hurt(rnd, b[at:min(len(b), at+int(r.Spare-1)*block)])
	bad.Put("a.tar", b)
	g = wantBound(t, bad)
	defer g.Close()
	o, err := g.Store().Open(ctx, "a.tar")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := o.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %v, or it is not what it was", what, err)
	}
}

// Parity of an older version is left as it is, and what was damaged before it was changed is
// no reason to compute from it.
func TestParityThatCannotBeBroughtUpToDate(t *testing.T) {
	ctx := context.Background()
	rnd := testkit.Rand(t)
	for _, c := range []struct {
		name, note string
		hurt       func(st *storetest.Mem)
	}{
		{"it grows by much", "from the whole archive", func(st *storetest.Mem) {}},
		{"it was longer", "older version", func(st *storetest.Mem) { st.Put("a.tar", testkit.Noise(rnd, 1_000_001)) }},
		{"its parity is damaged", "from the whole archive", func(st *storetest.Mem) {
			p := st.Get("a.tar" + Suffix)
			hurt(rnd, p[len(p)/2:len(p)/2+10_000])
			st.Put("a.tar"+Suffix, p)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := &storetest.Mem{}
			st.Put("a.tar", testkit.Noise(rnd, 1_000_000))
			protect(t, st, 0.05, "a.tar")
			c.hurt(st)
			k, err := Keep(ctx, st, "a.tar")
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			a, err := storekit.Amend(ctx, k.Store(), "a.tar")
			if err == nil {
				err = a.WriteAt(ctx, testkit.Noise(rnd, 400_000), a.Size())
			}
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
			note, err := k.Update(ctx)
			if err != nil || !strings.Contains(note, c.note) {
				t.Errorf("found %q, %v", note, err)
			}
			if c.note == "older version" {
				return
			}
			wantHealed(t, rnd, st, c.name)
		})
	}
}

func wantBound(t *testing.T, st store.Store) *Guard {
	t.Helper()
	g, err := Seek(context.Background(), st, "a.tar", "", nil)
	if err != nil || g == nil {
		t.Fatalf("found %v, %v", g, err)
	}
	return g
}
