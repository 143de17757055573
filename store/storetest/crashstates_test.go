package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/store"
)

// recorded returns a journal of what do does to an object of 4 sectors of dots.
func recorded(t *testing.T, do func(store.Amendment) error) *Journal {
	t.Helper()
	m := &Mem{}
	m.Put("x", bytes.Repeat([]byte("."), 4*sector))
	j := NewJournal(m)
	a, err := j.Amend(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := do(a); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return j
}

// runs writes content as runs of equal bytes: "100a 24.".
func runs(b []byte) string {
	var s []string
	for len(b) > 0 {
		n := len(b) - len(bytes.TrimLeft(b, string(b[:1])))
		s = append(s, fmt.Sprintf("%d%s", n, strings.Trim(fmt.Sprintf("%q", b[:1]), `"`)))
		b = b[n:]
	}
	return strings.Join(s, " ")
}

func TestKilledWriteIsTornAtItsEndsItsMiddleAndTheSectorsThere(t *testing.T) {
	j := recorded(t, func(a store.Amendment) error {
		return a.WriteAt(t.Context(), bytes.Repeat([]byte("a"), 1500), 100)
	})
	var got []string
	for label, b := range j.States(1) {
		if strings.HasPrefix(label, "killed in") {
			got = append(got, runs(b))
		}
	}
	want := []string{ // sectors begin at 512 and 1024
		"100. 1a 1947.",
		"100. 412a 1536.",
		"100. 750a 1198.",
		"100. 924a 1024.",
		"100. 1499a 449.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q", want, got)
	}
}

func TestWriteWithinOneSectorIsNeverTorn(t *testing.T) {
	j := recorded(t, func(a store.Amendment) error {
		return a.WriteAt(t.Context(), bytes.Repeat([]byte("a"), 300), 3*sector)
	})
	for seed := range uint64(50) {
		for label, b := range j.States(seed) {
			if got := runs(b); got != "2048." && got != "1536. 300a 212." {
				t.Errorf("%s: %s", label, got)
			}
		}
	}
}

func TestPowerFailureKeepsSectorsApartAndLengthWithoutContent(t *testing.T) {
	j := recorded(t, func(a store.Amendment) error {
		return a.WriteAt(t.Context(), bytes.Repeat([]byte("a"), 1100), 3*sector) // in sectors 3, 4 and 5, of which 3 is there
	})
	may := map[string]bool{}
	for mask := range 8 {
		for _, long := range []bool{false, true} {
			b := bytes.Repeat([]byte("."), 4*sector)
			if long {
				b = reach(b, 3*sector+1100)
			}
			for i, n := range []int{512, 512, 76} {
				if mask&(1<<i) != 0 {
					at := int64(3+i) * sector
					b = reach(b, at+int64(n))
					copy(b[at:], bytes.Repeat([]byte("a"), n))
				}
			}
			may[runs(b)] = true
		}
	}
	seen := map[string]bool{}
	for seed := range uint64(300) {
		for label, b := range j.States(seed) {
			if strings.HasPrefix(label, "power") {
				seen[runs(b)] = true
			}
		}
	}
	if !maps.Equal(seen, may) {
		t.Errorf("expected %q, found %q", slices.Sorted(maps.Keys(may)), slices.Sorted(maps.Keys(seen)))
	}
}

// possible is what a power failure after an op may leave of each sector: one of
// what it was at the last sync and has been since, or zeros where the object did
// not reach then.
type possible struct {
	synced  int64
	sectors [6]string
}

func TestPowerFailureLeavesOfEachSectorWhatItWasAtTheLastSyncOrSince(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	may := possible{synced: 4 * sector, sectors: [6]string{".", ".", ".", "."}}
	var after []possible
	letter := 'a'
	j := recorded(t, func(a store.Amendment) error {
		for range 25 {
			if rnd.IntN(4) == 0 {
				if err := a.Sync(ctx); err != nil {
					return err
				}
				now := possible{synced: a.Size()}
				for i := range now.synced / sector {
					p := make([]byte, 1)
					if err := a.ReadAt(ctx, p, i*sector); err != nil {
						return err
					}
					now.sectors[i] = string(p)
				}
				may = now
			} else {
				first := rnd.IntN(min(len(may.sectors), 1+int(a.Size())/sector))
				n := 1 + rnd.IntN(len(may.sectors)-first)
				if err := a.WriteAt(ctx, bytes.Repeat([]byte(string(letter)), n*sector), int64(first*sector)); err != nil {
					return err
				}
				for i := first; i < first+n; i++ {
					may.sectors[i] += string(letter)
				}
				letter++
			}
			after = append(after, may)
		}
		return nil
	})
	failures := 0
	for label, b := range j.States(seed) {
		var k, of int
		if _, err := fmt.Sscanf(label, "power lost after op %d of %d", &k, &of); err != nil {
			continue
		}
		failures++
		may := after[k]
		if int64(len(b)) < may.synced {
			t.Errorf("%s: %d bytes, of which %d were synced", label, len(b), may.synced)
		}
		for i := range len(b) / sector {
			s := b[i*sector:][:sector]
			switch {
			case bytes.Count(s, s[:1]) != sector:
				t.Errorf("%s: sector %d is torn: %s", label, i, runs(s))
			case s[0] == 0 && int64(i*sector) >= may.synced:
			case !strings.Contains(may.sectors[i], string(s[:1])):
				t.Errorf("%s: sector %d is %q, expected one of %q", label, i, s[0], may.sectors[i])
			}
		}
	}
	if failures < 10 {
		t.Errorf("only %d power failures", failures)
	}
}

func TestLabelAndSeedTellAStateAgain(t *testing.T) {
	j := recorded(t, func(a store.Amendment) error {
		for i := range 8 {
			if err := a.WriteAt(t.Context(), bytes.Repeat([]byte{byte('a' + i)}, 700), int64(i*500)); err != nil {
				return err
			}
		}
		return nil
	})
	all := map[string]string{}
	for label, b := range j.States(7) {
		if _, twice := all[label]; twice {
			t.Errorf("%s: two states of that name", label)
		}
		all[label] = string(b)
		clear(b) // a state is its receiver's
	}
	for label, b := range j.States(7) {
		if all[label] != string(b) {
			t.Errorf("%s: another state the second time", label)
		}
	}
	for label := range j.States(7) {
		if strings.HasPrefix(label, "power") {
			break // may be left early
		}
	}
}

func TestJournalIsOfOneObject(t *testing.T) {
	j := recorded(t, func(a store.Amendment) error { return a.Sync(t.Context()) })
	j.Put("y", nil)
	if _, err := j.Amend(t.Context(), "y"); err == nil || !strings.Contains(err.Error(), "journal of x") {
		t.Errorf("another object: found %v", err)
	}
	a, err := j.Amend(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteAt(t.Context(), []byte("again"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for _, b := range j.States(1) {
		last = b
	}
	if j.Ops() != 2 || !bytes.Equal(last, j.Get("x")) {
		t.Errorf("%d ops, and at the end %s", j.Ops(), runs(last))
	}
}
