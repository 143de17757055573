package repo

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const someID = "486aa03b-5c65-4d55-ad28-72210ab8c5e7"

// entries reads a journal; of bad lines it keeps the offset.
func entries(t testing.TB, journal store.Object) (all []Entry, bad []int64) {
	t.Helper()
	for e, err := range Entries(t.Context(), journal) {
		if b, ok := errors.AsType[*Error](err); ok {
			if b.Object != Journal || b.What == "" {
				t.Error(b)
			}
			bad = append(bad, b.Offset)
		} else if err != nil {
			t.Fatal(err)
		} else {
			all = append(all, e)
		}
	}
	return all, bad
}

func TestJournalOfFixturesIsAsOakReadsIt(t *testing.T) {
	testkit.Serial(t)
	fixtures(t, func(t *testing.T, st *storetest.Mem, want expected) {
		journal := opened(t, st, "segmentstore/journal.log")
		text := string(st.Get("segmentstore/journal.log"))
		all, bad := entries(t, journal)
		// Oak's list has each line that has a blank, readable or not.
		var got []string
		for _, e := range all {
			if !strings.HasPrefix(text[e.Offset:], e.Text) {
				t.Errorf("%q is not at %d", e.Text, e.Offset)
			}
			name, _, _ := strings.Cut(e.Text, " ")
			got = append(got, fmt.Sprint(name, " ", e.Millis))
		}
		var expect []string
		for _, j := range want.Journal {
			if _, err := ParseRevision(j[0].(string)); err == nil {
				expect = append(expect, fmt.Sprintf("%s %.0f", j[0], j[1]))
			}
		}
		if !reflect.DeepEqual(got, expect) {
			t.Errorf("%q, expected %q", got, expect)
		}
		if strings.HasSuffix(t.Name(), "bad-journal") != (len(bad) > 0) {
			t.Errorf("bad lines at %v", bad)
		}
		if want.Head.Revision == "" {
			return
		}
		h, err := FindHead(t.Context(), journal, func(id tarfile.ID) (bool, error) { return strings.HasPrefix(want.Head.Revision, id.String()), nil })
		if err != nil || h.Revision.String() != want.Head.Revision {
			t.Errorf("head %s, expected %s: %v", h.Revision, want.Head.Revision, err)
		}
	})
}

func TestBadJournalLinesAreReportedWhereTheyAre(t *testing.T) {
	good := someID + ":5 root 17"
	lines := []string{
		good + "\n",
		"not-a-revision root 1\n",
		"no-blank\n",
		"\n",
		strings.ToUpper(someID) + ":5 root 2\n",
		someID + ".0000001f root\n",
		someID + ":5  root 3\n",
		" " + good + "\n",
		someID + ":5 root +4 more\r\n",
		strings.Repeat("\x00", 3*window) + "\n",
		someID[:30],
	}
	var want []int64
	off := int64(0)
	for i, l := range lines {
		switch i {
		case 1, 2, 4, 7, 9, 10:
			want = append([]int64{off}, want...)
		}
		off += int64(len(l))
	}
	all, bad := entries(t, object(t, []byte(strings.Join(lines, ""))))
	if !reflect.DeepEqual(bad, want) {
		t.Errorf("bad lines at %v, expected %v", bad, want)
	}
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprint(e.Number, " ", e.Millis))
	}
	if want := []string{"5 4", "5 -1", "31 -1", "5 17"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}

func TestRevisionsAreStrict(t *testing.T) {
	for s, want := range map[string]int32{
		someID + ":0": 0, someID + ":7": 7, someID + ":2147483647": 1<<31 - 1, someID + ".00000000": 0, someID + ".7fffffff": 1<<31 - 1, someID + ".0000000a": 10,
	} {
		r, err := ParseRevision(s)
		if err != nil || r.Number != want || r.Segment.String() != someID {
			t.Errorf("%s: %v %v", s, r, err)
		}
	}
	for _, s := range []string{
		"", someID, someID + ":", someID + ":00", someID + ":01", someID + ":2147483648", someID + ":99999999999999999999999", someID + ":-1", someID + ":+1", someID + ":1a", someID + ":1 ",
		someID + ".", someID + ".0", someID + ".000000000", someID + ".80000000", someID + ".0000000A", someID + "/1", strings.ToUpper(someID) + ":1", someID[1:] + ":11", strings.ReplaceAll(someID, "-", "+") + ":1",
	} {
		if r, err := ParseRevision(s); err == nil {
			t.Errorf("%q is read as %s", s, r)
		}
	}
}

