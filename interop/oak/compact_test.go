//go:build unix

package oak_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/mend"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// compact compacts a store into a folder of the test.
func compact(t *testing.T, p place, o oak.CompactOptions) place {
	t.Helper()
	s, err := oak.OpenStore(t.Context(), local.New(filepath.Dir(p.store)), filepath.Base(p.store), format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	plan := format.Plan{Build: func(ctx context.Context, to store.Store, name string, _ bool) error {
		_, err := s.Compact(ctx, to, name, o)
		return err
	}}
	if err := mend.Apply(t.Context(), nil, "", plan, local.New(dir), "compacted"); err != nil {
		t.Fatal(err)
	}
	return place{filepath.Join(dir, "compacted"), p.blobs}
}

func TestTheReferenceGoesOnWithWhatWeCompact(t *testing.T) {
	stores := map[string]place{
		"random": randomStore(t, rand.Int64(), false),
		"killed": randomStore(t, rand.Int64(), true),
	}
	for _, name := range []string{"checkpoints", "compacted-offline", "datastore", "empty-store", "gc-online", "longblobid", "multitar", "types", "v12", "wide"} {
		stores[name] = unpack(t, name).place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			compacted := compact(t, p, oak.CompactOptions{})
			verifyTars(t, compacted)
			runWell(t, "equal", compacted.store, p.store)
			openWithReference(t, compacted)
		})
	}
}

func TestTheReferenceReadsTheHistoryThatWeKeep(t *testing.T) {
	p := unpack(t, "checkpoints").place
	all := compact(t, p, oak.CompactOptions{History: -1})
	verifyTars(t, all)
	runWell(t, "equal", all.store, p.store)
	runWell(t, "recover-journal", copyOf(t, all).store)
	without := compact(t, p, oak.CompactOptions{NoCheckpoints: true})
	verifyTars(t, without)
	runWell(t, "equal", without.store, p.store, "/root")
	openWithReference(t, without)
}
