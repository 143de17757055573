package holdall_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
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
		{"names are exchanged", archiveOf(with(func(m map[string]string) { m["a"], m["b"] = "beta", "alpha" }), keep), ""},
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
						_, err := storekit.Write(ctx, to, name, func(w store.Writer) error { return write(w) })
						return err
					}}, nil
				}
				return format.Plan{Edits: []format.Edit{{Object: "x", Len: int64(len(before)), Write: write}}}, nil
			}
			st := &storetest.Mem{}
			st.Put("x", before)
			plan, err := holdall.Repair(t.Context(), "x", holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st, Formats: []*format.Format{&f}, Format: "caf"}})
			switch {
			case k.lost == "" && err != nil, k.lost != "" && (err == nil || !strings.Contains(err.Error(), k.lost)):
				t.Errorf("%s (%v): %v", k.what, build, err)
			case err == nil:
				if plan.Readable[kit.FilesAfter] != 3 {
					t.Errorf("%s (%v): %v", k.what, build, plan.Readable)
				}
				plan.Close()
			}
		}
	}
}

func formatNamed(t *testing.T, name string) *format.Format {
	t.Helper()
	f, err := format.All().Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
