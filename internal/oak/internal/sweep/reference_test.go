//go:build unix

package sweep

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
)

// These tests run Oak itself, if HOLDALL_OAK_CHECK names the program that interop/install oak
// makes.

func TestMain(m *testing.M) { testkit.SerialPackage(m, oaktest.End) }

func fixture(t *testing.T, name string) oaktest.Place { return oaktest.In(unpack(t, name)) }

// tarsOf is what an answer tells of tars, as describe has it.
func tarsOf(t testing.TB, a oaktest.Answer) map[string]dump {
	t.Helper()
	var said struct{ Tars map[string]dump }
	a.Into(t, &said)
	return said.Tars
}

// saidOf is Oak's word on the tars of a folder.
func saidOf(t *testing.T, dir string) map[string]dump {
	t.Helper()
	a := oaktest.Run(t, append([]string{"tar", "--no-segments"}, oaktest.Place{Store: dir}.Tars(t)...)...)
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	tars := map[string]dump{}
	for file, d := range tarsOf(t, a) {
		tars[filepath.Base(file)] = d
	}
	return tars
}

// wantSame checks that our cleanup leaves what Oak's cleanup leaves, as Oak describes it. It does
// not change p.
func wantSame(t *testing.T, p oaktest.Place, retain int) (s swept, ours string) {
	t.Helper()
	oak := oaktest.Well(t, p.With("cleanup", p.Store, strconv.Itoa(retain), "--no-segments", "--no-ids")...)
	ours = copyDir(t, p.Store)
	s = cleanup(t, ours, Options{Retain: retain})
	got := saidOf(t, ours)
	compare(t, got, tarsOf(t, oak))
	compare(t, describe(t, openDir(t, ours)), got)
	return s, ours
}

// otherwise has fixtures for which Oak does something else.
var otherwise = map[string]string{
	"corrupt-idx":       "Oak recovers a tar first",
	"truncated-old-tar": "Oak recovers a tar first",
	"unclean-open":      "Oak recovers a tar first",
	"unclean-truncated": "Oak recovers a tar first",
	"corrupt-gph":       "Oak fails",
	"corrupt-brf":       "Oak leaves it damaged",
}

func TestOakCleansUpToTheSame(t *testing.T) {
	did := map[Action]int{}
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		if otherwise[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := fixture(t, name)
			for _, retain := range []int{1, 2} {
				s, _ := wantSame(t, p, retain)
				for _, x := range s.plan.Tars {
					did[x.Action]++
				}
			}
		})
	}
	t.Log(did)
}

// HOLDALL_LONG is how many stores there are.
func TestOakCleansUpRandomStoresToTheSame(t *testing.T) {
	did := map[Action]int{}
	rnd := testkit.Rand(t)
	swept := func() int { return did[KeepGarbage] + did[Rewrite] + did[Drop] }
	for n := 0; n < testkit.Rounds(t, 3) || swept() == 0 && n < 30; n++ { // many stores have no garbage
		seed := rnd.Int64()
		p := oaktest.Random(t, seed, false)
		for _, retain := range []int{1, 2} {
			s, ours := wantSame(t, p, retain)
			for _, x := range s.plan.Tars {
				did[x.Action]++
			}
			oaktest.Place{Store: ours}.Verify(t)
			if retain == 1 { // which leaves less; it takes long
				oaktest.Well(t, "check", ours)
				oaktest.Well(t, p.With("survive", ours)...)
			}
			if t.Failed() {
				t.Fatal("seed", seed, "retain", retain)
			}
		}
	}
	t.Log(did)
	if did[Keep] == 0 || swept() == 0 {
		t.Error("hardly anything was tried")
	}
}

// With older lines of the journal as the newest, there are segments after the head, including
// compacted ones.
func TestOakCleansUpToTheSameAfterALossOfRevisions(t *testing.T) {
	did, blobs := map[Action]int{}, 0
	for _, name := range []string{"checkpoints", "cleanup-pending", "compacted-offline", "datastore-gc", "gc-online", "multitar", "v12-upgraded", "v12", "two-letters"} {
		p := fixture(t, name)
		journal := filepath.Join(p.Store, "journal.log")
		b, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.SplitAfter(string(b), "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
		for n := 1; n < len(lines); n += max(1, len(lines)/4) {
			writeFile(t, journal, []byte(strings.Join(lines[:n], "")))
			tars := openDir(t, p.Store)
			if !slices.ContainsFunc(lines[:n], func(line string) bool { return there(tars, line) }) {
				continue
			}
			for _, retain := range []int{1, 2} {
				s, ours := wantSame(t, p, retain)
				for _, x := range s.plan.Tars {
					did[x.Action]++
				}
				for _, d := range describe(t, openDir(t, ours)) {
					blobs += len(d.Brf)
				}
				if t.Failed() {
					t.Fatalf("%s, %d lines, retain %d", name, n, retain)
				}
			}
		}
	}
	t.Log(did, blobs)
	if did[Rewrite] == 0 || did[Drop] == 0 || did[KeepGarbage] == 0 || blobs == 0 {
		t.Error("not all was tried")
	}
}

func there(tars []Tar, line string) bool {
	revision, _, _ := strings.Cut(line, " ")
	id, err := segment.ParseRecordID(revision)
	return err == nil && slices.ContainsFunc(tars, func(x Tar) bool {
		_, ok := x.Index().Find(id.Segment)
		return ok
	})
}

func TestOakTakesTarsThatAreMadeAnew(t *testing.T) {
	names := slices.DeleteFunc(harmless(t), func(name string) bool {
		return otherwise[name] != "" || name == "corrupt-value" || name == "bad-journal"
	})
	for _, name := range testkit.Some(t, 5, names...) {
		p := fixture(t, name)
		harmAll(t, p.Store, crcField)
		cleanup(t, p.Store, Options{})
		p.Verify(t)
		oaktest.Well(t, "check", p.Store)
		oaktest.Well(t, p.With("survive", p.Store)...)
	}
}

func TestOakTakesWhatWasRepaired(t *testing.T) {
	for _, name := range []string{"corrupt-gph", "corrupt-brf"} {
		for _, retain := range []int{1, 2} {
			p := fixture(t, name)
			s := cleanup(t, p.Store, Options{Retain: retain})
			rewritten := slices.ContainsFunc(s.plan.Tars, func(x TarPlan) bool { return x.Action == Rewrite && (x.GraphDamage != nil || x.BinariesDamage != nil) })
			if !rewritten || len(s.problems) > 0 {
				t.Errorf("%s: repaired %t, %v", name, rewritten, s.problems)
			}
			p.Verify(t)
			oaktest.Well(t, "check", p.Store)
			oaktest.Well(t, p.With("survive", p.Store)...)
		}
	}
}
