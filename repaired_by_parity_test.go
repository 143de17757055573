package holdall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// withParity packs files as x, with parity of a tenth of it.
func withParity(t *testing.T, rnd *rand.Rand, format string, param map[string]string) *storetest.Mem {
	t.Helper()
	files := map[string]string{"long": string(testkit.Noise(rnd, 700<<10))}
	for i := range 40 {
		files[fmt.Sprintf("d%d/f%02d", i%5, i)] = string(testkit.Noise(rnd, 4200+rnd.IntN(8000)))
	}
	st := packedAs(t, format, param, files)
	protectIn(t, st, .1, "x")
	return st
}

func protectIn(t *testing.T, st *storetest.Mem, loss float64, names ...string) holdall.Protection {
	t.Helper()
	to := names[0] + parity.Suffix
	if len(names) > 1 {
		to = "x" + parity.Suffix
	}
	p, err := holdall.Protect(t.Context(), names, to, holdall.ProtectOptions{Store: st, To: st, Loss: loss})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const blockSize = 4096 // of archives as short as these

// damageWithin damages an archive by no more than so many blocks.
func damageWithin(rnd *rand.Rand, st *storetest.Mem, names []string, blocks int) (what string) {
	for blocks > 4 {
		name := names[rnd.IntN(len(names))]
		b := bytes.Clone(st.Get(name))
		if len(b) == 0 {
			continue
		}
		at := rnd.IntN(len(b))
		n := 1 + rnd.IntN(blocks/2*blockSize)
		switch k := rnd.IntN(8); {
		case k < 3:
			b[at] ^= 1 << rnd.IntN(8)
			what, n = what+fmt.Sprintf(" bit at %s:%d", name, at), 1
		case k < 5:
			n = min(n, len(b)-at)
			clear(b[at : at+n])
			what += fmt.Sprintf(" %d zeros at %s:%d", n, name, at)
		case k == 5 && n < len(b) && !strings.Contains(what, name+" without"):
			b = b[:len(b)-n]
			what += fmt.Sprintf(" %s without its last %d bytes", name, n)
		case k == 6 && n < len(b) && !strings.Contains(what, name+" without"):
			b = b[n:]
			what += fmt.Sprintf(" %s without its first %d bytes", name, n)
		case k == 7 && len(b) <= blocks/2*blockSize && len(names) > 1:
			n, what = len(b), what+" lost "+name
			_ = st.Remove(context.Background(), name)
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
			b = nil
		default:
			continue
		}
		if b != nil {
			st.Put(name, b)
		}
		blocks -= n/blockSize + 2
	}
	return what
}

// asIn expects that what is below or called name is in both, byte for byte.
func asIn(t *testing.T, what string, got, want *storetest.Mem, gotName, name string) {
	t.Helper()
	n := 0
	for _, o := range objectsIn(t, want) {
		rest, ok := strings.CutPrefix(o, name)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		n++
		if !bytes.Equal(got.Get(gotName+rest), want.Get(o)) {
			t.Fatalf("%s: %s is not what it was: %d bytes, expected %d", what, gotName+rest, len(got.Get(gotName+rest)), len(want.Get(o)))
		}
	}
	for _, o := range objectsIn(t, got) {
		if rest, ok := strings.CutPrefix(o, gotName+"/"); ok {
			n--
			_ = rest
		} else if o == gotName {
			n--
		}
	}
	if n != 0 {
		t.Fatalf("%s: %d objects are missing", what, n)
	}
}

func repairBy(t *testing.T, st store.Store, name string) *holdall.RepairPlan {
	t.Helper()
	plan, err := holdall.Repair(t.Context(), name, holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plan.Close() })
	return plan
}

func inPlace(t *testing.T, plan *holdall.RepairPlan, st store.Store, name string) {
	t.Helper()
	if err := plan.Backup(t.Context(), ".bak"); err != nil {
		t.Fatal(err)
	}
	if err := plan.ApplyStore(t.Context(), st, name); err != nil {
		t.Fatal(err)
	}
}

var protectedFormats = []struct {
	format string
	param  map[string]string
}{
	{format: "caf"}, {format: "lindi"}, {format: "zip"}, {format: "tar"}, {format: "rvn"},
	{format: "databundle", param: map[string]string{"shards": "30"}}, {format: "oak", param: map[string]string{"time": "2026-01-02T15:04:05Z"}},
}

