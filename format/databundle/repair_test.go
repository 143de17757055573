package databundle

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// saved is how many of the files that cannot be read in a damaged fixture are there
// after its repair.
var saved = map[string]int{
	"dmg-bad-shard-magic":          11, // all
	"dmg-bomb-record":              0,
	"dmg-crc-mismatch":             0,
	"dmg-current-missing-target":   0, // no file is named, for none can be found
	"dmg-flip-record":              0,
	"dmg-manifest-flip":            0,
	"dmg-missing-shard":            0,
	"dmg-record-offset-beyond-eof": 4, // all
	"dmg-record-offset-swapped":    8, // all
	"dmg-truncated-shard":          0,
}

func TestDamagedFixturesAreRepaired(t *testing.T) {
	seen := 0
	for _, name := range fixtures(t) {
		if !strings.HasPrefix(name, "dmg-") {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			ctx, want := t.Context(), expectation(t, name)
			o := holdall.OpenOptions{Formats: []*format.Format{Format}}
			st := fixture(t, name)
			plan, err := holdall.RepairStore(ctx, st, "b", holdall.RepairOptions{OpenOptions: o})
			if err != nil {
				t.Fatal(err)
			}
			if !plan.Changes() {
				t.Fatal("nothing is mended")
			}
			out := &storetest.Mem{}
			if err := plan.ApplyStore(ctx, out, "mended"); err != nil {
				t.Fatal(err)
			}
			v, err := holdall.VerifyStore(ctx, out, "mended", holdall.VerifyOptions{OpenOptions: o}, func(p holdall.Problem) {
				if p.Severity == format.Error {
					t.Errorf("mended: %+v", p)
				}
			})
			if err != nil || v.Errors > 0 {
				t.Fatalf("mended: %+v, %v", v, err)
			}
			a, err := holdall.OpenStore(ctx, out, "mended", o)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			back := 0
			for _, w := range want.Entries {
				path := w.Path
				if w.PathHex != "" {
					b, _ := hex.DecodeString(w.PathHex)
					path = string(b)
				}
				_, bad := want.Errors[hex.EncodeToString([]byte(path))]
				if w.Type == "dir" {
					if _, err := a.Lookup(ctx, path); err != nil {
						t.Errorf("%q: %v", path, err)
					}
					continue
				}
				sum, err := contentSum(ctx, a, path)
				switch {
				case err == nil && sum != w.SHA256 && name != "dmg-crc-mismatch":
					t.Errorf("%q: its content is another", path)
				case bad && err == nil:
					back++
				case !bad && err != nil:
					t.Errorf("%q, which can be read in the damaged bundle: %v", path, err)
				}
			}
			if back != saved[name] {
				t.Errorf("%d files are saved, expected %d", back, saved[name])
			}
			if lost := len(want.Errors) - back; (lost > 0) != plan.Partial {
				t.Errorf("partial %v, and %d files are lost: %q", plan.Partial, lost, plan.Lost)
			}
		})
	}
	if seen != len(saved) {
		t.Errorf("%d damaged fixtures, %d expectations", seen, len(saved))
	}
}
