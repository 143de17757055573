package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A dump is a description of a tar, by Oak or by this package.
type dump struct {
	Length       int64
	IndexVersion int
	Index        [][6]any
	Graph        map[string][]string
	Brf          map[string]map[string][]any
}

// describe is our word on the tars of a folder.
func describe(t testing.TB, tars []Tar) map[string]dump {
	t.Helper()
	all := map[string]dump{}
	for _, x := range tars {
		d := dump{Length: x.Size(), IndexVersion: x.Index().Version(), Index: [][6]any{}}
		for _, i := range x.Index().ByPosition() {
			e := x.Index().At(int(i))
			d.Index = append(d.Index, [6]any{e.ID.String(), float64(e.Pos), float64(e.Len), float64(e.Generation.Gen), float64(e.Generation.Full), e.Generation.Compacted})
		}
		if g, err := x.Graph(t.Context()); err == nil {
			d.Graph = map[string][]string{}
			for id, to := range g.All() {
				var ids []string
				for id := range to.All() {
					ids = append(ids, id.String())
				}
				slices.Sort(ids)
				d.Graph[id.String()] = ids
			}
		} else if _, err := damage(err); err != nil {
			t.Fatal(err)
		}
		if r, err := x.Binaries(t.Context()); err == nil {
			d.Brf = map[string]map[string][]any{}
			for s := range r.All() {
				g := s.Generation.String()
				if d.Brf[g] == nil {
					d.Brf[g] = map[string][]any{}
				}
				var refs []string
				for ref := range s.Refs.All() {
					refs = append(refs, ref)
				}
				slices.Sort(refs)
				for _, ref := range refs {
					d.Brf[g][s.ID.String()] = append(d.Brf[g][s.ID.String()], text(ref))
				}
			}
		} else if _, err := damage(err); err != nil {
			t.Fatal(err)
		}
		all[x.Name] = d
	}
	return all
}

// text is a string as Oak's word has it: one of more than 256 bytes by its digest.
func text(s string) any {
	if len(s) <= 256 {
		return s
	}
	d := sha256.Sum256([]byte(s))
	return map[string]any{"utf8": float64(len(s)), "sha256": hex.EncodeToString(d[:])}
}

func compare(t testing.TB, got, want map[string]dump) {
	t.Helper()
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: there, expected to be gone", name)
		}
	}
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			t.Errorf("%s: gone, expected to be there", name)
		case g.Length != w.Length || g.IndexVersion != w.IndexVersion:
			t.Errorf("%s: %d bytes, index %d, expected %d, %d", name, g.Length, g.IndexVersion, w.Length, w.IndexVersion)
		}
		if !reflect.DeepEqual(g.Index, w.Index) {
			t.Errorf("%s: index %v\nexpected %v", name, g.Index, w.Index)
		}
		if !reflect.DeepEqual(g.Graph, w.Graph) {
			t.Errorf("%s: graph %v\nexpected %v", name, g.Graph, w.Graph)
		}
		if !reflect.DeepEqual(g.Brf, w.Brf) {
			t.Errorf("%s: binary references %v\nexpected %v", name, g.Brf, w.Brf)
		}
	}
}

type state struct {
	Files map[string]int64
	Tars  map[string]dump
}

func TestCleanupLeavesWhatOakLeaves(t *testing.T) {
	var want struct{ AfterCleanup, AfterCleanupRetain2 state }
	testkit.JSON(t, testdata+"cleanup-pending.expect.json", &want)
	for retain, want := range map[int]state{0: want.AfterCleanup, 1: want.AfterCleanup, 2: want.AfterCleanupRetain2} {
		if len(want.Tars) == 0 {
			t.Fatal("nothing is expected")
		}
		dir := filepath.Join(unpack(t, "cleanup-pending"), "segmentstore")
		s := cleanup(t, dir, Options{Retain: retain})
		if len(s.problems) > 0 {
			t.Error(s.problems)
		}
		after := openDir(t, dir)
		compare(t, describe(t, after), want.Tars)
		for _, x := range after {
			if x.Size() != want.Files[x.Name] {
				t.Errorf("%s: %d bytes, expected %d", x.Name, x.Size(), want.Files[x.Name])
			}
		}
	}
}

func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}
