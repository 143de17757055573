package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// expectedCheck is what the reference reports about the revisions of a fixture.
type expectedCheck struct {
	JournalNewestFirst [][2]any
	Check              struct{ LastGoodHead, LastGoodOverall string }
	RecoverJournal     *struct {
		RC              int
		Entries         int
		Newest          [2]any
		RevisionsSorted []string
	}
}

func checkOf(t testing.TB, name string) (want expectedCheck) {
	t.Helper()
	testkit.JSON(t, "testdata/"+name+".expect.json", &want)
	return want
}

func checkedStore(t testing.TB, st store.Store) *Store {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func mustCheck(t testing.TB, st store.Store, o CheckOptions) CheckResult {
	t.Helper()
	r, err := checkedStore(t, st).Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// In read-only mode, the reference uses another letter of this fixture.
const twoLetters = "two-letters"

func TestCheckFindsTheRevisionThatTheReferenceFinds(t *testing.T) {
	for _, name := range testkit.Few(t, 4, testkit.Names(t, "testdata", ".tar.gz", 24)...) {
		t.Run(name, func(t *testing.T) {
			want := checkOf(t, name)
			newest := fmt.Sprint(want.JournalNewestFirst[0][0])
			good := want.Check.LastGoodOverall
			if name == twoLetters {
				good = newest
			}
			st := readableFixture(t, name)
			r := mustCheck(t, st, CheckOptions{Binaries: true})
			if r.Good == nil || r.Good.Revision != good || r.Whole != (good == newest) {
				t.Errorf("found %+v, whole %v; want %s", r.Good, r.Whole, good)
			}
			if wantLosses := name == "corrupt-segment-magic"; (r.Lost > 0) != wantLosses || r.Lost != int64(len(r.Losses)) {
				t.Errorf("losses: %d, %+v", r.Lost, r.Losses)
			}
			head := mustCheck(t, st, CheckOptions{Head: true})
			if good = want.Check.LastGoodHead; name != twoLetters && (head.Good == nil || head.Good.Revision != good) {
				t.Errorf("head: found %+v, want %s", head.Good, good)
			}
		})
	}
}

func TestLossesAreThoseThatReadingTheTreeMeets(t *testing.T) {
	testkit.Serial(t)
	damaged := 0
	for _, name := range []string{"types", "checkpoints", "v12-upgraded", "compacted-offline"} {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			for i := range 8 {
				st := fixture(t, name)
				plantFlips(t, st, rnd)
				if i%4 > 0 {
					resum(t, st)
				}
				r := mustCheck(t, st, CheckOptions{Head: true, Binaries: true, Last: 1})
				if r.LossesOf == "" {
					continue // the super root itself is gone
				}
				want := met(t, st, r.LossesOf)
				got := map[string]bool{}
				for _, l := range r.Losses {
					if !isSum(l.Problem) {
						got[l.Segment+" "+l.Problem] = true
					}
				}
				if damaged += min(1, len(want)); !reflect.DeepEqual(got, want) {
					t.Errorf("found %v\nwant %v", got, want)
				}
				if r.Whole != (r.Lost == 0) {
					t.Errorf("whole: %v with %d losses", r.Whole, r.Lost)
				}
			}
		})
	}
	if damaged == 0 {
		t.Error("nothing was damaged")
	}
}

// isSum reports whether a problem is that the numbers of a map do not add up. Only an
// uninterrupted iteration over the map finds that, and the tree does not do one.
func isSum(problem string) bool {
	return strings.HasPrefix(problem, "map branch: expected ") || strings.HasPrefix(problem, "map: expected at most ")
}

// plantFlips turns bits of a few data segments, among headers, tables and records.
func plantFlips(t *testing.T, st *storetest.Mem, rnd *rand.Rand) {
	t.Helper()
	s := checkedStore(t, st)
	for range 4 {
		tar := s.r.tars[rnd.IntN(len(s.r.tars))]
		e := tar.at(rnd.IntN(tar.len()))
		if !e.ID.IsData() {
			continue
		}
		b := bytes.Clone(st.Get(tar.path))
		for range 20 {
			b[e.Pos+int64(rnd.IntN(e.Len))] ^= 1 << rnd.IntN(8)
		}
		st.Put(tar.path, b)
	}
}