// Whatever is damaged of an archive, as long as it is no more than was asked for: verify
// says that it can be healed, and repair gives back every byte, in another place or in its own.
func TestRepairByParityGivesBackEveryByte(t *testing.T) {
	for _, k := range protectedFormats {
		t.Run(k.format, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			sound := withParity(t, rnd, k.format, k.param)
			names := slices.DeleteFunc(objectsIn(t, sound), func(name string) bool { return name == "x"+parity.Suffix })
			total := 0
			for _, name := range names {
				total += len(sound.Get(name))
			}
			sum, _, _ := verified(t, sound, "x", holdall.VerifyOptions{})
			if p := sum.Parity; p == nil || p.Harmed() || p.Spare < int64(total/blockSize/10) || sum.Unproven+sum.Proven.Decoding > 0 {
				t.Fatalf("sound: %+v %+v", sum, p)
			}
			for range testkit.Rounds(t, 2) {
				st := sound.Clone()
				what := damageWithin(rnd, st, names, total/blockSize/10)
				sum, found, _ := verified(t, st, "x", holdall.VerifyOptions{})
				if p := sum.Parity; p == nil || p.Damaged == 0 || p.Beyond() > 0 || len(found) == 0 || p.NotUsed != "" {
					t.Fatalf("%s: %+v %+v", what, sum, p)
				}
				if left := errorsBy(t, st, "x", holdall.OpenOptions{Parity: parity.None}); left > 0 && sum.Errors < int64(left) {
					t.Errorf("%s: %d errors without parity, %d with it", what, left, sum.Errors)
				}
				out := &storetest.Mem{}
				plan := repairBy(t, st, "x")
				if !plan.Changes() || plan.Partial || len(plan.Lost) > 0 || plan.Parity.Healed != plan.Parity.Damaged {
					t.Fatalf("%s: %+v %+v", what, plan, plan.Parity)
				}
				if err := plan.ApplyStore(t.Context(), out, "y"); err != nil {
					t.Fatal(what, err)
				}
				asIn(t, what, out, sound, "y", "x")
				inPlace(t, plan, st, "x")
				asIn(t, what, st, sound, "x", "x")
				if again := repairBy(t, st, "x"); again.Changes() {
					t.Errorf("%s: there is something left to do: %+v", what, again.Plan)
				}
				if sum, found, _ := verified(t, st, "x", holdall.VerifyOptions{}); len(found) > 0 || sum.Parity.Harmed() {
					t.Errorf("%s: after that: %v", what, found)
				}
			}
		})
	}
}

func errorsBy(t *testing.T, st store.Store, name string, o holdall.OpenOptions) (n int) {
	t.Helper()
	_, err := holdall.Verify(t.Context(), name, holdall.VerifyOptions{OpenOptions: o.In(st)}, func(p holdall.Problem) {
		if p.Severity == format.Error {
			n++
		}
	})
	if err != nil {
		return 0 // it does not open
	}
	return n
}

