package oak

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

func journalOf(t *testing.T, b []byte) (revisions []string) {
	t.Helper()
	for line := range strings.Lines(string(b)) {
		r, rest, ok := strings.Cut(line, " root ")
		if !ok || !strings.HasSuffix(rest, "\n") {
			t.Fatalf("line %q", line)
		}
		revisions = append(revisions, r)
	}
	return revisions
}

// Contents of a segment with a wrong checksum are not trusted: neither revisions in it, nor that
// a revision that needs it is intact.
func TestNoJournalIsMadeOfWhatIsNotAsItWasWritten(t *testing.T) {
	st := fixture(t, "corrupt-value")
	was := journalOf(t, st.Get("s/journal.log"))
	j, err := checkedStore(t, st).PlanJournal(t.Context())
	if err == nil {
		_, err = j.Apply(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, st, CheckOptions{Binaries: true}); !r.Whole {
		t.Errorf("check afterwards: %+v", r)
	}
	const damaged = "37b0ae38-3b70-4581-af37-a5ceabd6f6da"
	got := journalOf(t, st.Get("s/journal.log"))
	if len(got) == 0 || got[len(got)-1] == was[len(was)-1] || slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, damaged) }) {
		t.Errorf("found %q, before %q", got, was)
	}
}

func TestRecoveredJournalIsThatOfTheReference(t *testing.T) {
	compared := 0
	for _, name := range testkit.Few(t, 4, testkit.Names(t, "testdata", ".tar.gz", 24)...) {
		t.Run(name, func(t *testing.T) {
			want := checkOf(t, name)
			st := readableFixture(t, name)
			st.Put("s/journal.log", []byte("garbage\n"))
			j, err := checkedStore(t, st).PlanJournal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, err := j.Apply(t.Context())
			if err != nil || c.Backup != "journal.log.bak.000" {
				t.Fatalf("%+v, %v", c, err)
			}
			if r := mustCheck(t, st, CheckOptions{Binaries: true}); !r.Whole || r.Good.Revision != j.Head.Revision {
				t.Errorf("check afterwards: %+v", r)
			}
			got := journalOf(t, st.Get("s/journal.log"))
			if len(got) != j.Lines {
				t.Errorf("%d lines, said %d", len(got), j.Lines)
			}
			if want.RecoverJournal == nil || want.RecoverJournal.RC != 0 || name == twoLetters {
				return
			}
			compared++
			if newest := fmt.Sprint(want.RecoverJournal.Newest[0]); newest != got[len(got)-1] {
				t.Errorf("head %s, want %s", got[len(got)-1], newest)
			}
			if !bytes.HasSuffix(st.Get("s/journal.log"), fmt.Appendf(nil, " root %.0f\n", want.RecoverJournal.Newest[1])) {
				t.Errorf("time of the head: want %.0f", want.RecoverJournal.Newest[1])
			}
			if slices.Sort(got); !slices.Equal(got, want.RecoverJournal.RevisionsSorted) {
				t.Errorf("found %q\nwant %q", got, want.RecoverJournal.RevisionsSorted)
			}
		})
	}
	if compared < 5 && !testkit.Race() {
		t.Errorf("compared %d", compared)
	}
}

func TestRevisionsWithoutCheckpointsAreOlderThanThoseWithThem(t *testing.T) {
	for _, c := range []struct{ found, full, bare string }{
		{"", "", ""},
		{"fff", "012", ""},
		{"bbf", "2", "01"},
		{"bfb", "1", "0"}, // the last is a node of an index
		{"bbtbtf", "5", "0124"},
		{"tbbt", "", "03"},
		{"bbb", "", "012"},
	} {
		var f finder
		for i, kind := range c.found {
			f.found = append(f.found, candidate{millis: int64(i), bare: kind != 'f', typed: kind == 't'})
		}
		slices.Reverse(f.found)
		said := func(some []candidate) (s string) {
			for _, c := range some {
				s += fmt.Sprint(c.millis)
			}
			return s
		}
		full, bare := f.sorted()
		if said(full) != c.full || said(bare) != c.bare {
			t.Errorf("%s: %s and %s, want %s and %s", c.found, said(full), said(bare), c.full, c.bare)
		}
	}
}

func TestRevisionsWithoutCheckpointsCountIfNoOtherIsWhole(t *testing.T) {
	var bare segment.RecordID
	root := func(m maker) segment.RecordID {
		bare = m.node(nil, segment.Child{Name: rootName, Node: m.node(nil)})
		return m.node([]segment.NewProperty{single("data", segment.Binary, m.binary(noise(segment.MaxSize)))})
	}
	whole := madeStore(t, root)
	j, err := checkedStore(t, whole).PlanJournal(t.Context())
	if err != nil || j.Lines != 1 || j.Head.Revision == bare.String() {
		t.Errorf("%+v, %v", j, err)
	}
	j, err = checkedStore(t, madeStore(t, root, bulkOf(t, whole))).PlanJournal(t.Context())
	if err != nil || j.Lines != 1 || j.Dropped != 1 || len(j.Losses) != 1 || j.Head.Revision != bare.String() {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestDamagedSegmentIsNoSourceOfRevisions(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID { return m.node(nil) })
	b := bytes.Clone(st.Get("s/data00000a.tar"))
	// Flip a bit in the text of the segment info, which affects nothing that is read.
	b[bytes.Index(b, []byte(`"wid"`))+1] ^= 1
	st.Put("s/data00000a.tar", b)
	j, err := checkedStore(t, st).PlanJournal(t.Context())
	if !errors.Is(err, ErrNothingGood) || j.Skipped != 1 {
		t.Errorf("%+v, %v", j, err)
	}
}
