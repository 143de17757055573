package hdf5_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/zarrtest"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/zarr"
)

// keysOf opens the keys of an archive or a folder.
func keysOf(t testing.TB, address string) *holdall.Archive {
	t.Helper()
	o := holdall.OpenOptions{View: "zarr", External: []string{"."}}
	if info, err := os.Stat(address); err == nil && info.IsDir() && !strings.HasSuffix(address, ".lindi.d") {
		o = holdall.OpenOptions{Format: "dir"}
	}
	a, err := holdall.Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(address, err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// written converts to HDF5, and returns the keys of that and what was left out.
func written(t testing.TB, in *holdall.Archive) (out *holdall.Archive, left map[string]error) {
	t.Helper()
	left = map[string]error{}
	file := filepath.Join(t.TempDir(), "out.h5")
	o := holdall.PackOptions{OnError: func(name string, err error) { left[name] = err }}
	sum, err := holdall.Convert(t.Context(), in, file, o)
	if err != nil {
		t.Fatal(in.Name(), err)
	}
	if sum.Failed != int64(len(left)) {
		t.Errorf("%d failed, but %d were named", sum.Failed, len(left))
	}
	out = keysOf(t, file)
	_, err = holdall.Verify(t.Context(), file, holdall.VerifyOptions{}, func(p holdall.Problem) {
		if p.Severity > format.Note && p.Class != "name-too-long" {
			t.Errorf("%s: written, but wrong: %v", in.Name(), p)
		}
	})
	if err != nil {
		t.Error(err)
	}
	return out, left
}

// compare compares groups, arrays, elements and attributes, except below what was left out.
func compare(t *testing.T, in, out *holdall.Archive, left map[string]error) (arrays int) {
	t.Helper()
	wrong := func(name, what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s: %s %.300v, expected %.300v", in.Name(), name, what, got, want)
		}
	}
	names := func(a *holdall.Archive) (all []string) {
		for e, err := range a.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if base := path.Base(e.Name); base == ".zarray" || base == ".zgroup" || base == ".zattrs" {
				all = append(all, e.Name)
			}
		}
		return all
	}
	src, made := in.FS(t.Context()), out.FS(t.Context())
	of, has := names(in), map[string]bool{}
	for _, name := range names(out) {
		if has[name] = true; !slices.Contains(of, name) && path.Base(name) != ".zgroup" && name != ".zattrs" {
			t.Errorf("%s: %s was added", in.Name(), name)
		}
	}
	for _, name := range of {
		dir, last := path.Split(name)
		if left[name] != nil || left[dir+".zarray"] != nil {
			continue
		}
		wrong(name, "it is there", has[name], true)
		switch {
		case !has[name]:
		case last == ".zattrs":
			wrong(name, "attributes", attributes(t, made, name), attributes(t, src, name))
		case last == ".zarray" && !slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(key string) bool { return strings.HasPrefix(key, dir) }):
			arrays++
			a, b := array(t, src, dir), array(t, made, dir)
			wrong(name, "shape", b.Shape, a.Shape)
			wrong(name, "scalar", b.Scalar, a.Scalar)
			if a.DType.Kind != 'O' && a.DType.Kind != 'M' && a.DType.Kind != 'U' && !a.Scalar {
				wrong(name, "dtype", b.DType.Name, a.DType.Name)
			}
			wrong(name, "elements", elements(t, b), elements(t, a))
		}
	}
	return arrays
}

func attributes(t testing.TB, fsys fs.FS, name string) (v any) {
	t.Helper()
	b, err := fs.ReadFile(fsys, name)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(name, err)
	}
	return v
}

func array(t testing.TB, fsys fs.FS, dir string) *zarr.Array {
	t.Helper()
	a, err := zarr.Open(t.Context(), zarr.Files(fsys), dir)
	if err != nil {
		t.Fatal(dir, err)
	}
	return a
}

