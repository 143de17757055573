package hdf5_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
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
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/zarr"
)

// keysOf opens the keys of an archive or a folder.
func keysOf(t testing.TB, address string) *holdall.Archive {
	t.Helper()
	o := holdall.OpenOptions{View: "zarr", External: []string{"."}}
	if info, err := os.Stat(address); err == nil && info.IsDir() && !strings.HasSuffix(address, ".lindi.d") {
		o.View = ""
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
			if a.DType.Kind != 'O' && a.DType.Kind != 'M' && a.DType.Kind != 'm' && a.DType.Kind != 'U' && !a.Scalar {
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
	err := a.WriteText(t.Context(), &b)
	if k := a.DType.Kind; k == 'O' || k == 'U' {
		v, err = a.Values(t.Context())
	} else if v = b.String(); k == 'M' || k == 'm' {
		b.Reset()
		err = a.WriteElements(t.Context(), &b)
		one := *a
		one.DType = zarr.DType{Kind: 'V', Size: 8}
		v = b.String()
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
