package oak

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// compacted compacts s of st, as s of a new store.
func compacted(t testing.TB, st store.Store, o CompactOptions) (*storetest.Mem, Compaction, error) {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := &storetest.Mem{}
	stage := storekit.NewStage(out)
	defer stage.Discard()
	c, err := s.Compact(t.Context(), stage, "s", o)
	if len(objects(t, out)) > 0 {
		t.Error("something is there before it is published")
	}
	if err == nil {
		err = stage.Publish(t.Context())
	}
	return out, c, err
}

// A new store on a disk gets its name only when it is complete. If it is aborted, nothing is
// left.
func TestANewStoreAppearsWhole(t *testing.T) {
	for name, write := range map[string]func(store.Store) error{
		"compact": func(to store.Store) error {
			s, err := OpenStore(t.Context(), fixture(t, "types"), "s", format.OpenOptions{})
			if err != nil {
				return err
			}
			defer s.Close()
			_, err = s.Compact(t.Context(), to, "new", CompactOptions{})
			return err
		},
		"pack": func(to store.Store) error {
			w, err := create(t.Context(), to, "new", format.CreateOptions{Scratch: tmp})
			if err != nil {
				return err
			}
			if err := addText(t, w, format.Entry{Name: "large"}, string(noise(600_000))); err != nil {
				return err
			}
			_, err = w.Commit(t.Context())
			return err
		},
	} {
		for _, publish := range []bool{false, true} {
			dir := t.TempDir()
			stage := storekit.NewStage(local.New(dir))
			err := stage.Vacant(t.Context(), "new")
			if err == nil {
				err = write(stage)
			}
			if _, there := os.Stat(filepath.Join(dir, "new")); err != nil || !errors.Is(there, fs.ErrNotExist) {
				t.Fatalf("%s: %v; the name: %v", name, err, there)
			}
			if publish {
				err = stage.Publish(t.Context())
			} else {
				err = stage.Discard()
			}
			all, _ := os.ReadDir(dir)
			if err != nil || publish != (len(all) == 1 && all[0].Name() == "new") || !publish && len(all) > 0 {
				t.Errorf("%s: published %v: %v, %v", name, publish, all, err)
			}
		}
	}
}

// mustBeSound verifies s of st, all of it.
func mustBeSound(t testing.TB, st store.Store) {
	t.Helper()
	_, err := holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, Format: "oak", Formats: []*format.Format{Format}}}, func(p holdall.Problem) {
		if p.Severity > format.Note {
			t.Errorf("%+v", p)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// damagedFixtures have damage in the contents of the newest revision.
var damagedFixtures = []string{"corrupt-segment-magic", "corrupt-value", "missing-tar", "truncated-old-tar", "unclean-truncated"}

func TestACompactedStoreHasTheSameTree(t *testing.T) {
	testkit.Long(t)
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			out, c, err := compacted(t, st, CompactOptions{})
			if err != nil {
				damaged, ok := errors.AsType[*format.CorruptError](err)
				if !ok || !slices.Contains(damagedFixtures, name) || damaged.Entry == "" {
					t.Error(err)
				}
				return
			}
			mustBeSound(t, out)
			param := map[string]string{superParam: "true"}
			was, is := shownNodes(t, openTreeArchive(t, st, param)), shownNodes(t, openTreeArchive(t, out, param))
			compareNodes(t, is, was)
			again, d, err := compacted(t, out, CompactOptions{})
			if err != nil || d.Nodes != c.Nodes || d.Segments != c.Segments || len(objects(t, again)) != len(objects(t, out)) {
				t.Errorf("compacted once more: %+v, %v; before %+v", d, err, c)
			}
		})
	}
}

func TestDamageIsNotCompacted(t *testing.T) {
	testkit.Serial(t)
	for _, name := range damagedFixtures {
		if _, _, err := compacted(t, fixture(t, name), CompactOptions{}); err == nil {
			// The damage may be after the newest existing revision.
			mustBeWholeTree(t, fixture(t, name))
		}
	}
	t.Run("a bit of a text", func(t *testing.T) {
		st := damagedFurther(t, "corrupt-value")
		_, _, err := compacted(t, st, CompactOptions{})
		var c *format.CorruptError
		if !errors.As(err, &c) || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%v, expected a checksum that is wrong", err)
		}
	})
}

func mustBeWholeTree(t *testing.T, st store.Store) {
	t.Helper()
	for e, err := range openTreeArchive(t, st, nil).Entries(t.Context()) {
		if err != nil || e.Fault != nil {
			t.Errorf("%s: %v %v", e.Name, err, e.Fault)
		}
	}
}

