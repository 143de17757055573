package oak

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// cleanups are the ways to clean up.
var cleanups = []CleanupOptions{{}, {Tail: true}, {Retain: 2}, {Retain: 2, Tail: true}}

// cleanedUp cleans up a copy of a store in each way. Nothing that can be reached goes, or the cleanup
// is refused and changes nothing. It returns how often it was refused.
func cleanedUp(t *testing.T, what string, st *storetest.Mem) (refusals int) {
	t.Helper()
	tree := superTree(t, st)
	for _, o := range cleanups {
		to := st.Clone()
		err := onStore(t.Context(), to, func(s *Store) error {
			c, err := s.PlanCleanup(t.Context(), o)
			if err == nil {
				err = c.Apply(t.Context())
			}
			return err
		})
		switch {
		case err == nil:
			if superTree(t, to) != tree {
				t.Errorf("%s: cleanup %+v: another tree", what, o)
			}
			mustBeWhole(t, to)
		case !refused(err):
			t.Errorf("%s: cleanup %+v: %v", what, o, err)
		default:
			refusals++
			if !maps.EqualFunc(objects(t, st), objects(t, to), bytes.Equal) {
				t.Errorf("%s: cleanup %+v: refused, and something changed: %v", what, o, err)
			}
		}
	}
	return refusals
}

func tarsOf(t *testing.T, st *storetest.Mem) []string {
	t.Helper()
	return slices.Sorted(func(yield func(string) bool) {
		for name := range objects(t, st) {
			if strings.HasPrefix(name, "s/data") && strings.HasSuffix(name, ".tar") && !yield(name) {
				return
			}
		}
	})
}

// shuffled returns a store with its tars in another order.
func shuffled(t *testing.T, rnd *rand.Rand, st *storetest.Mem) *storetest.Mem {
	t.Helper()
	to := st.Clone()
	names := tarsOf(t, st)
	for _, name := range names {
		must(t, to.Remove(t.Context(), name))
	}
	for i, k := range rnd.Perm(len(names)) {
		to.Put("s/"+tarfile.Name(i, 'a'), st.Get(names[k]))
	}
	return to
}

// HOLDALL_LONG is how many orders are tried.
func TestACleanupKeepsWhatIsInUseInAnyOrderOfTars(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"gc-online", "cleanup-pending", "compacted-offline", "multitar", "datastore-gc", "v12-upgraded"} {
		rnd := testkit.Rand(t)
		st := fixture(t, name)
		if n := cleanedUp(t, name, st); n > 0 {
			t.Errorf("%s: refused %d times as it is", name, n)
		}
		for range testkit.Rounds(t, 3) {
			other := shuffled(t, rnd, st)
			if n := cleanedUp(t, name+" in another order", other); n > 0 {
				t.Errorf("%s in another order: refused %d times", name, n)
			}
		}
	}
	st := fixture(t, "gc-online")
	st.Put("s/data00009a.tar", st.Get("s/data00002a.tar"))
	must(t, st.Remove(t.Context(), "s/data00002a.tar"))
	err := onStore(t.Context(), st, func(s *Store) error {
		c, err := s.PlanCleanup(t.Context(), CleanupOptions{})
		if err == nil && (len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0], "kept 6 segments in use")) {
			t.Errorf("%q", c.Notes)
		}
		return err
	})
	must(t, err)
}

