package holdall_test

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// checkedKinds are the formats whose archives say what their contents are, and how they
// are packed.
var checkedKinds = []struct {
	format string
	param  map[string]string
}{
	{"caf", nil}, {"lindi", nil}, {"rvn", nil}, {"zip", nil},
	{"databundle", map[string]string{"align": "1"}}, {"databundle", map[string]string{"compression": "none"}}, {"databundle", map[string]string{"compression": "zstd", "align": "1"}},
}

// packedAs packs files into an archive in memory.
func packedAs(t *testing.T, format string, param map[string]string, files map[string]string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	if _, err := holdall.PackStore(t.Context(), st, "x", []string{tree(t, files)}, holdall.PackOptions{Format: format, Param: param}); err != nil {
		t.Fatal(err)
	}
	return st
}

// storedBytes calls do with each object of an archive and each place in it where content
// is stored.
func storedBytes(t *testing.T, a *holdall.Archive, st *storetest.Mem, do func(object string, at int64)) {
	t.Helper()
	seen := map[string][]bool{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Internal || !e.Kind.HasContent() {
			continue
		}
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[x.Object] == nil {
				seen[x.Object] = make([]bool, len(st.Get(x.Object)))
			}
			for at := range x.Len {
				if !seen[x.Object][x.Off+at] {
					seen[x.Object][x.Off+at] = true
					do(x.Object, x.Off+at)
				}
			}
		}
	}
}

// Each byte of content is changed, one at a time: in none of the ways to read it does a
// wrong byte come out with success.
func TestEveryDamagedByteIsRefusedInEveryWayToRead(t *testing.T) {
	testkit.Long(t)
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 40), "d/c": "gamma" + strings.Repeat("\x00\x01\x02", 30), "e": ""}
	for _, k := range checkedKinds {
		t.Run(k.format+k.param["compression"], func(t *testing.T) {
			rnd := testkit.Rand(t)
			st := packedAs(t, k.format, k.param, files)
			sound, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer sound.Close()
			places, caught := 0, 0
			storedBytes(t, sound, st, func(object string, at int64) {
				was := st.Get(object)
				b := bytes.Clone(was)
				b[at] ^= 1 << rnd.IntN(8)
				st.Put(object, b)
				defer st.Put(object, was)
				a, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				refused := false
				for name, want := range files {
					e, err := a.Lookup(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					refused = len(readInEveryWay(t, a, e, want, rnd)) > 0 || refused
					got, err := fs.ReadFile(a.FS(t.Context()), name)
					if err == nil && string(got) != want {
						t.Fatalf("byte %d of %s: ReadFile of %s gives %q", at, object, name, got)
					}
				}
				if places++; refused {
					caught++
				}
			})
			if caught < 20 {
				t.Errorf("of %d damages %d were refused", places, caught)
			}
		})
	}
}