// What is damaged beyond the parity is left to the format, which has what could be healed; in
// place that comes to the same.
func TestRepairBeyondParity(t *testing.T) {
	testkit.Serial(t)
	for _, k := range protectedFormats {
		t.Run(k.format, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			sound := withParity(t, rnd, k.format, k.param)
			names := slices.DeleteFunc(objectsIn(t, sound), func(name string) bool {
				return name == "x"+parity.Suffix || len(sound.Get(name)) == 0
			})
			biggest := slices.MaxFunc(names, func(a, b string) int { return len(sound.Get(a)) - len(sound.Get(b)) })
			for round := range testkit.Rounds(t, 1) {
				round += rnd.IntN(3)
				st := sound.Clone()
				b := bytes.Clone(st.Get(biggest))
				n := len(b) * 2 / 5
				at := len(b)/4 + rnd.IntN(len(b)/4)    // neither an index in front nor one at the end
				if round%3 == 2 && k.format != "caf" { // of which nothing is left without its index
					b = b[:len(b)-n]
				} else {
					copy(b[at:], testkit.Noise(rnd, n))
				}
				st.Put(biggest, b)
				repair := func() *holdall.RepairPlan {
					plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: k.format}})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { plan.Close() })
					return plan
				}
				if p := repair().Parity; p.NotUsed == "" && p.Beyond() == 0 { // in a run of neighbours one block is healed
					t.Fatalf("%d bytes can be healed: %+v", n, p)
				}
				sum, found, _ := verified(t, st, "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Format: k.format}})
				if len(found) == 0 || sum.Errors == 0 || sum.Parity == nil {
					t.Fatalf("%d bytes at %s:%d: %+v", n, biggest, at, sum)
				}
				out := &storetest.Mem{}
				plan := repair()
				if !plan.Partial || len(plan.Lost) == 0 {
					t.Errorf("%d bytes at %s:%d: nothing is said to be lost: %+v", n, biggest, at, plan.Plan)
				}
				if sum.Parity.NotUsed == "" && !slices.Equal(plan.Parity.Files, sum.Parity.Files) {
					t.Errorf("verify names %q, repair %q", sum.Parity.Files, plan.Parity.Files)
				}
				if err := plan.ApplyStore(t.Context(), out, "x"); err != nil {
					t.Fatal(err)
				}
				if plan := repair(); plan.Changes() {
					inPlace(t, plan, st, "x")
				}
				for _, name := range objectsIn(t, out) {
					if got, want := st.Get(name), out.Get(name); !bytes.Equal(got, want) {
						t.Errorf("%s in place is not what it is elsewhere: %d bytes, %d", name, len(got), len(want))
					}
				}
			}
		})
	}
}

// Damage that can be healed in part: the format repairs what is left, of an archive in which the
// rest is healed.
func TestFormatRepairsWhatParityCannot(t *testing.T) {
	rnd := testkit.Rand(t)
	files := map[string]string{"a": string(testkit.Noise(rnd, 2<<20)), "b": string(testkit.Noise(rnd, 2<<20))}
	st := packedAs(t, "caf", nil, files)
	p := protectIn(t, st, .01, "x")
	sound := st.Get("x")
	b := bytes.Clone(sound)
	const healable = 5000 // the only block of its neighbours that is damaged
	b[healable]++
	for i := range p.Blocks / 50 {
		at := len(b) - 1<<20 + int(i)*blockSize
		b[at]++
		b[at+100]++ // one wrong byte would need no parity
	}
	st.Put("x", b)
	plan := repairBy(t, st, "x")
	if r := plan.Parity; !plan.Partial || r.Healed != 1 || r.Beyond() == 0 || !slices.Equal(r.Files, []string{"b"}) {
		t.Fatalf("%+v %+v", plan.Plan, plan.Parity)
	}
	out := &storetest.Mem{}
	if err := plan.ApplyStore(t.Context(), out, "y"); err != nil {
		t.Fatal(err)
	}
	inPlace(t, plan, st, "x")
	for _, got := range [][]byte{out.Get("y"), st.Get("x")} {
		if len(got) != len(sound) || got[healable] != sound[healable] || got[len(b)-1<<20] == sound[len(b)-1<<20] {
			t.Errorf("%d bytes, expected %d", len(got), len(sound))
		}
	}
}

// A repair in place that is killed, or whose power fails, leaves what can be repaired again.
func TestRepairInPlaceIsCrashSafe(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, k := range []string{"caf", "tar"} {
		sound := withParity(t, rnd, k, nil)
		n := len(sound.Get("x")) / blockSize / 10
		for _, cut := range []int{0, 3*blockSize + 100} {
			before := sound.Clone()
			b := bytes.Clone(before.Get("x"))
			for range n / 3 {
				b[rnd.IntN(len(b)-cut)] ^= 1
			}
			before.Put("x", b[:len(b)-cut])
			j := storetest.NewJournal(before.Clone())
			inPlace(t, repairBy(t, j, "x"), j, "x")
			asIn(t, k, j.Mem, sound, "x", "x")
			if j.Ops() < n/4 {
				t.Errorf("%s: %d writes", k, j.Ops())
			}
			share := min(testkit.Rounds(t, 1), 8)
			for label, content := range j.States(rnd.Uint64()) {
				if rnd.IntN(8) >= share {
					continue // HOLDALL_LONG=8 tries all states
				}
				left := before.Clone()
				left.Put("x", content)
				if plan := repairBy(t, left, "x"); plan.Changes() {
					inPlace(t, plan, left, "x")
				}
				asIn(t, k+", "+label, left, sound, "x", "x")
			}
		}
	}
}

