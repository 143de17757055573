package audit

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// damage is what fixtures have, as "class severity file offset", first what Quick
// tells and then what Full does. Of those that are not here there is nothing but
// notes.
var damage = map[string][2][]string{
	"bad-journal": {
		{"journal-line warning journal.log 464", "journal-line warning journal.log 355", "journal-line warning journal.log 332", "journal-line warning journal.log 298", "head-rewound error journal.log 413"},
		{"journal-line warning journal.log 464", "journal-line warning journal.log 355", "journal-line warning journal.log 332", "journal-line warning journal.log 298", "head-rewound error journal.log 413"},
	},
	// The segment's bytes are at 510976: the bit is named in What.
	"corrupt-value":         {nil, {"checksum error data00000a.tar 510976"}},
	"corrupt-segment-magic": {nil, {"checksum error data00001a.tar 38912"}},
	// One byte of the content, whose checksum is then wrong.
	"corrupt-brf": {{"binaries error data00000a.tar 1063019"}, {"binaries error data00000a.tar 1063019"}},
	"corrupt-gph": {{"graph error data00001a.tar 512076"}, {"graph error data00001a.tar 512076"}},
	"corrupt-idx": {
		{"no-index error data00001a.tar 513322", "head-unknown warning journal.log 719"},
		{"no-index error data00001a.tar 513322"},
	},
	"missing-tar": {{"head-rewound error journal.log 2099"}, {"head-rewound error journal.log 2099"}},
	"two-letters": {{"letters error data00001b.tar -1"}, {"letters error data00001b.tar -1"}},
	"unclean-open": {
		{"not-closed warning data00001a.tar 645116", "head-unknown warning journal.log 777"},
		{"not-closed warning data00001a.tar 645116"},
	},
	"unclean-truncated": {
		{"not-closed warning data00001a.tar 327305", "head-unknown warning journal.log 719"},
		{"not-closed warning data00001a.tar 327305", "unrecoverable warning data00001a.tar 290304", "head-rewound error journal.log 719"},
	},
	"truncated-old-tar": {
		{"not-closed warning data00001a.tar 381696", "head-unknown warning journal.log 719"},
		{"not-closed warning data00001a.tar 381696", "unrecoverable warning data00001a.tar 290304", "head-rewound error journal.log 719"},
	},
}

func brief(p Problem) string { return fmt.Sprint(p.Class, " ", p.Severity, " ", p.Tar, " ", p.Off) }

func TestFixturesHaveTheirDamageAndNoOther(t *testing.T) {
	found := map[string]bool{}
	fixtures(t, func(t *testing.T, name string, st *storetest.Mem) {
		for i, full := range []bool{false, true} {
			var got []string
			for _, p := range problems(t, st, full) {
				if p.Severity > Note {
					got = append(got, brief(p))
				} else if p.Class != GarbageRefs && p.Class != OldManifest {
					t.Error(p)
				}
			}
			want := damage[name][i]
			if !slices.Equal(got, want) {
				t.Errorf("full %t: %q, expected %q", full, got, want)
			}
		}
		found[name] = true
	})
	for name := range damage {
		if !found[name] {
			t.Error("no fixture", name)
		}
	}
}

func TestFlippedBitIsNamed(t *testing.T) {
	for name, want := range map[string]string{
		"corrupt-value":         "only bit 0 of the byte at 635488 is wrong",
		"corrupt-segment-magic": "only bit 5 of the byte at 38913 is wrong; and the bytes there are not a segment",
	} {
		p := problems(t, fixture(t, name), true)
		if len(p) != 1 || !strings.HasSuffix(p[0].What, want) || !p[0].HasSegment {
			t.Errorf("%s: %v, expected %s", name, p, want)
		}
	}
}

func TestMadeStoreHasNoProblems(t *testing.T) {
	for _, gen := range []segment.Generation{{}, {Gen: 1, Full: 1, Compacted: true}} {
		for _, full := range []bool{false, true} {
			if p := problems(t, newMade(t, gen).Mem, full); len(p) > 0 {
				t.Error(p)
			}
		}
	}
}

func TestProblemsComeInTheSameOrder(t *testing.T) {
	m := newMade(t, segment.Generation{})
	for _, name := range []string{oldest, older, newest} {
		for _, data := range []bool{true, false} {
			e := m.entry(name, data)
			m.flip(name, e.Pos+100)
			m.flip(name, e.Pos-100)
		}
	}
	m.write("data00002a.tar", m.parts("data00002a.tar")[:1])
	first := problems(t, m.Mem, true)
	if len(first) < 13 {
		t.Error(len(first), "problems")
	}
	for range 3 {
		if again := problems(t, m.Mem, true); !slices.Equal(again, first) {
			t.Fatalf("%v\nand then %v", first, again)
		}
	}
}

