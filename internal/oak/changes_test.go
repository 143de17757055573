package oak

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// revisionsOf are the revisions of a journal that can be read, the newest first.
func revisionsOf(t *testing.T, s *Store) (all []string) {
	t.Helper()
	o, err := s.r.st.Open(t.Context(), s.r.list.Path(repo.Journal))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for e, err := range repo.Entries(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.TreeNamed(t.Context(), e.Revision.String()); err == nil {
			all = append(all, e.Revision.String())
		}
	}
	return all
}

// nodesOf are the nodes of a revision by path, as an export has them.
func nodesOf(t *testing.T, tree *Tree) map[string]expectedNode {
	t.Helper()
	b, _ := exported(t, tree, "/", wholeTree)
	all := map[string]expectedNode{}
	for _, n := range exportedNodes(t, b) {
		all[n.Path] = n
	}
	return all
}

// expectedChanges compares all there is.
func expectedChanges(before, after map[string]expectedNode) (all []string) {
	only := func(mark string, one, other map[string]expectedNode) {
		for p := range one {
			if _, ok := other[p]; ok || p == "/" {
				continue
			}
			if _, ok := other[path.Dir(p)]; ok { // of what is new, the top
				all = append(all, mark+" "+p)
			}
		}
	}
	only("-", before, after)
	only("+", after, before)
	for p, n := range before {
		m, ok := after[p]
		if !ok {
			continue
		}
		of := func(n expectedNode) map[any][3]any {
			props := map[any][3]any{}
			for _, p := range n.Props {
				props[p[0]] = p
			}
			return props
		}
		was, is := of(n), of(m)
		for name, v := range was {
			if now, ok := is[name]; !ok {
				all = append(all, fmt.Sprintf("- %s %v", p, name))
			} else if !reflect.DeepEqual(v, now) {
				all = append(all, fmt.Sprintf("~ %s %v", p, name))
			}
		}
		for name := range is {
			if _, ok := was[name]; !ok {
				all = append(all, fmt.Sprintf("+ %s %v", p, name))
			}
		}
	}
	slices.Sort(all)
	return all
}

