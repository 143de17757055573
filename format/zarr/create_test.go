package zarr_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/format/zarr"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/zarrtest"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
	arrays "github.com/holdall/holdall/zarr"
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

// written converts to a folder, and returns it and what was left out.
func written(t testing.TB, in *holdall.Archive) (dir string, left map[string]error) {
	t.Helper()
	left = map[string]error{}
	dir = filepath.Join(t.TempDir(), "z.zarr")
	sum, err := holdall.Convert(t.Context(), in, dir, holdall.PackOptions{OnError: func(name string, err error) { left[name] = err }})
	if err != nil {
		t.Fatal(in.Name(), err)
	}
	if sum.Failed != int64(len(left)) {
		t.Errorf("%d failed, but %d were named", sum.Failed, len(left))
	}
	return dir, left
}

// consolidated returns what the root says of everything below it.
func consolidated(t testing.TB, dir string) map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "zarr.json"))
	var root struct {
		All struct {
			Kind     string
			Must     *bool `json:"must_understand"`
			Metadata map[string]json.RawMessage
		} `json:"consolidated_metadata"`
	}
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(text, []byte("NaN"), []byte("1")), &root)
	}
	if err != nil || root.All.Kind != "inline" || root.All.Must == nil || *root.All.Must {
		t.Fatalf("%v: %.300s", err, text)
	}
	return root.All.Metadata
}

// elements returns the elements of an array as they are the same in both versions.
func elements(t testing.TB, a *arrays.Array) any {
	t.Helper()
	var b bytes.Buffer
	write := a.WriteElements
	if len(a.DType.Fields) > 0 {
		write = a.WriteText // version 3 has no big-endian fields
	}
	if a.DType.Kind != 'O' || len(a.DType.Fields) > 0 {
		if err := write(t.Context(), &b); err != nil {
			t.Fatal(a.Path, err)
		}
		return b.String()
	}
	all, err := a.Values(t.Context())
	if err != nil {
		t.Fatal(a.Path, err)
	}
	for i, v := range all {
		text, err := json.Marshal(v)
		switch v := v.(type) {
		case nil:
			text = nil
		case string:
			text = []byte(v)
		case []byte:
			text = v
		case []any:
			if a.Filters[0].ID == "vlen-array" {
				text = nil
				for _, n := range v {
					n, _ := n.(json.Number).Int64()
					text = binary.LittleEndian.AppendUint16(text, uint16(n))
				}
			}
		}
		if all[i] = string(text); err != nil {
			t.Fatal(a.Path, err)
		}
	}
	return all
}

// compare compares arrays with those that were written, and the metadata of each node with those of the root. It returns
// how many arrays and shards there are.
func compare(t testing.TB, in *holdall.Archive, dir string, left map[string]error) (compared, shards int) {
	t.Helper()
	made := arrays.Files(os.DirFS(dir))
	all := consolidated(t, dir)
	for e, err := range in.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		at, last := zarrkey.Split(e.Name)
		if last != ".zarray" || left[e.Name] != nil {
			continue
		}
		want, err := arrays.Open(t.Context(), in, at)
		if err != nil {
			t.Fatal(at, err)
		}
		got, err := arrays.Open(t.Context(), made, at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		if compared++; got.Shard != nil {
			shards++
		}
		if len(got.DType.Fields) > 0 && want.DType.Kind == 'O' {
			want.DType.Fields = got.DType.Fields // lists of JSON
		}
		if left[e.Name[:len(e.Name)-len(last)]+"0"] != nil {
			continue // its elements cannot be read
		}
		if x, y := elements(t, want), elements(t, got); !reflect.DeepEqual(x, y) {
			t.Errorf("%s: %.300v, expected %.300v\n%+v", at, y, x, got.Meta)
		}
		if got.Elements() != want.Elements() || !slices.Equal(got.Shape, want.Shape) && !want.Scalar {
			t.Errorf("%s: %v, expected %v", at, got.Shape, want.Shape)
		}
	}
	for at, of := range all {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(at), "zarr.json"))
		if text = bytes.ReplaceAll(text, []byte("NaN"), []byte("1")); err != nil || !bytes.Equal(text, of) {
			t.Errorf("%s: %s\nin the root: %s", at, text, of)
		}
	}
	return compared, shards
}

