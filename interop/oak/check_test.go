//go:build unix

package oak_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store/local"
)

// withStore does something with a store on disk.
func withStore(t *testing.T, dir string, do func(*oak.Store)) {
	t.Helper()
	s, err := oak.OpenStore(t.Context(), local.New(filepath.Dir(dir)), filepath.Base(dir), format.OpenOptions{NoVerify: true}) // the reference compares nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	do(s)
}

func checkStore(t *testing.T, dir string) (r oak.CheckResult) {
	t.Helper()
	withStore(t, dir, func(s *oak.Store) {
		var err error
		if r, err = s.Check(t.Context(), oak.CheckOptions{Binaries: true}); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func recoverJournal(t *testing.T, dir string) (lines []string) {
	t.Helper()
	withStore(t, dir, func(s *oak.Store) {
		j, err := s.PlanJournal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	b, err := os.ReadFile(filepath.Join(dir, "journal.log"))
	if err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	slices.Reverse(lines)
	return lines
}

// otherLetter is a fixture that a check of the reference reads differently: of two letters, the
// reference reads a different one if it may not write.
const otherLetter = "two-letters"

func TestCheckAgreesWithTheReference(t *testing.T) {
	agree := func(t *testing.T, p oaktest.Place) {
		t.Helper()
		var want struct{ LastGoodOverall string }
		oaktest.Run(t, "check", p.Store).Into(t, &want)
		if r := checkStore(t, p.Store); r.Good == nil || r.Good.Revision != want.LastGoodOverall {
			t.Errorf("found %+v, the reference %q", r.Good, want.LastGoodOverall)
		}
	}
	for _, name := range names(t) {
		if name != otherLetter {
			t.Run(name, func(t *testing.T) { agree(t, unpack(t, name).Place) })
		}
	}
	for seed := range int64(3) {
		t.Run(fmt.Sprint("random", seed), func(t *testing.T) { agree(t, oaktest.Random(t, seed, seed == 1)) })
	}
}

func TestFixedJournalIsWhatTheReferenceFindsGood(t *testing.T) {
	for _, name := range []string{"bad-journal", "missing-tar", "corrupt-segment-magic", "truncated-old-tar", "unclean-truncated"} {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			withStore(t, f.Store, func(s *oak.Store) {
				r, err := s.Check(t.Context(), oak.CheckOptions{Binaries: true})
				if err != nil {
					t.Fatal(err)
				}
				if c, err := s.FixJournal(t.Context(), r); err != nil || !c.Changed {
					t.Fatalf("%+v, %v", c, err)
				}
			})
			oaktest.Well(t, "check", f.Store)
		})
	}
}

func TestRecoveredJournalAgreesWithTheReference(t *testing.T) {
	testkit.Needs(t, oaktest.Var)
	compared, recovered := 0, 0
	agree := func(t *testing.T, p oaktest.Place, differs string) {
		var want struct {
			JournalNewestFirst [][2]any
		}
		a := oaktest.Run(t, "recover-journal", p.Store)
		a.Into(t, &want)
		got := recoverJournal(t, p.Store)
		oaktest.Well(t, "check", p.Store)
		if !a.OK {
			recovered++
			return
		}
		compared++
		var lines []string
		for _, l := range want.JournalNewestFirst {
			if line := fmt.Sprintf("%s root %.0f", l[0], l[1]); differs == "" || !strings.HasPrefix(line, differs) {
				lines = append(lines, line)
			}
		}
		if !slices.Equal(got, lines) {
			t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
	// The reference does not compare the checksum of the segment that is damaged.
	differs := map[string]string{"corrupt-value": "37b0ae38-3b70-4581-af37-a5ceabd6f6da"}
	for _, name := range names(t) {
		if name != otherLetter {
			t.Run(name, func(t *testing.T) { agree(t, unpack(t, name).Place, differs[name]) })
		}
	}
	for seed := range int64(3) {
		t.Run(fmt.Sprint("random", seed), func(t *testing.T) { agree(t, oaktest.Random(t, seed, seed == 1), "") })
	}
	if compared < 5 || recovered < 2 {
		t.Errorf("compared %d, recovered %d that the reference does not", compared, recovered)
	}
}
