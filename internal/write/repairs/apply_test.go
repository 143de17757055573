package repairs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func objectsIn(t testing.TB, st store.Store) (all []string) {
	t.Helper()
	for info, err := range storekit.List(t.Context(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

func write(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// wantObjects compares all of a store with what is expected.
func wantObjects(t *testing.T, what string, st *storetest.Mem, want map[string]string) {
	t.Helper()
	for name, content := range want {
		if got := st.Get(name); string(got) != content {
			t.Errorf("%s: %s is %q, expected %q", what, name, got, content)
		}
	}
	if all := objectsIn(t, st); len(all) != len(want) {
		t.Errorf("%s: found %q, expected %d objects", what, all, len(want))
	}
}

// Edits replace, insert and remove ranges, in the object itself and elsewhere.
func TestEditsAreWritten(t *testing.T) {
	for _, test := range []struct {
		what  string
		edits []format.Edit
		want  string
	}{
		{"nothing", nil, "0123456789"},
		{"replaced", []format.Edit{{Object: "x", Off: 2, Len: 3, Write: write("abc")}}, "01abc56789"},
		{"inserted", []format.Edit{{Object: "x", Off: 0, Write: write("ab")}, {Object: "x", Off: 10, Write: write("c")}}, "ab0123456789c"},
		{"removed", []format.Edit{{Object: "x", Off: 0, Len: 1}, {Object: "x", Off: 8, Len: 2}}, "1234567"},
		{"all at once", []format.Edit{{Object: "x", Off: 1, Len: 2, Write: write("a")}, {Object: "x", Off: 3, Len: 0, Write: write("b")}, {Object: "x", Off: 9, Len: 1}}, "0ab345678"},
	} {
		st, other := &storetest.Mem{}, &storetest.Mem{}
		st.Put("x", []byte("0123456789"))
		plan := format.Plan{Edits: test.edits}
		for _, to := range []struct {
			st   *storetest.Mem
			name string
		}{{other, "y"}, {st, "y"}, {st, "x"}} {
			if err := repairs.Apply(t.Context(), st, "x", plan, to.st, to.name); err != nil || string(to.st.Get(to.name)) != test.want {
				t.Errorf("%s: %q, %v, expected %q", test.what, to.st.Get(to.name), err, test.want)
			}
		}
	}
}

// A plan that does not fit changes nothing.
func TestPlansThatDoNotFitAreRefused(t *testing.T) {
	broken := errors.New("broken")
	for what, test := range map[string]struct {
		plan format.Plan
		err  error
		says string
	}{
		"another object":   {format.Plan{Edits: []format.Edit{{Object: "z", Len: 1}}}, errors.ErrUnsupported, "changes z"},
		"beyond the end":   {format.Plan{Edits: []format.Edit{{Object: "x", Off: 8, Len: 3}}}, nil, "invalid repair: bytes 8+3 of an object of 10"},
		"before the start": {format.Plan{Edits: []format.Edit{{Object: "x", Off: -1, Len: 3}}}, nil, "invalid repair"},
		"a length below 0": {format.Plan{Edits: []format.Edit{{Object: "x", Off: 3, Len: -1}}}, nil, "invalid repair"},
		"overlapping":      {format.Plan{Edits: []format.Edit{{Object: "x", Off: 3, Len: 3}, {Object: "x", Off: 5, Len: 3}}}, nil, "invalid repair"},
		"out of order":     {format.Plan{Edits: []format.Edit{{Object: "x", Off: 5, Len: 1}, {Object: "x", Off: 1, Len: 1}}}, nil, "invalid repair"},
		"a write fails":    {format.Plan{Edits: []format.Edit{{Object: "x", Off: 5, Len: 1, Write: func(io.Writer) error { return broken }}}}, broken, ""},
		"building fails":   {format.Plan{Build: func(ctx context.Context, st store.Store, name string, _ bool) error { return broken }}, broken, ""},
		"half built": {format.Plan{Build: func(ctx context.Context, st store.Store, name string, _ bool) error {
			return errors.Join(storetest.Put(ctx, st, name+"/a", []byte("a")), broken)
		}}, broken, ""},
	} {
		st := &storetest.Mem{}
		st.Put("x", []byte("0123456789"))
		for _, out := range []string{"x", "y"} {
			err := repairs.Apply(t.Context(), st, "x", test.plan, st, out)
			if err == nil || test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", what, err)
			}
			wantObjects(t, what, st, map[string]string{"x": "0123456789"})
		}
	}
	st := &storetest.Mem{}
	if err := repairs.Apply(t.Context(), st, "x", format.Plan{}, st, "y"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an archive that is not there: %v", err)
	}
	// What can write a repair cannot make it visible.
	st.Put("x", []byte("0"))
	plan := format.Plan{Edits: []format.Edit{{Object: "x", Write: func(w io.Writer) error {
		if _, ok := w.(store.Writer); ok {
			return errors.New("a plan may commit")
		}
		return nil
	}}}}
	if err := repairs.Apply(t.Context(), st, "x", plan, st, "y"); err != nil {
		t.Error(err)
	}
}

// A folder is copied as a whole, and built beside or in place.
func TestArchivesOfSeveralObjects(t *testing.T) {
	was := map[string]string{"d/a": "alpha", "d/b": "beta", "d/sub/c": "gamma", "dd": "other"}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{was, more} {
			for name, content := range m {
				if all[name] = content; content == "" {
					delete(all, name)
				}
			}
		}
		return all
	}
	plan := format.Plan{
		Replaces: []string{"d/a"}, Drops: []string{"d/b", "d/a"},
		Build: func(ctx context.Context, st store.Store, name string, inPlace bool) error {
			return storetest.Put(ctx, st, name+"/a", fmt.Appendf(nil, "new %v", inPlace))
		},
	}
	for _, test := range []struct {
		what string
		plan format.Plan
		out  string
		want map[string]string
	}{
		{"copied", format.Plan{}, "e", map[string]string{"e/a": "alpha", "e/b": "beta", "e/sub/c": "gamma"}},
		{"copied to a folder", format.Plan{}, "e/", map[string]string{"e/a": "alpha", "e/b": "beta", "e/sub/c": "gamma"}},
		{"built", plan, "e", map[string]string{"e/a": "new false"}},
		{"in place", plan, "d", map[string]string{"d/a": "new true", "d/b": ""}}, // what is made is not dropped
	} {
		st := &storetest.Mem{}
		for name, content := range was {
			st.Put(name, []byte(content))
		}
		if err := repairs.Apply(t.Context(), st, "d", test.plan, st, test.out); err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
		wantObjects(t, test.what, st, with(test.want))
		if test.out == "d" {
			continue
		}
		if err := repairs.Apply(t.Context(), st, "d", test.plan, st, test.out); err == nil {
			t.Errorf("%s: it is written over what is there", test.what)
		}
		wantObjects(t, test.what, st, with(test.want))
	}
}

// A backup has what a plan changes. It replaces no other one, and completes one that broke off.
func TestBackupsAreCompletedAndNeverReplaced(t *testing.T) {
	folder := format.Plan{Replaces: []string{"d/a", "d/b"}, Build: func(context.Context, store.Store, string, bool) error { return nil }}
	for _, test := range []struct {
		what, name string
		plan       format.Plan
		there      map[string]string
		want       map[string]string // beside the archives; nil if it is refused
	}{
		{what: "one object", name: "x", want: map[string]string{"x.bak": "0123456789"}},
		{what: "it is there", name: "x", there: map[string]string{"x.bak": "0123456789"}, want: map[string]string{"x.bak": "0123456789"}},
		{what: "another is there", name: "x", there: map[string]string{"x.bak": "012345678X"}},
		{what: "none is needed", name: "x", plan: format.Plan{KeepsBackup: true}, want: map[string]string{}},
		{what: "a folder", name: "d/", plan: folder, want: map[string]string{"d.bak/a": "alpha", "d.bak/b": "beta"}},
		{what: "a folder that broke off", name: "d", plan: folder, there: map[string]string{"d.bak/a": "alpha"}, want: map[string]string{"d.bak/a": "alpha", "d.bak/b": "beta"}},
		{what: "a folder of another", name: "d", plan: folder, there: map[string]string{"d.bak/b": "BETA"}},
		{what: "a folder with something else", name: "d", plan: folder, there: map[string]string{"d.bak/z": "zeta"}},
	} {
		st := &storetest.Mem{}
		all := map[string]string{"x": "0123456789", "d/a": "alpha", "d/b": "beta", "d/c": "gamma"}
		for _, m := range []map[string]string{all, test.there} {
			for name, content := range m {
				st.Put(name, []byte(content))
			}
		}
		err := repairs.Backup(t.Context(), st, test.name, ".bak", test.plan)
		if (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v", test.what, err)
		}
		more := test.want
		if more == nil {
			more = test.there
		}
		for name, content := range more {
			all[name] = content
		}
		wantObjects(t, test.what, st, all)
	}
	gone := format.Plan{Replaces: []string{"d/gone"}, Build: folder.Build}
	if err := repairs.Backup(t.Context(), &storetest.Mem{}, "d", ".bak", gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is to be backed up is not there: %v", err)
	}
}

// In every state that a failure leaves, a backup is none, whole, or completed by the next one.
func TestABackupThatBreaksOffIsCompleted(t *testing.T) {
	plan := format.Plan{Replaces: []string{"d/a", "d/b", "d/c"}, Build: func(context.Context, store.Store, string, bool) error { return nil }}
	for steps := 0; ; steps++ {
		st := &storetest.Mem{}
		for _, name := range plan.Replaces {
			st.Put(name, []byte("content of "+name))
		}
		c := storetest.NewCrash(st, steps)
		if err := repairs.Backup(t.Context(), c, "d", ".bak", plan); err != nil && !errors.Is(err, storetest.ErrPowerLost) {
			t.Fatal(err)
		}
		if err := repairs.Backup(t.Context(), st, "d", ".bak", plan); err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		for _, name := range plan.Replaces {
			if b := st.Get(strings.Replace(name, "d/", "d.bak/", 1)); string(b) != "content of "+name {
				t.Errorf("after %d steps: %s is %q", steps, name, b)
			}
		}
		if !c.Lost() {
			break
		}
	}
}

// A planned archive shows what a plan will leave, byte for byte and by any range, and changes
// nothing.
func TestAPlannedArchiveShowsWhatWillBe(t *testing.T) {
	rnd := testkit.Rand(t)
	b := testkit.Noise(rnd, 300_000)
	mem := &storetest.Mem{}
	mem.Put("x", b)
	mem.Put("y", []byte("beside"))
	insert := string(testkit.Noise(rnd, 5000))
	plan := format.Plan{Edits: []format.Edit{
		{Object: "x", Off: 0, Len: 10}, {Object: "x", Off: 1000, Len: 70_000, Write: write(insert)}, {Object: "x", Off: 200_000, Write: write("inserted")}, {Object: "x", Off: 299_000, Len: 1000},
	}}
	want := slices.Concat(b[10:1000], []byte(insert), b[71_000:200_000], []byte("inserted"), b[200_000:299_000])
	for what, st := range map[string]store.Store{"memory": mem, "no ranges": storetest.Fault(mem, func(string, string, int64, int64) error { return nil })} {
		p, err := repairs.NewPlanned(t.Context(), st, "x", plan)
		if err != nil {
			t.Fatal(err)
		}
		o := storetest.Open(t, p, "x")
		info, err := o.Info(t.Context())
		if err != nil || info.Size != int64(len(want)) || info.Name != "x" {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		for range 200 {
			off := rnd.IntN(len(want) + 1)
			got := make([]byte, rnd.IntN(min(len(want)-off, 50_000)+1))
			if err := o.ReadAt(t.Context(), got, int64(off)); err != nil || !bytes.Equal(got, want[off:][:len(got)]) {
				t.Fatalf("%s: %d bytes at %d: %v", what, len(got), off, err)
			}
		}
		for _, r := range [][2]int64{{-1, 1}, {int64(len(want)), 1}, {int64(len(want)) - 5, 6}} {
			if err := o.ReadAt(t.Context(), make([]byte, r[1]), r[0]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v: %v", what, r, err)
			}
		}
		if got := storetest.Get(t, p, "y"); string(got) != "beside" {
			t.Errorf("%s: what is beside it is %q", what, got)
		}
		if all := objectsIn(t, p); !slices.Contains(all, "x") || len(all) != 2 {
			t.Errorf("%s: %q", what, all)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(mem.Get("x"), b) {
			t.Errorf("%s: the archive itself has changed", what)
		}
	}
	if _, err := repairs.NewPlanned(t.Context(), mem, "x", format.Plan{Edits: []format.Edit{{Object: "x", Off: 1e9, Len: 1}}}); err == nil {
		t.Error("a plan that does not fit is shown")
	}
}

// Of a folder, the planned objects are there, and no others of it.
func TestAPlannedFolder(t *testing.T) {
	st := &storetest.Mem{}
	for _, name := range []string{"d/a", "d/b", "dd"} {
		st.Put(name, []byte("was "+name))
	}
	p, err := repairs.NewPlanned(t.Context(), st, "d/", format.Plan{Build: func(ctx context.Context, to store.Store, name string, inPlace bool) error {
		if inPlace {
			return errors.New("it is not in place")
		}
		return errors.Join(storetest.Put(ctx, to, name+"/b", []byte("new")), repairs.Apply(ctx, st, "d/a", format.Plan{}, to, name+"/c"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, want := range map[string]string{"d/b": "new", "d/c": "was d/a", "dd": "was dd"} {
		if got := storetest.Get(t, p, name); string(got) != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if _, err := p.Open(t.Context(), "d/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what will not be is there: %v", err)
	}
	var all []string
	for info, err := range storekit.List(t.Context(), p, "d/") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	if !slices.Equal(all, []string{"d/b", "d/c"}) {
		t.Errorf("found %q", all)
	}
	wantObjects(t, "the archive itself", st, map[string]string{"d/a": "was d/a", "d/b": "was d/b", "dd": "was dd"})
}