// met returns the damage that is found when a whole tree is read: segments, and what is wrong
// with them.
func met(t *testing.T, st store.Store, revision string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	note := func(msg string) {
		rest, ok := strings.CutPrefix(msg, "segment ")
		if !ok || len(rest) < 36 {
			return // what follows from other damage
		}
		id, rest := rest[:36], rest[36:]
		rest, ok = strings.CutPrefix(rest, " record ")
		if ok {
			rest = strings.TrimLeft(rest, "0123456789")
		}
		if rest, ok = strings.CutPrefix(rest, " at "); ok {
			rest = strings.TrimLeft(rest, "0123456789")
		}
		rest = strings.TrimPrefix(rest, ": ")
		if what, _, ok := strings.Cut(rest, ": segment "); ok {
			rest = what
		}
		if !isSum(rest) {
			found[id+" "+rest] = true
		}
	}
	sure := *treeFormat
	sure.Open = func(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
		r, err := openSegments(ctx, st, name, o)
		if err != nil {
			return nil, err
		}
		x, err := newTree(ctx, r, segment.NewReader(&parsed{r: r}), o, false)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		return x, nil
	}
	a, err := holdall.Open(t.Context(), "s", holdall.OpenOptions{Store: st, Format: "oak", Formats: []*format.Format{&sure}, Param: map[string]string{revisionParam: revision}})
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		if note(c.Message); c.Class == noRoot {
			found[revision[:36]+` super root: expected a child "root", found none`] = true
		}
		return found
	}
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault != nil {
			note(e.Fault.Message)
		}
		if e.Fault != nil || !e.Kind.HasContent() {
			continue
		}
		b := make([]byte, e.Size)
		_, err := a.ReadAt(t.Context(), e, b, 0)
		if c, ok := errors.AsType[*format.CorruptError](err); ok {
			note(c.Message)
		}
	}
	return found
}

func TestLossIsSaidWithItsTarAndPath(t *testing.T) {
	r := mustCheck(t, fixture(t, "corrupt-segment-magic"), CheckOptions{})
	if r.Whole || len(r.Losses) != 1 {
		t.Fatalf("%+v", r)
	}
	want := Loss{Path: "/", Children: true, Tar: "data00001a.tar", Segment: "61b864b2-e4a5-4c9b-aa95-3b69afc76186", Record: -1,
		Problem: "checksum 24c11521, expected 0ccc7985"}
	if r.Losses[0] != want {
		t.Errorf("found %+v\nwant %+v", r.Losses[0], want)
	}
}

func TestPathsAreCheckedByThemselves(t *testing.T) {
	root := func(m maker) segment.RecordID {
		data := m.node([]segment.NewProperty{single("data", segment.Binary, m.binary(noise(segment.MaxSize)))})
		return m.node(nil, segment.Child{Name: "whole", Node: m.node(nil)}, segment.Child{Name: "x/y", Node: m.node(nil, segment.Child{Name: "data", Node: data})})
	}
	r := mustCheck(t, madeStore(t, root, bulkOf(t, madeStore(t, root))), CheckOptions{Head: true, Paths: []string{"/whole", "x%2Fy", "x%2Fy/data/", "/", "other"}})
	got := map[string]string{}
	for _, tree := range r.Trees {
		got[tree.Path] = tree.State
	}
	want := map[string]string{"/whole": PathWhole, "/x%2Fy": PathDamaged, "/x%2Fy/data": PathDamaged, "/": PathDamaged, "/other": PathNotThere}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("found %v\nwant %v", got, want)
	}
	for _, l := range r.Losses {
		if l.Path != "/x%2Fy/data" || l.Property != "data" {
			t.Errorf("%+v", l)
		}
	}
}

// bulkOf is the last bulk segment of a store.
func bulkOf(t *testing.T, st *storetest.Mem) (bulk segment.ID) {
	t.Helper()
	tar := checkedStore(t, st).r.tars[0]
	for i := range tar.len() {
		if e := tar.at(i); e.ID.IsBulk() {
			bulk = e.ID
		}
	}
	return bulk
}

func TestPathThatIsNotThereIsNoDamage(t *testing.T) {
	r := mustCheck(t, fixture(t, "checkpoints"), CheckOptions{Head: true, Paths: []string{"/", "no/such/path"}})
	if !r.Whole || len(r.Missing()) != 1 || r.Lost != 0 || r.Looked != len(checkOf(t, "checkpoints").JournalNewestFirst) {
		t.Errorf("%+v", r)
	}
	_, err := checkedStore(t, fixture(t, "checkpoints")).Check(t.Context(), CheckOptions{Paths: []string{"a%zz/b%25x"}})
	if !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that none can have: %v", err)
	}
}

