package zarr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/zarr"
)

// The pythons of zarr 2.18, zarr 3.1 with xarray, that with netCDF and anndata, and pynwb with lindi.
const (
	netcdf = "HOLDALL_NETCDF_PYTHON"
	zarr2  = "HOLDALL_ZARR2_PYTHON"
	zarr3  = "HOLDALL_ZARR3_PYTHON"
	nwb    = "HOLDALL_HDF5_PYTHON"
)

// pythons run the scripts of this folder, each in one process.
var pythons = map[string]*testkit.Batch{}

func TestMain(m *testing.M) {
	testkit.Main(m, func() (err error) {
		for _, b := range pythons {
			err = errors.Join(err, b.End())
		}
		return err
	})
}

// run runs a script of this folder, with the variables of the environment that are about fsspec.
func run(t *testing.T, python, script string, args ...string) string {
	t.Helper()
	variables := map[string]string{}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FSSPEC_") {
			variables[name] = value
		}
	}
	text, err := json.Marshal(variables)
	if err != nil {
		t.Fatal(err)
	}
	if pythons[python] == nil {
		pythons[python] = &testkit.Batch{Var: python, Args: []string{"-B", "batch.py"}}
	}
	var a struct{ Error, Stdout string }
	if pythons[python].Ask(t, &a, append([]string{string(text), script}, args...)...); a.Error != "" {
		t.Fatalf("%s %s: %s", script, strings.Join(args, " "), a.Error)
	}
	return a.Stdout
}

// A member is what read.py says of one.
type member struct {
	Kind   string
	Shape  []int64
	Sha    string
	Values []string
	Attrs  map[string]any
}

type members struct {
	Members map[string]member
	Error   string
}