// Of a folder, objects that are lost or lost their beginning come back whole, in every state
// that a failure leaves.
func TestRepairOfAFolderIsCrashSafe(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	for _, k := range protectedFormats[len(protectedFormats)-2:] {
		sound := withParity(t, rnd, k.format, k.param)
		before := sound.Clone()
		var short []string
		for _, name := range objectsIn(t, sound) {
			if n := len(sound.Get(name)); n > 0 && n < 8*blockSize && path.Dir(name) != "." {
				short = append(short, name)
			}
		}
		if len(short) < 2 {
			t.Fatal(k.format, objectsIn(t, sound))
		}
		_ = before.Remove(t.Context(), short[0])
		before.Put(short[1], sound.Get(short[1])[1:])
		for steps := 0; ; steps++ {
			below := before.Clone()
			c := storetest.NewCrash(below, steps)
			plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: c}})
			if err == nil {
				err = plan.Backup(t.Context(), ".bak")
			}
			if err == nil {
				err = plan.ApplyStore(t.Context(), c, "x")
			}
			if err != nil && !errors.Is(err, storetest.ErrPowerLost) {
				t.Fatal(err)
			}
			for _, name := range objectsIn(t, below) {
				if got := below.Get(name); !bytes.Equal(got, sound.Get(name)) && !bytes.Equal(got, before.Get(name)) {
					t.Fatalf("%s, %d steps: %s is neither as before nor as after", k.format, steps, name)
				}
			}
			if plan := repairBy(t, below, "x"); plan.Changes() {
				inPlace(t, plan, below, "x")
			}
			asIn(t, fmt.Sprint(k.format, ", ", steps, " steps"), below, sound, "x", "x")
			if !c.Lost() {
				break
			}
		}
	}
}

// A file of a set is healed by itself, also if it is lost.
func TestRepairOfOneFileOfASet(t *testing.T) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("x-%05d.tar", i))
		st.Put(names[i], packedAs(t, "tar", nil, map[string]string{fmt.Sprint(i): string(testkit.Noise(rnd, 30<<10))}).Get("x"))
	}
	protectIn(t, st, .1, names...)
	_ = st.Remove(t.Context(), "x.parity")
	if _, err := holdall.Protect(t.Context(), names, "x.tar"+parity.Suffix, holdall.ProtectOptions{Store: st, To: st, Loss: .1}); err != nil {
		t.Fatal(err)
	}
	sound := st.Clone()
	if sum, found, _ := verified(t, st, names[3], holdall.VerifyOptions{}); len(found) > 0 || sum.Parity == nil || sum.Parity.Looked == 0 || sum.Parity.Looked > 20 || sum.Proven.Checksum != 1 {
		t.Errorf("%v %+v", found, sum.Parity)
	}
	_ = st.Remove(t.Context(), names[3])
	b := bytes.Clone(st.Get(names[7]))
	b[700]++
	st.Put(names[7], b)
	sum, found, _ := verified(t, st, names[3], holdall.VerifyOptions{})
	if sum.Format != "tar" || len(found) != 2 || found[0].Code != format.MissingVolume || !slices.Equal(sum.Parity.Lost, names[3:4]) {
		t.Errorf("%+v %v", sum, found)
	}
	out := &storetest.Mem{}
	plan := repairBy(t, st, names[3])
	if err := plan.ApplyStore(t.Context(), out, "y"); err != nil || !bytes.Equal(out.Get("y"), sound.Get(names[3])) || len(objectsIn(t, out)) != 1 {
		t.Error(err, objectsIn(t, out))
	}
	inPlace(t, plan, st, names[3])
	if !bytes.Equal(st.Get(names[3]), sound.Get(names[3])) || bytes.Equal(st.Get(names[7]), sound.Get(names[7])) {
		t.Error("one file, and no other, was to be healed")
	}
	inPlace(t, repairBy(t, st, names[7]), st, names[7])
	if !bytes.Equal(st.Get(names[7]), sound.Get(names[7])) {
		t.Error("the second was to be healed")
	}
	if _, err := holdall.Verify(t.Context(), "x-77.tar", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(holdall.Problem) {}); err == nil {
		t.Error("what never was is no part of a set")
	}
}

