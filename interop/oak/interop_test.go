//go:build unix

package oak_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit/oaktest"
)

// What is wrong with a fixture, as the program words it.
var (
	// What is not here is whole.
	tarFaults = map[string]string{
		"corrupt-brf":           "data00000a.tar: brf: not valid",
		"corrupt-gph":           "data00001a.tar: graph: not valid",
		"corrupt-idx":           "data00001a.tar: index: not valid",
		"corrupt-segment-magic": "data00001a.tar: name: ",
		"corrupt-value":         "data00000a.tar: name: ",
		"truncated-old-tar":     "data00001a.tar: index: not valid",
		"two-letters":           "data00001b.tar: index: not valid",
		"unclean-open":          "data00001a.tar: index: not valid",
		"unclean-truncated":     "data00001a.tar: index: not valid",
	}
	storeFaults = map[string]string{
		"checkpoints":           "",
		"datastore-gc":          "",
		"empty-store":           "",
		"gc-online":             "",
		"longblobid":            "",
		"v12-upgraded":          "",
		"bad-journal":           "the commit: ",
		"corrupt-gph":           "NullPointerException",
		"corrupt-idx":           "recovered data00001a.tar.bak",
		"corrupt-segment-magic": "SegmentNotFoundException",
		"missing-tar":           "the newest revision is ",
		"two-letters":           "expected null, found ",
	}
)

func TestTheReferenceReadsFixturesAsExpected(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			oaktest.Well(t, f.With("exact", f.Store, f.expect)...)
		})
	}
}

func TestAnotherContentIsNoticed(t *testing.T) {
	f, other := unpack(t, "checkpoints"), unpack(t, "empty-store")
	for _, command := range []string{"exact", "content"} {
		if a := oaktest.Run(t, command, f.Store, other.expect); a.OK || a.Error != "" {
			t.Errorf("%s: %+v", command, a)
		}
	}
	if a := oaktest.Run(t, "equal", f.Store, other.Store); a.OK || a.Error != "" {
		t.Errorf("equal: %+v", a)
	}
}

func TestWholeTarsVerifyAndDamagedOnesDoNot(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			want, damaged := tarFaults[name]
			if !damaged {
				f.Place.Verify(t)
				return
			}
			a := oaktest.Run(t, append([]string{"verify"}, f.Tars(t)...)...)
			wantFault(t, a, want)
		})
	}
}

// wantFault wants a fault of an answer, or its error, to have a part.
func wantFault(t *testing.T, a oaktest.Answer, part string) {
	t.Helper()
	has := func(s string) bool { return strings.Contains(s, part) }
	if a.OK || !slices.ContainsFunc(append(a.Faults, a.Error), has) {
		t.Errorf("expected %q, found %q %s", part, a.Faults, a.Error)
	}
}

func TestTheReferenceGoesOnWithWholeStoresOnly(t *testing.T) {
	for name, want := range storeFaults {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			if want == "" {
				openWithReference(t, f.Place)
				return
			}
			all := oaktest.Answer{OK: true}
			for _, args := range [][]string{{"check", f.Store}, f.With("commit", f.Store), f.With("survive", f.Store)} {
				a := oaktest.Run(t, args...)
				all.OK = all.OK && a.OK
				all.Faults = append(all.Faults, append(a.Faults, a.Error)...)
			}
			wantFault(t, all, want)
		})
	}
}

// What the check says, in Out without paths of this machine.
type checked struct {
	RC                            int
	LastGoodHead, LastGoodOverall string
	Out                           []string
}

func TestTheCheckSaysWhatIsExpected(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			var want struct{ Check checked }
			f.expected(t, &want)
			var got checked
			oaktest.Run(t, "check", f.Store).Into(t, &got)
			if !reflect.DeepEqual(got, want.Check) {
				t.Errorf("expected %+v\nfound %+v", want.Check, got)
			}
		})
	}
}

// A state is a folder's after the reference has worked on it.
type state struct {
	Files map[string]int64
	Tars  map[string]json.RawMessage
	Head  struct {
		Revision string
		Error    string
	}
}

// wantState compares all but what has the time in it.
func wantState(t *testing.T, got, want state) {
	t.Helper()
	for _, name := range []string{"repo.lock", "gc.log", "journal.log"} {
		delete(got.Files, name)
		delete(want.Files, name)
	}
	if !reflect.DeepEqual(got.Files, want.Files) {
		t.Errorf("files: expected %v, found %v", want.Files, got.Files)
	}
	for name, wantTar := range want.Tars {
		var g, w any
		if err := json.Unmarshal(wantTar, &w); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got.Tars[name], &g); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(g, w) {
			t.Errorf("%s: another index, graph or list of references", name)
		}
	}
}

