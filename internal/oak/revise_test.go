package oak

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// superTree is all of the newest revision, checkpoints included, as an export.
func superTree(t testing.TB, st store.Store) string {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tree, err := s.Tree(t.Context(), map[string]string{superParam: "true"})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := tree.Export(t.Context(), &b, "/", ExportOptions{Depth: -1}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// onStore is some work with the store s.
func onStore(ctx context.Context, st store.Store, do func(*Store) error) error {
	s, err := OpenStore(ctx, st, "s", format.OpenOptions{})
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// mustBeWhole checks that the newest revision has lost nothing.
func mustBeWhole(t testing.TB, st store.Store) {
	t.Helper()
	err := onStore(t.Context(), st, func(s *Store) error {
		r, err := s.Check(t.Context(), CheckOptions{Binaries: true})
		if !r.Whole {
			t.Errorf("%+v", r.Losses)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func repoEntryOfHead(ctx context.Context, s *Store) repo.Entry {
	h, _ := s.r.head(ctx)
	return h.Entry
}

// revisions are verbs that write a new revision, on a fixture.
var revisions = map[string]struct {
	fixture string
	work    func(ctx context.Context, s *Store) error
}{
	"checkpoints rm": {"checkpoints", func(ctx context.Context, s *Store) error {
		_, err := s.RemoveCheckpoints(ctx, CheckpointChoice{Unreferenced: true}, time.Now(), false)
		return err
	}},
	"checkpoints rm --all": {"checkpoints", func(ctx context.Context, s *Store) error {
		_, err := s.RemoveCheckpoints(ctx, CheckpointChoice{All: true}, time.Now(), false)
		return err
	}},
	"set": {"checkpoints", func(ctx context.Context, s *Store) error {
		_, err := s.Set(ctx, "/", "title", []string{"one", "two"}, SetOptions{})
		return err
	}},
	"rm": {"gc-online", func(ctx context.Context, s *Store) error {
		_, err := s.Remove(ctx, "/content", RemoveOptions{})
		return err
	}},
	"rm --property": {"types", func(ctx context.Context, s *Store) error {
		_, err := s.Remove(ctx, "/types/children64/child6", RemoveOptions{Property: "i"})
		return err
	}},
	"rm --lost": {"corrupt-segment-magic", func(ctx context.Context, s *Store) error {
		_, err := s.Remove(ctx, "/", RemoveOptions{Lost: true})
		return err
	}},
	"replace": {"cleanup-pending", func(ctx context.Context, s *Store) error {
		return replaceFrom(ctx, s, "/", oldest)
	}},
	"check --fix": {"corrupt-value", func(ctx context.Context, s *Store) error {
		f, err := s.PlanFix(ctx, false)
		if err == nil {
			err = f.Apply(ctx)
		}
		return err
	}},
}

// oldest stands for the oldest existing revision.
const oldest = "oldest"

func replaceFrom(ctx context.Context, s *Store, path, revision string) error {
	if revision == oldest {
		all, err := s.revisionsBefore(ctx, repoEntryOfHead(ctx, s), -2)
		if err != nil {
			return err
		}
		revision = all[0].Revision.String()
	}
	from, err := s.TreeNamed(ctx, revision)
	if err == nil {
		_, err = s.Replace(ctx, path, Donor{Tree: from}, ReplaceOptions{})
	}
	return err
}

// again does some work that was interrupted. If that has left a revision that the journal lacks, it is
// refused, and recover-journal completes it.
func again(ctx context.Context, work func(context.Context, *Store) error) func(*Store) error {
	return func(s *Store) error {
		err := work(ctx, s)
		if err == nil || !strings.Contains(err.Error(), "was written later than that of the journal") {
			return err
		}
		j, err := s.PlanJournal(ctx)
		if err == nil {
			_, err = j.Apply(ctx)
		}
		return err
	}
}

// After a power failure at any point, the store is in the old or the new state, and repeating the
// operation completes it, or recover-journal.
func TestARevisionThatIsCutOffIsThereOrNot(t *testing.T) {
	testkit.Serial(t)
	for name, verb := range revisions {
		t.Run(name, func(t *testing.T) {
			before := fixture(t, verb.fixture)
			if name == "rm --lost" { // it removes what a read does not heal
				before = damagedFurther(t, verb.fixture)
			}
			old := superTree(t, before)
			after := before.Clone()
			j := storetest.NewJournal(after)
			if err := onStore(t.Context(), j, func(s *Store) error { return verb.work(t.Context(), s) }); err != nil {
				t.Fatal(err)
			}
			now := superTree(t, after)
			if now == old {
				t.Fatal("nothing has changed")
			}
			if !slices.Contains(damagedFixtures, verb.fixture) {
				mustBeSound(t, after)
			}
			mustBeWhole(t, after)
			judge := func(left *storetest.Mem, label string) {
				t.Helper()
				got := superTree(t, left)
				if got != old && got != now {
					t.Errorf("%s: neither what was nor what was to be", label)
				}
				if got != old {
					return
				}
				if err := onStore(t.Context(), left, again(t.Context(), verb.work)); err != nil {
					t.Errorf("%s: again: %v", label, err)
				} else if superTree(t, left) != now {
					t.Errorf("%s: again: it is another", label)
				}
			}
			for label, content := range j.States(5) {
				left := after.Clone()
				left.Put("s/journal.log", content)
				judge(left, label)
			}
			for steps := range testkit.Steps(t, 3) {
				left := before.Clone()
				c := storetest.NewCrash(left, steps)
				_ = onStore(t.Context(), c, func(s *Store) error { return verb.work(t.Context(), s) })
				judge(left, "steps")
				if !c.Lost() {
					break
				}
			}
		})
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	st := fixture(t, "checkpoints")
	before := objects(t, st)
	err := onStore(t.Context(), st, func(s *Store) error {
		r, err := s.RemoveCheckpoints(t.Context(), CheckpointChoice{All: true}, time.Now(), true)
		if len(r.Removed) != 3 || r.Revision != "" || r.Bytes == 0 {
			t.Errorf("%+v", r)
		}
		return err
	})
	if err != nil || !maps.EqualFunc(before, objects(t, st), bytes.Equal) {
		t.Error("something changed", err)
	}
}

func TestCheckpointsAreToldAndRemovedByWish(t *testing.T) {
	year := time.Date(2037, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		wish CheckpointChoice
		left int
	}{
		{CheckpointChoice{Expired: true}, 1}, // which never expires
		{CheckpointChoice{Unreferenced: true}, 0},
		{CheckpointChoice{Names: []string{"cd2df10a-bb29-440d-9a85-f5800b186c30"}}, 2},
		{CheckpointChoice{All: true}, 0},
	} {
		st := fixture(t, "checkpoints")
		root := contents(t, st)
		err := onStore(t.Context(), st, func(s *Store) error {
			all, err := s.Checkpoints(t.Context(), year, true)
			if err != nil || len(all) != 3 || all[0].Bytes == 0 || all[0].Created == nil || all[1].Properties["name"] != "async" {
				t.Errorf("%+v, %v", all, err)
			}
			_, err = s.RemoveCheckpoints(t.Context(), c.wish, year, false)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		mustBeSound(t, st)
		err = onStore(t.Context(), st, func(s *Store) error {
			all, err := s.Checkpoints(t.Context(), year, false)
			if len(all) != c.left {
				t.Errorf("%+v: %d are left, expected %d", c.wish, len(all), c.left)
			}
			return err
		})
		if err != nil || !maps.Equal(root, contents(t, st)) {
			t.Errorf("%+v: the tree is another; %v", c.wish, err)
		}
	}
	err := onStore(t.Context(), fixture(t, "checkpoints"), func(s *Store) error {
		_, err := s.RemoveCheckpoints(t.Context(), CheckpointChoice{Names: []string{"no"}}, year, false)
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What Oak would not go on with is refused, and stays as it is.
func TestARevisionNeedsASoundStore(t *testing.T) {
	for name, spoil := range map[string]func(st *storetest.Mem) string{
		"no manifest": func(st *storetest.Mem) string { return "no manifest" },
		"a newer one": func(st *storetest.Mem) string {
			st.Put("s/manifest", []byte("store.version=3\n"))
			return "expected 1 or 2"
		},
		"an older one": func(st *storetest.Mem) string { st.Put("s/manifest", []byte("store.version=1\n")); return "version 1" },
		"rewound": func(st *storetest.Mem) string {
			st.Put("s/journal.log", append(st.Get("s/journal.log"), "486aa03b-5c65-4d55-ad28-72210ab8c5e7:5 root 1795220663942\n"...))
			return "newest 1 revisions"
		},
		"no index": func(st *storetest.Mem) string {
			b := st.Get("s/data00000a.tar")
			st.Put("s/data00000a.tar", b[:len(b)-2048])
			return "no index"
		},
	} {
		st := fixture(t, "checkpoints")
		part := spoil(st)
		if part == "no manifest" {
			if err := st.Remove(t.Context(), "s/manifest"); err != nil {
				t.Fatal(err)
			}
		}
		before := objects(t, st)
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.RemoveCheckpoints(t.Context(), CheckpointChoice{All: true}, time.Now(), false)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", name, err)
		}
		if !maps.EqualFunc(before, objects(t, st), bytes.Equal) {
			t.Errorf("%s: something changed", name)
		}
	}
}

// A revision after an incomplete line begins a new line.
func TestARevisionComesBehindHalfALine(t *testing.T) {
	st := fixture(t, "checkpoints")
	half := []byte("486aa03b-5c65-4d55-ad28-722")
	st.Put("s/journal.log", append(st.Get("s/journal.log"), half...))
	err := onStore(t.Context(), st, func(s *Store) error {
		_, err := s.RemoveCheckpoints(t.Context(), CheckpointChoice{All: true}, time.Now(), false)
		return err
	})
	lines := bytes.Split(st.Get("s/journal.log"), []byte("\n"))
	if err != nil || !bytes.Equal(lines[len(lines)-3], half) || !slices.Contains(strings.Fields(string(lines[len(lines)-2])), "root") {
		t.Errorf("%v, %q", err, lines)
	}
}
