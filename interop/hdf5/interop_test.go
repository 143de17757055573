// Package hdf5_test compares what holdall makes of HDF5 files with the references of HDF5, LINDI
// and NWB: lindi makes references of the same files and reads holdall's, and zarr and pynwb read
// them too. What h5py reads is compared in package hdf5.
//
// It contains only tests. They run if HOLDALL_HDF5_PYTHON names a Python with the references,
// which ../install hdf5 installs; ./check does both.
package hdf5_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/internal/arrays/arraycodec"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/zarr"
)

var reference = testkit.Batch{Var: "HOLDALL_HDF5_PYTHON", Args: []string{"batch.py"}}

func TestMain(m *testing.M) { testkit.Main(m, reference.End) }

// ask returns what a script of this folder prints. Its exit code is not more than most.
func ask(t testing.TB, most int, words ...string) []byte {
	t.Helper()
	var a struct {
		Code           int
		Stdout, Stderr string
	}
	if reference.Ask(t, &a, words...); a.Code > most {
		t.Fatalf("%q: %s%s", words, a.Stdout, a.Stderr)
	}
	return []byte(a.Stdout)
}

// A server serves a folder by ranges, and counts.
type server struct {
	url             string
	requests, bytes atomic.Int64
}

func serve(t testing.TB, dir string) *server {
	s := &server{}
	files := http.FileServer(http.Dir(dir))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		files.ServeHTTP(counter{w, &s.bytes}, r)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL + "/"
	return s
}