func TestPathThatWasRemovedIsNoDamage(t *testing.T) {
	st := madeStore(t, func(m maker) segment.RecordID {
		old := m.node(nil, segment.Child{Name: rootName, Node: m.node(nil, segment.Child{Name: "gone", Node: m.node(nil)})})
		return m.node(nil, segment.Child{Name: "old", Node: old})
	})
	s := checkedStore(t, st)
	now := journalOf(t, st.Get("s/journal.log"))[0]
	super, err := segment.ParseRecordID(now)
	if err != nil {
		t.Fatal(err)
	}
	old, _, _, err := s.r.trees(false, 1).down(t.Context(), super, rootName, "old")
	if err != nil {
		t.Fatal(err)
	}
	st.Put("s/journal.log", fmt.Appendf(nil, "%s root 1\n%s root 2\n", old, now))
	r := mustCheck(t, st, CheckOptions{Head: true, Paths: []string{"/gone"}})
	if !r.Whole || len(r.Missing()) != 0 || r.Trees[0].State != PathNotThere || r.Trees[0].Good == nil || r.Trees[0].Good.Revision != old.String() {
		t.Errorf("%+v", r)
	}
}

func TestLastLooksAtSoManyRevisions(t *testing.T) {
	r := mustCheck(t, fixture(t, "multitar"), CheckOptions{Last: 5})
	if r.Looked != 5 || len(r.Revisions) != 5 || slices.ContainsFunc(r.Revisions, func(c CheckedRevision) bool { return !c.Whole }) {
		t.Errorf("%+v", r.Revisions)
	}
}

func TestParallelCheckSaysTheSame(t *testing.T) {
	st := fixture(t, "wide")
	plantFlips(t, st, rand.New(rand.NewPCG(7, 7)))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one := mustCheck(t, st, CheckOptions{Last: 3, Binaries: true})
	runtime.GOMAXPROCS(8)
	for range 5 {
		if many := mustCheck(t, st, CheckOptions{Last: 3, Binaries: true}); !reflect.DeepEqual(one, many) {
			t.Fatalf("alone %+v\ntogether %+v", one, many)
		}
	}
}

func TestFixJournalGoesBackToTheNewestGoodRevision(t *testing.T) {
	for _, name := range []string{"bad-journal", "missing-tar", "corrupt-segment-magic", "truncated-old-tar"} {
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			old := st.Get("s/journal.log")
			s := checkedStore(t, st)
			r, err := s.Check(t.Context(), CheckOptions{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.FixJournal(t.Context(), r)
			if err != nil || !c.Changed || c.Backup != "journal.log.bak.000" || c.Lines != r.Good.Newer {
				t.Fatalf("%+v, %v", c, err)
			}
			if !bytes.Equal(st.Get("s/journal.log.bak.000"), old) {
				t.Error("the backup is not the old journal")
			}
			now := st.Get("s/journal.log")
			if c.Head != r.Good.Revision { // a dropped revision is still in the segments
				now = now[:bytes.LastIndex(now, []byte(c.Head))]
			}
			if !bytes.HasPrefix(old, now) || len(now) == len(old) {
				t.Errorf("the journal is now\n%s", st.Get("s/journal.log"))
			}
			if again := mustCheck(t, st, CheckOptions{}); !again.Whole || again.Good.Revision != c.Head {
				t.Errorf("afterwards: %+v", again)
			}
		})
	}
}

