package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
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

// A revision that is written on an old journal would hide what was written later. So each verb that
// writes one is refused, until it is decided which is the newest.
func TestNothingIsWrittenOnAnOldJournal(t *testing.T) {
	old := fixture(t, "types")
	if err := onStore(t.Context(), old, func(s *Store) error {
		_, err := s.Set(t.Context(), "/", "p", []string{"v"}, SetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	now := superTree(t, old)
	j := old.Get("s/journal.log")
	old.Put("s/journal.log", j[:bytes.LastIndexByte(j[:len(j)-1], '\n')+1])
	was := superTree(t, old)
	if was == now {
		t.Fatal("the last line changed nothing")
	}
	for name, verb := range map[string]func(context.Context, *Store) error{
		"set": revisions["set"].work,
		"check --fix": func(ctx context.Context, s *Store) error {
			_, err := s.PlanFix(ctx, false)
			return err
		},
		"check --fix-gc": func(ctx context.Context, s *Store) error {
			_, err := s.FixGC(ctx, false)
			return err
		},
	} {
		st := old.Clone()
		err := onStore(t.Context(), st, func(s *Store) error { return verb(t.Context(), s) })
		if !refused(err) || !strings.Contains(err.Error(), "recover-journal") {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(objects(t, st), objects(t, old)) {
			t.Errorf("%s: something was written", name)
		}
	}
	for name, decide := range map[string]func(*Store) error{
		was: func(s *Store) error {
			r, err := s.Check(t.Context(), CheckOptions{})
			if err != nil {
				return err
			}
			c, err := s.FixJournal(t.Context(), r)
			if err == nil && (!c.Changed || c.Lines > 0 || len(c.Notes) == 0) {
				t.Errorf("%+v", c)
			}
			return err
		},
		now: func(s *Store) error {
			p, err := s.PlanJournal(t.Context())
			if err == nil {
				_, err = p.Apply(t.Context())
			}
			return err
		},
	} {
		st := old.Clone()
		if err := onStore(t.Context(), st, decide); err != nil {
			t.Fatal(err)
		}
		if superTree(t, st) != name {
			t.Error("it is another content")
		}
		mustBeSound(t, st)
		mustBeWhole(t, st)
		if err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Set(t.Context(), "/", "q", []string{"v"}, SetOptions{})
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}
