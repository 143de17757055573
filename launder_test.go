package holdall_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// A writing verb writes something from the archive called x in a store, and returns the store with
// what it wrote, also called x. It returns false if it refused to.
type writingVerb struct {
	name string
	do   func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool)
}

func options(st *storetest.Mem) holdall.OpenOptions {
	return holdall.OpenOptions{Store: st, Index: holdall.UseIndex{Beside: true}}
}

// writingVerbs are all verbs that write archives, indexes and parity from an archive.
func writingVerbs() []writingVerb {
	verbs := []writingVerb{
		{"repair", func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			plan, err := holdall.Repair(ctx, "x", holdall.RepairOptions{OpenOptions: options(st)})
			if err != nil {
				return st, false
			}
			defer plan.Close()
			to := &storetest.Mem{}
			return to, plan.ApplyStore(ctx, to, "x") == nil
		}},
		{"repair in place", func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			plan, err := holdall.Repair(ctx, "x", holdall.RepairOptions{OpenOptions: options(st)})
			if err != nil {
				return st, false
			}
			defer plan.Close()
			return st, plan.ApplyStore(ctx, st, "x") == nil
		}},
		{"index", func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			_, err := holdall.BuildIndex(ctx, "x", "x.holdall", holdall.IndexOptions{To: st, OpenOptions: holdall.OpenOptions{Store: st}, Chunk: 64 << 10, OnError: func(holdall.Problem) {}})
			return st, err == nil
		}},
		{"protect", func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			_, err := holdall.Protect(ctx, []string{"x"}, "x.parity", holdall.ProtectOptions{Store: st, To: st})
			return st, err == nil
		}},
		{"add", func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			m, err := holdall.Amend(ctx, "x", holdall.OpenOptions{Store: st})
			if err != nil {
				return st, false
			}
			defer m.Close()
			if _, err := m.Add(ctx, []string{"testdata/api.txt"}, holdall.AddOptions{}); err != nil {
				return st, false
			}
			_, err = m.Commit(ctx)
			return st, err == nil
		}},
	}
	for i, to := range []string{"caf", "lindi", "rvn", "databundle", "zip", "tar", "caf", "lindi", "rvn", "databundle", "zip", "tar"} {
		verbs = append(verbs, writingVerb{"convert to " + to, func(ctx context.Context, st *storetest.Mem) (*storetest.Mem, bool) {
			a, err := holdall.Open(ctx, "x", options(st))
			if err != nil {
				return st, false
			}
			defer a.Close()
			into := &storetest.Mem{}
			_, err = holdall.Convert(ctx, a, "x", holdall.PackOptions{Store: into, Format: to, KeepDamaged: i >= 6, OnError: func(string, error) {}})
			return into, err == nil
		}})
	}
	return verbs
}

// TestNoVerbMakesDamageCertain damages archives whose format proves its contents, has two verbs write
// something from them, one after the other, and reads what they wrote. No content is wrong
// without an error or a doubt of the archive.
func TestNoVerbMakesDamageCertain(t *testing.T) {
	testkit.Serial(t)
	ctx := t.Context()
	rnd := testkit.Rand(t)
	verbs := writingVerbs()
	for _, f := range []string{"caf", "lindi", "rvn", "databundle", "zip", "tar.zst", "tar.gz"} {
		files := map[string]string{"empty": "", "tiny": "twelve bytes"}
		for i := range 8 {
			files[fmt.Sprintf("%c/%s", 'a'+i%3, strings.Repeat(string(rune('k'+i)), 3+i))] = string(testkit.Noise(rnd, 1+rnd.IntN(3000)))
		}
		sound := compressedAs(t, f, files)
		for range testkit.Rounds(t, 60) {
			st := sound.Clone()
			what := damageOne(rnd, st)
			first, second := verbs[rnd.IntN(len(verbs))], verbs[rnd.IntN(len(verbs))]
			for _, v := range []writingVerb{first, second} {
				if to, ok := v.do(ctx, st); ok {
					st = to
				}
			}
			for name, content := range wrongIn(ctx, st, files) {
				t.Errorf("%s, %s, %s, %s: %s reads as %d bytes that are wrong", f, what, first.name, second.name, name, len(content))
			}
		}
	}
}

// compressedAs is packedAs, also for a tar that a suffix of its name compresses.
func compressedAs(t *testing.T, f string, files map[string]string) *storetest.Mem {
	t.Helper()
	if !strings.HasPrefix(f, "tar.") {
		return packedAs(t, f, nil, files)
	}
	st := &storetest.Mem{}
	if _, err := holdall.Pack(t.Context(), "x."+f, []string{tree(t, files)}, holdall.PackOptions{Store: st}); err != nil {
		t.Fatal(err)
	}
	st.Put("x", st.Get("x."+f))
	return st
}

// damageOne damages one of the objects of an archive.
func damageOne(rnd *rand.Rand, st *storetest.Mem) string {
	var names []string
	for info, err := range storekit.List(context.Background(), st, "") {
		if err == nil && info.Size > 0 && !strings.HasPrefix(info.Name, "x.") {
			names = append(names, info.Name)
		}
	}
	name := names[rnd.IntN(len(names))]
	b := st.Get(name)
	b, what := testkit.Damage(rnd, b)
	st.Put(name, b)
	return name + what
}

// wrongIn returns the contents that are read without an error, and are not those of files.
func wrongIn(ctx context.Context, st *storetest.Mem, files map[string]string) map[string][]byte {
	wrong := map[string][]byte{}
	a, err := holdall.Open(ctx, "x", options(st))
	if err != nil {
		return nil
	}
	defer a.Close()
	for name, want := range files {
		if b, err := a.Get(ctx, name, 1<<20); err == nil && string(b) != want && a.Doubt() == nil {
			wrong[name] = b
		}
	}
	return wrong
}
