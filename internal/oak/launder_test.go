package oak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A writing verb changes the store s, or makes another one of it, which it returns. It returns nil if
// it refuses that.
type writingVerb func(ctx context.Context, st *storetest.Mem) *storetest.Mem

// inPlace is a verb that changes a store; makes is one that makes another.
func inPlace(do func(ctx context.Context, s *Store) error) writingVerb {
	return func(ctx context.Context, st *storetest.Mem) *storetest.Mem {
		if onStore(ctx, st, func(s *Store) error { return do(ctx, s) }) != nil {
			return nil
		}
		return st
	}
}

func makes(do func(ctx context.Context, s *Store, to *storekit.Stage) error) writingVerb {
	return func(ctx context.Context, st *storetest.Mem) *storetest.Mem {
		to := &storetest.Mem{}
		stage := storekit.NewStage(to)
		defer stage.Discard()
		if onStore(ctx, st, func(s *Store) error { return do(ctx, s, stage) }) != nil || stage.Publish(ctx) != nil {
			return nil
		}
		return to
	}
}

// keeping are verbs that leave all nodes that can be read; the others take some away on purpose.
var keeping = map[string]writingVerb{
	"set": inPlace(func(ctx context.Context, s *Store) error {
		_, err := s.Set(ctx, "/", "new", []string{"1"}, SetOptions{})
		return err
	}),
	"cleanup": inPlace(func(ctx context.Context, s *Store) error {
		c, err := s.PlanCleanup(ctx, CleanupOptions{})
		if err == nil {
			err = c.Apply(ctx)
		}
		return err
	}),
	"check --fix-gc": inPlace(func(ctx context.Context, s *Store) error {
		_, err := s.FixGC(ctx, false)
		return err
	}),
	"checkpoints rm": inPlace(func(ctx context.Context, s *Store) error {
		_, err := s.RemoveCheckpoints(ctx, CheckpointChoice{All: true}, time.Now(), false)
		return err
	}),
	"repair": func(ctx context.Context, st *storetest.Mem) *storetest.Mem {
		plan, err := holdall.Repair(ctx, "s", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}}})
		if err != nil {
			return nil
		}
		defer plan.Close()
		to := &storetest.Mem{}
		if !plan.Changes() {
			return st
		}
		if plan.ApplyStore(ctx, to, "s") != nil {
			return nil
		}
		return to
	},
	"compact": makes(func(ctx context.Context, s *Store, to *storekit.Stage) error {
		_, err := s.Compact(ctx, to, "s", CompactOptions{})
		return err
	}),
	"backup": makes(func(ctx context.Context, s *Store, to *storekit.Stage) error {
		_, err := s.Backup(ctx, to, "s", BackupOptions{})
		return err
	}),
}

var others = map[string]writingVerb{
	"check --fix": inPlace(func(ctx context.Context, s *Store) error {
		x, err := s.PlanFix(ctx, true)
		if err == nil {
			err = x.Apply(ctx)
		}
		return err
	}),
	"check --fix-journal": inPlace(func(ctx context.Context, s *Store) error {
		r, err := s.Check(ctx, CheckOptions{})
		if err == nil && r.Good != nil {
			_, err = s.FixJournal(ctx, r)
		}
		return err
	}),
	"recover-journal": inPlace(func(ctx context.Context, s *Store) error {
		j, err := s.PlanJournal(ctx)
		if err == nil {
			_, err = j.Apply(ctx)
		}
		return err
	}),
	"salvage": makes(func(ctx context.Context, s *Store, to *storekit.Stage) error {
		_, err := s.Salvage(ctx, to, "s", nil)
		return err
	}),
}

