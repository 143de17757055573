package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestASetPropertyIsThere(t *testing.T) {
	testkit.Serial(t)
	st := fixture(t, "types")
	before := contents(t, st)
	for _, c := range []struct {
		property string
		values   []string
		o        SetOptions
		want     string
	}{
		{"new", []string{"text"}, SetOptions{}, `{"type":"String","value":"text"}`},
		{"new", []string{"7"}, SetOptions{Type: "long"}, `{"type":"Long","value":"7"}`},
		{"new", []string{"8"}, SetOptions{}, `{"type":"Long","value":"8"}`},
		{"new", []string{"true", "false"}, SetOptions{Type: "Boolean"}, `{"type":"Boolean","multiple":true,"values":["true","false"]}`},
		{"new", []string{"true"}, SetOptions{}, `{"type":"Boolean","multiple":true,"values":["true"]}`},
		{"new", nil, SetOptions{Multiple: true, Type: "Name"}, `{"type":"Name","multiple":true,"values":[]}`},
		{"day", []string{"2026-01-02T03:04:05Z"}, SetOptions{Type: "Date"}, `{"type":"Date","value":"2026-01-02T03:04:05.000Z"}`},
		{"bytes", []string{"\x00\xff"}, SetOptions{Type: "Binary"}, `{"type":"Binary","length":2,"base64":"AP8="}`},
		{"long", []string{strings.Repeat("x", 20_000)}, SetOptions{}, `"value":"xxxxxxxxxx`},
		{"jcr:primaryType", []string{"nt:folder"}, SetOptions{}, `{"type":"Name","value":"nt:folder"}`},
		{"jcr:mixinTypes", []string{"mix:a"}, SetOptions{}, `{"type":"Name","multiple":true,"values":["mix:a"]}`},
	} {
		var got strings.Builder
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Set(t.Context(), "/types", c.property, c.values, c.o)
			return err
		})
		if err == nil {
			err = onStore(t.Context(), st, func(s *Store) error {
				tree, err := s.Tree(t.Context(), nil)
				if err == nil {
					_, err = tree.WriteJSON(t.Context(), &got, "types", 0)
				}
				return err
			})
		}
		if err != nil || !strings.Contains(got.String(), `"`+c.property+`":`) || !strings.Contains(got.String(), c.want) {
			t.Errorf("%s: expected %s, found %.400s, %v", c.property, c.want, got.String(), err)
		}
	}
	mustBeSound(t, st)
	after := contents(t, st)
	for name := range before {
		if _, ok := after[name]; !ok {
			t.Errorf("%s is gone", name)
		}
	}
	for _, c := range [][3]string{{"Long", "x"}, {"Boolean", "yes"}, {"Date", "today"}, {"Double", "1,5"}, {"Decimal", "NaN"}, {"Number", "1"}} {
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Set(t.Context(), "/types", "p", []string{c[1]}, SetOptions{Type: c[0]})
			return err
		})
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", c, err)
		}
	}
}

