//go:build unix

package oak_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
)

// compact compacts a store into a folder of the test.
func compact(t *testing.T, p oaktest.Place, o oak.CompactOptions) oaktest.Place {
	t.Helper()
	return anew(t, p, func(ctx context.Context, s *oak.Store, to store.Store, name string) error {
		_, err := s.Compact(ctx, to, name, o)
		return err
	})
}

// anew makes a new store of another in a folder of the test.
func anew(t *testing.T, p oaktest.Place, write func(context.Context, *oak.Store, store.Store, string) error) oaktest.Place {
	t.Helper()
	s, err := oak.OpenStore(t.Context(), local.New(filepath.Dir(p.Store)), filepath.Base(p.Store), format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	plan := format.Plan{Build: func(ctx context.Context, to store.Store, name string, _ bool) error { return write(ctx, s, to, name) }}
	if err := repairs.Apply(t.Context(), nil, "", plan, local.New(dir), "new"); err != nil {
		t.Fatal(err)
	}
	return oaktest.Place{Store: filepath.Join(dir, "new"), Blobs: p.Blobs}
}

func TestTheReferenceGoesOnWithWhatWeCompact(t *testing.T) {
	names := testkit.Some(t, 2, "compacted-offline", "empty-store", "gc-online", "longblobid", "multitar", "types", "wide")
	goesOnWithWhatWeCompact(t, append(names, "checkpoints", "datastore", "v12")...)
}

func goesOnWithWhatWeCompact(t *testing.T, fixtures ...string) {
	stores := map[string]oaktest.Place{
		"random": oaktest.Random(t, rand.Int64(), false),
		"killed": oaktest.Random(t, rand.Int64(), true),
	}
	for _, name := range fixtures {
		stores[name] = unpack(t, name).Place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			compacted := compact(t, p, oak.CompactOptions{})
			compacted.Verify(t)
			oaktest.Well(t, "equal", compacted.Store, p.Store)
			openWithReference(t, compacted)
		})
	}
}

func TestTheReferenceReadsTheHistoryThatWeKeep(t *testing.T) {
	p := unpack(t, "checkpoints").Place
	all := compact(t, p, oak.CompactOptions{History: -1})
	all.Verify(t)
	oaktest.Well(t, "equal", all.Store, p.Store)
	oaktest.Well(t, "recover-journal", all.Copy(t).Store)
	without := compact(t, p, oak.CompactOptions{NoCheckpoints: true})
	without.Verify(t)
	oaktest.Well(t, "equal", without.Store, p.Store, "/root")
	openWithReference(t, without)
}

func sizeOf(t *testing.T, p oaktest.Place) (n int64) {
	t.Helper()
	for _, name := range p.Tars(t) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// What the reference has compacted does not grow when we compact it, nor the other way round.
func TestACompactedStoreDoesNotGrow(t *testing.T) {
	stores := map[string]oaktest.Place{"random": oaktest.Random(t, rand.Int64(), false)}
	for _, name := range []string{"multitar", "types", "wide"} {
		stores[name] = unpack(t, name).Place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			oaktest.Well(t, p.With("compact", p.Store, "--in-place")...)
			once := compact(t, p, oak.CompactOptions{})
			twice := compact(t, once, oak.CompactOptions{})
			a, b, c := sizeOf(t, p), sizeOf(t, once), sizeOf(t, twice)
			if b > a+a/100 || c > b+b/100 {
				t.Errorf("%d bytes by the reference, then %d, then %d", a, b, c)
			}
		})
	}
}
