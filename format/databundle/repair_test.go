package databundle

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// saved is how many of the files that cannot be read in a damaged fixture are there
// after its repair.
var saved = map[string]int{
	"dmg-bad-shard-magic":          11, // all
	"dmg-bomb-record":              0,
	"dmg-crc-mismatch":             0,
	"dmg-current-missing-target":   0, // no file is named, for none can be found
	"dmg-flip-record":              0,
	"dmg-manifest-flip":            0,
	"dmg-missing-shard":            0,
	"dmg-record-offset-beyond-eof": 4, // all
	"dmg-record-offset-swapped":    8, // all
	"dmg-truncated-shard":          0,
}

func TestDamagedFixturesAreRepaired(t *testing.T) {
	seen := 0
	for _, name := range fixtures(t) {
		if !strings.HasPrefix(name, "dmg-") {
			continue
		}
		seen++
		t.Run(name, func(t *testing.T) {
			ctx, want := t.Context(), expectation(t, name)
			o := holdall.OpenOptions{Formats: []*format.Format{Format}}
			st := fixture(t, name)
			plan, err := holdall.Repair(ctx, "b", holdall.RepairOptions{OpenOptions: o.In(st)})
			if err != nil {
				t.Fatal(err)
			}
			if !plan.Changes() {
				t.Fatal("nothing is repaired")
			}
			out := &storetest.Mem{}
			if err := plan.ApplyStore(ctx, out, "repaired"); err != nil {
				t.Fatal(err)
			}
			v, err := holdall.Verify(ctx, "repaired", holdall.VerifyOptions{OpenOptions: o.In(out)}, func(p holdall.Problem) {
				if p.Severity == format.Error {
					t.Errorf("repaired: %+v", p)
				}
			})
			if err != nil || v.Errors > 0 {
				t.Fatalf("repaired: %+v, %v", v, err)
			}
			a, err := holdall.Open(ctx, "repaired", o.In(out))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			back := 0
			for _, w := range want.Entries {
				path := w.Path
				if w.PathHex != "" {
					b, _ := hex.DecodeString(w.PathHex)
					path = string(b)
				}
				_, bad := want.Errors[hex.EncodeToString([]byte(path))]
				if w.Type == "dir" {
					if _, err := a.Lookup(ctx, path); err != nil {
						t.Errorf("%q: %v", path, err)
					}
					continue
				}
				sum, err := contentSum(ctx, a, path)
				switch {
				case err == nil && sum != w.SHA256 && name != "dmg-crc-mismatch":
					t.Errorf("%q: its content is another", path)
				case bad && err == nil:
					back++
				case !bad && err != nil:
					t.Errorf("%q, which can be read in the damaged bundle: %v", path, err)
				}
			}
			if back != saved[name] {
				t.Errorf("%d files are saved, expected %d", back, saved[name])
			}
			if lost := len(want.Errors) - back; (lost > 0) != plan.Partial {
				t.Errorf("partial %v, and %d files are lost: %q", plan.Partial, lost, plan.Lost)
			}
		})
	}
	if seen != len(saved) {
		t.Errorf("%d damaged fixtures, %d expectations", seen, len(saved))
	}
}

// made is a bundle of some files in memory.
func made(t *testing.T, param map[string]string) (*storetest.Mem, holdall.OpenOptions) {
	t.Helper()
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("d%d/file%02d", i%3, i)] = strings.Repeat(fmt.Sprint("text ", i), 50)
	}
	st := &storetest.Mem{}
	formats := []*format.Format{Format}
	o := holdall.PackOptions{Formats: formats, Format: "databundle", Param: param}
	o.Store = st
	if _, err := holdall.Pack(t.Context(), "b", []string{testkit.Tree(t, t.TempDir(), files)}, o); err != nil {
		t.Fatal(err)
	}
	return st, holdall.OpenOptions{Formats: formats}
}

// toldOf is how many errors and warnings a check tells.
func toldOf(t *testing.T, st *storetest.Mem, name string, o holdall.OpenOptions) int64 {
	t.Helper()
	v, err := holdall.Verify(t.Context(), name, holdall.VerifyOptions{OpenOptions: o.In(st)}, func(holdall.Problem) {})
	if err != nil {
		t.Fatal(err)
	}
	return v.Errors + v.Warnings
}

// The bytes of the last record say how long it is. If it decodes to nothing, the files that rows
// place in it are lost.
func TestARecordThatBecomesNothingHasNoFiles(t *testing.T) {
	st, o := made(t, map[string]string{"compression": "zlib", "record-size": "4096"})
	a, err := holdall.Open(t.Context(), "b", o.In(st))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var last format.Extent
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != format.File {
			continue
		}
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Off >= last.Off {
				last = x
			}
		}
	}
	shard := st.Get(last.Object)
	copy(shard[last.Off:], "\x78\x9c\x03\x00\x00\x00\x00\x01") // nothing, as zlib writes it
	st.Put(last.Object, shard)
	plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: o.In(st)})
	if err != nil || !plan.Partial || len(plan.Lost) == 0 {
		t.Fatalf("%+v, %v", plan, err)
	}
	out := &storetest.Mem{}
	if err := plan.ApplyStore(t.Context(), out, "repaired"); err != nil {
		t.Fatal(err)
	}
	if n := toldOf(t, out, "repaired", o); n > 0 {
		t.Errorf("%d errors and warnings are left", n)
	}
}

