package oak

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// A harvest is how much of a revision and its checkpoints an export can read.
type harvest struct {
	nodes, lost int64
	whole       map[string]bool // lines in which nothing is lost
	revision    string          // empty if nothing can be read
}

// harvestOf exports a revision, or the newest.
func harvestOf(t *testing.T, st *storetest.Mem, noVerify bool, revision string) (h harvest) {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{NoVerify: noVerify})
	if err != nil {
		return h
	}
	defer s.Close()
	tree, err := s.Tree(t.Context(), map[string]string{superParam: "true", revisionParam: revision})
	if err != nil {
		return h
	}
	var lines bytes.Buffer
	x, err := tree.Export(t.Context(), &lines, "/", wholeTree)
	if err != nil {
		t.Fatal(err)
	}
	h.whole = map[string]bool{}
	for line := range strings.Lines(lines.String()) {
		if !strings.Contains(line, `"lost":`) {
			h.whole[line] = true
		}
	}
	h.nodes, h.lost, h.revision = x.Nodes, x.Lost, tree.Revision()
	return h
}

// A segment that is damaged in one place stays, and all that could be read of it can be.
func TestARepairKeepsWhatIsDamaged(t *testing.T) {
	st := fixture(t, "v12-upgraded")
	b := bytes.Clone(st.Get("s/data00001a.tar"))
	b[602] ^= 0x5a
	st.Put("s/data00001a.tar", b)
	// A tar beside it must be rewritten.
	other := st.Get("s/data00002a.tar")
	st.Put("s/data00002a.tar", other[:len(other)-3000])
	before := harvestOf(t, st, true, "").nodes
	out := &storetest.Mem{}
	plan := repairAll(t, st, out)
	after := harvestOf(t, out, true, "").nodes
	if before < 400 || after < before || !plan.Changes() || !plan.Partial {
		t.Errorf("%d nodes before, %d after: changes %v, partial %v", before, after, plan.Changes(), plan.Partial)
	}
	if !bytes.Equal(out.Get("s/data00001a.tar"), b) {
		t.Error("the damaged tar is not as it was")
	}
	if r := plan.Readable; r["unverified_nodes_before"] == 0 || r["unverified_nodes_after"] < r["unverified_nodes_before"] || r["nodes_after"] != r["nodes_before"] || r["lost_places"] == 0 {
		t.Errorf("%v", r)
	}
	said := strings.Join(plan.Lost, "\n")
	for _, want := range []string{" damaged segments kept", "/: segment 715c544b-ecff-4656-a4fb-cf210ca42d4e: the checksum does not match"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	if t.Failed() {
		t.Log(plan.Notes, "\n"+said)
	}
}

// TestARepairNeverLeavesLess damages stores at random: all nodes that could be read before
// a repair can be read after it, of the same revision, with comparing and without. What
// verify finds in what comes out, the repair has said. HOLDALL_LONG is how many rounds.
func TestARepairNeverLeavesLess(t *testing.T) {
	testkit.Serial(t)
	stores := map[string]int{
		"checkpoints": 4, "v12-upgraded": 1, "gc-online": 1, "compacted-offline": 1, "cleanup-pending": 1, "two-letters": 1,
		"empty-store": 8, "types": 1, "unclean-open": 1, "truncated-old-tar": 1,
	}
	for name, rounds := range stores {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			sound := fixture(t, name)
			all := objects(t, sound)
			names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return !strings.HasSuffix(n, ".tar") || !strings.HasPrefix(n, "s/") })
			for range testkit.Rounds(t, rounds) {
				st := sound.Clone()
				var what string
				for range 1 + rnd.IntN(2) {
					object := names[rnd.IntN(len(names))]
					b, how := testkit.Damage(rnd, st.Get(object))
					st.Put(object, b)
					what += " " + object + how
				}
				neverLess(t, st, what)
				if t.Failed() {
					return
				}
			}
		})
	}
}

func neverLess(t *testing.T, st *storetest.Mem, what string) {
	t.Helper()
	out := &storetest.Mem{}
	plan := repairAll(t, st, out)
	problems := func(st *storetest.Mem) (n int) {
		err := verify(t.Context(), st, "s", format.OpenOptions{}, func(p format.Problem) {
			if p.Severity == format.Error {
				n++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if !plan.Changes() {
		out = st
	}
	if left := problems(out); left > 0 && !plan.Partial {
		t.Errorf("%s: verify finds %d errors afterwards, and the repair told of nothing that is lost", what, left)
	}
	for _, noVerify := range []bool{false, true} {
		before := harvestOf(t, st, noVerify, "")
		if before.revision == "" {
			continue
		}
		after := harvestOf(t, out, noVerify, before.revision)
		// What is damaged may lead to more than there was, until all is proven again.
		if proven := harvestOf(t, out, false, before.revision); noVerify && proven.revision != "" && proven.lost == 0 {
			continue
		}
		if after.nodes < before.nodes {
			t.Errorf("%s: without comparing %v: %d nodes before, %d after: %q", what, noVerify, before.nodes, after.nodes, plan.Lost)
		}
		for line := range before.whole {
			if !noVerify && !after.whole[line] {
				t.Errorf("%s: lost is %.200s: %q", what, line, plan.Lost)
				break
			}
		}
	}
}

// A data segment of a generation that cannot be is left out of a new tar. If something
// could be read of it, the store stays as it is.
func TestARepairThatWouldLoseNodesIsNone(t *testing.T) {
	st := fixture(t, "v12-upgraded")
	b := bytes.Clone(st.Get("s/data00001a.tar"))
	b[512+10] |= 0x80
	b[len(b)-1100] ^= 1 // of the index
	st.Put("s/data00001a.tar", b)
	resum(t, st)
	before := harvestOf(t, st, true, "")
	plan := repairAll(t, st, &storetest.Mem{})
	if before.nodes < 400 || plan.Changes() || !plan.Partial || len(plan.Notes) > 0 || plan.Readable["unverified_nodes_after"] == 0 || !strings.Contains(strings.Join(plan.Lost, "\n"), "nothing changed") {
		t.Errorf("%d nodes; changes %v, partial %v, %q, %q", before.nodes, plan.Changes(), plan.Partial, plan.Notes, plan.Lost)
	}
}
