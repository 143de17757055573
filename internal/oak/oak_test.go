package oak

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// TestStoresOfFilesConform tests writing.
func TestFormat(t *testing.T) {
	f := *Format
	f.Create = nil
	formattest.Run(t, &f)
}

// fixture is a store of the reference, as "s/…".
func fixture(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	testkit.Put(st, testkit.Untar(t, "testdata/"+name+".tar.gz"), "segmentstore/", "s/")
	return st
}

// damagedFurther returns a fixture of which a segment has a wrong bit, with a second one beside it.
func damagedFurther(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := fixture(t, name)
	out := st.Clone()
	err := onStore(t.Context(), st, func(s *Store) error {
		for _, tar := range s.r.tars {
			for _, e := range tar.All() {
				wrong, err := tar.read(t.Context(), e, nil, asStored)
				if err != nil {
					return err
				}
				right, err := tar.read(t.Context(), e, nil, healing)
				for i := range right {
					if right[i] != wrong[i] {
						b := bytes.Clone(out.Get(tar.path))
						b[e.Pos+int64(i)] ^= further
						out.Put(tar.path, b)
					}
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// further is a bit that no fixture has wrong.
const further = 0x04

// readableFixture returns a fixture in which everything that the reference reads can be read. The
// reference does not check the checksums of segments.
func readableFixture(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := fixture(t, name)
	if name == "corrupt-value" {
		resum(t, st)
	}
	return st
}

// resum corrects the checksums of segments, as if they had been written like that.
func resum(t testing.TB, st *storetest.Mem) {
	t.Helper()
	for name, b := range objects(t, st) {
		o, err := st.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := tarfile.Open(t.Context(), o, name, tarfile.Options{}); err == nil {
			b = bytes.Clone(b)
			for _, e := range x.Index().All() {
				if header := b[e.Pos-tarfile.BlockSize : e.Pos]; e.Pos+int64(e.Len) <= int64(len(b)) {
					h, _ := tarfile.ParseHeader(header)
					copy(header, tarfile.AppendHeader(nil, fmt.Sprintf("%s.%08x", e.ID, crc32.ChecksumIEEE(b[e.Pos:][:e.Len])), int64(e.Len), h.ModTime))
				}
			}
			st.Put(name, b)
		}
		o.Close()
	}
}

func objects(t testing.TB, st *storetest.Mem) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = st.Get(info.Name)
	}
	return all
}

func TestStoresOfTheReferenceConform(t *testing.T) {
	for _, name := range []string{"empty-store"} {
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, Format, objects(t, fixture(t, name)), "s")
		})
	}
	t.Run("a tar of its own", func(t *testing.T) {
		b := fixture(t, "empty-store").Get("s/data00000a.tar")
		formattest.RunArchive(t, Format, map[string][]byte{"data00000a.tar": b}, "data00000a.tar")
	})
}

func (t *segmentTar) len() int               { return t.Len() }
func (t *segmentTar) at(i int) tarfile.Entry { return t.At(i) }

// repairAll repairs s of st into out.
func repairAll(t *testing.T, st, out *storetest.Mem) *holdall.RepairPlan {
	t.Helper()
	plan, err := holdall.Repair(t.Context(), "s", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}})
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Changes() {
		return plan
	}
	if err := plan.ApplyStore(t.Context(), out, "s"); err != nil {
		t.Fatal(err)
	}
	return plan
}

// What a repair makes of each fixture can be read whole, has all segments that the
// damaged store has, and needs no other repair.
func TestStoresAreRepaired(t *testing.T) {
	testkit.Serial(t)
	o := holdall.OpenOptions{Formats: []*format.Format{Format}}
	segments := func(st *storetest.Mem) map[string]int64 {
		a, err := holdall.Open(t.Context(), "s", o.In(st))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		all := map[string]int64{}
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if _, id, ok := strings.Cut(e.Name, "/"); ok {
				all[id] = e.Size
			}
		}
		return all
	}
	changed := map[string]bool{
		"bad-journal": true, "corrupt-brf": true, "corrupt-gph": true, "corrupt-idx": true, "corrupt-segment-magic": true, "corrupt-value": true,
		"truncated-old-tar": true, "two-letters": true, "unclean-open": true, "unclean-truncated": true,
	}
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			before := segments(st)
			out := &storetest.Mem{}
			plan := repairAll(t, st, out)
			if plan.Changes() != changed[name] {
				t.Errorf("changes: %v, with %q", plan.Changes(), plan.Notes)
			}
			if !plan.Changes() {
				return
			}
			after := segments(out)
			for id, n := range before {
				if after[id] != n && name != "corrupt-segment-magic" {
					t.Errorf("segment %s of %d bytes: %d bytes afterwards", id, n, after[id])
				}
			}
			if again := repairAll(t, out, &storetest.Mem{}); again.Changes() {
				t.Errorf("it needs another repair: %q", again.Notes)
			}
			// The same in place, with the replaced files kept beside it.
			repairAll(t, st, st)
			for info, err := range out.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(st.Get(info.Name), out.Get(info.Name)) {
					t.Errorf("%s differs in place", info.Name)
				}
			}
			kept := 0
			for info, err := range st.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(info.Name, ".bak") {
					kept++
				}
			}
			if kept == 0 && name != "bad-journal" {
				t.Error("what was replaced is not kept")
			}
		})
	}
}