// readNodes returns the properties of all nodes that can be read, and whether the store shows that
// they may not be right.
func readNodes(ctx context.Context, st *storetest.Mem, revision string) (all map[string]string, doubt bool) {
	all = map[string]string{}
	err := onStore(ctx, st, func(s *Store) error {
		param := map[string]string{}
		if revision != "" {
			param["revision"] = revision
		}
		tree, err := s.Tree(ctx, param)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if _, err := tree.Export(ctx, &b, "/", ExportOptions{Depth: -1}); err != nil && err != io.EOF {
			return err
		}
		var lost []string
		for line := range bytes.Lines(b.Bytes()) {
			var n struct {
				Path, Property string
				Properties     map[string]json.RawMessage
				Lost           any
			}
			if err := json.Unmarshal(line, &n); err != nil {
				return err
			}
			if n.Lost != nil {
				lost = append(lost, n.Path+"\x00"+n.Property) // other parts of it may be read
				continue
			}
			all[n.Path] += "" // it is there
			for name, p := range n.Properties {
				all[n.Path+"\x00"+name] = string(p)
			}
			if n.Property != "" { // more of a value
				all[n.Path+"\x00"+n.Property] += string(line[bytes.Index(line, []byte(`"property"`)):])
			}
		}
		for _, at := range lost {
			delete(all, at)
		}
		doubt = s.Doubt() != nil
		return nil
	})
	return all, doubt || err != nil
}

// ever returns all values that properties had in any revision.
func ever(t *testing.T, st *storetest.Mem) map[string]bool {
	t.Helper()
	values := map[string]bool{}
	err := onStore(t.Context(), st, func(s *Store) error {
		for e, err := range s.r.journal(t.Context()) {
			if _, bad := err.(*repo.Error); bad {
				continue
			}
			if err != nil {
				return err
			}
			all, _ := readNodes(t.Context(), st, e.Revision.String())
			for name, value := range all {
				values[name+"\x00"+value] = true
			}
		}
		return nil
	})
	must(t, err)
	return values
}

func nodesIn(all map[string]string) (n int) {
	for name := range all {
		if !strings.Contains(name, "\x00") {
			n++
		}
	}
	return n
}

// harmed damages an object of a store in one way of several.
func harmed(rnd *rand.Rand, st *storetest.Mem, names []string) (what string) {
	name := names[rnd.IntN(len(names))]
	b := bytes.Clone(st.Get(name))
	if rnd.IntN(8) == 0 && strings.HasSuffix(name, ".tar") {
		_ = st.Remove(context.Background(), name)
		return name + " removed"
	}
	b, what = testkit.Damage(rnd, b)
	st.Put(name, b)
	return name + " " + what
}

// unstructured is the type that a salvage gives a node whose own is lost.
const unstructured = `{"type":"Name","value":"nt:unstructured"}`

// TestNoVerbMakesDamageCertain damages stores, has two verbs write something from them, one after the
// other, and reads what they wrote. Each value is one that the path had in some revision, or something
// shows that it may be wrong, and verbs that take nothing away leave no fewer nodes.
func TestNoVerbMakesDamageCertain(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	verbs := maps.Clone(keeping)
	maps.Copy(verbs, others)
	names := slices.Sorted(maps.Keys(verbs))
	did := map[string]int{}
	for _, name := range []string{"gc-online", "checkpoints", "two-letters", "multitar", "cleanup-pending"} {
		sound := fixture(t, name)
		was := ever(t, sound)
		objects := slices.DeleteFunc(slices.Sorted(maps.Keys(objects(t, sound))), func(n string) bool { return !strings.HasPrefix(n, "s/") || len(sound.Get(n)) == 0 })
		for range testkit.Rounds(t, 8) {
			st := sound.Clone()
			what := name + ": " + harmed(rnd, st, objects)
			for range 2 {
				verb := names[rnd.IntN(len(names))]
				before, doubtful := readNodes(t.Context(), st, "")
				out := verbs[verb](t.Context(), st.Clone())
				if what += ", " + verb; out == nil {
					what += " refused"
					continue
				}
				did[verb]++
				st = out
				after, doubt := readNodes(t.Context(), st, "")
				if keeping[verb] != nil && !doubtful && nodesIn(after) < nodesIn(before) {
					t.Errorf("%s: %d nodes can be read, %d before", what, nodesIn(after), nodesIn(before))
				}
				for at, value := range after {
					_, property, _ := strings.Cut(at, "\x00")
					if made := property == "new" || strings.HasPrefix(property, "lost") || value == unstructured; made {
						continue
					}
					if !doubt && !strings.HasPrefix(at, "/"+lostAndFound) && !was[at+"\x00"+value] {
						t.Errorf("%s: %q reads as %.100q, which is wrong", what, at, value)
						break
					}
				}
			}
		}
	}
	t.Log(fmt.Sprint(did))
}
