//go:build unix

package oak_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store/local"
)

// The reference goes on with what is imported, copied, cleaned up and repaired.
func TestTheReferenceGoesOnWithWhatOtherVerbsWrite(t *testing.T) {
	made := func(t *testing.T) (*local.Store, oaktest.Place) {
		dir := t.TempDir()
		return local.New(dir), oaktest.Place{Store: filepath.Join(dir, "made")}
	}
	takes := func(t *testing.T, p, as oaktest.Place) {
		t.Helper()
		p.Verify(t)
		openWithReference(t, p)
		oaktest.Well(t, as.With("equal", p.Store, as.Store, "/root")...)
	}
	t.Run("import", func(t *testing.T) {
		from := unpack(t, "types").Place
		st, p := made(t)
		if _, err := oak.Import(t.Context(), bytes.NewReader(exportOf(t, from.Store, "")), st, "made", format.CreateOptions{Scratch: pack.NewScratch}); err != nil {
			t.Fatal(err)
		}
		takes(t, p, from)
	})
	t.Run("copy", func(t *testing.T) {
		from := unpack(t, "gc-online").Place
		st, p := made(t)
		withStore(t, from.Store, func(s *oak.Store) {
			if _, err := s.Copy(t.Context(), st, "made", oak.CopyOptions{}); err != nil {
				t.Fatal(err)
			}
		})
		takes(t, p, from)
	})
	t.Run("cleanup", func(t *testing.T) {
		p := unpack(t, "cleanup-pending").Place
		was := p.Copy(t)
		withStore(t, p.Store, func(s *oak.Store) {
			c, err := s.PlanCleanup(t.Context(), oak.CleanupOptions{})
			if err != nil || !c.Changes() {
				t.Fatalf("%+v, %v", c, err)
			}
			if err := c.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		takes(t, p, was)
	})
	for _, name := range []string{"corrupt-gph", "corrupt-idx", "unclean-open"} {
		t.Run(fmt.Sprint("repair ", name), func(t *testing.T) {
			p := unpack(t, name).Place
			st := local.New(filepath.Dir(p.Store))
			plan, err := oak.Format.Repair(t.Context(), st, filepath.Base(p.Store), format.OpenOptions{}, func(format.Problem) {})
			if err != nil || plan.Build == nil {
				t.Fatalf("%+v, %v", plan, err)
			}
			to, repaired := made(t)
			if err := repairs.Apply(t.Context(), st, filepath.Base(p.Store), plan, to, "made"); err != nil {
				t.Fatal(err)
			}
			repaired.Verify(t)
			openWithReference(t, repaired)
		})
	}
}

// What is written here is not for one version of the reference. HOLDALL_OAK_OTHERS lists the
// programs of others.
func TestOtherVersionsGoOnWithWhatIsWritten(t *testing.T) {
	testkit.Long(t)
	for _, program := range filepath.SplitList(testkit.Needs(t, oaktest.OthersVar)) {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			t.Setenv(oaktest.Var, program)
			t.Run("pack", func(t *testing.T) { readsWhatIsPacked(t, 1) })
			t.Run("convert", func(t *testing.T) { convertedIsEqual(t, "types", "datastore") })
			t.Run("compact", func(t *testing.T) { goesOnWithWhatWeCompact(t, "checkpoints", "datastore", "v12") })
			t.Run("set, rm, replace, checkpoints rm", func(t *testing.T) { goesOnWithNewRevisions(t, "checkpoints", "datastore") })
			t.Run("import, copy, cleanup, repair", TestTheReferenceGoesOnWithWhatOtherVerbsWrite)
			t.Run("backup, restore", TestTheReferenceGoesOnWithABackup)
			t.Run("check --fix", TestTheReferenceGoesOnWithAFixedStore)
			t.Run("check --fix-journal", TestFixedJournalIsWhatTheReferenceFindsGood)
			t.Run("recover-journal", TestRecoveredJournalAgreesWithTheReference)
		})
	}
}