// Parity of another version is not used, which is no fault of the archive; one that is damaged
// is.
func TestParityThatDoesNotSuit(t *testing.T) {
	rnd := testkit.Rand(t)
	st := withParity(t, rnd, "tar", nil)
	b := bytes.Clone(st.Get("x" + parity.Suffix))
	b[len(b)/2]++
	st.Put("x"+parity.Suffix, b)
	if sum, found, _ := verified(t, st, "x", holdall.VerifyOptions{}); len(found) != 1 || sum.Warnings != 1 || sum.Parity.ParityBroken != 1 || sum.Unproven > 0 {
		t.Errorf("a damaged record: %v %+v", found, sum.Parity)
	}
	other := packedAs(t, "tar", nil, map[string]string{"a": string(testkit.Noise(rnd, 300<<10))}).Get("x")
	st.Put("x", other)
	if sum, found, notes := verified(t, st, "x", holdall.VerifyOptions{}); len(found) > 0 || len(notes) != 1 || sum.Parity.NotUsed == "" || sum.Unproven != 1 {
		t.Errorf("another archive: %v %v %+v", found, notes, sum.Parity)
	}
	if plan := repairBy(t, st, "x"); plan.Changes() || plan.Parity.NotUsed == "" {
		t.Errorf("another archive: %+v %+v", plan.Plan, plan.Parity)
	}
	st.Put("x"+parity.Suffix, []byte("no parity"))
	if _, found, _ := verified(t, st, "x", holdall.VerifyOptions{}); len(found) != 1 || found[0].Severity != format.Warning {
		t.Errorf("no parity file: %v", found)
	}
	if plan := repairBy(t, st, "x"); plan.Changes() || plan.Parity.NotUsed == "" {
		t.Errorf("no parity file: %+v", plan.Plan)
	}
}

// Bytes were inserted into an archive, or its parts were exchanged: it is read as it was, and repair
// gives back every byte. In place, what was there is kept, because it may have bytes that are no
// part of what is restored. An archive that is sound as it is stays.
func TestMovedBytesComeBack(t *testing.T) {
	for _, k := range protectedFormats {
		t.Run(k.format, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			sound := withParity(t, rnd, k.format, k.param)
			names := slices.DeleteFunc(objectsIn(t, sound), func(name string) bool { return name == "x"+parity.Suffix })
			biggest := slices.MaxFunc(names, func(a, b string) int { return len(sound.Get(a)) - len(sound.Get(b)) })
			for i := range testkit.Rounds(t, len(testkit.Moves)) {
				st := sound.Clone()
				what := testkit.Moves[i%len(testkit.Moves)]
				b := testkit.Move(rnd, st.Get(biggest), what)
				if bytes.Equal(b, st.Get(biggest)) {
					continue
				}
				st.Put(biggest, b)
				sum, _, _ := verified(t, st, "x", holdall.VerifyOptions{})
				alone, err := holdall.Verify(t.Context(), "x", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Parity: parity.None}}, func(holdall.Problem) {})
				if p := sum.Parity; p.NotUsed != "" {
					if err != nil || alone.Errors+alone.Warnings > 0 {
						t.Errorf("%s: the archive is damaged, and its parity is not used: %s", what, p.NotUsed)
					}
					continue
				}
				out := &storetest.Mem{}
				plan := repairBy(t, st, "x")
				if !plan.Changes() || plan.Partial {
					t.Fatalf("%s: %+v %+v", what, plan, plan.Parity)
				}
				if err := plan.ApplyStore(t.Context(), out, "y"); err != nil {
					t.Fatal(what, err)
				}
				asIn(t, what, out, sound, "y", "x")
				inPlace(t, plan, st, "x")
				asIn(t, what, st, sound, "x", "x")
				if kept := st.Get("x.bak" + strings.TrimPrefix(biggest, "x")); len(b) > len(sound.Get(biggest)) && !bytes.Equal(kept, b) {
					t.Errorf("%s: what was there is not kept: %q", what, objectsIn(t, st))
				}
			}
		})
	}
}