func changesOf(t *testing.T, before, after *Tree, name string) (all []string) {
	t.Helper()
	for c, err := range before.Changes(t.Context(), after, name, ChangesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(c.String(), ": ")
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// levelByLevel are all changes, found by asking for one level of nodes at a time.
func levelByLevel(t *testing.T, before, after *Tree, name string) (all []string) {
	t.Helper()
	for c, err := range before.Changes(t.Context(), after, name, ChangesOptions{Depth: 1}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case c.Kind == NodeChanged && c.Property == "":
			if path.Dir(c.Path) != path.Clean(name) {
				t.Fatalf("%s is told of, below %s", c.Path, name)
			}
			all = append(all, levelByLevel(t, before, after, c.Path)...)
		default:
			line, _, _ := strings.Cut(c.String(), ": ")
			all = append(all, line)
		}
	}
	return all
}

func TestChangesAreWhatComparingAllGives(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"checkpoints", "multitar", "gc-online", "v12-upgraded", "missing-tar", "datastore"} {
		t.Run(name, func(t *testing.T) {
			s := openStoreOf(t, fixture(t, name))
			revisions := revisionsOf(t, s)
			revisions = revisions[:min(len(revisions), 8)]
			var trees []*Tree
			var nodes []map[string]expectedNode
			for _, r := range revisions {
				tree, err := s.TreeNamed(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				trees, nodes = append(trees, tree), append(nodes, nodesOf(t, tree))
			}
			total := 0
			for i := range trees {
				for k := range trees {
					want := expectedChanges(nodes[i], nodes[k])
					if got := changesOf(t, trees[i], trees[k], "/"); !slices.Equal(got, want) {
						t.Fatalf("%s..%s:\n%s\nexpected\n%s", revisions[i], revisions[k], strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					if got := slices.Sorted(slices.Values(levelByLevel(t, trees[i], trees[k], "/"))); !slices.Equal(got, want) {
						t.Fatalf("%s..%s, level by level:\n%s\nexpected\n%s", revisions[i], revisions[k], strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
					total += len(want)
				}
			}
			t.Logf("%d revisions, %d changes", len(trees), total)
		})
	}
}

// What revisions share costs nothing.
func TestOnlyWhatDiffersIsRead(t *testing.T) {
	var log bytes.Buffer
	s := openStoreOf(t, storetest.Trace(fixture(t, "multitar"), &log))
	revisions := revisionsOf(t, s)
	segments := 0
	for _, tar := range s.r.tars {
		segments += tar.len()
	}
	fresh := openStoreOf(t, storetest.Trace(fixture(t, "multitar"), &log))
	before, err := fresh.TreeNamed(t.Context(), revisions[1])
	if err != nil {
		t.Fatal(err)
	}
	after, err := fresh.TreeNamed(t.Context(), "head")
	if err != nil {
		t.Fatal(err)
	}
	log.Reset()
	changes := len(changesOf(t, before, after, "/"))
	reads := strings.Count(log.String(), "read ")
	t.Logf("%d changes, %d reads of %d segments", changes, reads, segments)
	if changes == 0 || reads > segments/4 {
		t.Errorf("%d changes, %d reads of %d segments", changes, reads, segments)
	}
}

func TestTreesToCompareAreNamed(t *testing.T) {
	s := openStoreOf(t, fixture(t, "checkpoints"))
	var checkpoint string
	for _, n := range expectedOf(t, "checkpoints").Head.Nodes {
		if name, ok := strings.CutPrefix(n.Path, "/checkpoints/"); ok && !strings.Contains(name, "/") {
			checkpoint = name
		}
	}
	old, err := s.TreeNamed(t.Context(), "checkpoint:"+checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	head, err := s.TreeNamed(t.Context(), "head")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := changesOf(t, old, head, "/"), expectedChanges(nodesOf(t, old), nodesOf(t, head)); !slices.Equal(got, want) {
		t.Error(got, want)
	}
	for said, want := range map[string]error{"checkpoint:none": fs.ErrNotExist, "yesterday": fs.ErrInvalid, "1999-01-01T00:00:00Z": fs.ErrNotExist} {
		if _, err := s.TreeNamed(t.Context(), said); !errors.Is(err, want) {
			t.Errorf("%s: %v", said, err)
		}
	}
	for _, err := range old.Changes(t.Context(), head, "/nothing", ChangesOptions{}) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// twoRevisions is a store with a journal of two lines.
func twoRevisions(t *testing.T, older, newer func(maker) segment.RecordID) store.Store {
	t.Helper()
	var first segment.RecordID
	st := madeStore(t, func(m maker) segment.RecordID {
		first = m.node(nil, segment.Child{Name: rootName, Node: older(m)})
		return newer(m)
	})
	st.Put("s/journal.log", append(fmt.Appendf(nil, "%s root 1600000000000\n", first), st.Get("s/journal.log")...))
	return st
}

func TestAChangeShowsBothValues(t *testing.T) {
	leaf := func(text string) func(maker) segment.RecordID {
		return func(m maker) segment.RecordID {
			return m.node([]segment.NewProperty{single("p", segment.String, segment.NewValue{Text: text}), single("same", segment.Binary, m.binary(noise(30_000))),
				single("b", segment.Binary, m.binary([]byte(text))), several("l", segment.Name, segment.NewValue{Text: text}, segment.NewValue{Text: "x"})})
		}
	}
	s := openStoreOf(t, twoRevisions(t, leaf("old"), leaf("a new one")))
	revisions := revisionsOf(t, s)
	before, err := s.TreeNamed(t.Context(), revisions[1])
	if err != nil {
		t.Fatal(err)
	}
	after := treeOf(t, s, nil)
	var got []string
	for c, err := range before.Changes(t.Context(), after, "/", ChangesOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.String())
	}
	slices.Sort(got)
	want := []string{`~ / b: Binary of 3 bytes -> Binary of 9 bytes`, `~ / l: ["old", "x"] -> ["a new one", "x"]`, `~ / p: "old" -> "a new one"`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func stepsOf(t *testing.T, s *Store, name string, o HistoryOptions) (all []Step) {
	t.Helper()
	for step, err := range s.History(t.Context(), name, o) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, step)
	}
	return all
}

func TestAHistoryHasWhatRevisionsChanged(t *testing.T) {
	for _, name := range []string{"checkpoints", "multitar", "missing-tar"} {
		s := openStoreOf(t, fixture(t, name))
		revisions := revisionsOf(t, s)
		var sound []Step
		for _, step := range stepsOf(t, s, "/", HistoryOptions{All: true}) {
			if step.Change != NodeLost {
				sound = append(sound, step)
			} else if step.Lost == "" || step.Segment == "" {
				t.Errorf("%s: %+v", name, step)
			}
		}
		if len(sound) != len(revisions) || sound[len(sound)-1].Change != StepFirst {
			t.Fatalf("%s: %d steps of %d revisions", name, len(sound), len(revisions))
		}
		for i, step := range sound[:len(sound)-1] {
			before, err := s.TreeNamed(t.Context(), revisions[i+1])
			if err != nil {
				t.Fatal(err)
			}
			after, err := s.TreeNamed(t.Context(), revisions[i])
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{}
			for _, c := range changesOf(t, before, after, "/") {
				mark, p, _ := strings.Cut(c, " ")
				p, property, has := strings.Cut(p, " ")
				child, rest, deep := strings.Cut(p[1:], "/")
				switch {
				case p == "/" && has:
					want["property "+property] = true
				case deep || has || rest != "":
					want["changed "+child] = true
				default:
					want[map[string]string{"+": "added ", "-": "removed "}[mark]+child] = true
				}
			}
			got := map[string]bool{}
			for _, p := range step.Properties {
				got["property "+p.Name] = true
			}
			for _, c := range step.Children {
				got[c.Change+" "+c.Name] = true
			}
			// A child that was written again with nothing new in it counts as changed.
			for w := range want {
				if !got[w] {
					t.Errorf("%s: %s: no %q in %v", name, step.Revision, w, got)
				}
			}
			for g := range got {
				if !want[g] && !strings.HasPrefix(g, "changed ") {
					t.Errorf("%s: %s: %q is not in %v", name, step.Revision, g, want)
				}
			}
			if step.Revision != revisions[i] || (step.Change == StepSame) != (len(got) == 0) {
				t.Errorf("%s: %+v", name, step)
			}
		}
	}
}

func TestAHistoryFoldsWhatSaysNothing(t *testing.T) {
	st := fixture(t, "checkpoints")
	b := st.Get("s/journal.log")
	gone := func(n int) string { return fmt.Sprintf("00000000-0000-4000-a000-00000000000%d:1 root 1\n", n) }
	lines := strings.SplitAfter(strings.TrimSpace(string(b))+"\n", "\n")
	lines = append([]string{gone(1), gone(2)}, append(slices.Insert(lines[:len(lines)-1], 3, gone(3), gone(4)), gone(5))...)
	st.Put("s/journal.log", []byte(strings.Join(lines, "")))
	s := openStoreOf(t, st)
	steps := stepsOf(t, s, "/nothing", HistoryOptions{})
	var got []string
	for _, step := range steps {
		got = append(got, fmt.Sprintf("%s %d", step.Change, step.Revisions))
	}
	n := len(lines) - 5
	want := []string{"lost 1", fmt.Sprint("absent ", n-3), "lost 2", "absent 3", "lost 2"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
	if steps[1].Oldest == "" || steps[0].Oldest != "" {
		t.Errorf("%+v", steps[:2])
	}
	for last := 1; last < n; last++ {
		sum := 0
		for _, step := range stepsOf(t, s, "/", HistoryOptions{Last: last}) {
			sum += step.Revisions
		}
		if sum < last || sum > last+2 {
			t.Errorf("%d revisions of the last %d", sum, last)
		}
	}
}

func TestAHistorySaysWhenANodeCameAndWent(t *testing.T) {
	leaf := func(m maker) segment.RecordID { return m.node(nil) }
	with := func(m maker) segment.RecordID { return m.node(nil, segment.Child{Name: "a", Node: leaf(m)}) }
	for _, c := range []struct {
		older, newer func(maker) segment.RecordID
		want         []string
	}{{leaf, with, []string{NodeAdded, StepAbsent}}, {with, leaf, []string{NodeRemoved, StepFirst}}} {
		var got []string
		for _, step := range stepsOf(t, openStoreOf(t, twoRevisions(t, c.older, c.newer)), "/a", HistoryOptions{}) {
			got = append(got, step.Change)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q, expected %q", got, c.want)
		}
	}
}
