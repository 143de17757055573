package lindi

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/storetest"
)

func TestNumbersInKeysAreComparedByValue(t *testing.T) {
	want := []string{".zattrs", ".zgroup", "a/.zarray", "a/0.0", "a/0.2", "a/0.10", "a/1.0", "a/9.0", "a/10.0", "a/100", "a/010000000000000000000000000", "a/b/0", "a2/0", "a10/0", "b"}
	got := slices.Clone(want)
	rnd := testkit.Rand(t)
	rnd.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
	slices.SortFunc(got, zarrkey.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, x := range []string{"a/1", "a/01", "a/001"} {
		for _, y := range []string{"a/1", "a/01", "a/001"} {
			if (zarrkey.Compare(x, y) == 0) != (x == y) || zarrkey.Compare(x, y) != -zarrkey.Compare(y, x) {
				t.Errorf("%s, %s: %d", x, y, zarrkey.Compare(x, y))
			}
		}
	}
}

const oneAxis = `{"chunks":[500],"compressor":{"id":"zlib","level":1},"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[5000000],"zarr_format":2}`

// hierarchy returns keys of small chunks, and some that must not be joined with them.
func hierarchy(t *testing.T) (keys []string, content map[string][]byte) {
	rnd := testkit.Rand(t)
	content = map[string][]byte{".zgroup": []byte(`{"zarr_format": 2}`), "x/.zarray": []byte(oneAxis), "deep/x/.zarray": []byte(oneAxis), "one/.zarray": []byte(oneAxis), "other/.zgroup": []byte(`{"zarr_format": 2}`)}
	for i := range 100 {
		content[fmt.Sprintf("x/%d", i)] = testkit.Noise(rnd, 500)
		content[fmt.Sprintf("deep/x/%d.%d/%d", i/20, i%20, i)] = testkit.Noise(rnd, 1+rnd.IntN(4000))
	}
	content["x/50"] = testkit.Noise(rnd, 20_000) // longer than a run
	content["x/51"] = nil
	content["x/~0"] = testkit.Noise(rnd, 2000) // called as a run is
	content["one/0"] = testkit.Noise(rnd, 100)
	content["other/7"] = testkit.Noise(rnd, 3000) // of no array
	content[strings.Repeat("long", 40)+"/.zarray"] = []byte(oneAxis)
	for i := range 5 {
		content[strings.Repeat("long", 40)+fmt.Sprintf("/%d", i)] = testkit.Noise(rnd, 900)
	}
	for key := range content {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, zarrkey.Compare)
	return keys, content
}

func TestSmallChunksAreJoined(t *testing.T) {
	testkit.Serial(t)
	keys, content := hierarchy(t)
	for _, name := range []string{"x.lindi.tar", "x.lindi.d"} {
		for _, known := range []bool{true, false} {
			st := &storetest.Mem{}
			o := format.CreateOptions{Param: map[string]string{consolidate: "10000", "as": "zarr"}, Scratch: pack.NewScratch}
			for _, key := range keys {
				if known {
					o.Manifest = append(o.Manifest, format.Entry{Name: key, Size: int64(len(content[key]))})
				}
			}
			w, err := create(t.Context(), st, name, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				// What fails halfway leaves nothing.
				e := format.Entry{Name: key, Size: int64(len(content[key]))}
				if short := strings.NewReader("x"); e.Size > 1 {
					if err := w.Add(t.Context(), e, short); err == nil {
						t.Fatalf("%s: a short content was taken", key)
					}
				}
				if err := w.Add(t.Context(), e, bytes.NewReader(content[key])); err != nil {
					t.Fatal(err)
				}
			}
			sum, err := w.Commit(t.Context())
			if err != nil || sum.Entries != int64(len(keys)) {
				t.Fatal(sum, err)
			}
			sameKeys(t, st, name, content)
			a, err := openArchive(t.Context(), st, name, format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			if err := a.loadRFS(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := map[string]target{}
			for _, r := range a.rfs.refs {
				if _, to, ok := a.rfs.inside(a.rfs.value(r)); ok {
					at[r.key] = to
				}
			}
			if at["x/0"] != (target{"./blobs/x/~0", 0, 500}) || at["x/19"] != (target{"./blobs/x/~0", 9500, 500}) || at["x/20"] != (target{"./blobs/x/~1", 0, 500}) {
				t.Errorf("%s: %v, %v, %v", name, at["x/0"], at["x/19"], at["x/20"])
			}
			if at["x/50"] != (target{"./blobs/x/50", 0, 20_000}) || at["other/7"].n != 3000 || at["other/7"].address != "./blobs/other/7" {
				t.Errorf("%s: %v, %v", name, at["x/50"], at["other/7"])
			}
			if _, ok := at["one/0"]; ok {
				t.Errorf("%s: a chunk of 100 bytes is a member", name)
			}
			runs := map[string]int64{}
			for _, to := range at {
				runs[to.address] = max(runs[to.address], to.off+to.n)
			}
			if len(runs) > 40 {
				t.Errorf("%s: %d members for chunks", name, len(runs))
			}
			for address, n := range runs {
				if n > 10_000 && address != "./blobs/x/50" {
					t.Errorf("%s: %s has %d bytes", name, address, n)
				}
			}
			if name == "x.lindi.tar" && known && a.table.row(1).o != frontLen {
				t.Errorf("the index found no room in front: %+v", a.table.row(1))
			}
		}
	}
}

// sameKeys checks that an archive is intact and has exactly these keys.
func sameKeys(t *testing.T, st *storetest.Mem, name string, content map[string][]byte) {
	t.Helper()
	err := verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) {
		if p.Severity >= format.Error {
			t.Error(p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := open(t.Context(), st, name, format.OpenOptions{View: zarrView})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for e, err := range r.Entries(t.Context()) {
		if err != nil || e.Fault != nil {
			t.Fatal(e.Name, err, e.Fault)
		}
		n++
		got := make([]byte, e.Size)
		for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
			switch {
			case err != nil:
				t.Fatal(err)
			case x.Data != nil:
				copy(got[x.At:], x.Data)
			case x.Object != "":
				copy(got[x.At:x.At+x.Size], st.Get(x.Object)[x.Off:])
			}
		}
		if want := content[e.Name]; !bytes.Equal(got, want) && !isMeta(e.Name) {
			t.Errorf("%s: %d bytes are not the %d that were written", e.Name, len(got), len(want))
		}
	}
	if n != len(content) {
		t.Errorf("%d keys, expected %d", n, len(content))
	}
}

// A chunk that is replaced or removed leaves the run. The rest of the run is removed with its
// last chunk.
func TestRunsStayWhileKeysLeadThere(t *testing.T) {
	testkit.Serial(t)
	keys, content := hierarchy(t)
	for _, name := range []string{"x.lindi.tar", "x.lindi.d"} {
		st := &storetest.Mem{}
		w, err := create(t.Context(), st, name, format.CreateOptions{Param: map[string]string{consolidate: "10000", "as": "zarr"}, Scratch: pack.NewScratch})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]byte{}
		for _, key := range keys {
			want[key] = content[key]
			if err := w.Add(t.Context(), format.Entry{Name: key, Size: int64(len(content[key]))}, bytes.NewReader(content[key])); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		has := func(member string) bool {
			r, err := open(t.Context(), st, name, format.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, err = r.Lookup(t.Context(), member)
			return err == nil
		}
		change := func(do func(m format.Amender) error) {
			t.Helper()
			m, err := amend(t.Context(), st, name, format.OpenOptions{View: zarrView})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if err := do(m); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			sameKeys(t, st, name, want)
		}
		change(func(m format.Amender) error {
			want["x/3"] = bytes.Repeat([]byte("new"), 500)
			want["moved"] = want["x/4"]
			delete(want, "x/4")
			delete(want, "x/0")
			return errors.Join(m.Remove(t.Context(), "x/0"), m.Rename(t.Context(), "x/4", "moved"),
				m.Put(t.Context(), format.Entry{Name: "x/3", Size: 1500}, bytes.NewReader(want["x/3"])))
		})
		if !has("blobs/x/~0") {
			t.Errorf("%s: a run of which keys are left is gone", name)
		}
		change(func(m format.Amender) (err error) {
			for i := range 20 {
				key := fmt.Sprintf("x/%d", i)
				if i == 4 {
					key = "moved"
				}
				if _, ok := want[key]; ok && i != 3 {
					delete(want, key)
					err = errors.Join(err, m.Remove(t.Context(), key))
				}
			}
			return err
		})
		if has("blobs/x/~0") || !has("blobs/x/~1") || !has("blobs/x/3") {
			t.Errorf("%s: ~0 %v, ~1 %v, 3 %v", name, has("blobs/x/~0"), has("blobs/x/~1"), has("blobs/x/3"))
		}
	}
}

func TestWhatCannotBeJoinedIsRefused(t *testing.T) {
	for name, manifest := range map[string][]format.Entry{"x.lindi.json": {{Name: ".zgroup"}}, "x.lindi.tar": {{Name: "a"}}, "x.lindi.d": {{Name: rfsName}}} {
		_, err := create(t.Context(), &storetest.Mem{}, name, format.CreateOptions{Manifest: manifest, Param: map[string]string{consolidate: "10000"}, Scratch: pack.NewScratch})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunsAreRepaired(t *testing.T) {
	keys, content := hierarchy(t)
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.lindi.tar", format.CreateOptions{Param: map[string]string{consolidate: "10000", "as": "zarr"}, Scratch: pack.NewScratch})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := w.Add(t.Context(), format.Entry{Name: key, Size: int64(len(content[key]))}, bytes.NewReader(content[key])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := st.Get("x.lindi.tar")
	at := bytes.Index(b, append([]byte("blobs/x/~2"), make([]byte, 90)...))
	if at < 0 {
		t.Fatal("no header of a run")
	}
	clear(b[at : at+blockLen])
	st.Put("x.lindi.tar", b)
	plan, err := repair(t.Context(), st, "x.lindi.tar", format.OpenOptions{}, func(format.Problem) {})
	if err != nil || plan.Partial {
		t.Fatal(err, plan.Lost)
	}
	var repaired bytes.Buffer
	from := int64(0)
	for _, edit := range plan.Edits {
		repaired.Write(b[from:edit.Off])
		if err := edit.Write(&repaired); err != nil {
			t.Fatal(err)
		}
		from = edit.Off + edit.Len
	}
	repaired.Write(b[from:])
	st.Put("x.lindi.tar", repaired.Bytes())
	sameKeys(t, st, "x.lindi.tar", content)
}
