//go:build unix

package oak_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store/local"
)

// topNames are the children of the root.
func topNames(t *testing.T, p oaktest.Place) (names []string) {
	t.Helper()
	for path := range dumpedNodes(t, p) {
		if name, ok := strings.CutPrefix(path, "/root/"); ok && !strings.ContainsAny(name, "/%:\\") {
			names = append(names, name)
		}
	}
	return names
}

// The reference opens, checks, compacts and writes on, after each kind of change; and
// what was cut out and put back is equal.
func TestTheReferenceGoesOnWithNewRevisions(t *testing.T) {
	names := testkit.Some(t, 1, "compacted-offline", "gc-online", "multitar", "types", "wide")
	goesOnWithNewRevisions(t, append(names, "checkpoints", "datastore")...)
}

func goesOnWithNewRevisions(t *testing.T, fixtures ...string) {
	random := oaktest.Random(t, rand.Int64(), false)
	for len(topNames(t, random)) == 0 { // some seeds remove all children of the root
		random = oaktest.Random(t, rand.Int64(), false)
	}
	stores := map[string]oaktest.Place{"random": random}
	for _, name := range fixtures {
		stores[name] = unpack(t, name).Place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			donor := p.Copy(t)
			top := "/" + topNames(t, p)[0]
			for _, step := range []struct {
				what  string
				equal bool // to the old state, except for checkpoints
				do    func(s *oak.Store) error
			}{
				{"set", false, func(s *oak.Store) error {
					_, err := s.Set(t.Context(), top, "holdall:set", []string{"1", "2"}, oak.SetOptions{Type: "Long"})
					return err
				}},
				{"remove property", true, func(s *oak.Store) error {
					_, err := s.Remove(t.Context(), top, oak.RemoveOptions{Property: "holdall:set"})
					return err
				}},
				{"remove", false, func(s *oak.Store) error {
					_, err := s.Remove(t.Context(), top, oak.RemoveOptions{})
					return err
				}},
				{"replace from another store", true, func(s *oak.Store) error {
					var err error
					withStore(t, donor.Store, func(other *oak.Store) {
						var from *oak.Tree
						if from, err = other.Tree(t.Context(), nil); err == nil {
							_, err = s.Replace(t.Context(), top, oak.Donor{Tree: from}, oak.ReplaceOptions{})
						}
					})
					return err
				}},
				{"remove checkpoints", true, func(s *oak.Store) error {
					_, err := s.RemoveCheckpoints(t.Context(), oak.CheckpointChoice{All: true}, time.Now(), false)
					return err
				}},
			} {
				withStore(t, p.Store, func(s *oak.Store) {
					if err := step.do(s); err != nil {
						t.Fatalf("%s: %v", step.what, err)
					}
				})
				p.Verify(t)
				openWithReference(t, p)
				if step.equal {
					oaktest.Well(t, p.With("equal", p.Store, donor.Store, "/root")...)
				}
			}
		})
	}
}

// The reference goes on with a backup of a store that it has compacted and cleaned up
// between copies, and with what is restored of it.
func TestTheReferenceGoesOnWithABackup(t *testing.T) {
	p := oaktest.Random(t, rand.Int64(), false)
	withStore(t, p.Store, func(s *oak.Store) { // a compaction keeps what a large binary is in: a backup of nothing of it is refused
		if _, err := s.Set(t.Context(), "/", "large", []string{string(testkit.Noise(testkit.Rand(t), 300_000))}, oak.SetOptions{Type: "Binary"}); err != nil {
			t.Fatal(err)
		}
	})
	dir := t.TempDir()
	backup := oaktest.Place{Store: filepath.Join(dir, "backup"), Blobs: p.Blobs}
	restored := oaktest.Place{Store: filepath.Join(dir, "restored"), Blobs: p.Blobs}
	copyTo := func(from, to oaktest.Place, o oak.BackupOptions) (said oak.BackedUp) {
		t.Helper()
		withStore(t, from.Store, func(s *oak.Store) {
			var err error
			if said, err = s.Backup(t.Context(), local.New(dir), filepath.Base(to.Store), o); err != nil {
				t.Fatal(err)
			}
		})
		return said
	}
	freed := int64(0)
	for round := range 4 {
		if round > 0 {
			oaktest.Well(t, p.With("compact", p.Store, "--in-place")...)
		}
		freed += copyTo(p, backup, oak.BackupOptions{}).Freed
		backup.Verify(t)
		oaktest.Well(t, p.With("equal", p.Store, backup.Store)...)
		if again := copyTo(p, backup, oak.BackupOptions{Check: true}); again.Segments > 0 {
			t.Errorf("round %d: again %+v", round, again)
		}
		openWithReference(t, backup)
		copyTo(backup, restored, oak.BackupOptions{Restore: true, Check: true})
		restored.Verify(t)
		oaktest.Well(t, p.With("equal", p.Store, restored.Store)...)
		openWithReference(t, restored)
	}
	if freed == 0 {
		t.Error("the backup keeps all garbage")
	}
}