func elements(t testing.TB, a *zarr.Array) any {
	t.Helper()
	var v any
	var b bytes.Buffer
	write := a.WriteElements
	if a.Scalar && a.DType.Kind != 'M' && a.DType.Kind != 'V' { // the other byte order is not kept
		write = a.WriteText
	}
	err := write(t.Context(), &b)
	if v = b.String(); a.DType.Kind == 'O' || a.DType.Kind == 'U' {
		var all []any
		all, err = a.Values(t.Context())
		for i, x := range all {
			if x == nil && len(a.Filters) > 0 && a.Filters[0].ID == "vlen-array" {
				all[i] = []any{} // as HDF5 has it
			}
		}
		v = all
	}
	if err != nil {
		t.Fatal(a.Path, err)
	}
	return v
}

// What is written of the fixtures is what they have: files of h5py, and archives of LINDI's reference.
func TestFilesAreWrittenWithTheValuesOfFixtures(t *testing.T) {
	var all []string
	for _, pattern := range []string{"../../hdf5/testdata/*.h5.gz", "testdata/*.h5*", "../lindi/testdata/p*.lindi.*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		all = append(all, names...)
	}
	arrays, lost := 0, 0
	for _, name := range all {
		if base := filepath.Base(name); strings.HasSuffix(name, ".expect.json") || strings.HasSuffix(base, "references.json.gz") || strings.HasPrefix(base, "far_") || strings.HasPrefix(base, "paged_") {
			continue // the last two have thousands of chunks, and nothing else
		}
		if short, ok := strings.CutSuffix(name, ".gz"); ok {
			name = filepath.Join(t.TempDir(), filepath.Base(short))
			if err := os.WriteFile(name, testkit.Read(t, short), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		in := keysOf(t, name)
		out, left := written(t, in)
		arrays += compare(t, in, out, left)
		for key, why := range left {
			lost++
			if _, refused := errors.AsType[*kit.RefusedError](why); refused {
				t.Errorf("%s: %s: %v", name, key, why)
			}
		}
	}
	if t.Logf("%d arrays, %d entries left out", arrays, lost); arrays < 500 {
		t.Errorf("only %d arrays were compared", arrays)
	}
}

type folder = zarrtest.Folder

// Hierarchies at random, of what other writers of Zarr make, too: other orders, codecs and separators, chunks that are
// larger than the array or were never written.
func TestHierarchiesAtRandomAreWritten(t *testing.T) {
	rnd := testkit.Rand(t)
	for range testkit.Rounds(t, 40) {
		f := folder{".zgroup": []byte(`{"zarr_format":2}`), ".zattrs": zarrtest.RandomAttributes(rnd, nil)}
		paths := []string{"", "g", "g/h", "ü"}
		for _, at := range paths[1:] {
			f[at+"/.zgroup"], f[at+"/.zattrs"] = f[".zgroup"], zarrtest.RandomAttributes(rnd, []string{"/g/h", "/ü", "/"})
		}
		f["g/soft/.zgroup"], f["g/soft/.zattrs"] = f[".zgroup"], []byte(`{"_SOFT_LINK":{"path":"/g/h"}}`)
		for i := range 12 {
			f.AddArray(rnd, path.Join(paths[rnd.IntN(len(paths))], fmt.Sprint("a", i)))
		}
		in := keysOf(t, f.Dir(t))
		out, left := written(t, in)
		for key, err := range left {
			t.Errorf("%s: %v\n%s", key, err, f[key])
		}
		if n := compare(t, in, out, left); n != 12 && len(left) == 0 {
			t.Errorf("%d arrays were compared, expected 12", n)
		}
		if t.Failed() {
			return
		}
	}
}

// zarray is the metadata of an array of one dimension.
func zarray(dtype string, n, chunk int, rest string) []byte {
	return fmt.Appendf(nil, `{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":%s,"fill_value":null,"order":"C"%s}`, n, chunk, dtype, rest)
}

const noCodec = `,"filters":null,"compressor":null`

// What HDF5 cannot store is left out by name, and everything else is written.
func TestWhatCannotBeWrittenIsNamed(t *testing.T) {
	f := folder{
		".zgroup": []byte(`{"zarr_format":2}`), ".zmetadata": []byte(`{}`),
		".zattrs":            []byte(`{"good":1,"object":{"a":1},"mixed":[1,"a"],"ragged":[[1],[2,3]],"nul":"a\u0000b","huge":123456789012345678901234567890,"nowhere":{"_REFERENCE":{"path":"/none"}},"surrogate":"\ud800"}`),
		"notes.txt":          []byte("not of the hierarchy"),
		"good/.zarray":       zarray(`"<i2"`, 4, 2, noCodec),
		"good/0":             []byte("abcd"),
		"good/1":             []byte("efgh"),
		"good/2":             []byte("outside"),
		"good/x":             []byte("no number"),
		"good/in/.zarray":    zarray(`"<i2"`, 4, 2, noCodec),
		"good/.zgroup":       []byte(`{"zarr_format":2}`),
		"short/.zarray":      zarray(`"|S2"`, 4, 2, noCodec),
		"short/0":            []byte("abc"),
		"long/.zarray":       zarray(`"<i2"`, 4, 2, noCodec),
		"long/1":             []byte("abcde"),
		"damaged/.zarray":    zarray(`"<i2"`, 4, 4, `,"filters":null,"compressor":{"id":"gzip","level":1}`),
		"damaged/0":          []byte("not gzip"),
		"json/.zarray":       []byte(`{"zarr_format":2,"shape":`),
		"json/0":             []byte("left out with it"),
		"unknown/.zarray":    zarray(`"<f16"`, 4, 4, noCodec),
		"nothing/.zarray":    zarray(`"|S0"`, 4, 4, noCodec),
		"many/.zarray":       zarray(`"<i2"`, 1<<40, 1, noCodec),
		"big/.zarray":        zarray(`"<i2"`, 1<<40, 1<<39, noCodec),
		"pickled/.zarray":    zarray(`"|O"`, 1, 1, `,"filters":[{"id":"pickle"}],"compressor":null`),
		"pickled/0":          []byte("x"),
		"numbers/.zarray":    zarray(`"|O"`, 2, 2, `,"filters":[{"id":"json2"}],"compressor":null`),
		"numbers/0":          []byte(`[1,2,"|O",[2]]`),
		"several/.zarray":    zarray(`"|O"`, 2, 2, `,"filters":[{"id":"json2"}],"compressor":null`),
		"several/0":          []byte(`["a",{"_REFERENCE":{"path":"/good"}},"|O",[2]]`),
		"lost/.zarray":       zarray(`"|O"`, 2, 2, `,"filters":[{"id":"json2"}],"compressor":null`),
		"lost/0":             []byte(`[{"_REFERENCE":{"path":"/none"}},{"_REFERENCE":{"path":"/good"}},"|O",[2]]`),
		"fields/.zarray":     zarray(`"|O"`, 2, 2, `,"filters":[{"id":"json2"}],"compressor":null`),
		"fields/.zattrs":     []byte(`{"_COMPOUND_DTYPE":[["a","strange"]]}`),
		"filled/.zarray":     []byte(`{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"|O","fill_value":"x","order":"C","filters":[{"id":"json2"}],"compressor":null}`),
		"elsewhere/.zarray":  zarray(`"<i2"`, 4, 2, noCodec),
		"elsewhere/.zattrs":  []byte(`{"_EXTERNAL_ARRAY_LINK":{"link_type":"hdf5_dataset","url":"x.h5","name":"x"}}`),
		"dimensions/.zarray": zarray(`"<i2"`, 5, 5, noCodec),
		"dimensions/.zattrs": []byte(`{"_ARRAY_DIMENSIONS":["good"],"kept":true}`),
		"soft/.zgroup":       []byte(`{"zarr_format":2}`),
		"soft/.zattrs":       []byte(`{"_SOFT_LINK":{"path":"/good"},"more":1}`),
		"lone/.zattrs":       []byte(`{"a":1}`),
	}
	want := map[string]string{
		".zattrs": `"huge"`, "notes.txt": "not part of an array", "good/2": "no chunk", "good/x": "no chunk", "good/in/.zarray": "", "good/.zgroup": "",
		"short/0": "4 bytes, found 3", "long/1": "4 bytes, found 5", "damaged/0": "gzip", "json/.zarray": "", "filled/.zarray": "fill value", "unknown/.zarray": "<f16", "nothing/.zarray": "|S0",
		"many/.zarray": "chunks", "big/.zarray": "4 GiB", "pickled/0": "pickle", "numbers/0": "neither strings nor references", "several/0": "several kinds", "lost/0": `"/none"`,
		"fields/.zattrs": "_COMPOUND_DTYPE", "elsewhere/.zattrs": "--external", "dimensions/.zattrs": "dimension \"good\"", "soft/.zattrs": "no attributes", "lone/.zattrs": "no group or array",
	}
	in := keysOf(t, f.Dir(t))
	out, left := written(t, in)
	for key, text := range want {
		err := left[key]
		if _, refused := errors.AsType[*kit.RefusedError](err); !refused || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, expected %s", key, err, text)
		}
		delete(left, key)
	}
	if len(left) > 0 {
		t.Errorf("also left out: %v", left)
	}
	made := out.FS(t.Context())
	nowhere := map[string]any{"_REFERENCE": map[string]any{"object_id": nil, "path": nil, "source": nil, "source_object_id": nil}}
	if got := attributes(t, made, ".zattrs"); !reflect.DeepEqual(got, map[string]any{"good": 1.0, "nowhere": nowhere}) {
		t.Error(got)
	}
	if got := attributes(t, made, "dimensions/.zattrs"); !reflect.DeepEqual(got, map[string]any{"kept": true}) {
		t.Error(got)
	}
	if got, _ := elements(t, array(t, made, "lost")).([]any); len(got) != 2 || got[0] != nil || got[1] == nil {
		t.Error(got)
	}
	if got := elements(t, array(t, made, "good")); got != "abcdefgh" {
		t.Error(got)
	}
}

func TestOnlyHierarchiesBecomeHDF5(t *testing.T) {
	for text, f := range map[string]folder{
		"found no .zgroup":     {"a": []byte("1")},
		"found version 3":      {"zarr.json": []byte(`{"zarr_format":3,"node_type":"group"}`)},
		"root of an HDF5 file": {".zarray": zarray(`"<i2"`, 1, 1, noCodec), "0": []byte("ab")},
		"nothing to pack":      {"a/.zarray": []byte("{}")},
	} {
		file := filepath.Join(t.TempDir(), "x.h5")
		said := ""
		_, err := holdall.Convert(t.Context(), keysOf(t, f.Dir(t)), file, holdall.PackOptions{OnError: func(_ string, err error) { said += err.Error() }})
		if err == nil || !strings.Contains(said+err.Error(), text) {
			t.Errorf("%s: %s: %v", text, said, err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s: there is a file", text)
		}
	}
	_, err := holdall.Pack(t.Context(), filepath.Join(t.TempDir(), "x.h5"), []string{t.TempDir()}, holdall.PackOptions{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "convert a Zarr hierarchy") {
		t.Error(err)
	}
}

// small is what the tests of stores write.
var small = []struct{ name, text string }{
	{"a/.zarray", string(zarray(`"<i2"`, 200_000, 100_000, noCodec))}, {"t/.zarray", string(zarray(`"|O"`, 2, 1, `,"filters":[{"id":"json2"}],"compressor":null`))},
	{".zgroup", "{}"}, {"a/.zattrs", `{"r":{"_REFERENCE":{"path":"/t"}}}`}, {"a/0", strings.Repeat("ab", 100_000)}, {"a/1", strings.Repeat("cd", 100_000)},
	{"t/0", `["one","|O",[1]]`}, {"t/1", `["two","|O",[1]]`},
}

func writeSmall(t testing.TB, st store.Store) error {
	var o format.CreateOptions
	for _, x := range small {
		o.Manifest = append(o.Manifest, format.Entry{Name: x.name, Size: int64(len(x.text))})
	}
	o.Scratch = func() (sorter.Scratch, error) { return sorter.TempFile() }
	w, err := kit.Create(t.Context(), hdf5.Format, st, "x.h5", o)
	if err != nil {
		return err
	}
	for i, x := range small {
		if err := w.Add(t.Context(), o.Manifest[i], strings.NewReader(x.text)); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	_, err = w.Commit(t.Context())
	return errors.Join(err, w.Abort())
}

// Each request of a writer fails once. Each store gets the same bytes, also one that cannot go back.
func TestFailingWritesSurface(t *testing.T) {
	whole := &storetest.Mem{}
	if err := writeSmall(t, whole); err != nil {
		t.Fatal(err)
	}
	want := whole.Get("x.h5")
	if err := writeSmall(t, forwards{whole}); err != nil || !bytes.Equal(whole.Get("x.h5"), want) {
		t.Errorf("a store without patches: %v, or others bytes", err)
	}
	injected := map[string]int{}
	for _, wrap := range []func(store.Store) store.Store{func(st store.Store) store.Store { return st }, func(st store.Store) store.Store { return forwards{st} }} {
		for _, op := range []string{"create", "write", "patch", "commit"} {
			for k := 1; k < 100; k++ {
				st := &storetest.Mem{}
				count := storetest.Count(storetest.Nth(op, k, errors.New("injected")))
				err := writeSmall(t, wrap(storetest.Fault(st, count.Inject)))
				if n, _ := count.Injected(); n == 0 {
					break
				}
				injected[op]++
				if err := count.Surfaced(err); err != nil {
					t.Errorf("%s %d: %v", op, k, err)
				}
				if b := st.Get("x.h5"); b != nil && !bytes.Equal(b, want) {
					t.Errorf("%s %d: a file that is not complete", op, k)
				}
			}
		}
	}
	if injected["create"] < 2 || injected["write"] < 6 || injected["patch"] != 1 || injected["commit"] != 2 {
		t.Errorf("only these failed: %v", injected)
	}
}

// forwards is a store whose writers cannot go back.
type forwards struct{ store.Store }

func (f forwards) Can() store.Abilities {
	return store.Abilities{Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
		w, err := f.Store.Can().Create(ctx, name, wish)
		return onward{w}, err
	}}
}

type onward struct{ store.Writer }

func (onward) Can() store.WriterAbilities { return store.WriterAbilities{} }

// Whatever the keys say, what is written can be read.
func FuzzFromZarr(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		some := folder{}
		some.AddArray(rnd, "a")
		chunk := []byte("[1]")
		for key, b := range some {
			if path.Base(key) != ".zarray" && path.Base(key) != ".zattrs" {
				chunk = b
			}
		}
		f.Add(some["a/.zarray"], zarrtest.RandomAttributes(rnd, []string{"/"}), chunk)
	}
	f.Add(zarray(`"|O"`, 1, 1, `,"filters":[{"id":"json2"}],"compressor":null`), []byte(`{"_COMPOUND_DTYPE":[["a","<REFERENCE>"],["b","object"],["c","|S3"]],"_SCALAR":true}`), []byte(`[[{"_REFERENCE":{"path":"a"}},"x","abc"],"|O",[1]]`))
	f.Add(zarray(`"|O"`, 1, 1, `,"filters":[{"id":"json2"}],"compressor":null`), []byte(`{"_ARRAY_DIMENSIONS":["x"]}`), []byte(`[{"_REFERENCE":{"path":"/a"},"_REGION":[[[0,1]]]},"|O",[1]]`))
	f.Fuzz(func(t *testing.T, array, attrs, chunk []byte) {
		st := &storetest.Mem{}
		keys := []struct {
			name string
			b    []byte
		}{{"a/.zarray", array}, {".zgroup", []byte("{}")}, {".zattrs", attrs}, {"a/.zattrs", attrs}, {"a/0", chunk}, {"a/0.0", chunk}, {"a/0/0", chunk}}
		var o format.CreateOptions
		for _, x := range keys {
			o.Manifest = append(o.Manifest, format.Entry{Name: x.name, Size: int64(len(x.b))})
		}
		w, err := kit.Create(t.Context(), hdf5.Format, st, "x.h5", o)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range keys {
			err := w.Add(t.Context(), o.Manifest[i], bytes.NewReader(x.b))
			if _, ok := errors.AsType[kit.EntryError](err); err != nil && !ok {
				t.Fatalf("%s: %v", x.name, err)
			}
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = hdf5.Format.Verify(t.Context(), st, "x.h5", format.OpenOptions{}, func(p format.Problem) {
			if p.Code != format.Unsupported && p.Code != format.Limit && !strings.Contains(p.Message, "filter") {
				t.Errorf("%v", p)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}
