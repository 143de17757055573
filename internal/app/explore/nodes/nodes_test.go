package nodes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/explore/nodes"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

func TestANodeHasPropertiesAndRevisions(t *testing.T) {
	st := local.New(testkit.Unpacked(t, "../../../oak/testdata/types.tar.gz"))
	o := holdall.OpenOptions{Formats: []*format.Format{oak.Format}}
	in, err := holdall.Open(t.Context(), "segmentstore", o.In(st))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := nodes.Of(in)
	for path, child := range map[string]string{".": "types", "types": "all"} {
		var b bytes.Buffer
		if err := a.Node(t.Context(), &b, path); err != nil {
			t.Fatal(err)
		}
		var n struct {
			Properties map[string]struct{ Type string }
			Children   []string
		}
		if err := json.Unmarshal(b.Bytes(), &n); err != nil || !strings.Contains(strings.Join(n.Children, " ")+" ", child+" ") {
			t.Errorf("%s is %s, %v", path, &b, err)
		}
		if path == "types" && n.Properties["jcr:primaryType"].Type != "Name" {
			t.Errorf("its properties are %v", n.Properties)
		}
	}
	steps := 0
	for s, err := range a.History(t.Context(), "types", 3) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.(oak.Step); !ok {
			t.Errorf("a step is %T", s)
		}
		steps++
	}
	if steps == 0 {
		t.Error("there are no steps")
	}
}

func TestRevisionsAreCompared(t *testing.T) {
	st := local.New(testkit.Unpacked(t, "../../../oak/testdata/checkpoints.tar.gz"))
	in, err := holdall.Open(t.Context(), "segmentstore", holdall.OpenOptions{Store: st, Formats: []*format.Format{oak.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := nodes.Of(in)
	var revisions, kept []explore.Revision
	for r, err := range a.Revisions(t.Context(), 3) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Lost != "" || r.Millis < 0 {
			t.Errorf("%+v", r)
		}
		if r.Name == "" {
			revisions = append(revisions, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(revisions) != 3 || len(kept) == 0 {
		t.Fatalf("%v, %v", revisions, kept)
	}
	changes := func(path, from, to string) (list []oak.Change, err error) {
		for c, err := range a.Changes(t.Context(), path, from, to) {
			if err != nil {
				return list, err
			}
			list = append(list, c.(oak.Change))
		}
		return list, nil
	}
	got, err := changes(".", kept[len(kept)-1].ID, revisions[0].ID)
	if err != nil || !slices.ContainsFunc(got, func(c oak.Change) bool { return c.Kind == oak.NodeAdded && c.Path == "/later" }) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := changes(".", "head", "head"); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
	for said, want := range map[string]error{"yesterday": fs.ErrInvalid, "checkpoint:none": fs.ErrNotExist} {
		if _, err := changes(".", said, "head"); !errors.Is(err, want) {
			t.Errorf("%s: %v", said, err)
		}
		if _, err := changes(".", "head", said); !errors.Is(err, want) {
			t.Errorf("%s: %v", said, err)
		}
	}
}

func TestNodesHaveSizes(t *testing.T) {
	st := local.New(testkit.Unpacked(t, "../../../oak/testdata/types.tar.gz"))
	in, err := holdall.Open(t.Context(), "segmentstore", holdall.OpenOptions{Store: st, Formats: []*format.Format{oak.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	seen := map[string]explore.FolderSize{}
	for n, err := range nodes.Of(in).Sizes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		seen[n.Path] = n
	}
	if _, ok := seen[""]; !ok || seen["types/binaries"].Binaries < 1<<20 || seen["types/strings"].Records < 1<<20 || seen["types/strings"].Binaries != 0 {
		t.Errorf("%+v, %+v", seen["types/binaries"], seen["types/strings"])
	}
}

func TestOtherFormatsGetNothing(t *testing.T) {
	in, err := holdall.Open(t.Context(), t.TempDir(), holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if a := nodes.Of(in); a.Node != nil || a.History != nil || a.Revisions != nil || a.Changes != nil || a.Sizes != nil || a.Tables != nil {
		t.Error("a folder has nodes")
	}
}