type counter struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (c counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// open opens a file. With links arrays of more than 1000 chunks are links to it.
func open(t testing.TB, address string, links bool) *holdall.Archive {
	t.Helper()
	o := holdall.OpenOptions{}
	if links {
		o.Param = map[string]string{"link-arrays": "1000"}
	}
	a, err := holdall.Open(t.Context(), address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// convert does what the verb does: a LINDI file in JSON refers to where the chunks lie.
func convert(t testing.TB, a *holdall.Archive, to string) string {
	t.Helper()
	var o holdall.PackOptions
	if strings.HasSuffix(to, ".json") {
		o.Refer = "here"
	}
	if _, err := holdall.Convert(t.Context(), a, to, o); err != nil {
		t.Fatal(to, err)
	}
	return to
}

// Files at random, of what LINDI's reference can do. The check makes one of each subject with links
// and one without; HOLDALL_LONG makes as many as it says.
func TestRandomFilesAreAsLINDIHasThem(t *testing.T) {
	testkit.Serial(t)
	dir, n := t.TempDir(), testkit.Rounds(t, 14)
	ask(t, 0, "gen", dir, strconv.FormatUint(testkit.Seed(t), 10), strconv.Itoa(n), "--lindi")
	compareFolder(t, dir, testkit.Names(t, dir, ".h5", n+3), ".h5")
}

func TestNWBFilesAreAsLINDIHasThem(t *testing.T) {
	testkit.Serial(t)
	dir := t.TempDir()
	ask(t, 0, "nwb", dir)
	seen := compareFolder(t, dir, testkit.Names(t, dir, ".nwb", 5), ".nwb")
	if len(seen) > 0 {
		t.Errorf("differences that are not known of NWB: %v", seen)
	}
}

// lindi refuses these files. It reads what holdall makes of them, and lacks only what holdall has
// named.
func TestReferencesAndTextsThatLINDIRefusesAreKeptOrNamed(t *testing.T) {
	file := "../../format/hdf5/testdata/refused.h5"
	if a := string(ask(t, 1, "refs", file, "here")); !strings.HasPrefix(a, `{"error":`) {
		t.Fatalf("lindi makes references of it: %.200s", a)
	}
	a, dir := open(t, file, false), t.TempDir()
	for _, name := range []string{"x.lindi.tar", "x.zip"} {
		sum, err := holdall.Convert(t.Context(), a, filepath.Join(dir, name), holdall.PackOptions{OnError: func(string, error) {}})
		if err != nil || sum.Failed != 4 {
			t.Fatal(sum, err)
		}
		var found struct{ Differences []string }
		if err := json.Unmarshal(ask(t, 1, "reads", filepath.Join(dir, name), file, "--json"), &found); err != nil {
			t.Fatal(err)
		}
		found.Differences = slices.DeleteFunc(found.Differences, func(d string) bool { return strings.HasPrefix(d, "/name") }) // h5py cannot list it
		want := []string{"/id/@object_id: is missing", "/text/@unit: is missing", "/text/@units: is missing", "/text/compound: is missing", "/text/some@unit: is missing"}
		slices.Sort(found.Differences)
		if !slices.Equal(found.Differences, want) {
			t.Errorf("%s: %q, expected %q", name, found.Differences, want)
		}
	}
}

// h5py reads what holdall writes, and finds what was in the file from which it came.
func TestH5pyReadsWhatIsWritten(t *testing.T) {
	known := []*regexp.Regexp{ // what Zarr or JSON cannot say
		regexp.MustCompile(`^/types/committed: is only in the first$`),
		regexp.MustCompile(`^/types/ragged_str: is only in the first$`), // named
		regexp.MustCompile(`^/types/longdouble: .*float64, expected .*float128`),
		regexp.MustCompile(`^/types/vlen_bytes: .*of .S2, expected .*of string$`), // not UTF-8
		regexp.MustCompile(`^/nbit(_row)?: .*int32.*, expected .*>i4`),
		regexp.MustCompile(`^@row: `),                          // a compound is a list
		regexp.MustCompile(`^/outside: is only in the first$`), // a link into another file
	}
	names, err := filepath.Glob("../../hdf5/testdata/*.h5.gz")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	dir := t.TempDir()
	for _, name := range names {
		name = strings.TrimSuffix(name, ".gz")
		file := filepath.Join(dir, filepath.Base(name))
		if strings.HasPrefix(filepath.Base(name), "refused_") {
			continue
		}
		if err := os.WriteFile(file, testkit.Read(t, name), 0o666); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(again(t, dir, file)) {
			if line = strings.TrimSpace(line); !slices.ContainsFunc(known, func(r *regexp.Regexp) bool { return r.MatchString(line) }) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// again writes a file as LINDI, and that as HDF5, and says what differs then.
func again(t *testing.T, dir, file string) string {
	t.Helper()
	out := filepath.Join(dir, "again"+filepath.Ext(file))
	archive := filepath.Join(dir, "again.lindi.tar")
	for _, step := range [][2]string{{file, archive}, {archive, out}} {
		a, err := holdall.Open(t.Context(), step[0], holdall.OpenOptions{View: "zarr"})
		if err == nil {
			_, err = holdall.Convert(t.Context(), a, step[1], holdall.PackOptions{OnError: func(name string, err error) { t.Log(name, err) }})
			a.Close()
		}
		if err != nil {
			t.Fatal(file, err)
		}
	}
	return string(ask(t, 1, "same", file, out))
}

// NWB files that went through LINDI are what they were, and valid. So is one whose archive was changed.
func TestNWBFilesComeBack(t *testing.T) {
	testkit.Serial(t)
	dir := t.TempDir()
	ask(t, 0, "nwb", dir)
	for _, name := range testkit.Names(t, dir, ".nwb", 5) {
		file := filepath.Join(dir, name+".nwb")
		for line := range strings.Lines(again(t, dir, file)) {
			if !strings.Contains(line, "sweep_number): incorrect type - expected 'uint32', got 'int64'") { // JSON does not say how large it is
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	archive, out := filepath.Join(dir, "x.lindi.tar"), filepath.Join(dir, "x.nwb")
	convert(t, open(t, filepath.Join(dir, "ephys.nwb"), false), archive)
	x, err := holdall.Amend(t.Context(), archive, holdall.OpenOptions{View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err = x.AddFrom(t.Context(), open(t, filepath.Join(dir, "units.nwb"), false), []string{"units"}, holdall.AddOptions{}); err == nil {
		_, err = x.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := holdall.Open(t.Context(), archive, holdall.OpenOptions{View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	convert(t, a, out)
	if got := string(ask(t, 1, "same", filepath.Join(dir, "ephys.nwb"), out)); got != "/units: is only in the second\n" {
		t.Error(got)
	}
}

// Of files far away a part of a series is read, and references are made, by few requests.
func TestNWBFilesTakeFewRequests(t *testing.T) {
	dir := t.TempDir()
	ask(t, 0, "nwb", dir)
	s := serve(t, dir)
	for name, series := range map[string]string{
		"ephys":     "acquisition/raw/data",
		"ophys":     "acquisition/frames/data",
		"icephys":   "acquisition/current1/data",
		"behaviour": "processing/behavior/Position/path/data",
		"units":     "units/spike_times",
	} {
		s.requests.Store(0)
		a := open(t, s.url+name+".nwb", false)
		x, err := zarr.Open(t.Context(), a, series)
		if err != nil {
			t.Error(err)
			continue
		}
		count := slices.Repeat([]int64{1}, len(x.Shape))
		count[0] = min(100, x.Shape[0])
		from, step := make([]int64, len(x.Shape)), slices.Repeat([]int64{1}, len(x.Shape))
		if _, err := x.Sample(t.Context(), from, count, step); err != nil {
			t.Error(err)
		}
		slice := s.requests.Swap(0)
		convert(t, open(t, s.url+name+".nwb", false), filepath.Join(dir, name+".lindi.json"))
		made := s.requests.Load()
		t.Logf("%s: %d requests for a slice, %d for references", name, slice, made)
		if slice > 12 || made > 12 {
			t.Errorf("%s: %d requests for a slice, %d for references", name, slice, made)
		}
	}
}

// compareFolder compares files, and says which differences it saw that are justified.
func compareFolder(t *testing.T, dir string, names []string, ending string) (seen map[string]int) {
	s := serve(t, dir)
	seen = map[string]int{}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			file, address, links := filepath.Join(dir, name+ending), s.url+name+ending, i/7%2 == 1
			a := open(t, address, links)
			ours := convert(t, a, filepath.Join(dir, name+".lindi.json"))
			compareReferences(t, file, address, ours, links, seen)
			differences(t, ours, file, address, lindiCannot, seen)
			if links { // which zarr does not know
				a = open(t, address, false)
			}
			keys := convert(t, a, filepath.Join(dir, name+".zip"))
			differences(t, keys, file, "", zarrCannot, seen)
			if ending == ".nwb" {
				ask(t, 0, "pynwb_reads", ours, file)
				whole := convert(t, a, filepath.Join(dir, name+".lindi.tar"))
				differences(t, whole, file, "", nil, seen)
			}
			for _, done := range []string{file, keys} {
				if err := os.Remove(done); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Logf("differences that are known: %v", seen)
	return seen
}

// A cannot is what lindi or zarr cannot read, though lindi itself wrote it so: what they say,
// and what it is.
type cannot struct {
	said *regexp.Regexp
	is   string
}

// lindi ends a chunk with zeros if it is shorter than what it becomes, be it by one byte: the
// four that are taken for the checksum then end with a zero.
var (
	zarrCannot  = []cannot{{regexp.MustCompile(`\\.* is missing`), "name with a backslash"}}
	lindiCannot = append([]cannot{
		{regexp.MustCompile(`Zstd decompression error`), "zstd of a chunk that lindi made longer"},
		{regexp.MustCompile(`did not match the expected checksum \((\d{1,7}|1[0-6]\d{6})\)`), "fletcher32 of a chunk that lindi made longer"},
		{regexp.MustCompile(`error during blosc decompression`), "Blosc of a chunk that lindi made longer"},
	}, zarrCannot...)
)

// differences lets lindi, or zarr, read what became of a file, and compare it with what h5py
// reads of it. It reads the file where references lead to an address.
func differences(t *testing.T, ours, file, address string, known []cannot, seen map[string]int) {
	t.Helper()
	var found struct {
		Groups, Datasets, Attributes, Elements int
		Differences                            []string
	}
	said := ask(t, 1, "reads", ours, file, "--json", "--url", address)
	if err := json.Unmarshal(said, &found); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if found.Groups+found.Datasets == 0 {
		t.Errorf("%s: nothing was compared", ours)
	}
	for _, d := range found.Differences {
		why := ""
		for _, k := range known {
			if k.said.MatchString(d) {
				why = k.is
			}
		}
		if why == "" {
			t.Errorf("%s: %s", filepath.Base(ours), d)
		}
		seen[why]++
	}
}

// References are those of a LINDI file.
type references struct {
	Refs      map[string]any
	Templates map[string]string
	Error     string
}

func parse(t *testing.T, b []byte) (r references) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&r); err != nil || r.Error != "" {
		t.Fatal(err, r.Error)
	}
	for _, v := range r.Refs {
		if place, ok := v.([]any); ok {
			for name, address := range r.Templates {
				place[0] = strings.ReplaceAll(place[0].(string), "{{"+name+"}}", address)
			}
		}
	}
	return r
}

// A difference is an array whose keys are not all the same as lindi's.
type difference struct {
	object       *hdf5.Object // in the file
	ours, theirs map[string]any
	keys         []string // those that differ
}

// Differences that are justified. docs/hdf5.md has them, too.
var justified = []struct {
	why string
	is  func(difference) bool
}{
	{"booleans and fixed strings from 1000 elements on are left in the file", func(d difference) bool {
		o := d.object
		return o.Space.Elements() >= 1000 && (o.Type.Bool() || o.Type.Class == hdf5.String) && inlined(d.theirs) && !inlined(d.ours)
	}},
	{"compounds and texts of more than 1000 chunks are kept with the references; lindi leaves them in the file", func(d difference) bool {
		o, chunks := d.object, int64(1)
		if o.Type.Class != hdf5.Compound && !inlined(d.ours) || o.Layout.Class != hdf5.Chunked {
			return false
		}
		for i, n := range o.Layout.Chunk {
			chunks *= (o.Space.Dims[i] + int64(n) - 1) / int64(n)
		}
		return chunks > 1000 && !slices.ContainsFunc(d.keys, func(key string) bool { return path.Base(key) == ".zarray" })
	}},
	{"HDF5 2.0 tells wrong places of chunks where a dimension that is not the first is the one without limit", func(d difference) bool {
		o := d.object
		return o.Layout.Index == hdf5.ExtensibleArray && o.Space.Max[0] != hdf5.Unlimited && !slices.ContainsFunc(d.keys, isMeta)
	}},
	{"filters left out of one chunk: all chunks are decoded; lindi refers to them as if none were left out", func(d difference) bool {
		for c, err := range d.object.Chunks(context.Background()) {
			if err == nil && c.Mask != 0 {
				return d.ours["filters"] == nil && d.theirs["filters"] != nil
			}
		}
		return false
	}},
}

// inlined reports whether an array is kept with the references, as LINDI does it.
func inlined(zarray map[string]any) bool { return zarray["compressor"] != nil }

func isMeta(key string) bool { return strings.HasPrefix(path.Base(key), ".z") }

// compareReferences compares with the references that lindi makes.
func compareReferences(t *testing.T, file, address, archive string, links bool, seen map[string]int) {
	chunks := "none"
	if links {
		chunks = "1000"
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := parse(t, b).Refs, parse(t, ask(t, 0, "refs", file, address, "--chunks", chunks)).Refs
	if len(theirs) == 0 {
		t.Fatal("lindi makes no references")
	}
	all := maps.Clone(ours)
	maps.Copy(all, theirs)
	differ := map[string][]string{}
	for key := range all {
		if !reflect.DeepEqual(value(t, key, ours), value(t, key, theirs)) {
			differ[path.Dir(key)] = append(differ[path.Dir(key)], key)
		}
	}
	if len(differ) == 0 {
		return
	}
	f := openHDF5(t, file)
	for name, keys := range differ {
		d := difference{keys: keys}
		d.ours, _ = ours[name+"/.zarray"].(map[string]any)
		d.theirs, _ = theirs[name+"/.zarray"].(map[string]any)
		if d.object, err = f.Find(t.Context(), name); err != nil {
			t.Error(err)
			continue
		}
		why := ""
		for _, x := range justified {
			if d.ours != nil && d.theirs != nil && x.is(d) {
				why = x.why
			}
		}
		if seen[why]++; why == "" {
			slices.Sort(keys)
			t.Errorf("%s: %d keys differ, %q: %.300v, expected %.300v", name, len(keys), keys[0], ours[keys[0]], theirs[keys[0]])
		}
	}
}

// value is that of a key. Content in the references is decoded.
func value(t *testing.T, key string, refs map[string]any) any {
	text, ok := refs[key].(string)
	if !ok || isMeta(key) {
		return refs[key]
	}
	b := []byte(text)
	if encoded, ok := strings.CutPrefix(text, "base64:"); ok {
		var err error
		if b, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	zarray, _ := refs[path.Dir(key)+"/.zarray"].(map[string]any)
	if !inlined(zarray) {
		return b
	}
	b, err := arraycodec.Blosc(b, 64<<20)
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	return b
}

func openHDF5(t testing.TB, file string) *hdf5.File {
	t.Helper()
	st, name, err := store.OpenAddress(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	o, err := st.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	f, err := hdf5.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