// What is taken from a generation that a cleanup removes is copied.
func TestWhatIsPutBackStaysBehindACleanup(t *testing.T) {
	st := fixture(t, "cleanup-pending")
	var want, got bytes.Buffer
	err := onStore(t.Context(), st, func(s *Store) error {
		all, err := s.revisionsBefore(t.Context(), repoEntryOfHead(t.Context(), s), -2)
		if err != nil {
			return err
		}
		from, err := s.TreeNamed(t.Context(), all[len(all)/3].Revision.String())
		if err != nil {
			return err
		}
		if _, err := from.Export(t.Context(), &want, "/", ExportOptions{Depth: -1}); err != nil {
			return err
		}
		done, err := s.Replace(t.Context(), "/", Donor{Tree: from}, ReplaceOptions{})
		if done.Nodes == 0 || done.Shared {
			t.Errorf("%+v", done)
		}
		return err
	})
	if err == nil {
		err = onStore(t.Context(), st, func(s *Store) error {
			c, err := s.PlanCleanup(t.Context(), CleanupOptions{})
			if err == nil {
				err = c.Apply(t.Context())
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, st)
	mustBeWhole(t, st)
	err = onStore(t.Context(), st, func(s *Store) error {
		tree, err := s.Tree(t.Context(), nil)
		if err == nil {
			_, err = tree.Export(t.Context(), &got, "/", ExportOptions{Depth: -1})
		}
		return err
	})
	if err != nil || got.String() != want.String() {
		t.Errorf("another tree: %d bytes, expected %d; %v", got.Len(), want.Len(), err)
	}
}

// A node is restored from another store and from an export, with long binaries and with binaries
// in a data store.
func TestANodeComesBackFromADonor(t *testing.T) {
	testkit.Serial(t)
	for _, c := range [][2]string{{"multitar", "content"}, {"types", "types"}, {"datastore", "assets"}, {"wide", "wide"}} {
		for _, kind := range []string{"store", "export", "damaged bulk"} {
			t.Run(c[0]+" "+kind, func(t *testing.T) {
				whole, st := fixture(t, c[0]), fixture(t, c[0])
				want := superRoot(t, whole)
				if kind == "damaged bulk" && !spoilBulk(t, st) {
					t.Skip("there is none")
				}
				if kind != "damaged bulk" {
					err := onStore(t.Context(), st, func(s *Store) error {
						_, err := s.Remove(t.Context(), c[1], RemoveOptions{})
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				err := onStore(t.Context(), whole, func(donor *Store) error {
					tree, err := donor.Tree(t.Context(), nil)
					if err != nil {
						return err
					}
					return onStore(t.Context(), st, func(s *Store) error {
						path := "/" + c[1]
						from := Donor{Tree: tree}
						switch kind {
						case "export":
							var b bytes.Buffer
							if _, err := tree.Export(t.Context(), &b, "/", ExportOptions{Depth: -1}); err != nil {
								return err
							}
							from = Donor{Export: &b, Scratch: tmp}
						case "damaged bulk":
							path = "/"
						}
						_, err := s.Replace(t.Context(), path, from, ReplaceOptions{})
						return err
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				if kind != "damaged bulk" {
					mustBeSound(t, st)
				}
				mustBeWhole(t, st)
				if superRoot(t, st) != want {
					t.Error("another tree")
				}
			})
		}
	}
}

// superRoot is an export of the root.
func superRoot(t testing.TB, st *storetest.Mem) string {
	t.Helper()
	var b bytes.Buffer
	err := onStore(t.Context(), st, func(s *Store) error {
		tree, err := s.Tree(t.Context(), nil)
		if err == nil {
			_, err = tree.Export(t.Context(), &b, "/", ExportOptions{Depth: -1})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	return fmt.Sprint(len(lines)) + sorted(lines)
}

// spoilBulk damages each bulk segment.
func spoilBulk(t testing.TB, st *storetest.Mem) (any bool) {
	t.Helper()
	err := onStore(t.Context(), st, func(s *Store) error {
		for _, tar := range s.r.tars {
			b := st.Get(tar.path)
			for _, e := range tar.All() {
				if !e.ID.IsData() {
					b[e.Pos+int64(e.Len)/2] ^= 1
					any = true
				}
			}
			st.Put(tar.path, b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return any
}

func TestADamagedDonorIsRefused(t *testing.T) {
	err := onStore(t.Context(), fixture(t, "corrupt-value"), func(s *Store) error {
		return replaceFrom(t.Context(), s, "/content/d3", "head")
	})
	if err == nil || !strings.Contains(err.Error(), "damaged there too") && proof.Damage(err) == nil && !errors.Is(err, format.ErrCorrupt) {
		t.Error(err)
	}
	for _, lines := range []string{
		`{"path":"/content","properties":{"a":{"type":"Binary","length":3}}}` + "\n",
		`{"path":"/content","properties":{}}` + "\n" + `{"path":"/content/x","lost":"gone"}` + "\n",
		`{"path":"/other","properties":{}}` + "\n",
	} {
		st := fixture(t, "multitar")
		err := onStore(t.Context(), st, func(s *Store) error {
			_, err := s.Replace(t.Context(), "/content", Donor{Export: strings.NewReader(lines), Scratch: tmp}, ReplaceOptions{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "/content") {
			t.Errorf("%s: %v", lines, err)
		}
	}
}

// spoilRecords damages random segments of the head's tree, but not the one of the super root.
func spoilRecords(t testing.TB, st *storetest.Mem, every int) {
	t.Helper()
	err := onStore(t.Context(), st, func(s *Store) error {
		head, err := s.r.head(t.Context())
		if err != nil {
			return err
		}
		top, _, err := s.records.Down(t.Context(), head.Revision, rootName)
		if err != nil {
			return err
		}
		n := 0
		for _, tar := range s.r.tars {
			b := st.Get(tar.path)
			for _, e := range tar.All() {
				if n++; n%every == 0 && e.ID != head.Segment && e.ID != top.Segment {
					b[e.Pos+int64(e.Len)-9] ^= 0x55
				}
			}
			st.Put(tar.path, b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever segments are damaged, a fix leaves a newest revision that is whole; and the
// steps, one by one, do the same.
func TestAFixMakesTheNewestRevisionWhole(t *testing.T) {
	testkit.Serial(t)
	fixed := 0
	for _, name := range []string{"checkpoints", "gc-online", "cleanup-pending", "multitar", "types", "wide", "datastore"} {
		for every := 1; every < 7; every++ {
			t.Run(fmt.Sprint(name, " ", every), func(t *testing.T) {
				st := fixture(t, name)
				spoilRecords(t, st, every)
				oneByOne := st.Clone()
				var steps []FixStep
				err := onStore(t.Context(), st, func(s *Store) error {
					f, err := s.PlanFix(t.Context(), true)
					if err == nil {
						steps = f.Steps
						err = f.Apply(t.Context())
					}
					return err
				})
				if err != nil && refused(err) {
					if !maps.EqualFunc(objects(t, st), objects(t, oneByOne), bytes.Equal) {
						t.Errorf("it is refused, and changed something: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				fixed++
				mustBeWhole(t, st)
				t.Log(len(steps), "steps")
				if len(steps) > 40 {
					return
				}
				for _, step := range steps {
					if err := onStore(t.Context(), oneByOne, func(s *Store) error { return doStep(t.Context(), s, step) }); err != nil {
						t.Fatalf("%+v: %v", step, err)
					}
				}
				mustBeWhole(t, oneByOne)
				if superRoot(t, st) != superRoot(t, oneByOne) {
					t.Error("the steps make another tree")
				}
			})
		}
	}
	if fixed < 20 {
		t.Errorf("%d were fixed: most are refused", fixed)
	}
}

func doStep(ctx context.Context, s *Store, x FixStep) (err error) {
	switch x.Action {
	case FixReplace:
		var from *Tree
		if from, err = s.TreeNamed(ctx, x.From[1:]); err == nil {
			_, err = s.Replace(ctx, x.Path, Donor{Tree: from}, ReplaceOptions{Property: x.Property})
		}
	case FixRemove, FixRemoveLost:
		_, err = s.Remove(ctx, x.Path, RemoveOptions{Property: x.Property, Lost: x.Action == FixRemoveLost})
	default:
		_, err = s.RemoveCheckpoints(ctx, CheckpointChoice{Names: nonEmpty(x.Checkpoint), All: x.Checkpoint == ""}, noTime, false)
	}
	return err
}

var noTime time.Time

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func sorted(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
