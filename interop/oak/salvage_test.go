//go:build unix

package oak_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store"
)

// A store that has lost any one of its tars, and perhaps its journal, is salvaged. The reference
// opens the result and goes on with it.
func TestTheReferenceGoesOnWithWhatWeSalvage(t *testing.T) {
	rnd := testkit.Rand(t)
	stores := map[string]oaktest.Place{"random": oaktest.Random(t, rnd.Int64(), false)}
	for _, name := range testkit.Some(t, 2, "compacted-offline", "gc-online", "multitar", "v12-upgraded", "datastore-gc") {
		stores[name] = unpack(t, name).Place
	}
	for name, p := range stores {
		t.Run(name, func(t *testing.T) {
			tars := p.Tars(t)
			for _, tar := range testkit.Some(t, 2, tars...) {
				lost := p.Copy(t)
				remove := []string{filepath.Base(tar)}
				if rnd.IntN(2) == 0 {
					remove = append(remove, "journal.log")
				}
				t.Logf("without %q", remove)
				for _, name := range remove {
					if err := os.Remove(filepath.Join(lost.Store, name)); err != nil {
						t.Fatal(err)
					}
				}
				if len(tars) == 1 {
					continue // nothing is left
				}
				out := anew(t, lost, func(ctx context.Context, s *oak.Store, to store.Store, name string) error {
					_, err := s.Salvage(ctx, to, name, nil)
					return err
				})
				out.Verify(t)
				openWithReference(t, out)
			}
		})
	}
}
