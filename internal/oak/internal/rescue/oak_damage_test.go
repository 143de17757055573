package rescue

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// TestOakSavesNothingThatWeDoNot damages tars without an index and compares what Oak
// recovers: we have all of it, with the same bytes.
func TestOakSavesNothingThatWeDoNot(t *testing.T) {
	o := startOak(t)
	r := testkit.Rand(t)
	more, compared := 0, 0
	for range 6 {
		dir := t.TempDir()
		p := place{store: filepath.Join(dir, "segmentstore")}
		if err := os.Mkdir(p.store, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, b := range testkit.Untar(t, file("multitar")) {
			if err := os.WriteFile(filepath.Join(p.store, filepath.Base(name)), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		tars := slices.Sorted(maps.Keys(tarsOf(t, "multitar")))
		file := tars[r.IntN(len(tars))]
		at := filepath.Join(p.store, file)
		o.well(t, "unindex", at)
		b, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			from := r.IntN(len(b))
			switch r.IntN(3) {
			case 0:
				clear(b[from:min(from+1+r.IntN(200_000), len(b))])
			case 1:
				b[from] ^= byte(1 + r.IntN(255))
			case 2: // in a header, if one is there
				b[from&^511+r.IntN(160)] ^= byte(1 + r.IntN(255))
			}
		}
		if err := os.WriteFile(at, b, 0o666); err != nil {
			t.Fatal(err)
		}
		ours, theirs := copyStore(t, p), copyStore(t, p)
		recoverStore(t, ours.store)
		a, z := segmentsBy(t, o, ours, file), segmentsBy(t, o, theirs, file)
		for id, sum := range z {
			compared++
			if a[id] != sum {
				t.Errorf("%s: segment %s is %q, for Oak %s", file, id, a[id], sum)
			}
		}
		more += len(a) - len(z)
	}
	t.Logf("%d segments are the same, we have %d more", compared, more)
	if compared == 0 {
		t.Error("nothing was compared")
	}
}

// segmentsBy lets Oak open a store to write, which recovers it if need be, and returns
// the digests of the segments of a tar. Where Oak fails there are none.
func segmentsBy(t *testing.T, o *oak, p place, file string) map[string]string {
	t.Helper()
	var dump struct{ Tars map[string]expectedTar }
	a := o.run(t, "recover", p.store)
	if err := json.Unmarshal(a.all, &dump); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for id, s := range dump.Tars[file].Segments {
		all[id] = s.SHA256
	}
	return all
}
