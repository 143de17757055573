package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestCataloguesOfEveryEditionAreRead checks that the catalogue of any release
// of holdall is migrated when it is opened.
func TestCataloguesOfEveryEditionAreRead(t *testing.T) {
	testkit.Serial(t)
	all, err := filepath.Glob("../../../testdata/editions/*/catalog.db")
	if err != nil || len(all) < 3 {
		t.Fatalf("%d catalogues, %v", len(all), err)
	}
	for _, p := range all {
		t.Run(filepath.Base(filepath.Dir(p)), func(t *testing.T) {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(t.TempDir(), "catalog.db")
			if err := os.WriteFile(at, b, 0o666); err != nil {
				t.Fatal(err)
			}
			c := open(t, at)
			var formats []string
			archives, err := c.Archives(t.Context())
			for _, a := range archives {
				formats = append(formats, a.Format)
			}
			if slices.Sort(formats); err != nil || !slices.Equal(formats, []string{"caf", "lindi"}) {
				t.Errorf("archives of %v, %v", formats, err)
			}
			holders, err := c.Holders(t.Context(), "dir/numbers")
			if err != nil || len(holders) != 2 || holders[0].Size != 18893 || holders[1].Size != 18893 {
				t.Errorf("dir/numbers is in %+v, %v", holders, err)
			}
			for l, err := range c.List(t.Context(), "dir/") {
				if err != nil || !slices.Contains([]string{"dir/numbers", "dir/a b ü.txt", "dir/sub/"}, l.Path) {
					t.Errorf("%+v, %v", l, err)
				}
			}
			if err := c.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
				t.Error(err)
			}
		})
	}
}