func TestUnitsRunInParallel(t *testing.T) {
	m := newMade(t, segment.Generation{})
	for _, name := range []string{oldest, older, newest} {
		m.flip(name, m.entry(name, true).Pos+100)
	}
	m.rewrite("data00002a.tar", func(p *part) bool { return p.drop(false) })
	m.flip(older, m.layout(older).Graph.Off+600)
	want := problems(t, m.Mem, true)
	a, err := Open(t.Context(), source(t, m.Mem))
	if err != nil {
		t.Fatal(err)
	}
	units := []func(report func(Problem)) error{func(report func(Problem)) error { return a.Directory(t.Context(), report) }}
	for i := range a.Len() {
		units = append(units,
			func(report func(Problem)) error { return a.Tail(t.Context(), i, report) },
			func(report func(Problem)) error { return a.Segments(t.Context(), i, report) })
	}
	found := make([][]Problem, len(units))
	var all sync.WaitGroup
	for i, unit := range units {
		all.Go(func() {
			if err := unit(func(p Problem) { found[i] = append(found[i], p) }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := slices.Concat(found...)
	if err := a.Across(t.Context(), func(p Problem) { got = append(got, p) }); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("%v\nexpected %v", got, want)
	}
}

func TestPartsOfATarFindWhatOnePartDoes(t *testing.T) {
	m := newMade(t, segment.Generation{})
	for _, name := range []string{oldest, older, newest} {
		m.flip(name, m.entry(name, true).Pos+100)
		m.flip(name, m.entry(name, false).Pos+1)
	}
	a, err := Open(t.Context(), source(t, m.Mem))
	if err != nil {
		t.Fatal(err)
	}
	several, found := 0, 0
	for i := range a.Len() {
		var want, got []Problem
		if err := a.Segments(t.Context(), i, func(p Problem) { want = append(want, p) }); err != nil {
			t.Fatal(err)
		}
		parts := a.parts(i, 1)
		several = max(several, len(parts))
		var all sync.WaitGroup
		for _, p := range parts {
			all.Go(func() {
				if err := p.Check(t.Context(), new(Memory)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, p := range parts {
			p.Tell(func(p Problem) { got = append(got, p) })
		}
		if found += len(got); !slices.Equal(got, want) {
			t.Errorf("%v\nexpected %v", got, want)
		}
	}
	if several < 2 || found < 6 {
		t.Error(several, "parts at most", found, "problems")
	}
}

func TestTellersTogetherReportWhatOneDoes(t *testing.T) {
	tell := func(to *teller, from, n int) {
		for i := range n {
			to.about(BadHeader, Warning, newest, int64(from+i), "once more")
		}
	}
	var want, got []Problem
	one := newTeller(func(p Problem) { want = append(want, p) })
	all := newTeller(func(p Problem) { got = append(got, p) })
	at := 0
	for _, n := range []int{ofAClass - 1, 1, 0, ofAClass + 3, 5} {
		tell(one, at, n)
		var found []Problem
		part := newTeller(func(p Problem) { found = append(found, p) })
		tell(part, at, n)
		all.add(part, found)
		at += n
	}
	one.end()
	all.end()
	if !slices.Equal(got, want) || len(got) != ofAClass+1 {
		t.Errorf("%d problems, the last %v; expected %d, the last %v", len(got), got[len(got)-1], len(want), want[len(want)-1])
	}
}

func TestEveryClassHasAMeaningAndIsProvoked(t *testing.T) {
	provoked := map[string]bool{UnknownFile.name: true, JournalOld.name: true} // by a tar that changes during the check; by a source that knows newer revisions
	for _, c := range plants {
		for _, want := range c.want {
			class, _, _ := strings.Cut(want, " ")
			provoked[class] = true
		}
	}
	for _, c := range compacted {
		for _, want := range c.want {
			class, _, _ := strings.Cut(want, " ")
			provoked[class] = true
		}
	}
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	classes := regexp.MustCompile(`= Class\{"(.+?)", format\.\w+, ".+"\}`).FindAllSubmatch(source, -1)
	if len(classes) < 40 {
		t.Errorf("%d classes", len(classes))
	}
	for _, c := range classes {
		if !provoked[string(c[1])] {
			t.Errorf("%s: nothing provokes it", c[1])
		}
	}
}
