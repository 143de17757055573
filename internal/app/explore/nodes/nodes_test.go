package nodes_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/oak"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/explore/nodes"
	"github.com/holdall/holdall/store/local"
)

// unpacked unpacks a store out of the fixtures of its format.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../../../format/oak/testdata/" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir || strings.HasSuffix(h.Name, "/") {
			continue
		}
		content, err := io.ReadAll(r)
		at := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestANodeHasPropertiesAndRevisions(t *testing.T) {
	st := local.New(unpacked(t, "types"))
	o := holdall.OpenOptions{Formats: []*format.Format{oak.Format}}
	in, err := holdall.OpenStore(t.Context(), st, "segmentstore", o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := nodes.Add(explore.Archive{Name: "x", Archive: in})
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
	if a := nodes.Add(explore.Archive{Archive: in}); a.Node != nil || a.History != nil {
		t.Error("a folder has nodes")
	}
}
