package oak

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// backUp copies s of st into s of to.
func backUp(ctx context.Context, st, to store.Store, o BackupOptions) (said BackedUp, err error) {
	err = onStore(ctx, st, func(s *Store) error {
		said, err = s.Backup(ctx, to, "s", o)
		return err
	})
	return said, err
}

func TestABackupHasWhatTheStoreHas(t *testing.T) {
	testkit.Serial(t)
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			st, to, back := fixture(t, name), &storetest.Mem{}, &storetest.Mem{}
			first, err := backUp(t.Context(), st, to, BackupOptions{})
			if err != nil {
				if refused(err) && first.Segments == 0 {
					return // it reports what is wrong with the store
				}
				t.Fatal(err)
			}
			want := superTree(t, st)
			if superTree(t, to) != want {
				t.Error("another tree")
			}
			mustBeSound(t, to)
			again, err := backUp(t.Context(), st, to, BackupOptions{Check: true})
			if err != nil || again.Segments != 0 || again.Known != first.Segments {
				t.Errorf("%+v, then %+v, %v", first, again, err)
			}
			if _, err := backUp(t.Context(), to, back, BackupOptions{Restore: true, Check: true}); err != nil || superTree(t, back) != want {
				t.Errorf("restored: %v", err)
			}
			mustBeSound(t, back)
		})
	}
}

// A compaction writes its line into gc.log after it has cleaned up. A backup or copy that is made
// before that has the line too. Without it Oak would treat what was compacted as leftovers.
func TestWhatIsCopiedHasTheLineOfTheLastCompaction(t *testing.T) {
	testkit.Serial(t)
	for name, copied := range map[string]func(st, to store.Store) error{
		"backup": func(st, to store.Store) error {
			_, err := backUp(t.Context(), st, to, BackupOptions{})
			return err
		},
		"copy": func(st, to store.Store) error {
			return onStore(t.Context(), st, func(s *Store) error {
				_, err := s.Copy(t.Context(), to, "s", CopyOptions{})
				return err
			})
		},
	} {
		st := fixture(t, "gc-online")
		lines := strings.SplitAfter(string(st.Get("s/gc.log")), "\n")
		for n := range 3 { // lines that are left, of three
			st.Put("s/gc.log", []byte(strings.Join(lines[:n], "")))
			for range 2 {
				to := &storetest.Mem{}
				if err := copied(st, to); err != nil {
					t.Fatal(err)
				}
				mustBeSound(t, to)
				log := string(to.Get("s/gc.log"))
				if got, ok := strings.CutPrefix(log, strings.Join(lines[:n], "")); !ok || strings.Count(got, "\n") != 1 {
					t.Errorf("%s of %d lines: %q", name, n, log)
				}
			}
		}
	}
}

// New segments are copied, and segments that a cleanup removed are removed.
func TestABackupFollowsItsStore(t *testing.T) {
	st, to := fixture(t, "cleanup-pending"), &storetest.Mem{}
	first, err := backUp(t.Context(), st, to, BackupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = onStore(t.Context(), st, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "new", []string{"1"}, SetOptions{})
		return err
	})
	second, err2 := backUp(t.Context(), st, to, BackupOptions{})
	if err = errors.Join(err, err2); err != nil || second.Segments != 1 || second.Known != first.Segments || second.Freed != 0 {
		t.Fatalf("%+v, %v", second, err)
	}
	// A backup keeps a generation more than an offline cleanup: nothing comes back by the next copy.
	err = onStore(t.Context(), st, func(s *Store) error {
		c, err := s.PlanCleanup(t.Context(), CleanupOptions{})
		if err == nil {
			err = c.Apply(t.Context())
		}
		return err
	})
	for range 2 {
		third, err2 := backUp(t.Context(), st, to, BackupOptions{})
		if err = errors.Join(err, err2); err != nil || third.Segments != 0 {
			t.Fatalf("%+v, %v", third, err)
		}
	}
	mustBeSound(t, to)
	if superTree(t, to) != superTree(t, st) {
		t.Error("another tree")
	}
}

