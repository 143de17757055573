package holdall_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// A plan that loses a file, renames one or damages one is refused before anything is written. A
// plan that corrects names is not.
func TestARepairThatWouldLoseAFileIsRefused(t *testing.T) {
	files := map[string]string{"a": "alpha", "b": "beta", "c": strings.Repeat("gamma", 100)}
	archiveOf := func(files map[string]string, change func([]byte)) []byte {
		st := packedAs(t, "caf", nil, files)
		b := st.Get("x")
		change(b)
		return b
	}
	keep := func([]byte) {}
	with := func(change func(map[string]string)) map[string]string {
		all := maps.Clone(files)
		change(all)
		return all
	}
	for _, k := range []struct {
		what  string
		after []byte
		lost  string
	}{
		{"nothing is lost", archiveOf(files, keep), ""},
		{"a name is corrected", archiveOf(with(func(m map[string]string) { delete(m, "b"); m["B"] = "beta" }), keep), ""},
		{"a file is missing", archiveOf(with(func(m map[string]string) { delete(m, "b") }), keep), "1 files that can be read now could not be read after this repair, the first of them b"},
		{"a file is another", archiveOf(with(func(m map[string]string) { m["b"] = "BETA" }), keep), "the first of them b"},
		{"a file is damaged", archiveOf(files, func(b []byte) { b[bytes.Index(b, []byte("alpha"))] = 'A' }), "the first of them a"},
		{"nothing can be opened", []byte("no archive"), "cannot be opened after this repair"},
	} {
		for _, build := range []bool{false, true} {
			before := archiveOf(files, keep)
			f := *formatNamed(t, "caf")
			f.Repair = func(context.Context, store.Store, string, format.OpenOptions, func(format.Problem)) (format.Plan, error) {
				write := func(w io.Writer) error { _, err := w.Write(k.after); return err }
				if build {
					return format.Plan{Build: func(ctx context.Context, to store.Store, name string, _ bool) error {
						_, err := store.Write(ctx, to, name, func(w store.Writer) error { return write(w) })
						return err
					}}, nil
				}
				return format.Plan{Edits: []format.Edit{{Object: "x", Len: int64(len(before)), Write: write}}}, nil
			}
			st := &storetest.Mem{}
			st.Put("x", before)
			plan, err := holdall.RepairStore(t.Context(), st, "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Formats: []*format.Format{&f}, Format: "caf"}})
			switch {
			case k.lost == "" && err != nil, k.lost != "" && (err == nil || !strings.Contains(err.Error(), k.lost)):
				t.Errorf("%s (%v): %v", k.what, build, err)
			case err == nil:
				if plan.Readable[format.FilesAfter] != 3 {
					t.Errorf("%s (%v): %v", k.what, build, plan.Readable)
				}
				plan.Close()
			}
		}
	}
}

// A damaged page in the last record of a bundle costs no other file of this record.
func TestABundleKeepsTheFilesOfADamagedRecord(t *testing.T) {
	rnd := testkit.Rand(t)
	for range 4 {
		files := map[string]string{}
		for i := range 14 {
			n := []int{200, 1500, 5000, 9000}[rnd.IntN(4)]
			if files["f"+string(rune('a'+i))] = noiseOf(rnd, n); i%2 == 1 {
				files["f"+string(rune('a'+i))] = strings.Repeat("alpha beta ", n/11)
			}
		}
		st := packedAs(t, "databundle", nil, files)
		shard := slices.DeleteFunc(objectsIn(t, st), func(name string) bool { return !strings.Contains(name, "shard-") })[0]
		intact := st.Get(shard)
		for at := 4096; at < len(intact); at += 4096 {
			damaged := bytes.Clone(intact)
			copy(damaged[at:min(at+4096, len(damaged))], noiseOf(rnd, 4096))
			st.Put(shard, damaged)
			before := intactIn(t, st)
			plan, err := holdall.RepairStore(t.Context(), st, "x", holdall.RepairOptions{})
			if err != nil {
				t.Fatalf("page at %d: %v", at, err)
			}
			out := &storetest.Mem{}
			if err := plan.ApplyStore(t.Context(), out, "x"); err != nil {
				t.Fatalf("page at %d: %v", at, err)
			}
			plan.Close()
			if after := intactIn(t, out); after < before {
				t.Errorf("page at %d: %d files can be read before the repair, and %d after it", at, before, after)
			}
		}
	}
}

// intactIn returns how many files of an archive have the right content.
func intactIn(t *testing.T, st *storetest.Mem) (n int) {
	t.Helper()
	a, err := holdall.OpenStore(t.Context(), st, "x", holdall.OpenOptions{})
	if err != nil {
		return 0
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err == nil && a.WriteContent(t.Context(), io.Discard, e) == nil {
			n++
		}
	}
	return n
}

func noiseOf(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return string(b)
}

func formatNamed(t *testing.T, name string) *format.Format {
	t.Helper()
	f, err := format.All().Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