func TestHistoryIsKeptOnRequest(t *testing.T) {
	testkit.Serial(t)
	st := fixture(t, "multitar")
	revisions := func(st *storetest.Mem) (all []string) {
		for line := range strings.Lines(string(st.Get("s/journal.log"))) {
			if r, _, ok := strings.Cut(line, " "); ok {
				all = append(all, r)
			}
		}
		return all
	}
	old := revisions(st)
	for _, most := range []int{-1, 0, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			out, c, err := compacted(t, st, CompactOptions{History: most})
			if err != nil {
				t.Fatal(err)
			}
			want := old
			if most >= 0 {
				want = old[len(old)-most-1:]
			}
			got := revisions(out)
			if len(got) != len(want) || c.Revisions != len(want) || c.NewHead != got[len(got)-1] {
				t.Fatalf("%d revisions, and %+v; expected %d", len(got), c, len(want))
			}
			for i := range got {
				compareNodes(t, shownNodes(t, openTreeArchive(t, out, map[string]string{revisionParam: got[i]})),
					shownNodes(t, openTreeArchive(t, st, map[string]string{revisionParam: want[i]})))
			}
		})
	}
}

func TestCheckpointsAreLeftOutOnRequest(t *testing.T) {
	st := fixture(t, "checkpoints")
	out, _, err := compacted(t, st, CompactOptions{NoCheckpoints: true})
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, out)
	compareNodes(t, shownNodes(t, openTreeArchive(t, out, nil)), shownNodes(t, openTreeArchive(t, st, nil)))
	for _, n := range shownNodes(t, openTreeArchive(t, out, map[string]string{superParam: "true"})) {
		if strings.HasPrefix(n.Path, "/checkpoints/") {
			t.Errorf("%s is there", n.Path)
		}
	}
}

// What no revision reaches any more is not copied, and what two nodes share is copied once.
func TestACompactionCopiesWhatIsReachedOnce(t *testing.T) {
	big := noise(3 << 20)
	st := madeStore(t, func(m maker) segment.RecordID {
		m.binary(noise(1 << 20)) // garbage
		value := m.binary(big)
		shared := m.node([]segment.NewProperty{single("data", segment.Binary, value)})
		return m.node([]segment.NewProperty{single("data", segment.Binary, value)}, segment.Child{Name: "a", Node: shared}, segment.Child{Name: "b", Node: shared})
	})
	out, c, err := compacted(t, st, CompactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// root, the shared one, the super root and its checkpoints
	if c.Nodes != 4 || c.After < int64(len(big)) || c.After > int64(len(big))+64<<10 {
		t.Errorf("%+v, expected 4 nodes and %d bytes and a little", c, len(big))
	}
	compareNodes(t, shownNodes(t, openTreeArchive(t, out, nil)), shownNodes(t, openTreeArchive(t, st, nil)))
}

func TestANewStoreThatCannotBeWrittenIsNotThere(t *testing.T) {
	st := fixture(t, "multitar")
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := maps.Clone(objects(t, st))
	for n := range 3 {
		full := &fullStore{Mem: st, left: n * 20 << 10}
		stage := storekit.NewStage(full)
		if _, err := s.Compact(t.Context(), stage, "new", CompactOptions{}); !errors.Is(err, errFull) {
			t.Errorf("%d bytes of room: %v", full.left, err)
		}
		if err := stage.Discard(); err != nil {
			t.Error(err)
		}
	}
	if after := objects(t, st); len(after) != len(before) {
		t.Errorf("%d objects, expected %d", len(after), len(before))
	}
}

// A text that many nodes have is written once, whatever its length, and however many
// others come between; so a store does not grow by being compacted again.
func TestACompactedStoreDoesNotGrow(t *testing.T) {
	testkit.Serial(t)
	var lines strings.Builder
	var long []string
	for i := range 20 {
		long = append(long, strings.Repeat(fmt.Sprint("text ", i, " "), 100*(i+1)))
	}
	lines.WriteString(`{"path":"/","properties":{}}` + "\n")
	for i := range 60_000 {
		own := strings.Repeat(fmt.Sprintf("%08x", i*7919), 40)
		fmt.Fprintf(&lines, `{"path":"/a%d/b%d","properties":{"own":{"type":"String","value":%q},"p%d":{"type":"String","value":"often %d"}`, i%50, i, own, i%300, i%700)
		if i%20 == 0 {
			fmt.Fprintf(&lines, `,"long":{"type":"String","value":%q}`, long[i/20%len(long)])
		}
		lines.WriteString("}}\n")
	}
	st := &storetest.Mem{}
	stage := storekit.NewStage(st)
	if _, err := Import(t.Context(), strings.NewReader(lines.String()), stage, "s", format.CreateOptions{Scratch: tmp}); err != nil {
		t.Fatal(err)
	}
	if err := stage.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	once, c1, err := compacted(t, st, CompactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, c2, err := compacted(t, once, CompactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c1.After > c1.Before || c2.After > c1.After+c1.After/100 {
		t.Errorf("%d bytes, compacted %d, again %d", c1.Before, c1.After, c2.After)
	}
	need := int64(60_000 * (320 + 100))
	if c1.After > need+need/10 {
		t.Errorf("%d bytes, expected about %d", c1.After, need)
	}
}