func TestFixJournalWithNothingToDoWritesNothing(t *testing.T) {
	st := fixture(t, "types")
	before := objects(t, st)
	s := checkedStore(t, st)
	r, err := s.Check(t.Context(), CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.FixJournal(t.Context(), r); err != nil || c.Changed {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := s.FixJournal(t.Context(), CheckResult{}); !errors.Is(err, ErrNothingGood) {
		t.Errorf("without a good revision: %v", err)
	}
	if !reflect.DeepEqual(objects(t, st), before) {
		t.Error("something changed")
	}
}

// TestCrashLeavesOneJournalOrTheOther stops a fix and a recovery at each step.
func TestCrashLeavesOneJournalOrTheOther(t *testing.T) {
	testkit.Serial(t)
	changes := map[string]func(context.Context, *Store) error{
		"fix": func(ctx context.Context, s *Store) error {
			r, err := s.Check(ctx, CheckOptions{})
			if err == nil {
				_, err = s.FixJournal(ctx, r)
			}
			return err
		},
		"recover": func(ctx context.Context, s *Store) error {
			j, err := s.PlanJournal(ctx)
			if err == nil {
				_, err = j.Apply(ctx)
			}
			return err
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			base := fixture(t, "missing-tar")
			base.Put("s/gc.log", []byte("1,2,3,1,1,0,aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa:1\n"))
			old := base.Get("s/journal.log")
			done := base.Clone()
			if err := change(t.Context(), checkedStore(t, done)); err != nil {
				t.Fatal(err)
			}
			if log := done.Get("s/gc.log"); len(log) != 0 {
				t.Errorf("gc.log leads nowhere still: %s", log)
			}
			for steps := range testkit.Steps(t, 3) {
				st := base.Clone()
				crash := storetest.NewCrash(st, steps)
				s, err := OpenStore(t.Context(), crash, "s", format.OpenOptions{})
				if err == nil {
					err = change(t.Context(), s)
					s.Close()
				}
				if (err != nil) != crash.Lost() {
					t.Fatalf("after %d steps: %v", steps, err)
				}
				journal := st.Get("s/journal.log")
				if !bytes.Equal(journal, old) && !bytes.Equal(journal, done.Get("s/journal.log")) {
					t.Fatalf("after %d steps the journal is\n%s", steps, journal)
				}
				if backup := st.Get("s/journal.log.bak.000"); !bytes.Equal(journal, old) && !bytes.Equal(backup, old) {
					t.Fatalf("after %d steps the old journal is lost", steps)
				}
				if err := change(t.Context(), checkedStore(t, st)); err != nil {
					t.Fatalf("after %d steps: once more: %v", steps, err)
				}
				if !bytes.Equal(st.Get("s/journal.log"), done.Get("s/journal.log")) {
					t.Fatalf("after %d steps: once more made another journal", steps)
				}
				if !crash.Lost() {
					if steps < 3 {
						t.Errorf("only %d steps", steps)
					}
					return
				}
			}
		})
	}
}

func TestBackupTakesTheFirstFreeName(t *testing.T) {
	st := fixture(t, "missing-tar")
	st.Put("s/journal.log.bak.000", []byte("older\n"))
	s := checkedStore(t, st)
	r, err := s.Check(t.Context(), CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.FixJournal(t.Context(), r); err != nil || c.Backup != "journal.log.bak.001" {
		t.Errorf("%+v, %v", c, err)
	}
	if string(st.Get("s/journal.log.bak.000")) != "older\n" {
		t.Error("the older backup is lost")
	}
}

func TestMissingBulkSegmentIsALoss(t *testing.T) {
	root := func(m maker) segment.RecordID {
		v := m.binary(noise(segment.MaxSize))
		return m.node([]segment.NewProperty{single("data", segment.Binary, v), single("text", segment.String, text("x"))})
	}
	whole := madeStore(t, root)
	bulk := bulkOf(t, whole)
	for _, binaries := range []bool{false, true} {
		if r := mustCheck(t, whole, CheckOptions{Binaries: binaries}); !r.Whole {
			t.Errorf("%+v", r)
		}
		r := mustCheck(t, madeStore(t, root, bulk), CheckOptions{Binaries: binaries})
		if r.Whole || len(r.Losses) != 1 || r.Losses[0].Property != "data" || r.Losses[0].Segment != bulk.String() {
			t.Errorf("binaries %v: %+v", binaries, r.Losses)
		}
	}
}

func FuzzCheck(f *testing.F) {
	st := madeStore(f, sampleTree)
	size := len(st.Get("s/data00000a.tar"))
	f.Add(uint32(700), byte(1), uint32(size/2), byte(255))
	f.Add(uint32(size-3000), byte(7), uint32(600), byte(16))
	f.Fuzz(func(t *testing.T, at uint32, x byte, at2 uint32, x2 byte) {
		st := st.Clone()
		b := bytes.Clone(st.Get("s/data00000a.tar"))
		b[int(at)%len(b)] ^= x
		b[int(at2)%len(b)] ^= x2
		st.Put("s/data00000a.tar", b)
		s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
		if err != nil {
			return
		}
		defer s.Close()
		r, err := s.Check(t.Context(), CheckOptions{Binaries: true})
		if err == nil && r.Whole == (r.Lost > 0) && r.LossesOf != "" {
			t.Errorf("whole %v with %d losses", r.Whole, r.Lost)
		}
		s.PlanJournal(t.Context())
	})
}
