//go:build unix

package oak_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/oaktest"
	"github.com/holdall/holdall/store/local"
)

// A dumpedNode is a node as the program dumps it: of a property the name, the type and
// the values.
type dumpedNode struct {
	Path  string
	Props [][3]any
}

// dumpedNodes are the newest revision's, by path, each as text that does not depend on
// the order of properties.
func dumpedNodes(t *testing.T, p oaktest.Place) map[string]string {
	t.Helper()
	var dump struct {
		Head struct {
			Error string
			Nodes []dumpedNode
		}
	}
	oaktest.Well(t, "dump", p.Store, "--no-segments", "--no-ids").Into(t, &dump)
	if dump.Head.Error != "" {
		t.Fatal(dump.Head.Error)
	}
	all := map[string]string{}
	for _, n := range dump.Head.Nodes {
		all[n.Path] = nodeText(t, n.Props)
	}
	return all
}

func nodeText(t *testing.T, props [][3]any) string {
	t.Helper()
	slices.SortFunc(props, func(a, b [3]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	b, err := json.Marshal(props)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func value(name, typ string, v any) [3]any { return [3]any{name, typ, []any{v}} }

// randomFolder makes a folder of files, and tells of the nodes that they become.
func randomFolder(t *testing.T, r *rand.Rand, dir string) map[string]string {
	t.Helper()
	want := map[string]string{"/": "[]", "/checkpoints": "[]", "/root": "[]"}
	folders := []string{"."}
	names := []string{"a", "Aa", "BB", "ä", "\U0001f600", "with space", ".hidden", "x.txt", "y.PNG", "100%", "a%b"}
	types := map[string]string{".txt": "text/plain", ".png": "image/png"}
	at := func(n int) time.Time { return time.UnixMilli(1_600_000_000_000 + int64(n)*12_345_678) }
	date := func(n int) string { return at(n).UTC().Format("2006-01-02T15:04:05.000Z") }
	for i := range 150 {
		name := path.Join(folders[r.IntN(len(folders))], fmt.Sprint(r.IntN(100), names[r.IntN(len(names))]))
		node, on := "/root/"+name, filepath.Join(dir, name)
		if want[node] != "" {
			continue
		}
		if r.IntN(4) == 0 {
			if err := os.Mkdir(on, 0o777); err != nil {
				t.Fatal(err)
			}
			want[node] = nodeText(t, [][3]any{value("jcr:primaryType", "Name", "nt:folder"), value("jcr:created", "Date", date(i))})
			folders = append(folders, name)
		} else {
			content := make([]byte, []int{0, 1, 127, 128, 16511, 16512, 262144, 300_000, 1_100_000}[r.IntN(9)])
			for k := range content {
				content[k] = byte(r.Uint32())
			}
			if err := os.WriteFile(on, content, 0o666); err != nil {
				t.Fatal(err)
			}
			want[node] = nodeText(t, [][3]any{value("jcr:primaryType", "Name", "nt:file"), value("jcr:created", "Date", date(i))})
			want[node+"/jcr:content"] = nodeText(t, [][3]any{
				value("jcr:primaryType", "Name", "nt:resource"), value("jcr:lastModified", "Date", date(i)),
				value("jcr:mimeType", "String", cmp.Or(types[strings.ToLower(path.Ext(name))], "application/octet-stream")),
				value("jcr:data", "Binary", map[string]any{"len": len(content), "sha256": fmt.Sprintf("%x", sha256.Sum256(content))}),
			})
		}
		defer os.Chtimes(on, at(i), at(i))
	}
	return want
}

// takenWhole lets the reference do all with a store that it does with its own.
func takenWhole(t *testing.T, p oaktest.Place) {
	t.Helper()
	p.Verify(t)
	openWithReference(t, p)
	journal, err := os.ReadFile(filepath.Join(p.Store, "journal.log"))
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		RC                 int
		JournalNewestFirst [][2]any
	}
	oaktest.Well(t, "recover-journal", p.Store).Into(t, &made)
	head, _, _ := bytes.Cut(journal, []byte(" "))
	if got := revisions(made.JournalNewestFirst); made.RC != 0 || !slices.Equal(got, []string{string(head)}) {
		t.Errorf("recover-journal: %d, %q, expected %q", made.RC, got, head)
	}
}

func TestTheReferenceReadsWhatIsPacked(t *testing.T) { readsWhatIsPacked(t, testkit.Seed(t)) }

func readsWhatIsPacked(t *testing.T, seeds ...uint64) {
	testkit.Needs(t, oaktest.Var)
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			in := t.TempDir()
			want := randomFolder(t, rand.New(rand.NewPCG(seed, 0)), in)
			p := oaktest.Place{Store: filepath.Join(t.TempDir(), "segmentstore")}
			o := holdall.PackOptions{Format: "oak", Param: map[string]string{"tar-size": fmt.Sprint(8 << 20)}}
			o.Store = local.New(filepath.Dir(p.Store))
			if _, err := holdall.Pack(t.Context(), "segmentstore", []string{in}, o); err != nil {
				t.Fatal(err)
			}
			got := dumpedNodes(t, p)
			for name, text := range want {
				if got[name] != text {
					t.Errorf("%s: expected %s, found %s", name, text, got[name])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d nodes, expected %d", len(got), len(want))
			}
			takenWhole(t, p)
		})
	}
}

// A binary in a data store stays there.
func TestAStoreConvertedIntoAnotherIsEqual(t *testing.T) {
	names := testkit.Some(t, 2, "types", "wide", "multitar", "empty-store", "gc-online")
	convertedIsEqual(t, append(names, "v12", "datastore")...)
}

func convertedIsEqual(t *testing.T, fixtures ...string) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			f := unpack(t, name)
			o := holdall.OpenOptions{Format: "oak", View: "tree"}
			if f.Blobs != "" {
				o.Param = map[string]string{"datastore": filepath.Base(f.Blobs)}
			}
			a, err := holdall.Open(t.Context(), "segmentstore", o.In(local.New(filepath.Dir(f.Store))))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			p := oaktest.Place{Store: filepath.Join(t.TempDir(), "segmentstore"), Blobs: f.Blobs}
			if _, err := holdall.Convert(t.Context(), a, "segmentstore", holdall.PackOptions{Store: local.New(filepath.Dir(p.Store)), Format: "oak"}); err != nil {
				t.Fatal(err)
			}
			oaktest.Well(t, f.With("equal", f.Store, p.Store, "/root")...)
			takenWhole(t, p)
		})
	}
}