// A repair removes what a check reports of a damaged index: of rows, of filters, of what leads to
// both. One byte in 25 is chosen at random, and one in five with HOLDALL_LONG=5.
func TestToldDamageOfAnIndexIsRepaired(t *testing.T) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	st, o := made(t, map[string]string{"index-copies": "1"})
	var table string
	for info, err := range storekit.List(t.Context(), st, "b/index/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Name, ".sst") || strings.HasSuffix(info.Name, ".ldb") {
			table = info.Name
		}
	}
	was := st.Get(table)
	share := min(testkit.Rounds(t, 1), 5)
	tried, damaged := 0, 0
	for at := range was {
		if rnd.IntN(25) >= share {
			continue
		}
		tried++
		b := bytes.Clone(was)
		b[at] ^= 1 << rnd.IntN(8)
		st.Put(table, b)
		if toldOf(t, st, "b", o) == 0 {
			continue
		}
		damaged++
		plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: o.In(st)})
		if err != nil || !plan.Changes() || plan.Partial {
			t.Errorf("byte %d: %v, %+v", at, err, plan)
			continue
		}
		out := &storetest.Mem{}
		if err := plan.ApplyStore(t.Context(), out, "repaired"); err != nil {
			t.Fatal(err)
		}
		if n := toldOf(t, out, "repaired", o); n > 0 {
			t.Errorf("byte %d: %d problems are left", at, n)
		}
	}
	if damaged < tried/4 {
		t.Errorf("of %d bytes %d were told", tried, damaged)
	}
}

// A bundle that needs nothing is copied as it is.
func TestAHealthyBundleIsCopied(t *testing.T) {
	for _, param := range []map[string]string{nil, {"index": "inline"}} {
		st, o := made(t, param)
		plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: o.In(st)})
		if err != nil || plan.Changes() {
			t.Fatal(err, plan)
		}
		out := &storetest.Mem{}
		if err := plan.ApplyStore(t.Context(), out, "copy"); err != nil {
			t.Fatal(err)
		}
		n := 0
		for info, err := range storekit.List(t.Context(), st, "b") {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !bytes.Equal(st.Get(info.Name), out.Get("copy"+strings.TrimPrefix(info.Name, "b"))) {
				t.Errorf("%s is not copied", info.Name)
			}
		}
		if n == 0 || toldOf(t, out, "copy", o) > 0 {
			t.Errorf("%d objects, the copy is not sound", n)
		}
		if err := plan.ApplyStore(t.Context(), out, "copy"); param == nil && !errors.Is(err, fs.ErrExist) {
			t.Errorf("it is replaced: %v", err)
		}
	}
}

// With a copy of the index nothing is lost with the index: it is read from the copy, and that is reported.
func TestACopyOfTheIndexIsUsed(t *testing.T) {
	for what, spoil := range map[string]func(st *storetest.Mem, name string, b []byte){
		"gone": func(st *storetest.Mem, name string, _ []byte) { st.Can().Remove(t.Context(), name) },
		"torn": func(st *storetest.Mem, name string, b []byte) { st.Put(name, b[:len(b)/2]) },
		"bit": func(st *storetest.Mem, name string, b []byte) {
			b = bytes.Clone(b)
			b[len(b)/4] ^= 4
			st.Put(name, b)
		},
	} {
		t.Run(what, func(t *testing.T) {
			st, o := made(t, map[string]string{"index-copies": "1"})
			want := namesOf(t, st, "b", o, false)
			all := map[string][]byte{}
			for info, err := range storekit.List(t.Context(), st, "b/index/") {
				if err != nil {
					t.Fatal(err)
				}
				all[info.Name] = st.Get(info.Name)
			}
			for name, b := range all {
				if what != "gone" && !strings.HasSuffix(name, ".sst") && !strings.HasSuffix(name, "CURRENT") {
					continue // a log of nothing
				}
				for n, b := range all {
					st.Put(n, b)
				}
				if len(b) == 0 && what != "gone" {
					continue
				}
				spoil(st, name, b)
				if toldOf(t, st, "b", o) == 0 {
					continue
				}
				// Only a check looks for a log in which nothing is.
				got := namesOf(t, st, "b", o, !strings.HasSuffix(name, ".log"))
				if !slices.Equal(got, want) {
					t.Errorf("%s: found %d names, expected %d", name, len(got), len(want))
				}
				repairsAll(t, st, o, name)
			}
			for name := range all {
				st.Can().Remove(t.Context(), name)
			}
			if got := namesOf(t, st, "b", o, true); !slices.Equal(got, want) {
				t.Errorf("without any index: found %d names, expected %d", len(got), len(want))
			}
			repairsAll(t, st, o, "all")
		})
	}
}

// repairsAll checks that a repair restores everything.
func repairsAll(t *testing.T, st *storetest.Mem, o holdall.OpenOptions, what string) {
	t.Helper()
	plan, err := holdall.Repair(t.Context(), "b", holdall.RepairOptions{OpenOptions: o.In(st)})
	if err != nil || !plan.Changes() || plan.Partial {
		t.Errorf("%s: %v, %+v", what, err, plan)
		return
	}
	out := &storetest.Mem{}
	if err := plan.ApplyStore(t.Context(), out, "m"); err != nil {
		t.Fatal(err)
	}
	if n := toldOf(t, out, "m", o); n > 0 {
		t.Errorf("%s: %d problems are left", what, n)
	}
}

// namesOf returns the files whose content is right. It expects that the index is doubted, or not.
func namesOf(t *testing.T, st *storetest.Mem, name string, o holdall.OpenOptions, doubted bool) (names []string) {
	t.Helper()
	a, err := holdall.Open(t.Context(), name, o.In(st))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Error(err)
			return names
		}
		if _, err := a.Get(t.Context(), e.Name, 1<<20); err == nil {
			names = append(names, e.Name)
		}
	}
	if (a.Doubt() != nil) != doubted {
		t.Errorf("doubt: %v", a.Doubt())
	}
	return names
}
