package rvn

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// One wrong bit of the index or of the metadata is found by its checksum, and nothing is lost.
// HOLDALL_LONG is how many bits are tried.
func TestRepairTurnsTheOneWrongBit(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("d%d/file%d", i%4, i)] = string(testkit.Noise(rnd, 50+i))
	}
	st := &storetest.Mem{}
	o := holdall.PackOptions{Formats: []*format.Format{Format}}
	o.Store = st
	if _, err := holdall.Pack(t.Context(), "x.rvn", []string{testkit.Tree(t, t.TempDir(), files)}, o); err != nil {
		t.Fatal(err)
	}
	whole := st.Get("x.rvn")
	h, _ := parseHeader(whole)
	if h.indexOff() == headerLen {
		t.Fatal("there is no metadata")
	}
	repaired := 0
	for range testkit.Rounds(t, 40) {
		at := headerLen + rnd.Int64N(h.contentsOff()-headerLen)
		b := bytes.Clone(whole)
		b[at] ^= 1 << rnd.IntN(8)
		st.Put("x.rvn", b)
		plan, err := holdall.Repair(t.Context(), "x.rvn", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: o.Formats}})
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		if !plan.Changes() {
			continue // a bit that is never read
		}
		if plan.Partial || len(plan.Lost) > 0 {
			t.Errorf("byte %d: lost %q", at, plan.Lost)
		}
		if err := plan.ApplyStore(t.Context(), st, "y.rvn"); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(st.Get("y.rvn"), whole) {
			t.Errorf("byte %d: not as it was", at)
		}
		repaired++
	}
	if repaired < 30 {
		t.Errorf("%d were repaired", repaired)
	}
}

// Each wrong bit of the frame's last block is repaired, whatever its effect.
func TestTheLastBlockIsMadeAgain(t *testing.T) {
	testkit.Serial(t)
	whole := fixture(t, "ext-sections")
	for at := len(whole) - len(lastBlock); at < len(whole); at++ {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			st := &storetest.Mem{}
			st.Put("x.rvn", b)
			plan, err := repair(t.Context(), st, "x.rvn", format.OpenOptions{}, func(format.Problem) {})
			if err != nil || !plan.Changes() || len(plan.Lost) > 0 {
				t.Fatalf("bit %d of byte %d: %v, %+v", bit, at, err, plan)
			}
			wantSound(t, apply(t, b, plan), 4)
		}
	}
}
