package oak

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// found returns what verify finds besides notes.
func found(t *testing.T, st *storetest.Mem) (all []format.Problem) {
	t.Helper()
	err := verify(t.Context(), st, "s", format.OpenOptions{}, func(p format.Problem) {
		if p.Severity > format.Note {
			all = append(all, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sameFindings checks that check and repair report what verify finds in the journal and in its newest
// revision. It returns what verify finds.
func sameFindings(t *testing.T, what string, st *storetest.Mem) []format.Problem {
	t.Helper()
	all := found(t, st)
	var ofJournal []format.Problem
	for _, p := range all {
		if strings.Contains(p.Class, "journal") || strings.HasPrefix(p.Class, "head") {
			ofJournal = append(ofJournal, p)
		}
	}
	err := onStore(t.Context(), st, func(s *Store) error {
		r, err := s.Check(t.Context(), CheckOptions{Head: true, Paths: []string{"/"}})
		r.Findings = slices.DeleteFunc(r.Findings, func(p format.Problem) bool { return p.Severity == format.Note })
		if err == nil && !slices.EqualFunc(r.Findings, ofJournal, func(a, b format.Problem) bool {
			return a.Message == b.Message && a.Off == b.Off && a.Volume == b.Volume
		}) {
			t.Errorf("%s: check finds\n%+v\nverify\n%+v", what, r.Findings, ofJournal)
		}
		return err
	})
	if err != nil && !refused(err) {
		t.Errorf("%s: %v", what, err)
	}
	plan := repairAll(t, st, &storetest.Mem{})
	for _, p := range all {
		ended := p.Class == "journal-end" && strings.Contains(strings.Join(plan.Notes, "\n"), "ended the last line")
		if !ended && !slices.ContainsFunc(plan.Lost, func(l string) bool { return strings.Contains(l, p.Message) }) {
			t.Errorf("%s: repair does not report %q: lost %q, notes %q", what, p.Message, plan.Lost, plan.Notes)
		}
		if !ended && !plan.Partial {
			t.Errorf("%s: the repair is whole in spite of %q", what, p.Message)
		}
	}
	return all
}

// A journal that is cut off anywhere is reported, and goes on being reported after a repair. Where a line ends in its middle, the line after it is lost for Oak.
func TestAJournalThatIsCutOffIsReported(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"checkpoints", "longblobid"} {
		sound := fixture(t, name)
		journal := bytes.TrimRight(sound.Get("s/journal.log"), "\n")
		last := bytes.LastIndexByte(journal, '\n')
		for n := max(1, last-80); n <= len(journal); n++ {
			what := fmt.Sprintf("%s: %d of %d bytes", name, n, len(journal))
			st := sound.Clone()
			st.Put("s/journal.log", bytes.Clone(journal[:n]))
			if journal[n-1] == '\n' { // whole lines less
				all := []string{}
				must(t, verify(t.Context(), st, "s", format.OpenOptions{}, func(p format.Problem) { all = append(all, p.Class) }))
				if !slices.Contains(all, "journal-old") {
					t.Errorf("%s: verify finds %q", what, all)
				}
				continue
			}
			if all := sameFindings(t, what, st); len(all) == 0 {
				t.Errorf("%s: verify finds nothing", what)
			}
			complete := n == len(journal) || journal[n] == '\n'
			out := &storetest.Mem{}
			plan := repairAll(t, st, out)
			switch {
			case complete:
				if !plan.Changes() || plan.Partial || len(found(t, out)) > 0 {
					t.Errorf("%s: a line without its end is not repaired: %q %q", what, plan.Notes, plan.Lost)
				}
			case !plan.Changes() && !plan.Partial, plan.Changes() && len(found(t, out)) == 0:
				t.Errorf("%s: after a repair nothing shows it: %q", what, plan.Notes)
			}
			// A line that Oak appends to it.
			st.Put("s/journal.log", append(bytes.Clone(journal[:n]), journal[last+1:]...))
			if all := sameFindings(t, what+", continued", st); len(all) == 0 {
				t.Errorf("%s: verify finds nothing after another line", what)
			}
		}
	}
}

// A store that has lost a tar is reported as such by each verb that judges it.
func TestARepairReportsWhatVerifyFinds(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"multitar", "gc-online"} {
		sound := fixture(t, name)
		lost := 0
		for tar := range objects(t, sound) {
			if !strings.HasSuffix(tar, ".tar") || !strings.HasPrefix(tar, "s/") {
				continue
			}
			st := sound.Clone()
			must(t, st.Remove(t.Context(), tar))
			if len(sameFindings(t, name+" without "+tar, st)) > 0 {
				lost++
			}
		}
		if lost == 0 {
			t.Errorf("%s: no tar is missed", name)
		}
	}
}