var unable = []string{"field that is an array", "exists in version 3", "does not exist in version 3"}

// Hierarchies at random have the same elements afterwards, in one shard each and in several.
func TestHierarchiesAtRandomAreWritten(t *testing.T) {
	rnd := testkit.Rand(t)
	sharded := 0
	for round := range testkit.Rounds(t, 12) {
		if zarr.SmallShards(t, 128<<20); round%2 == 0 {
			zarr.SmallShards(t, 1+rnd.Int64N(3000))
		}
		f := zarrtest.Folder{".zgroup": []byte(`{"zarr_format":2}`), ".zattrs": zarrtest.RandomAttributes(rnd, nil), ".zmetadata": []byte("{}")}
		paths := []string{"", "g", "g/h", "ü"}
		for _, at := range paths[1:] {
			f[at+"/.zgroup"], f[at+"/.zattrs"] = f[".zgroup"], zarrtest.RandomAttributes(rnd, []string{"/g/h", "/ü", "/"})
		}
		f["g/soft/.zgroup"], f["g/soft/.zattrs"] = f[".zgroup"], []byte(`{"_SOFT_LINK":{"path":"/g/h"}}`)
		for i := range 12 {
			f.AddArray(rnd, path.Join(paths[rnd.IntN(len(paths))], fmt.Sprint("a", i)), "pair")
		}
		in := keysOf(t, f.Dir(t))
		dir, left := written(t, in)
		for key, err := range left {
			if !slices.ContainsFunc(unable, func(s string) bool { return strings.Contains(err.Error(), s) }) {
				t.Errorf("%s: %v\n%s", key, err, f[key])
			}
		}
		n, shards := compare(t, in, dir, left)
		if sharded += shards; n != 12-len(left) {
			t.Errorf("%d arrays were compared, %d left out", n, len(left))
		}
		for key := range f {
			at, ok := strings.CutPrefix(key, "g/h/")
			if at, _ := zarrkey.Split(at); ok && at != "" && left["g/h/"+at+"/.zarray"] == nil && path.Base(key) == ".zarray" {
				made := arrays.Files(os.DirFS(dir))
				own, err1 := arrays.Open(t.Context(), made, "g/h/"+at)
				link, err2 := arrays.Open(t.Context(), made, "g/soft/"+at)
				if err1 != nil || err2 != nil || !reflect.DeepEqual(elements(t, own), elements(t, link)) {
					t.Errorf("%s through a link: %v, %v", at, err1, err2)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if sharded < 15 {
		t.Errorf("only %d arrays are in shards", sharded)
	}
}

// What is written of the fixtures is what they have: files of h5py, and archives of LINDI's reference.
func TestFixturesAreWritten(t *testing.T) {
	var all []string
	for _, pattern := range []string{"../../hdf5/testdata/*_latest.h5.gz", "../hdf5/testdata/*.h5", "../lindi/testdata/p*.lindi.*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		all = append(all, names...)
	}
	compared, sharded := 0, 0
	for _, name := range all {
		if base := filepath.Base(name); strings.HasSuffix(name, ".expect.json") || strings.HasPrefix(base, "far_") || strings.HasPrefix(base, "paged_") {
			continue // the last two have thousands of chunks, and nothing else
		}
		if short, ok := strings.CutSuffix(name, ".gz"); ok {
			name = filepath.Join(t.TempDir(), filepath.Base(short))
			if err := os.WriteFile(name, testkit.Read(t, short), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		in := keysOf(t, name)
		dir, left := written(t, in)
		n, shards := compare(t, in, dir, left)
		compared, sharded = compared+n, sharded+shards
	}
	if t.Logf("%d arrays, %d in shards", compared, sharded); compared < 100 || sharded < 10 {
		t.Errorf("only %d arrays, %d in shards", compared, sharded)
	}
}

func zarray(dtype string, shape, chunk int, rest string) []byte {
	return fmt.Appendf(nil, `{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":%q,"fill_value":7,"order":"C"%s}`, shape, chunk, dtype, rest)
}

func names(t testing.TB, st *storetest.Mem) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

const noCodec = `,"filters":null,"compressor":null`

// A shard has the bytes of its chunks as they were stored, in their order, and an index with a checksum after them. What
// was never written is not in it, and shards without chunks are not written.
func TestChunksAreCopiedIntoShards(t *testing.T) {
	rnd := testkit.Rand(t)
	zarr.SmallShards(t, 10*100)
	f := zarrtest.Folder{".zgroup": []byte(`{"zarr_format":2}`), "a/.zarray": zarray("|u1", 3500, 100, noCodec), "a/.zattrs": []byte(`{"_ARRAY_DIMENSIONS":["time"],"unit":"mV"}`)}
	for _, i := range []int{0, 2, 9, 20, 34} { // no chunk of the second shard
		f[fmt.Sprint("a/", i)] = testkit.Noise(rnd, 100)
	}
	f["a/9"] = f["a/9"][:40] // short, as LINDI has it
	dir, left := written(t, keysOf(t, f.Dir(t)))
	if len(left) > 0 {
		t.Error(left)
	}
	names, err := fs.Glob(os.DirFS(dir), "a/c/*")
	if want := []string{"a/c/0", "a/c/2", "a/c/3"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v", names, err)
	}
	whole := append(slices.Clone(f["a/9"]), make([]byte, 60)...)
	want := slices.Concat(f["a/0"], f["a/2"], whole)
	index := arrays.NewShardIndex(10)
	index.Set(0, 0, 100)
	index.Set(2, 100, 100)
	index.Set(9, 200, 100)
	if b, err := os.ReadFile(filepath.Join(dir, "a/c/0")); err != nil || !bytes.Equal(b, append(want, index.Sealed()...)) {
		t.Errorf("%v\n%x", err, b)
	}
	text := consolidated(t, dir)["a"]
	for _, part := range []string{`"dimension_names":["time"]`, `"unit":"mV"`, `"index_location":"end"`, `"chunk_shape":[1000]`, `"chunk_shape":[100]`, `{"name":"crc32c"}`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
}

// An array of many chunks has few files.
func TestManyChunksAreInFewShards(t *testing.T) {
	const chunks = 40_000
	st := &storetest.Mem{}
	keys := []format.Entry{{Name: ".zgroup", Size: 2}, {Name: "a/.zarray"}}
	array := zarray("<u2", chunks, 1, noCodec)
	keys[1].Size = int64(len(array))
	for i := range chunks {
		keys = append(keys, format.Entry{Name: fmt.Sprint("a/", i), Size: 2})
	}
	w, err := kit.Create(t.Context(), zarr.Format, st, "z.zarr", format.CreateOptions{Manifest: keys})
	for i, e := range keys {
		b := binary.LittleEndian.AppendUint16(nil, uint16(i-2))
		if i < 2 {
			b = [][]byte{[]byte("{}"), array}[i]
		}
		if err == nil {
			err = w.Add(t.Context(), e, bytes.NewReader(b))
		}
	}
	if err == nil {
		_, err = w.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, st); !slices.Equal(got, []string{"z.zarr/a/c/0", "z.zarr/a/c/1", "z.zarr/a/c/2", "z.zarr/a/zarr.json", "z.zarr/zarr.json"}) {
		t.Errorf("%q", got)
	}
	src := zarr3.Values{}
	for _, name := range names(t, st) {
		src[strings.TrimPrefix(name, "z.zarr/")] = st.Get(name)
	}
	a, err := arrays.Open(t.Context(), src, "a")
	var b bytes.Buffer
	if err == nil {
		err = a.WriteElements(t.Context(), &b)
	}
	if err != nil || b.Len() != 2*chunks {
		t.Fatal(err)
	}
	for i := range chunks {
		if got := binary.LittleEndian.Uint16(b.Bytes()[2*i:]); got != uint16(i) {
			t.Fatalf("%d: %d", i, got)
		}
	}
}

// A damaged chunk is left out and reported; all others are there. Kept, what is left of it is no chunk.
func TestDamagedChunksAreLeftOut(t *testing.T) {
	rnd := testkit.Rand(t)
	const chunk = 2 << 20 // compared while it is read
	f := zarrtest.Folder{".zgroup": []byte(`{"zarr_format":2}`), "a/.zarray": zarray("|u1", 4*chunk, chunk, noCodec), "b/.zarray": zarray("|u1", 300, 100, noCodec)}
	for i := range 4 {
		f[fmt.Sprint("a/", i)] = testkit.Noise(rnd, chunk)
	}
	for i := range 3 {
		f[fmt.Sprint("b/", i)] = testkit.Noise(rnd, 100)
	}
	archive := filepath.Join(t.TempDir(), "x.caf")
	if _, err := holdall.Convert(t.Context(), keysOf(t, f.Dir(t)), archive, holdall.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/1", "b/2"} {
		b[bytes.Index(b, f[key])+len(f[key])-1] ^= 1
		f[key] = bytes.Repeat([]byte{7}, len(f[key])) // the fill value
	}
	if err := os.WriteFile(archive, b, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		in, err := holdall.Open(t.Context(), archive, holdall.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		var said []string
		dir := filepath.Join(t.TempDir(), "z.zarr")
		sum, err := holdall.Convert(t.Context(), in, dir, holdall.PackOptions{KeepDamaged: keep, OnError: func(name string, err error) { said = append(said, name) }})
		want := []string{"a/1", "b/2"}
		if keep {
			want = []string{"a/1", "a/1.damaged", "b/2", "b/2.damaged"}
		}
		if slices.Sort(said); err != nil || !slices.Equal(said, want) || int(sum.Failed) != len(want) {
			t.Errorf("%v: %q, %+v", err, said, sum)
		}
		compare(t, keysOf(t, f.Dir(t)), dir, nil)
		if b, err := os.ReadFile(filepath.Join(dir, "a/c/0")); err != nil || len(b) != 3*chunk+4*16+4 || bytes.Contains(b, f["a/1"]) {
			t.Errorf("the shard has %d bytes, %v", len(b), err)
		}
	}
}

// failing is a store of folders whose requests fail.
type failing struct {
	*local.Store
	inject storetest.Injector
}

func (f failing) Can() store.Abilities {
	can := f.Store.Can()
	begin := can.Folder
	can.Folder = func(ctx context.Context, name string) (*store.Folder, error) {
		if err := f.inject("folder", name, 0, 0); err != nil {
			return nil, err
		}
		of, err := begin(ctx, name)
		if err != nil {
			return nil, err
		}
		return &store.Folder{Abort: of.Abort, Create: func(ctx context.Context, name string, wish store.Wishes) (store.Writer, error) {
			return storetest.Fault(creates{of}, f.inject).Can().Create(ctx, name, wish)
		}, Commit: func(ctx context.Context) error {
			if err := f.inject("publish", name, 0, 0); err != nil {
				return errors.Join(err, of.Abort()) // a store does that
			}
			return of.Commit(ctx)
		}}, nil
	}
	return can
}

// creates is the store of the objects of a folder.
type creates struct{ of *store.Folder }

func (c creates) Open(context.Context, string) (store.Object, error) {
	return nil, errors.ErrUnsupported
}
func (c creates) Can() store.Abilities { return store.Abilities{Create: c.of.Create} }

// If a request fails, or the disk is full, there is no folder.
func TestNothingIsThereIfARequestFails(t *testing.T) {
	rnd := testkit.Rand(t)
	f := zarrtest.Folder{".zgroup": []byte(`{"zarr_format":2}`), "l/.zgroup": []byte(`{}`), "l/.zattrs": []byte(`{"_SOFT_LINK":{"path":"/a0"}}`)}
	for i := range 3 {
		at := fmt.Sprint("a", i)
		f[at+"/.zarray"] = zarray("|u1", 300_000, 100_000, noCodec)
		for j := range 3 {
			f[fmt.Sprint(at, "/", j)] = testkit.Noise(rnd, 100_000)
		}
	}
	in := keysOf(t, f.Dir(t))
	injected := map[string]int{}
	for _, op := range []string{"folder", "create", "write", "commit", "publish"} {
		for k, done := 1, false; !done; k++ {
			dir := t.TempDir()
			count := storetest.Count(storetest.Nth(op, k, syscall.ENOSPC))
			st := failing{local.New(dir), count.Inject}
			_, err := holdall.Convert(t.Context(), in, "z.zarr", holdall.PackOptions{Store: st})
			if n, _ := count.Injected(); n == 0 {
				if done = true; err != nil {
					t.Fatal(err)
				}
				compare(t, in, filepath.Join(dir, "z.zarr"), nil)
				break
			}
			injected[op]++
			if err := count.Surfaced(err); err != nil {
				t.Errorf("%s %d: %v", op, k, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s %d: %v, %v", op, k, left, err)
			}
		}
	}
	if t.Log(injected); injected["create"] < 8 || injected["write"] < 8 || injected["commit"] < 8 || injected["publish"] != 1 || injected["folder"] != 1 {
		t.Errorf("only these failed: %v", injected)
	}
}

// Below a bucket, objects appear one after the other, and those of the root last: without them nothing is a hierarchy.
func TestTheRootAppearsLast(t *testing.T) {
	rnd := testkit.Rand(t)
	f := zarrtest.Folder{".zgroup": []byte(`{"zarr_format":2}`), "g/.zgroup": []byte(`{}`), "g/a/.zarray": zarray("|u1", 300, 100, noCodec), "g/a/0": testkit.Noise(rnd, 100)}
	in := keysOf(t, f.Dir(t))
	for k := 1; ; k++ {
		st := &storetest.Mem{}
		_, err := holdall.Convert(t.Context(), in, "z.zarr", holdall.PackOptions{Store: storetest.Fault(st, storetest.Nth("commit", k, syscall.ENOSPC))})
		if (err == nil) != (st.Get("z.zarr/zarr.json") != nil) {
			t.Errorf("commit %d: %v, %q", k, err, names(t, st))
		}
		if err == nil {
			break
		}
	}
}

func TestOnlyHierarchiesAreWritten(t *testing.T) {
	for text, f := range map[string]zarrtest.Folder{
		"found no .zgroup":            {"a": []byte("1")},
		"version 2, found version 3":  {"zarr.json": []byte(`{"zarr_format":3,"node_type":"group"}`)},
		"nothing to pack":             {"a/.zarray": []byte("{}")},
		"cannot have this name":       {".zgroup": []byte("{}"), "zarr.json/x/.zgroup": []byte("{}")},
		"which cannot contain":        {"a/.zarray": zarray("|u1", 1, 1, noCodec), "a/b/.zgroup": []byte("{}")},
		"not part of an array":        {".zgroup": []byte("{}"), "note.txt": []byte("x")},
		"no chunk of the array":       {"a/.zarray": zarray("|u1", 1, 1, noCodec), "a/1": []byte("x")},
		"expected a chunk of 1 bytes": {"a/.zarray": zarray("|u1", 1, 1, noCodec), "a/0": []byte("xx")},
		"there is no group or array":  {".zgroup": []byte("{}"), "a/.zattrs": []byte("{}")},
		"expected a JSON object":      {".zgroup": []byte("{}"), ".zattrs": []byte("[]")},
		"--external":                  {"a/.zarray": zarray("|u1", 1, 1, noCodec), "a/.zattrs": []byte(`{"_EXTERNAL_ARRAY_LINK":{"url":"https://example.org/x.h5","name":"a"}}`)},
		"of version 3, and the rest":  {".zgroup": []byte("{}"), "zarr.json": []byte("{}")},
	} {
		dir := filepath.Join(t.TempDir(), "z.zarr")
		said := ""
		_, err := holdall.Convert(t.Context(), keysOf(t, f.Dir(t)), dir, holdall.PackOptions{OnError: func(_ string, err error) { said += err.Error() }})
		if !strings.Contains(fmt.Sprint(said, err), text) {
			t.Errorf("%s: %s: %v", text, said, err)
		}
		if _, gone := os.Stat(dir); (gone == nil) != (err == nil) {
			t.Errorf("%s: %v, %v", text, err, gone)
		}
	}
	dir := filepath.Join(t.TempDir(), "z.zarr")
	testkit.Tree(t, dir, map[string]string{"a": "mine"})
	_, err := holdall.Convert(t.Context(), keysOf(t, zarrtest.Folder{".zgroup": []byte("{}")}.Dir(t)), dir, holdall.PackOptions{Force: true})
	if b, _ := os.ReadFile(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrExist) || string(b) != "mine" {
		t.Errorf("%v: %q", err, b)
	}
	if _, err := holdall.Open(t.Context(), dir, holdall.OpenOptions{Format: "zarr"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// Groups that are missing above an array are made, so that it is seen.
func TestMissingGroupsAreMade(t *testing.T) {
	f := zarrtest.Folder{"a/b/x/.zarray": zarray("|u1", 2, 2, noCodec), "a/b/x/0": []byte("hi"), "a/.zattrs": []byte(`{}`), "a/.zgroup": []byte(`{}`)}
	in := keysOf(t, f.Dir(t))
	dir, left := written(t, in)
	if n, _ := compare(t, in, dir, left); n != 1 || len(consolidated(t, dir)) != 3 {
		t.Errorf("%d arrays, %v", n, left)
	}
}

// Whatever the keys say, what is written can be read.
func FuzzFromZarr(f *testing.F) {
	rnd := testkit.Rand(f)
	for range 40 {
		some := zarrtest.Folder{}
		some.AddArray(rnd, "a", "pair")
		chunk := []byte("[1]")
		for key, b := range some {
			if !zarrkey.IsMeta(key) {
				chunk = b
			}
		}
		f.Add(some["a/.zarray"], zarrtest.RandomAttributes(rnd, []string{"/"}), chunk)
	}
	f.Fuzz(func(t *testing.T, array, attrs, chunk []byte) {
		st := &storetest.Mem{}
		keys := []struct {
			name string
			b    []byte
		}{{".zattrs", attrs}, {"a/.zattrs", attrs}, {"l/.zattrs", []byte(`{"_SOFT_LINK":{"path":"/a"}}`)}, {".zgroup", []byte("{}")}, {"a/.zarray", array}, {"l/.zgroup", nil}, {"a/0", chunk}, {"a/0.0", chunk}, {"a/0/0", chunk}, {"a/1", chunk}}
		o := format.CreateOptions{Scratch: func() (sorter.Scratch, error) { return nil, errors.ErrUnsupported }}
		for _, x := range keys {
			o.Manifest = append(o.Manifest, format.Entry{Name: x.name, Size: int64(len(x.b))})
		}
		w, err := kit.Create(t.Context(), zarr.Format, st, "z.zarr", o)
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
		src := zarr3.Values{}
		for _, name := range names(t, st) {
			src[strings.TrimPrefix(name, "z.zarr/")] = st.Get(name)
		}
		if text := src["a/zarr.json"]; text != nil {
			if _, err := arrays.Open(t.Context(), src, "a"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%v\n%s", err, text)
			}
		}
	})
}