// Wherever a copy is cut off, the other store has the old head or the new one, and the
// next copy continues.
func TestABackupThatIsCutOffGoesOn(t *testing.T) {
	testkit.Serial(t)
	st := fixture(t, "gc-online")
	one := &storetest.Mem{}
	if _, err := backUp(t.Context(), st, one, BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	was := superTree(t, st)
	err := onStore(t.Context(), st, func(s *Store) error {
		_, err := s.Remove(t.Context(), "/content", RemoveOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	now := superTree(t, st)
	older := one.Clone()
	err = onStore(t.Context(), older, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "x", []string{"y"}, SetOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mine := superTree(t, older)
	damagedOne := older.Clone()
	spoilRecords(t, damagedOne, 3)
	for name, c := range map[string]struct {
		before *storetest.Mem
		o      BackupOptions
		was    string
	}{
		"new":     {&storetest.Mem{}, BackupOptions{}, ""},
		"old":     {one, BackupOptions{}, was},
		"restore": {older, BackupOptions{Restore: true, Check: true}, mine},
		"damaged": {damagedOne, BackupOptions{Restore: true, Check: true}, superTree(t, damagedOne)},
	} {
		t.Run(name, func(t *testing.T) {
			for steps := range testkit.Steps(t, 4) {
				to := c.before.Clone()
				crash := storetest.NewCrash(to, steps)
				_, err := backUp(t.Context(), st, crash, c.o)
				if crash.Lost() == (err == nil) {
					t.Fatal(steps, err)
				}
				if _, there := objects(t, to)["s/journal.log"]; there {
					got := superTree(t, to)
					// What was damaged may be repaired before it is replaced.
					if got != c.was && got != now && got != mine {
						t.Errorf("step %d: neither what was nor what was to be", steps)
					}
				} else if c.was != "" {
					t.Errorf("step %d: no journal", steps)
				}
				if _, err := backUp(t.Context(), st, to, c.o); err != nil || superTree(t, to) != now {
					t.Errorf("step %d: again: %v", steps, err)
				}
				if !crash.Lost() {
					mustBeSound(t, to)
					break
				}
			}
		})
	}
}

// A restore repairs a store in which anything is damaged or lost.
func TestARestoreRepairsAStore(t *testing.T) {
	testkit.Serial(t)
	st := fixture(t, "multitar")
	want := superTree(t, st)
	for name, spoil := range map[string]func(*storetest.Mem){
		"segments": func(to *storetest.Mem) { spoilRecords(t, to, 2) },
		"bulk":     func(to *storetest.Mem) { spoilBulk(t, to) },
		"no index": func(to *storetest.Mem) {
			b := to.Get("s/data00001a.tar")
			to.Put("s/data00001a.tar", b[:len(b)/2])
		},
		"empty":      func(to *storetest.Mem) { to.Put("s/data00001a.tar", nil) },
		"no tar":     func(to *storetest.Mem) { must(t, to.Remove(t.Context(), "s/data00000a.tar")) },
		"no journal": func(to *storetest.Mem) { must(t, to.Remove(t.Context(), "s/journal.log")) },
		"a journal that leads nowhere": func(to *storetest.Mem) {
			to.Put("s/journal.log", []byte("486aa03b-5c65-4d55-ad28-72210ab8c5e7:5 root 1795220663942\n"))
		},
		"letters that no longer count": func(to *storetest.Mem) {
			b := to.Get("s/data00001a.tar")
			to.Put("s/data00001b.tar", b[:len(b)/2])
			to.Put("s/data00001a.tar", b[:len(b)/3])
		},
		"no manifest": func(to *storetest.Mem) { must(t, to.Remove(t.Context(), "s/manifest")) },
	} {
		t.Run(name, func(t *testing.T) {
			to := st.Clone()
			spoil(to)
			before := objects(t, to)
			said, err := backUp(t.Context(), st, to, BackupOptions{Restore: true, Check: true})
			if err != nil || superTree(t, to) != want {
				t.Fatalf("%+v, %v", said, err)
			}
			mustBeSound(t, to)
			mustBeWhole(t, to)
			after := objects(t, to)
			for name, b := range before {
				kept := false
				for _, other := range after {
					kept = kept || bytes.Equal(b, other)
				}
				if !kept {
					t.Errorf("%s is gone", name)
				}
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestABackupIsNotWrittenOverSomethingElse(t *testing.T) {
	foreign := &storetest.Mem{}
	foreign.Put("s/letter.txt", []byte("dear"))
	damagedSource := fixture(t, "multitar")
	spoilRecords(t, damagedSource, 3)
	for name, c := range map[string]struct {
		from, to *storetest.Mem
		part     string
	}{
		"another store": {fixture(t, "types"), fixture(t, "wide"), "no segment in common"},
		"other files":   {fixture(t, "types"), foreign, "do not belong"},
		"damage":        {damagedSource, &storetest.Mem{}, "checksum"},
	} {
		before := objects(t, c.to)
		_, err := backUp(t.Context(), c.from, c.to, BackupOptions{})
		if err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", name, err)
		}
		after := objects(t, c.to)
		delete(after, "s/manifest")
		delete(before, "s/manifest")
		if name != "damage" && !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("%s: something changed", name)
		}
	}
}
