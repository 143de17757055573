package repairs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func letters(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefgh"[rnd.IntN(8)]
	}
	return string(b)
}

// from plans a repair, and closes it at the end of the test.
func from(t *testing.T, st store.Store, name, kind string, mirror store.Store, mirrorName string) (format.Plan, repairs.Healed, error) {
	t.Helper()
	plan, sum, closer, err := repairs.From(t.Context(), open(t, st, name, kind, true), mirror, mirrorName, nil)
	if closer != nil {
		t.Cleanup(func() {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return plan, sum, err
}

// Archives whose contents are stored as they are, and compressed, are repaired with no more bytes of
// another copy than the damaged pieces have.
func TestOnlyWhatIsDamagedIsFetchedFromAnotherCopy(t *testing.T) {
	rnd := testkit.Rand(t)
	for _, kind := range []string{"caf", "zip"} {
		t.Run(kind, func(t *testing.T) {
			st := packedAs(t, kind, nil, map[string]string{"a": letters(rnd, 100), "b": letters(rnd, 10*chunk), "c": letters(rnd, 3*chunk+5), "d": letters(rnd, 9)})
			sound := st.Get("x")
			index(t, st, "x", kind)
			s := open(t, st, "x", kind, false)
			// Two bytes of one piece, one of another file; and of one in a unit.
			bad, most := bytes.Clone(sound), int64(0)
			for _, name := range []string{"b", "d"} {
				for _, x := range extentsOf(t, s, name) {
					if name == "b" && (x.Codec == "") != (kind == "caf") {
						t.Fatalf("%s is stored by %q", name, x.Codec)
					}
					bad[x.Off+x.Len/2] ^= 1
					bad[x.Off+x.Len/2+1] ^= 1
					if most += x.Len; x.Codec == "" && x.Len > chunk {
						most += chunk - x.Len
					}
				}
			}
			st.Put("x", bad)
			st.Put("mirror", sound)
			var trace bytes.Buffer
			plan, sum, err := from(t, st, "x", kind, storetest.Trace(st, &trace), "mirror")
			if err != nil {
				t.Fatal(err)
			}
			fetched := int64(0)
			for line := range strings.Lines(trace.String()) {
				var off, n int64
				if _, err := fmt.Sscanf(line, "read mirror at %d+%d", &off, &n); err == nil {
					fetched += n
				}
			}
			if sum.Healed == 0 || sum.Healed != sum.Damaged || plan.Partial || fetched != sum.Fetched || fetched > most || fetched == 0 {
				t.Fatalf("%+v, lost %q; fetched %d, expected at most %d", sum, plan.Lost, fetched, most)
			}
			if err := repairs.Apply(t.Context(), st, "x", plan, st, "repaired"); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(st.Get("repaired"), sound) {
				t.Error("it is not what it was")
			}
			// A copy with the same damage does not help, and nothing of it is taken.
			again, sum, err := from(t, st, "x", kind, st, "x")
			if err != nil {
				t.Fatal(err)
			}
			if sum.Healed != 0 || len(again.Edits) != 0 || int64(len(again.Lost)) != sum.Damaged || !again.Partial {
				t.Errorf("%+v %+v", again, sum)
			}
			// In place, nothing else changes.
			if err := repairs.Backup(t.Context(), st, "x", ".bak", plan); err != nil || !bytes.Equal(st.Get("x.bak"), bad) {
				t.Errorf("the backup: %v", err)
			}
			if err := repairs.Apply(t.Context(), st, "x", plan, st, "x"); err != nil || !bytes.Equal(st.Get("x"), sound) {
				t.Errorf("in place: %v", err)
			}
			if plan, sum, err := from(t, st, "x", kind, st, "mirror"); err != nil || plan.Changes() || plan.Partial || sum != (repairs.Healed{}) {
				t.Errorf("afterwards: %+v %+v %v", plan, sum, err)
			}
		})
	}
}

// An archive that is a folder is repaired object by object.
func TestAnArchiveOfSeveralObjectsIsRepairedByACopy(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{"a": string(testkit.Noise(rnd, 100)), "b": string(testkit.Noise(rnd, 10*chunk)), "c": string(testkit.Noise(rnd, 3*chunk+5))}
	st := packedAs(t, "databundle", map[string]string{"shards": "3"}, files)
	mirror := st.Clone()
	index(t, st, "x", "databundle")
	x := extentsOf(t, open(t, st, "x", "databundle", false), "b")[0]
	b := bytes.Clone(st.Get(x.Object))
	b[x.Off+x.Len/2] ^= 1
	st.Put(x.Object, b)
	plan, sum, err := from(t, st, "x", "databundle", mirror, "x/")
	if err != nil || sum.Damaged == 0 || sum.Healed != sum.Damaged || plan.Partial || !slices.Equal(plan.Replaces, []string{x.Object}) {
		t.Fatalf("%+v %+v %v", plan, sum, err)
	}
	same := func(what string, got *storetest.Mem, name string) {
		t.Helper()
		for _, o := range objectsIn(t, mirror) {
			if !bytes.Equal(got.Get(name+strings.TrimPrefix(o, "x")), mirror.Get(o)) {
				t.Errorf("%s: %s is not what it was", what, o)
			}
		}
	}
	out := &storetest.Mem{}
	if err := repairs.Apply(t.Context(), st, "x", plan, out, "repaired"); err != nil {
		t.Fatal(err)
	}
	same("elsewhere", out, "repaired")
	if n := len(objectsIn(t, out)); n != len(objectsIn(t, mirror)) {
		t.Errorf("%d objects", n)
	}
	if err := repairs.Backup(t.Context(), st, "x", ".bak", plan); err != nil || !bytes.Equal(st.Get("x.bak"+strings.TrimPrefix(x.Object, "x")), b) {
		t.Fatal("the backup", err)
	}
	before := len(objectsIn(t, st))
	if err := repairs.Apply(t.Context(), st, "x", plan, st, "x"); err != nil {
		t.Fatal(err)
	}
	same("in place", st, "x")
	if n := len(objectsIn(t, st)); n != before {
		t.Errorf("%d objects, before %d", n, before)
	}
}

// A copy that lacks an object, or has one of another length, repairs what it can.
func TestACopyThatIsNoneIsRefused(t *testing.T) {
	rnd := testkit.Rand(t)
	st := packedAs(t, "caf", nil, map[string]string{"a": letters(rnd, 2*chunk)})
	sound := st.Get("x")
	index(t, st, "x", "caf")
	st.Put("short", sound[:len(sound)-1])
	if _, _, err := from(t, st, "x", "caf", st, "short"); err == nil || !strings.Contains(err.Error(), "short is not a copy: ") {
		t.Error(err)
	}
	if _, _, err := from(t, st, "x", "caf", st, "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	b := bytes.Clone(sound)
	b[100] ^= 1
	st.Put("x", b)
	other := bytes.Clone(sound)
	other[200] ^= 1 // in the same piece
	st.Put("other", other)
	plan, sum, err := from(t, st, "x", "caf", st, "other")
	if err != nil || sum.Damaged != 1 || sum.Healed != 0 || !plan.Partial || len(plan.Lost) != 1 || !strings.HasPrefix(plan.Lost[0], "a: bytes 0 to 65536: not repaired from the other copy: ") || plan.Changes() {
		t.Errorf("%+v %+v %v", plan, sum, err)
	}

	folder := packedAs(t, "databundle", map[string]string{"shards": "3"}, map[string]string{"a": letters(rnd, 1000), "b": letters(rnd, 2*chunk)})
	index(t, folder, "x", "databundle")
	s := open(t, folder, "x", "databundle", false)
	mirror := folder.Clone()
	var objects []string
	for _, name := range []string{"a", "b"} {
		x := extentsOf(t, s, name)[0]
		b := bytes.Clone(folder.Get(x.Object))
		b[x.Off+x.Len/2] ^= 1
		folder.Put(x.Object, b)
		objects = append(objects, x.Object)
	}
	_ = mirror.Remove(t.Context(), objects[0])
	if objects[0] == objects[1] {
		t.Skip("both are in one shard")
	}
	plan, sum, err = from(t, folder, "x", "databundle", mirror, "x")
	if err != nil || sum.Damaged == sum.Healed || sum.Healed == 0 || !plan.Partial || !slices.Equal(plan.Replaces, objects[1:]) {
		t.Errorf("%+v %+v %v", plan, sum, err)
	}
}

// What was damaged when the index was made has no digest, and is not taken from anywhere.
func TestWhatHasNoDigestIsNotRepairedByACopy(t *testing.T) {
	st := packedAs(t, "caf", nil, map[string]string{"a": "alpha", "b": "beta"})
	sound := st.Get("x")
	b := bytes.Clone(sound)
	b[bytes.Index(b, []byte("beta"))] = 'B'
	st.Put("x", b)
	index(t, st, "x", "caf")
	st.Put("mirror", sound)
	plan, sum, err := from(t, st, "x", "caf", st, "mirror")
	if err != nil || sum.Damaged != 1 || sum.Healed+sum.Fetched != 0 || plan.Changes() || len(plan.Lost) != 1 || !strings.Contains(plan.Lost[0], "have no digest") {
		t.Errorf("%+v %+v %v", plan, sum, err)
	}
}

// An error of the network ends a repair; it is not taken for damage of the other copy. So does the
// end of a context.
func TestARepairByACopyEndsWithTheNetwork(t *testing.T) {
	rnd := testkit.Rand(t)
	st := packedAs(t, "caf", nil, map[string]string{"a": letters(rnd, 2*chunk)})
	index(t, st, "x", "caf")
	mirror := st.Clone()
	b := bytes.Clone(st.Get("x"))
	b[70_000] ^= 1
	st.Put("x", b)
	busy := storetest.Fault(mirror, func(op, name string, off, n int64) error {
		if op == "read" {
			return &store.Error{Op: op, Name: name, Off: off, Len: n, Retry: true, Err: errors.New("busy")}
		}
		return nil
	})
	if plan, _, err := from(t, st, "x", "caf", busy, "x"); !storekit.Temporary(err) || plan.Changes() {
		t.Errorf("%+v %v", plan, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	closing := storetest.Fault(mirror, func(op, name string, off, n int64) error {
		if op == "read" {
			cancel()
			return ctx.Err()
		}
		return nil
	})
	var m meter.Meter
	if _, _, _, err := repairs.From(ctx, open(t, st, "x", "caf", true), closing, "x", &m); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