// Records that a cleanup goes by may be old, lost or wrong.
func TestACleanupBelievesNoRecordThatWouldLoseSomething(t *testing.T) {
	testkit.Serial(t)
	lines := func(st *storetest.Mem, name string) []string {
		return strings.SplitAfter(strings.TrimSuffix(string(st.Get(name)), "\n"), "\n")
	}
	for name, c := range map[string]struct {
		fixture string
		harm    func(st *storetest.Mem)
	}{
		"a graph without references": {"cleanup-pending", func(st *storetest.Mem) {
			err := onStore(t.Context(), st, func(s *Store) error {
				for _, tar := range s.r.tars {
					var b bytes.Buffer
					w := tarfile.NewWriter(&b, tar.Name, nil)
					for _, i := range tar.ByPosition() {
						e := tar.At(int(i))
						data, err := tar.read(t.Context(), e, nil, healing)
						if err == nil {
							err = w.Add(e.ID, e.Plain().Generation, data, nil, nil)
						}
						if err != nil {
							return err
						}
					}
					if err := w.Close(); err != nil {
						return err
					}
					st.Put(tar.path, b.Bytes())
				}
				return nil
			})
			must(t, err)
		}},
		"a journal without its last digits": {"gc-online", func(st *storetest.Mem) {
			b := st.Get("s/journal.log")
			st.Put("s/journal.log", bytes.Clone(b[:len(b)-4]))
		}},
		"a journal without its last end": {"gc-online", func(st *storetest.Mem) {
			b := st.Get("s/journal.log")
			st.Put("s/journal.log", bytes.Clone(b[:len(b)-1]))
		}},
		"a journal of before the last compaction": {"gc-online", func(st *storetest.Mem) {
			st.Put("s/journal.log", []byte(strings.Join(lines(st, "s/journal.log")[:10], "")))
		}},
		"a journal of before a compaction that nothing follows": {"gc-online", func(st *storetest.Mem) {
			st.Put("s/journal.log", []byte(strings.Join(lines(st, "s/journal.log")[:10], "")))
			must(t, st.Remove(t.Context(), "s/data00007a.tar"))
		}},
		"a tar that is away": {"multitar", func(st *storetest.Mem) { must(t, st.Remove(t.Context(), "s/data00001a.tar")) }},
	} {
		t.Run(name, func(t *testing.T) {
			st := fixture(t, c.fixture)
			tree := superTree(t, st)
			c.harm(st)
			for _, o := range cleanups {
				to := st.Clone()
				changes := false
				err := onStore(t.Context(), to, func(s *Store) error {
					x, err := s.PlanCleanup(t.Context(), o)
					if err == nil && x.Changes() {
						changes = true
						err = x.Apply(t.Context())
					}
					return err
				})
				switch {
				case err != nil && !refused(err):
					t.Errorf("%+v: %v", o, err)
				case changes && superTree(t, to) != tree:
					t.Errorf("%+v: another tree", o)
				}
			}
		})
	}
}

// Whatever the order of the tars, and whatever gc.log has, a fix leaves nothing that a cleanup would
// delete, and the same tree.
func TestFixGCMakesAStoreSafe(t *testing.T) {
	testkit.Serial(t)
	fixed := map[string]int{}
	for _, name := range []string{"gc-online", "cleanup-pending", "compacted-offline", "multitar", "datastore-gc", "v12-upgraded"} {
		rnd := testkit.Rand(t)
		for round := range testkit.Rounds(t, 4) {
			st, harm := fixture(t, name), 1+round
			if round > 1 {
				harm = rnd.IntN(4)
				st = shuffled(t, rnd, st)
			}
			switch log := st.Get("s/gc.log"); harm {
			case 0:
				st.Remove(t.Context(), "s/gc.log") // not all have one
			case 1:
				st.Put("s/gc.log", bytes.Join(bytes.SplitAfter(log, []byte("\n"))[:bytes.Count(log, []byte("\n"))/2], nil))
			case 2:
				st.Put("s/gc.log", append(bytes.Clone(log), fmt.Sprintf("1,2,3,9,9,0,%08x-0000-4000-a000-000000000000:7\n", rnd.Uint32())...))
			}
			tree := superTree(t, st)
			var x *FixGC
			fix := func(dryRun bool) error {
				return onStore(t.Context(), st, func(s *Store) (err error) {
					x, err = s.FixGC(t.Context(), dryRun)
					return err
				})
			}
			before := st.Clone()
			if err := fix(true); err != nil {
				if !refused(err) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if !maps.EqualFunc(objects(t, st), objects(t, before), bytes.Equal) {
				t.Fatal("a dry run changed something")
			}
			found := x.Findings
			must(t, fix(false))
			if len(found) == 0 {
				if len(x.Findings) > 0 || !maps.EqualFunc(objects(t, st), objects(t, before), bytes.Equal) {
					t.Errorf("%s: nothing was found, and something changed: %+v", name, x)
				}
				continue
			}
			for _, p := range found {
				fixed[p.Class]++
			}
			must(t, fix(true))
			if len(x.Findings) > 0 || superTree(t, st) != tree {
				t.Errorf("%s: %+v: fixed, it has %+v", name, found, x.Findings)
			}
			mustBeSound(t, st)
			cleanedUp(t, name+", fixed", st)
		}
	}
	t.Log(fixed)
	for _, class := range []string{"order", "gc-log-stale", "gc-log-root"} {
		if fixed[class] == 0 {
			t.Errorf("no store had %s", class)
		}
	}
}

// What is restored stays through any later cleanup, whatever was lost, and from wherever an interrupted
// restore goes on. verify knows the rules of Oak's cleanup; the tests with Oak clean up with it.
func TestWhatIsRestoredStays(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"gc-online", "multitar", "compacted-offline"} {
		sound := fixture(t, name)
		tree := superTree(t, sound)
		backup := &storetest.Mem{}
		if _, err := backUp(t.Context(), sound, backup, BackupOptions{}); err != nil {
			t.Fatal(err)
		}
		restore := BackupOptions{Restore: true, Check: true}
		check := func(what string, st *storetest.Mem) {
			t.Helper()
			if superTree(t, st) != tree {
				t.Errorf("%s: another tree", what)
			}
			mustBeSound(t, st)
			if n := cleanedUp(t, what, st); n > 0 {
				t.Errorf("%s: %d cleanups are refused", what, n)
			}
		}
		tars := tarsOf(t, sound)
		half := tars[len(tars)/2]
		others := slices.DeleteFunc(slices.Clone(tars), func(tar string) bool { return tar == half })
		for _, tar := range append(testkit.Some(t, 2, others...), half) {
			what := name + " without " + tar
			lost := sound.Clone()
			must(t, lost.Remove(t.Context(), tar))
			st := lost.Clone()
			if _, err := backUp(t.Context(), backup, st, restore); err != nil {
				t.Fatal(what, err)
			}
			check(what, st)
			if again, err := backUp(t.Context(), backup, st, restore); err != nil || again.Segments > 0 || len(again.Aside) > 0 {
				t.Errorf("%s: again: %+v, %v", what, again, err)
			}
			if tar != half {
				continue
			}
			for steps := range testkit.Steps(t, 5) {
				st := lost.Clone()
				crash := storetest.NewCrash(st, steps)
				backUp(t.Context(), backup, crash, restore)
				_, err := backUp(t.Context(), backup, st, restore)
				if err != nil {
					t.Fatal(what, steps, err)
				}
				check(fmt.Sprint(what, ", ended after step ", steps), st)
				if !crash.Lost() {
					break
				}
			}
		}
		// As earlier versions restored: what was lost comes last.
		st := sound.Clone()
		st.Put("s/data00099a.tar", st.Get(half))
		must(t, st.Remove(t.Context(), half))
		if _, err := backUp(t.Context(), backup, st, restore); err != nil {
			t.Fatal(name, err)
		}
		check(name+" with a tar that comes too late", st)
	}
}

