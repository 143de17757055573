package nodes_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/explore/nodes"
	"github.com/holdall/holdall/internal/oak"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

func TestANodeHasPropertiesAndRevisions(t *testing.T) {
	st := local.New(testkit.Unpacked(t, "../../../oak/testdata/types.tar.gz"))
	o := holdall.OpenOptions{Formats: []*format.Format{oak.Format}}
	in, err := holdall.OpenStore(t.Context(), st, "segmentstore", o)
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

func TestOtherFormatsGetNothing(t *testing.T) {
	in, err := holdall.OpenDir(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if a := nodes.Of(in); a.Node != nil || a.History != nil {
		t.Error("a folder has nodes")
	}
}