// A line of the journal that names a node somewhere in the tree.
func TestAHeadThatIsNotAboveTheTreeIsAnError(t *testing.T) {
	st := fixture(t, "checkpoints")
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	head, err := s.r.head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Segment(t.Context(), head.Segment.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range info.Records {
		if r.Type != "node" {
			continue
		}
		line := fmt.Sprintf("%s:%d root 1795220663942\n", info.ID, r.Number)
		st.Put("s/journal.log", append(bytes.Clone(fixture(t, "checkpoints").Get("s/journal.log")), line...))
		broken := false
		if _, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}},
			func(p holdall.Problem) { broken = broken || p.Class == "head-broken" }); err != nil {
			t.Fatal(err)
		}
		n, err := s.records.Node(t.Context(), segment.RecordID{Segment: head.Segment, Number: r.Number})
		if err != nil {
			t.Fatal(err)
		}
		_, above, err := n.Child(t.Context(), "root")
		if err != nil {
			t.Fatal(err)
		}
		if broken == above {
			t.Errorf("record %d, which has a child root: %v; called broken: %v", r.Number, above, broken)
		}
	}
}

// A cleanup removes what it replaces, but no letter of a tar that is kept, because a repair may
// still find something in it.
func TestACleanupLeavesLettersOfTarsThatStay(t *testing.T) {
	st := fixture(t, "cleanup-pending")
	damaged := st.Get("s/data00003a.tar")[:5000]
	st.Put("s/data00003b.tar", damaged) // the newest letter, without an index
	st.Put("s/data00000b.tar", damaged)
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.PlanCleanup(t.Context(), CleanupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var tars []string
	for name := range objects(t, st) {
		if strings.HasSuffix(name, ".tar") {
			tars = append(tars, strings.TrimPrefix(name, "s/"))
		}
	}
	slices.Sort(tars)
	want := []string{"data00000c.tar", "data00001b.tar", "data00002a.tar", "data00003a.tar", "data00003b.tar"}
	if !slices.Equal(tars, want) {
		t.Errorf("%q, expected %q", tars, want)
	}
}

// What a repair keeps though nothing proves it may go on being wrong, and the plan says
// so.
func TestWhatIsKeptInDoubtIsSaid(t *testing.T) {
	st := fixture(t, "empty-store")
	b := bytes.Clone(st.Get("s/data00000a.tar"))
	b[636] ^= 1 << 5
	b[37] ^= 1 << 4 // a digit of the segment's checksum
	b[1140] ^= 1 << 2
	st.Put("s/data00000a.tar", b)
	out := &storetest.Mem{}
	plan := repairAll(t, st, out)
	v, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: out, Formats: []*format.Format{Format}}}, func(holdall.Problem) {})
	if err != nil || !plan.Changes() || v.Errors > 0 && (!plan.Partial || len(plan.Lost) == 0) {
		t.Errorf("%d errors are left, %v; partial %v, lost %q", v.Errors, err, plan.Partial, plan.Lost)
	}
}

// TestANumberTooLargeIsAProblem has a tar over whose name Oak fails.
func TestANumberTooLargeIsAProblem(t *testing.T) {
	st := fixture(t, "empty-store")
	st.Put("s/data999999999999a.tar", nil)
	found := false
	if _, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}},
		func(p holdall.Problem) {
			found = found || p.Class == "number-too-large" && p.Volume == "s/data999999999999a.tar"
		}); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Error("it is not told")
	}
}