// A store loses a tar and is restored: the reference compacts and cleans up without losing anything.
func TestTheReferenceGoesOnWithARestoredStore(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	for _, name := range []string{"gc-online", "multitar"} {
		sound := unpack(t, name).Place
		dir := t.TempDir()
		backup := filepath.Join(dir, "backup")
		withStore(t, sound.Store, func(s *oak.Store) {
			if _, err := s.Backup(t.Context(), local.New(dir), "backup", oak.BackupOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		tars, err := filepath.Glob(filepath.Join(sound.Store, "*.tar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, tar := range testkit.Some(t, 2, tars...) {
			t.Run(name+" without "+filepath.Base(tar), func(t *testing.T) {
				p := sound.Copy(t)
				if err := os.Remove(filepath.Join(p.Store, filepath.Base(tar))); err != nil {
					t.Fatal(err)
				}
				withStore(t, backup, func(s *oak.Store) {
					if _, err := s.Backup(t.Context(), local.New(filepath.Dir(p.Store)), filepath.Base(p.Store), oak.BackupOptions{Restore: true, Check: true}); err != nil {
						t.Fatal(err)
					}
				})
				p.Verify(t)
				compareStores(t, sound, p)
				openWithReference(t, p)
			})
		}
	}
}

// Segments are damaged by chance; the reference goes on with what a fix makes of it.
func TestTheReferenceGoesOnWithAFixedStore(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	fixed := 0
	for _, name := range []string{"corrupt-value", "checkpoints", "cleanup-pending", "multitar", "types", "datastore"} {
		t.Run(name, func(t *testing.T) {
			p := unpack(t, name).Place
			rnd := testkit.Rand(t)
			if name != "corrupt-value" {
				var steps []string
				withStore(t, p.Store, func(s *oak.Store) {
					for e, err := range s.Graph(t.Context()) {
						if err != nil {
							t.Fatal(err)
						}
						if rnd.IntN(4) == 0 {
							steps = append(steps, e.From)
						}
					}
				})
				for _, id := range steps {
					damage(t, p, id)
				}
			}
			var x *oak.Fix
			var err error
			s, openErr := oak.OpenStore(t.Context(), local.New(filepath.Dir(p.Store)), filepath.Base(p.Store), format.OpenOptions{})
			if openErr != nil {
				t.Fatal(openErr)
			}
			defer s.Close()
			if x, err = s.PlanFix(t.Context(), true); err != nil {
				t.Skip("it is refused: ", err)
			}
			if len(x.Steps) == 0 {
				t.Skip("nothing that the head needs is damaged")
			}
			if err := x.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got checked
			oaktest.Well(t, "check", p.Store).Into(t, &got)
			if got.LastGoodOverall != x.Revision {
				t.Errorf("the newest good revision is %s, expected %s", got.LastGoodOverall, x.Revision)
			}
			oaktest.Well(t, p.With("commit", p.Store)...)
			oaktest.Well(t, p.With("survive", p.Store)...)
			fixed++
		})
	}
	if fixed == 0 {
		t.Error("nothing was fixed")
	}
}

// The reference's own cleanup keeps what is in use of a store that was fixed, with compactions of all
// and of the tail. Without that it does not: the first order is one in which it destroys the store.
func TestTheReferenceKeepsAFixedStore(t *testing.T) {
	rnd := testkit.Rand(t)
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	fixed := 0
	for round := range testkit.Rounds(t, 4) {
		name := "gc-online"
		if round > 0 {
			name = []string{"gc-online", "cleanup-pending", "compacted-offline", "multitar", "datastore-gc"}[rnd.IntN(5)]
		}
		p := unpack(t, name).Place
		tars := p.Tars(t)
		order := rnd.Perm(len(tars))
		if round == 0 {
			order = []int{0, 1, 6, 2, 3, 4, 5}
		}
		for _, tar := range tars {
			rename(tar, tar+".away")
		}
		for i, k := range order {
			rename(tars[i]+".away", filepath.Join(p.Store, fmt.Sprintf("data%05da.tar", k)))
		}
		if round == 0 && oaktest.Run(t, p.With("survive", p.Store)...).OK {
			t.Error("the reference keeps a store in this order")
		}
		var x *oak.FixGC
		withStore(t, p.Store, func(s *oak.Store) {
			var err error
			if x, err = s.FixGC(t.Context(), false); err != nil {
				t.Fatal(name, order, err)
			}
		})
		if len(x.Findings) == 0 {
			continue
		}
		fixed++
		t.Log(name, order)
		oaktest.Well(t, "check", p.Store)
		oaktest.Well(t, p.With("survive", p.Store)...)
		oaktest.Well(t, p.With("survive-tail", p.Store)...)
	}
	t.Log(fixed, "stores were fixed")
}

// damage turns a bit of a segment.
func damage(t *testing.T, p oaktest.Place, id string) {
	t.Helper()
	withStore(t, p.Store, func(s *oak.Store) {
		info, err := s.Segment(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(p.Store, info.Tar), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		at := info.Position + int64(info.Size) - 9
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x10
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	})
}
