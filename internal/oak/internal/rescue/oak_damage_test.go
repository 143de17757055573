package rescue

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
)

// TestOakSavesNothingThatWeDoNot damages tars without an index and compares what Oak
// recovers: we have all of it, with the same bytes. HOLDALL_LONG is how many tars.
func TestOakSavesNothingThatWeDoNot(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	r := testkit.Rand(t)
	more, compared := 0, 0
	for range testkit.Rounds(t, 3) {
		dir := t.TempDir()
		p := oaktest.Place{Store: filepath.Join(dir, "segmentstore")}
		if err := os.Mkdir(p.Store, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, b := range testkit.Untar(t, file("multitar")) {
			if err := os.WriteFile(filepath.Join(p.Store, filepath.Base(name)), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		tars := slices.Sorted(maps.Keys(tarsOf(t, "multitar")))
		file := tars[r.IntN(len(tars))]
		at := filepath.Join(p.Store, file)
		oaktest.Well(t, "unindex", at)
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
		ours, theirs := p.Copy(t), p.Copy(t)
		recoverStore(t, ours.Store)
		a, z := segmentsBy(t, ours, file), segmentsBy(t, theirs, file)
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
func segmentsBy(t *testing.T, p oaktest.Place, file string) map[string]string {
	t.Helper()
	var dump struct{ Tars map[string]expectedTar }
	oaktest.Run(t, "recover", p.Store).Into(t, &dump)
	all := map[string]string{}
	for id, s := range dump.Tars[file].Segments {
		all[id] = s.SHA256
	}
	return all
}
