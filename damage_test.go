package holdall_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
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

// seen is all that an archive tells: what it is, what is in it, and the contents that can
// be had.
func seen(t *testing.T, st *storetest.Mem) string {
	t.Helper()
	ctx := t.Context()
	a, err := holdall.OpenStore(ctx, st, "x", holdall.OpenOptions{})
	if err != nil {
		return "not opened"
	}
	defer a.Close()
	var b strings.Builder
	about, err := a.About(ctx)
	fmt.Fprintf(&b, "%s %q %v %v\n", about.Version, about.Facts, about.Volumes, err)
	for e, err := range a.Entries(ctx) {
		if err != nil {
			b.WriteString("broken off\n")
			break
		}
		e.Ref = nil
		fmt.Fprintf(&b, "%+v\n", e)
		if !e.Kind.HasContent() || e.Internal {
			continue
		}
		content, err := a.Get(ctx, e.Name, 1<<20)
		fmt.Fprintf(&b, "%q %v\n", content, err != nil)
	}
	return b.String()
}

// provenKinds are the formats whose archives prove their own indexes, if we wrote them.
var provenKinds = []string{"caf", "rvn", "lindi", "databundle"}

// Each bit is turned, one at a time: what makes an archive say anything else, a check tells.
func TestEveryTurnedBitThatIsSeenIsTold(t *testing.T) {
	testkit.Long(t)
	for _, k := range provenKinds {
		t.Run(k, func(t *testing.T) {
			t.Parallel()
			st := packedAs(t, k, nil, map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 4), "e": ""})
			want := seen(t, st)
			bits, changes := 0, 0
			for _, info := range objectsIn(t, st) {
				was := st.Get(info)
				for i := range was {
					bitsOf := 8
					if fill := was[max(i-32, 0):min(i+32, len(was))]; bytes.Count(fill, []byte{0}) == len(fill) {
						bitsOf = 1 // nothing but zeros around
					}
					for bit := range bitsOf {
						b := bytes.Clone(was)
						b[i] ^= 1 << bit
						st.Put(info, b)
						bits++
						if seen(t, st) == want {
							continue
						}
						changes++
						told := false
						_, err := holdall.VerifyStore(t.Context(), st, "x", holdall.VerifyOptions{}, func(p holdall.Problem) { told = told || p.Severity > format.Note })
						if err == nil && !told {
							t.Errorf("bit %d of byte %d of %s is turned: nobody tells\n%s", bit, i, info, seen(t, st))
						}
					}
				}
				st.Put(info, was)
			}
			if changes < bits/4 {
				t.Errorf("of %d bits %d were seen", bits, changes)
			}
		})
	}
}

func objectsIn(t *testing.T, st *storetest.Mem) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}