// A backup whose segments are in a wrong order would be a trap.
func TestABackupInAWrongOrderIsNotRestored(t *testing.T) {
	st := fixture(t, "gc-online")
	st.Put("s/data00009a.tar", st.Get("s/data00002a.tar"))
	must(t, st.Remove(t.Context(), "s/data00002a.tar"))
	backup, to := &storetest.Mem{}, &storetest.Mem{}
	if _, err := backUp(t.Context(), st, backup, BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := backUp(t.Context(), backup, to, BackupOptions{Restore: true, Check: true})
	if !refused(err) || !strings.Contains(err.Error(), "'holdall oak compact'") || len(tarsOf(t, to)) > 0 {
		t.Errorf("%v, %q", err, tarsOf(t, to))
	}
}

// A backup that gets damaged segments again stays in the order of its store.
func TestABackupStaysInOrder(t *testing.T) {
	testkit.Serial(t)
	st, to := fixture(t, "gc-online"), &storetest.Mem{}
	if _, err := backUp(t.Context(), st, to, BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	err := onStore(t.Context(), st, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "new", []string{"1"}, SetOptions{})
		return err
	})
	must(t, err)
	if said, err := backUp(t.Context(), st, to, BackupOptions{}); err != nil || len(said.Aside) > 0 {
		t.Fatalf("%+v, %v", said, err)
	}
	spoilBulk(t, to)
	if said, err := backUp(t.Context(), st, to, BackupOptions{Check: true}); err != nil || said.Segments == 0 {
		t.Fatalf("%+v, %v", said, err)
	}
	mustBeSound(t, to)
	if superTree(t, to) != superTree(t, st) || cleanedUp(t, "the backup", to) > 0 {
		t.Error("the backup is another store")
	}
}

// A fix writes a revision that counts as the newest. It must not hide one that the journal has lost.
func TestFixGCRefusesAnOldJournal(t *testing.T) {
	st := fixture(t, "gc-online")
	st.Put("s/data00009a.tar", st.Get("s/data00002a.tar"))
	must(t, st.Remove(t.Context(), "s/data00002a.tar"))
	lines := bytes.SplitAfter(st.Get("s/journal.log"), []byte("\n"))
	st.Put("s/journal.log", bytes.Join(lines[:len(lines)-2], nil))
	before := objects(t, st)
	err := onStore(t.Context(), st, func(s *Store) error {
		_, err := s.FixGC(t.Context(), false)
		return err
	})
	if !refused(err) || !strings.Contains(err.Error(), "recover-journal") || !maps.EqualFunc(before, objects(t, st), bytes.Equal) {
		t.Errorf("%v", err)
	}
}
