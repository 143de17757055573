//go:build unix

package oak_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak"
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
	if len(names) == 0 {
		t.Fatal("the root has no children")
	}
	return names
}

// The reference opens, checks, compacts and writes on, after each kind of change; and
// what was cut out and put back is equal.
func TestTheReferenceGoesOnWithNewRevisions(t *testing.T) {
	stores := map[string]oaktest.Place{
		"random": oaktest.Random(t, rand.Int64(), false),
	}
	for _, name := range []string{"checkpoints", "compacted-offline", "datastore", "gc-online", "multitar", "types", "wide"} {
		stores[name] = unpack(t, name).Place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			donor := p.Copy(t)
			top := "/" + topNames(t, p)[0]
			for _, step := range []struct {
				what  string
				equal bool // to what was, but for checkpoints
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