func TestRecoveryMakesWhatIsExpected(t *testing.T) {
	found := 0
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			var want struct {
				AfterReadWriteOpen *struct {
					state
					HeadRevision, HeadError, Error string
				}
			}
			f.expected(t, &want)
			w := want.AfterReadWriteOpen
			if w == nil {
				return
			}
			found++
			a := oaktest.Run(t, f.With("recover", f.Store, "--no-segments")...)
			if w.Error != "" {
				wantFault(t, a, w.Error)
				return
			}
			var got state
			a.Into(t, &got)
			wantState(t, got, w.state)
			if got.Head.Revision != w.HeadRevision || got.Head.Error != w.HeadError {
				t.Errorf("expected %s%s, found %+v", w.HeadRevision, w.HeadError, got.Head)
			}
		})
	}
	if found == 0 && os.Getenv(oaktest.Var) != "" {
		t.Error("no fixture tells of recovery")
	}
}

func TestARecoveredStoreIsWhole(t *testing.T) {
	f := unpack(t, "unclean-open")
	repaired := f.Place.Copy(t)
	oaktest.Well(t, repaired.With("recover", repaired.Store, "--in-place")...)
	repaired.Verify(t)
	openWithReference(t, repaired)
	compareStores(t, repaired, f.Place)
}

func TestTheJournalMadeAnewIsAsExpected(t *testing.T) {
	for _, name := range []string{"bad-journal", "checkpoints", "multitar", "gc-online", "unclean-open", "missing-tar", "two-letters"} {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			var want struct {
				JournalNewestFirst [][2]any
				RecoverJournal     struct {
					RC              int
					RevisionsSorted []string
				}
			}
			f.expected(t, &want)
			if want.RecoverJournal.RC != 0 { // the journal stays
				want.RecoverJournal.RevisionsSorted = revisions(want.JournalNewestFirst)
			}
			var got struct {
				RC                 int
				JournalNewestFirst [][2]any
			}
			oaktest.Run(t, "recover-journal", f.Store).Into(t, &got)
			if got.RC != want.RecoverJournal.RC || !slices.Equal(revisions(got.JournalNewestFirst), want.RecoverJournal.RevisionsSorted) {
				t.Errorf("expected %+v, found %+v", want.RecoverJournal, got)
			}
		})
	}
}

// revisions are those of a journal's lines, sorted.
func revisions(journal [][2]any) (all []string) {
	for _, line := range journal {
		all = append(all, line[0].(string))
	}
	slices.Sort(all)
	return all
}

func TestCleanupLeavesWhatIsExpected(t *testing.T) {
	f := unpack(t, "cleanup-pending")
	var want struct{ AfterCleanup, AfterCleanupRetain2 state }
	f.expected(t, &want)
	for retain, want := range map[string]state{"1": want.AfterCleanup, "2": want.AfterCleanupRetain2} {
		t.Run(retain, func(t *testing.T) {
			var got state
			oaktest.Well(t, "cleanup", f.Store, retain, "--no-segments").Into(t, &got)
			wantState(t, got, want)
		})
	}
}

func TestACompactedStoreHoldsTheSame(t *testing.T) {
	f := unpack(t, "gc-online")
	compacted := f.Place.Copy(t)
	oaktest.Well(t, "compact", compacted.Store, "--in-place")
	compacted.Verify(t)
	compareStores(t, compacted, f.Place)
}

func TestRandomStoresAreWhole(t *testing.T) {
	for range 2 {
		p := oaktest.Random(t, rand.Int64(), false)
		p.Verify(t)
		openWithReference(t, p)
	}
}

func TestOneSeedMakesOneContent(t *testing.T) {
	seed := rand.Int64()
	a, b, other := oaktest.Random(t, seed, false), oaktest.Random(t, seed, false), oaktest.Random(t, seed+1, false)
	oaktest.Well(t, "equal", a.Store, b.Store, "/root")
	wantFault(t, oaktest.Run(t, "equal", a.Store, other.Store, "/root"), "/root: not equal")
}

func TestAKilledProcessLeavesATarWithoutIndex(t *testing.T) {
	p := oaktest.Random(t, rand.Int64(), true)
	tars := p.Tars(t)
	last := slices.Max(tars)
	wantFault(t, oaktest.Run(t, "tar", last), filepath.Base(last)+": index: not valid")
	wantFault(t, oaktest.Run(t, p.With("commit", p.Store)...), "the reference recovered "+filepath.Base(last))
	if rest := slices.DeleteFunc(tars, func(s string) bool { return s == last }); len(rest) > 0 {
		oaktest.Well(t, append([]string{"verify"}, rest...)...)
	}
}

// So is the store that comparisons are made with, but 20 times as large.
func TestTheStoreOfTheComparisonsIsWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "big")
	oaktest.Well(t, "big", dir, "1")
	p := oaktest.Place{Store: dir}
	p.Verify(t)
	oaktest.Well(t, "check", p.Store)
	var did struct{ Nodes, Properties, Bytes int64 }
	oaktest.Well(t, "measure", "nodes", p.Store).Into(t, &did)
	if did.Nodes != 10_103 || did.Properties != 60_300 || did.Bytes < 20_000_000 {
		t.Errorf("%+v", did)
	}
	oaktest.Well(t, "unindex", p.Tars(t)[0])
	wantFault(t, oaktest.Run(t, "tar", p.Tars(t)[0]), "index: not valid")
	oaktest.Well(t, "measure", "recover", p.Store)
	p.Verify(t)
	oaktest.Well(t, "measure", "check", p.Store)
}
