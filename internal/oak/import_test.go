package oak

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// linesOf is s of st as lines of JSON.
func linesOf(t testing.TB, st store.Store) []byte {
	t.Helper()
	lines, _ := exported(t, treeOf(t, openStoreOf(t, st), nil), "/", wholeTree)
	return lines
}

// sampleLines returns the lines of a tree with all kinds of values and names, except for names
// that Oak refuses.
func sampleLines(t testing.TB) []byte {
	t.Helper()
	var lines []byte
	for line := range bytes.Lines(linesOf(t, madeStore(t, sampleTree))) {
		if !bytes.Contains(line, []byte(`%2F`)) && !bytes.Contains(line, []byte(`"/%"`)) {
			lines = append(lines, line...)
		}
	}
	return lines
}

func imported(t testing.TB, from io.Reader) (*storetest.Mem, Imported, error) {
	t.Helper()
	st := &storetest.Mem{}
	in, err := Import(t.Context(), from, st, "s", format.CreateOptions{Scratch: pack.NewScratch})
	return st, in, err
}

func TestWhatIsExportedIsImportedAgain(t *testing.T) {
	testkit.Long(t)
	all := map[string][]byte{"sample": sampleLines(t)}
	for _, name := range testkit.Names(t, "testdata", ".tar.gz", 24) {
		all[name] = linesOf(t, fixture(t, name))
	}
	for name, lines := range all {
		t.Run(name, func(t *testing.T) {
			again, in, err := imported(t, bytes.NewReader(lines))
			if err != nil {
				t.Fatal(err)
			}
			if in.Omitted > 0 || in.Lost > 0 != bytes.Contains(lines, []byte(`"lost":`)) {
				t.Errorf("%+v", in)
			}
			mustBeSound(t, again)
			if got := linesOf(t, again); in.Lost == 0 && !bytes.Equal(got, lines) {
				t.Errorf("exported again it has %d bytes, expected %d, or they differ", len(got), len(lines))
			}
		})
	}
}

func TestAPartOfATreeIsImportedInItsPlace(t *testing.T) {
	in := `{"path":"/a/b","properties":{"n":{"type":"Long","value":"7"},"gone":{"type":"Binary","length":9}}}
{"path":"/a/b/c","properties":{"many":{"type":"String","multiple":true,"values":["x",""]},"none":{"type":"Long","multiple":true,"values":[]}}}
`
	st, did, err := imported(t, strings.NewReader(in))
	if err != nil || did.Nodes != 2 || did.Omitted != 1 || did.Lost != 0 {
		t.Fatalf("%+v, %v", did, err)
	}
	got := string(linesOf(t, st))
	for _, want := range []string{`{"path":"/a","properties":{}}`, `"n":{"type":"Long","value":"7"}`, `"values":["x",""]`, `"none":{"type":"Long","multiple":true,"values":[]}`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %s", got, want)
		}
	}
	if strings.Contains(got, "gone") {
		t.Error("what was left out is there")
	}
}

func TestWhatIsNoExportIsNotImported(t *testing.T) {
	for _, in := range []string{
		"x", "{}", `{"path":"/a"}`, `{"path":"/a/","properties":{}}`, `{"path":"/a/%zz/../b","properties":{}}`,
		`{"path":"/a","properties":{"x":{"type":"Strange","value":""}}}`,
		`{"path":"/a","property":"x","index":0,"offset":0,"base64":""}`,
		`{"path":"/a","properties":{"x":{"type":"Binary","length":99999,"follows":true}}}`,
	} {
		st, _, err := imported(t, strings.NewReader(in+"\n"))
		if err == nil {
			t.Errorf("%s: no error", in)
		}
		if n := len(objects(t, st)); n > 0 {
			t.Errorf("%s: %d objects are there", in, n)
		}
	}
	broken := io.MultiReader(strings.NewReader(`{"path":"/a","properties":{}}`+"\n"), failing{})
	if st, _, err := imported(t, broken); !errors.Is(err, errFull) || len(objects(t, st)) > 0 {
		t.Errorf("%v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFull }

func FuzzImport(f *testing.F) {
	f.Add(sampleLines(f))
	f.Add([]byte(`{"path":"/a/b","properties":{"n":{"type":"Binary","length":3,"base64":"AAEC"}}}` + "\n"))
	f.Fuzz(func(t *testing.T, lines []byte) {
		st, in, err := imported(t, bytes.NewReader(lines))
		if err != nil {
			return
		}
		// What was taken is there, and is taken again as it is.
		again := linesOf(t, st)
		once, _, err := imported(t, bytes.NewReader(again))
		if err != nil {
			t.Fatalf("%+v: %v\n%s", in, err, again)
		}
		if got := linesOf(t, once); !bytes.Equal(got, again) {
			t.Errorf("%s\nthen\n%s", again, got)
		}
	})
}
