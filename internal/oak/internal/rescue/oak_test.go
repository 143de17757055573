package rescue

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store/local"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m, oaktest.End) }

// recoverStore does to a store on disk what a program would do: it plans the recovery of each
// number without an intact letter, writes it, and moves the old tars away.
func recoverStore(t *testing.T, dir string) (numbers int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	tars := map[string][]byte{}
	for _, f := range files {
		if tars[filepath.Base(f)], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	m := newMemory(tars)
	for _, number := range m.numbers() {
		p, e := m.survey(t, number, nil)
		t.Logf("number %d: %s", number, strings.Join(p.Words(), "; "))
		for i, s := range p.Sources[:p.Letters] {
			if p.Action == Nothing && i == p.Base {
				continue
			}
			if err := os.Rename(filepath.Join(dir, s.Name), filepath.Join(dir, s.Name+".bak")); err != nil {
				t.Fatal(err)
			}
		}
		if p.Action == Nothing || p.Action == Leave {
			continue
		}
		numbers++
		if err := Write(t.Context(), local.New(dir), p.Sources[0].Name, p); err != nil {
			t.Fatal(err, e)
		}
	}
	return numbers
}

// agree checks that Oak verifies the store that we recovered, that its check finds the same in it
// as in the one that Oak recovers itself, and that it reads the same. It returns how many tars
// were written.
func agree(t *testing.T, p oaktest.Place, better bool) int {
	t.Helper()
	ours, theirs := p.Copy(t), p.Copy(t)
	n := recoverStore(t, ours.Store)
	oaktest.Run(t, theirs.With("recover", theirs.Store, "--in-place", "--no-segments")...)
	ours.Verify(t)
	a, b := oaktest.Run(t, "check", ours.Store), oaktest.Run(t, "check", theirs.Store)
	switch {
	case better:
		if !a.OK || string(a.All) == string(b.All) {
			t.Errorf("check: %s, expected a better one than that of Oak", a.All)
		}
	case strings.Contains(string(a.All), "empty journal"):
		// No revision is left in the tars. Oak begins anew, with an empty root.
		if !strings.Contains(string(b.All), "Checked 1 nodes and 0 properties") {
			t.Errorf("check: %s\nwhere Oak recovered: %s", a.All, b.All)
		}
	case string(a.All) != string(b.All):
		t.Errorf("check: %s\nwhere Oak recovered: %s", a.All, b.All)
	case b.Error == "":
		oaktest.Well(t, ours.With("equal", ours.Store, theirs.Store)...)
	}
	return n
}

func TestOakTakesWhatWeRecoverOfTheFixtures(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			p := oaktest.In(testkit.Unpacked(t, file(name)))
			// Oak leaves the bit wrong that we turn back.
			agree(t, p, name == "corrupt-segment-magic")
		})
	}
}

// TestOakTakesWhatWeRecoverOfKilledWriters has stores of random content: as a killed
// process left them, and once more with their last tar cut anywhere. HOLDALL_LONG is how many.
func TestOakTakesWhatWeRecoverOfKilledWriters(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	r := testkit.Rand(t)
	for range testkit.Rounds(t, 3) {
		seed := r.Int64N(1 << 40)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := oaktest.Random(t, seed, true)
			if agree(t, p, false) == 0 {
				t.Error("no tar was written")
			}
			tars := p.Tars(t)
			last := tars[len(tars)-1]
			info, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			// At least the first segment stays: of an empty tar Oak fails.
			cut := info.Size()*3/4 + r.Int64N(info.Size()/4)
			if err := os.Truncate(last, cut); err != nil {
				t.Fatal(err)
			}
			t.Logf("cut at %d of %d", cut, info.Size())
			agree(t, p, false)
		})
	}
}

// TestOakTakesATarWithoutItsTail cuts off the tails of sound tars by the reference's
// own means.
func TestOakTakesATarWithoutItsTail(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	dir := t.TempDir()
	for _, name := range []string{"types", "datastore", "longblobid", "gc-online", "v12-upgraded"} {
		for file, b := range tarsOf(t, name) {
			at := filepath.Join(dir, file)
			if err := os.WriteFile(at, b, 0o666); err != nil {
				t.Fatal(err)
			}
			oaktest.Well(t, "unindex", at)
			cut, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			number, _, _ := tarfile.ParseName(file)
			m := newMemory(map[string][]byte{file: cut})
			p, _ := m.survey(t, number, newMemory(tarsOf(t, name)).copies(t, number))
			if p.Action != Tail {
				t.Error(p.Words())
			}
			if err := Write(t.Context(), local.New(dir), file, p); err != nil {
				t.Fatal(err)
			}
			oaktest.Well(t, "verify", at)
		}
	}
}