func TestHeadIsTheNewestRevisionThatIsThere(t *testing.T) {
	ids := []string{"00000000-0000-4000-a000-000000000001", "00000000-0000-4000-a000-000000000002", "00000000-0000-4000-a000-000000000003"}
	journal := object(t, []byte(ids[0]+":1 root 1\n"+ids[1]+":2 root 2\nbad\n"+ids[2]+":3 root 3\n"))
	head := func(there ...string) (Head, error) {
		return FindHead(t.Context(), journal, func(id tarfile.ID) (bool, error) {
			for _, s := range there {
				if s == id.String() {
					return true, nil
				}
			}
			return false, nil
		})
	}
	for _, c := range []struct {
		there        []string
		record       int32
		rewound, bad int
	}{{ids, 3, 0, 0}, {ids[:2], 2, 1, 1}, {ids[:1], 1, 2, 1}} {
		h, err := head(c.there...)
		if err != nil || h.Number != c.record || h.Rewound != c.rewound || h.Bad != c.bad {
			t.Errorf("%+v %v, expected %+v", h, err, c)
		}
	}
	joined := object(t, []byte(ids[0]+":1 root 1"+ids[1]+":2 root 2\n"))
	if h, err := FindHead(t.Context(), joined, func(tarfile.ID) (bool, error) { return true, nil }); err != nil || h.Number != 1 || h.Bad != 1 {
		t.Errorf("two lines that became one: %+v, %v", h, err)
	}
	_, err := head()
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Error(), "3 lines with missing ones and 1 ") {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := FindHead(t.Context(), journal, func(tarfile.ID) (bool, error) { return false, broken }); err != broken {
		t.Error(err)
	}
}

// Whether the newest line is cut off shows in its time: it has fewer digits than that of the line before
// it. A clock that was set back takes no digits away.
func TestALineThatIsCutOffIsInDoubt(t *testing.T) {
	good := someID + ":5 root 1795220663942\n"
	for text, want := range map[string]bool{
		good: false,
		good + someID + ":7 root 1695220663942\n": false,
		good + someID + ":7 root 1795220663943":   false,
		good + someID + ":7 root 179522066394":    true,
		good + someID + ":7 root 179522066394\n":  true,
		good + someID + ":7 root":                 true,
		good + someID + ":7 ":                     true,
		good + someID + ":7 root\n":               true,
		good + "\n":                               false,
		someID + ":5 root 17\n":                   false,
		someID + ":5 root 17":                     true,
		someID + ":5 root 1795220663942":          false,
		someID + ":5 root 17" + good:              true,
	} {
		all, _ := entries(t, object(t, []byte(text)))
		if got := all[0].Doubt != ""; got != want {
			t.Errorf("%q: in doubt %v, expected %v: %s", text, got, want, all[0].Doubt)
		}
		h, err := FindHead(t.Context(), object(t, []byte(text)), func(tarfile.ID) (bool, error) { return true, nil })
		if err != nil || h.Bad > 0 != want {
			t.Errorf("%q: %d lines that are bad, %v", text, h.Bad, err)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add(someID + ":5 root 17")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEntry(s, 0)
		if err != nil {
			return
		}
		again, err := parseEntry(fmt.Sprintf("%s root %d", e.Revision, e.Millis), 0)
		if err != nil || again.Revision != e.Revision || again.Millis != e.Millis {
			t.Errorf("%q: %+v, again %+v %v", s, e, again, err)
		}
	})
}