// read lets zarr read hierarchies.
func read(t *testing.T, python, how string, addresses ...string) []members {
	t.Helper()
	var all []members
	for d := json.NewDecoder(strings.NewReader(run(t, python, "read", append([]string{how}, addresses...)...))); d.More(); {
		var m members
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	if len(all) != len(addresses) {
		t.Fatalf("%d answers to %d questions", len(all), len(addresses))
	}
	return all
}

// requests counts what a server is asked for.
type requests struct {
	mu   sync.Mutex
	seen []string
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

// site has archives by their names, in a view where none is asked for.
func site(t *testing.T, usual string, archives ...string) *serve.Site {
	t.Helper()
	set := serve.NewSet(serve.SetOptions{})
	t.Cleanup(set.Close)
	for _, archive := range archives {
		set.Add(serve.Source{Name: filepath.Base(archive), View: usual, Open: func(ctx context.Context, view string) (*holdall.Archive, string, error) {
			a, err := holdall.Open(ctx, archive, holdall.OpenOptions{View: view})
			return a, "1", err
		}})
	}
	return serve.NewSite(set, serve.SiteOptions{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// counting serves and counts.
func counting(t *testing.T, h http.Handler) (url string, asked *requests) {
	t.Helper()
	asked = &requests{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.mu.Lock()
		asked.seen = append(asked.seen, r.Method+" "+r.URL.Path)
		asked.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, asked
}

// serving serves archives by their names.
func serving(t *testing.T, archives ...string) (url string, asked *requests) {
	t.Helper()
	return counting(t, site(t, "", archives...))
}

// asBuckets serves archives as buckets of a view, and has s3fs ask there, with a key if there is one.
func asBuckets(t *testing.T, view string, key serve.Key, archives ...string) (asked *requests) {
	t.Helper()
	url, asked := counting(t, serve.NewS3(site(t, view, archives...), serve.S3Options{Key: key}))
	t.Setenv("FSSPEC_S3_ENDPOINT_URL", url)
	if key.ID == "" {
		t.Setenv("FSSPEC_S3_ANON", "true")
	} else {
		t.Setenv("FSSPEC_S3_KEY", key.ID)
		t.Setenv("FSSPEC_S3_SECRET", key.Secret)
	}
	return asked
}

// dims is a shape; version 3 has scalars, which version 2 has as arrays of one element.
func dims(m member) []int64 {
	if len(m.Shape) == 0 {
		return []int64{1}
	}
	return m.Shape
}

// same compares what was read with what is right. What is of no concern to a hierarchy is empty in want.
func same(t *testing.T, how string, got members, want map[string]member) {
	t.Helper()
	if got.Error != "" {
		t.Errorf("%s: %s", how, got.Error)
		return
	}
	for path, w := range want {
		g, ok := got.Members[path]
		switch {
		case !ok:
			t.Errorf("%s: %q is missing", how, path)
		case g.Kind != w.Kind, w.Shape != nil && !slices.Equal(dims(g), dims(w)), w.Sha != "" && g.Sha != w.Sha, w.Values != nil && !slices.Equal(g.Values, w.Values), w.Attrs != nil && !reflect.DeepEqual(g.Attrs, w.Attrs):
			t.Errorf("%s: %q: %.300v, expected %.300v", how, path, g, w)
		}
	}
	for path := range got.Members {
		if _, ok := want[path]; !ok && path != "" {
			t.Errorf("%s: %q was not expected", how, path)
		}
	}
}

// writeNWB writes x.nwb and x.lindi.tar, and returns what h5py reads.
func writeNWB(t *testing.T, dir string) (truth members) {
	t.Helper()
	run(t, nwb, "nwb", "write", dir)
	if b, err := os.ReadFile(filepath.Join(dir, "truth.json")); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(b, &truth); err != nil || len(truth.Members) < 60 {
		t.Fatalf("%v: %d members", err, len(truth.Members))
	}
	return truth
}

// byLists is what lists lead to: they do not go through links to groups, and know nothing of what is below.
func byLists(truth members) map[string]member {
	listed := maps.Clone(truth.Members)
	maps.DeleteFunc(listed, func(path string, _ member) bool { return strings.Contains(path, "/device/") })
	return listed
}

// byVersion2 has no values of compounds: version 2 has them as lists, which are not those of h5py in this test.
func byVersion2(truth members) map[string]member {
	two := maps.Clone(truth.Members)
	compound := two["scratch_of_h5py/compound"]
	compound.Sha = ""
	two["scratch_of_h5py/compound"] = compound
	return two
}

// NWB files as pynwb writes them, themselves and by references of lindi, are what h5py reads, whichever client reads them.
func TestClientsReadNWB(t *testing.T) {
	dir := t.TempDir()
	truth := writeNWB(t, dir)
	for _, name := range []string{"x.lindi.tar", "x.nwb"} {
		t.Run(name, func(t *testing.T) { clientsRead(t, dir, name, truth) })
	}
}

func clientsRead(t *testing.T, dir, name string, truth members) {
	url, asked := serving(t, filepath.Join(dir, name))
	z2, z3 := url+"/z/"+name, url+"/z3/"+name
	for i, got := range read(t, zarr3, "open", z3, z3+"/", z2, z2+"/") {
		same(t, fmt.Sprintf("zarr 3 (%d)", i), got, truth.Members)
	}
	for _, request := range asked.take() {
		if strings.Contains(request, "/general/") && (strings.HasSuffix(request, zarr.MetaName) || strings.HasSuffix(request, "/")) {
			t.Errorf("%s, though the root has all metadata", request)
		}
	}
	for i, got := range read(t, zarr3, "listed", z3, z3+"/") {
		same(t, fmt.Sprintf("zarr 3, by lists (%d)", i), got, byLists(truth))
	}
	two := byVersion2(truth)
	for i, got := range read(t, zarr2, "consolidated", z2, z2+"/") {
		same(t, fmt.Sprintf("zarr 2, consolidated (%d)", i), got, two)
	}
	for i, got := range read(t, zarr2, "open", z2, z2+"/") {
		same(t, fmt.Sprintf("zarr 2 (%d)", i), got, two)
	}
	for _, at := range testkit.Some(t, 1, z2, z2+"/") {
		if out := run(t, nwb, "nwb", "read", dir, at); !strings.Contains(out, "OK") {
			t.Errorf("pynwb at %s: %s", at, out)
		}
	}
}

// Clients of buckets read the same of the file itself, and of what lindi made of it, signed and not.
// An address ends with a slash or not, by chance; with HOLDALL_LONG it does both.
func TestClientsReadBucketsOfNWB(t *testing.T) {
	dir := t.TempDir()
	truth := writeNWB(t, dir)
	listed, two := byLists(truth), byVersion2(truth)
	archives := []string{filepath.Join(dir, "x.nwb"), filepath.Join(dir, "x.lindi.tar")}
	for _, c := range []struct {
		python, how, view string
		key               serve.Key
		want              map[string]member
	}{
		{zarr3, "open", "zarr3", serve.Key{}, truth.Members},
		{zarr3, "open", "zarr", serve.Key{ID: "me", Secret: "a secret of mine"}, truth.Members},
		{zarr3, "listed", "zarr3", serve.Key{ID: "me", Secret: "a secret of mine"}, listed},
		{zarr2, "consolidated", "zarr", serve.Key{}, two},
		{zarr2, "open", "zarr", serve.Key{ID: "me", Secret: "a secret of mine"}, two},
		{zarr2, "consolidated", "", serve.Key{}, two}, // the usual view of HDF5
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.python, c.how, c.view), func(t *testing.T) {
			asBuckets(t, c.view, c.key, archives...)
			addresses := testkit.Some(t, 1, "s3://x.nwb", "s3://x.nwb/")
			if c.view != "" {
				addresses = append(addresses, testkit.Some(t, 1, "s3://x.lindi.tar", "s3://x.lindi.tar/")...)
			}
			for i, got := range read(t, c.python, c.how, addresses...) {
				same(t, addresses[i], got, c.want)
			}
		})
	}
}

const fixtures = "../../format/lindi/testdata"

// What the reference has written, and noted of it, is what clients read.
func TestClientsReadFixtures(t *testing.T) {
	names := []string{"p02_few_blobs.lindi.tar", "p06_attrs_groups_links.lindi.tar", "p07_from_hdf5.lindi.tar", "p10_codecs.lindi.tar"}
	var archives, at2, at3 []string
	for _, name := range names {
		archives = append(archives, filepath.Join(fixtures, name))
	}
	url, _ := serving(t, archives...)
	for _, name := range names {
		at2, at3 = append(at2, url+"/z/"+name), append(at3, url+"/z3/"+name)
	}
	by2, by3 := read(t, zarr2, "open", at2...), read(t, zarr3, "open", at3...)
	for i, name := range names {
		var expect struct {
			Arrays map[string]struct {
				Shape    []int64
				Compound [][]any `json:"compound_dtype"`
			}
			Groups map[string]any
		}
		b, err := os.ReadFile(archives[i] + ".expect.json")
		if err == nil {
			err = json.Unmarshal(b, &expect)
		}
		if err != nil {
			t.Fatal(err)
		}
		if by2[i].Error != "" || by3[i].Error != "" {
			t.Errorf("%s: %s, %s", name, by2[i].Error, by3[i].Error)
			continue
		}
		for path := range expect.Groups {
			if got := by3[i].Members[path]; got.Kind != "group" {
				t.Errorf("%s: group %q: %v", name, path, got)
			}
		}
		for path, a := range expect.Arrays {
			old, got := by2[i].Members[path], by3[i].Members[path]
			if old.Attrs["_SCALAR"] == true && len(got.Shape) == 0 {
				delete(old.Attrs, "_SCALAR")
				got.Shape = a.Shape
			}
			if got.Kind != "array" || !slices.Equal(got.Shape, a.Shape) || got.Sha != old.Sha || !slices.Equal(got.Values, old.Values) || !reflect.DeepEqual(got.Attrs, old.Attrs) {
				t.Errorf("%s: array %q: %.300v, expected %.300v", name, path, got, old)
			}
		}
	}
}

// golden is arrays of version 2 by all codecs; package zarr tells what is in them.
type golden map[string]struct {
	Keys map[string][]byte
	NPY  string
}

type keyed map[string][]byte

func (k keyed) Get(_ context.Context, key string, _ int64) ([]byte, error) {
	if v, ok := k[key]; ok {
		return v, nil
	}
	return nil, fs.ErrNotExist
}

func (k keyed) GetRange(_ context.Context, key string, off, n int64) ([]byte, error) {
	v, ok := k[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	from, err := zarr.Within(off, n, int64(len(v)))
	if err != nil {
		return nil, err
	}
	return v[from : from+n], nil
}

func write(t *testing.T, dir string, keys map[string][]byte) {
	t.Helper()
	for key, b := range keys {
		at := filepath.Join(dir, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// zarr 3 reads the translation of each array as zarr 2 reads the array.
func TestZarr3ReadsTranslations(t *testing.T) {
	var g golden
	b, err := os.ReadFile("../../zarr/testdata/golden.json")
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	var names, two, three, written []string
	for name, array := range g {
		text, v, err := zarr.Node3(t.Context(), keyed(array.Keys), "", 1<<28)
		if err != nil {
			t.Logf("%s: left out: %v", name, err)
			continue
		}
		keys := map[string][]byte{zarr.MetaName: text}
		for key, b := range array.Keys {
			if strings.HasPrefix(key, ".") {
				continue
			}
			if v.Anew {
				if b, err = v.Chunk(b); err != nil {
					t.Fatal(err)
				}
			}
			keys[v.Key(key)] = b
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "2"), array.Keys)
		write(t, filepath.Join(dir, "3"), keys)
		names, two, three = append(names, name), append(two, filepath.Join(dir, "2")), append(three, filepath.Join(dir, "3"))
		written = append(written, converted(t, filepath.Join(dir, "2"), "dir"))
	}
	if len(names) < 150 {
		t.Errorf("only %d arrays", len(names))
	}
	by2, by3, ours := read(t, zarr2, "array", two...), read(t, zarr3, "array", three...), read(t, zarr3, "array", written...)
	sharded := 0
	for i, name := range names {
		old, got := by2[i].Members[""], by3[i].Members[""]
		if by2[i].Error != "" || by3[i].Error != "" || got.Sha != old.Sha || !slices.Equal(got.Values, old.Values) || !slices.Equal(got.Shape, old.Shape) {
			text, _ := os.ReadFile(filepath.Join(three[i], zarr.MetaName))
			t.Errorf("%s: %s%.200v, expected %s%.200v\n%s", name, by3[i].Error, got, by2[i].Error, old, text)
		}
		text, err := os.ReadFile(filepath.Join(written[i], zarr.MetaName))
		if strings.Contains(string(text), "sharding_indexed") {
			sharded++
		}
		if got = ours[i].Members[""]; err != nil || ours[i].Error != "" || got.Sha != old.Sha || !slices.Equal(got.Values, old.Values) || !slices.Equal(got.Shape, old.Shape) {
			t.Errorf("%s, written: %s%.200v, expected %s%.200v\n%s", name, ours[i].Error, got, by2[i].Error, old, text)
		}
	}
	if sharded < 100 {
		t.Errorf("only %d arrays are in shards", sharded)
	}
}

// converted writes a file, an archive or a folder of version 2 as a folder of version 3.
func converted(t *testing.T, from, format string) string {
	t.Helper()
	o := holdall.OpenOptions{Format: format}
	if format == "" {
		o.View = "zarr"
	}
	in, err := holdall.Open(t.Context(), from, o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	to := filepath.Join(t.TempDir(), "z.zarr")
	if _, err := holdall.Convert(t.Context(), in, to, holdall.PackOptions{OnError: func(name string, err error) { t.Errorf("%s: %v", name, err) }}); err != nil {
		t.Fatal(err)
	}
	return to
}

// xarray opens by one request for all metadata, in either version.
func TestXarray(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "z")
	run(t, zarr3, "xarray_over_http", "write", from)
	archive := filepath.Join(dir, "x.lindi.tar")
	if _, err := holdall.Pack(t.Context(), archive, []string{from}, holdall.PackOptions{Format: "lindi"}); err != nil {
		t.Fatal(err)
	}
	url, asked := serving(t, archive)
	if out := run(t, zarr3, "xarray_over_http", "read", url+"/z/x.lindi.tar", url+"/z/x.lindi.tar/", url+"/z3/x.lindi.tar", url+"/z3/x.lindi.tar/"); !strings.Contains(out, "OK") {
		t.Error(out)
	}
	for _, request := range asked.take() {
		if strings.HasSuffix(request, "/t/"+zarr.MetaName) || strings.HasSuffix(request, "/t/.zarray") || strings.HasSuffix(request, ".tar/") {
			t.Errorf("%s, though the root has all metadata", request)
		}
	}
}

// What xarray and anndata open of a file, they open of its Zarr, too: both versions of it, and that of a LINDI archive.
// They open it of the HDF5 that is written of the archive.
func TestFilesOfNetCDFAndAnnData(t *testing.T) {
	testkit.Serial(t)
	for script, n := range map[string]int{"netcdf": testkit.Rounds(t, 20), "h5ad": 6} {
		again := map[string]string{"netcdf": "again.nc", "h5ad": "again.h5"}[script]
		dir := t.TempDir()
		run(t, netcdf, script, "write", dir, strconv.FormatUint(testkit.Seed(t)>>40, 10), strconv.Itoa(n))
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != n {
			t.Fatal(len(files), err)
		}
		for _, file := range files {
			archive := filepath.Join(dir, "x.lindi.tar")
			back := filepath.Join(t.TempDir(), again)
			for _, step := range [][2]string{{file, archive}, {archive, back}} {
				in, err := holdall.Open(t.Context(), step[0], holdall.OpenOptions{View: "zarr"})
				if err == nil {
					_, err = holdall.Convert(t.Context(), in, step[1], holdall.PackOptions{})
					err = errors.Join(err, in.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			url, _ := serving(t, file)
			packed, _ := serving(t, archive)
			name := "/" + filepath.Base(file)
			if out := run(t, netcdf, script, "compare", file, url+"/z"+name, url+"/z3"+name, packed+"/z/x.lindi.tar", packed+"/z3/x.lindi.tar", back, converted(t, file, ""), converted(t, archive, "")); out != "" {
				t.Errorf("%s: %s", file, out)
			}
			os.Remove(archive)
		}
	}
}
