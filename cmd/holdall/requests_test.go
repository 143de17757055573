package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// sectionsOf returns the range by which a file of a package is read, which
// must be one. These tests list the requests that a verb sends to a web
// server: each further line is one more round trip for every user.
func sectionsOf(t *testing.T, archive, name string, run func(...string) string) string {
	t.Helper()
	for line := range strings.Lines(run("ls", "-R", "--json", archive)) {
		var e struct {
			Path  string
			Spans []struct{ Offset, Length int64 }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Path == name && len(e.Spans) == 1 && e.Spans[0].Length < 500_000 {
			return fmt.Sprintf("bytes=%d-%d", e.Spans[0].Offset, e.Spans[0].Offset+e.Spans[0].Length-1)
		}
	}
	t.Fatalf("%s does not lie in one section", name)
	return ""
}

func TestWebRequests(t *testing.T) {
	testkit.Serial(t)
	dir := t.TempDir()
	in := testkit.Tree(t, filepath.Join(dir, "in"), map[string]string{"a/first": strings.Repeat("x", 100_000), "b/wanted": "wanted", "c/last": strings.Repeat("y", 100_000)})
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.String()
	}
	run("pack", "-o", filepath.Join(dir, "x.caf"), in)
	// A Zarr hierarchy with more chunks than the first read can cover.
	zarr := filepath.Join(dir, "zarr", "x")
	os.MkdirAll(zarr, 0o777)
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(zarr, fmt.Sprint(i)), bytes.Repeat([]byte{byte(i)}, 1000), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"../.zgroup": `{"zarr_format": 2}`, ".zarray": `{"chunks":[1000],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[1000000],"zarr_format":2}`} {
		if err := os.WriteFile(filepath.Join(zarr, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run("pack", "-o", filepath.Join(dir, "large.lindi.tar"), filepath.Join(dir, "zarr"))
	run("pack", "-o", filepath.Join(dir, "small.lindi.tar"), filepath.Join(dir, "zarr"), "--exclude", "[1-9]?*")
	if err := os.Link(filepath.Join(dir, "x.caf"), filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	// A recording with an index beside it.
	run("convert", "-f", "hdf5", filepath.Join(dir, "zarr"), filepath.Join(dir, "x.nwb"))
	run("index", "--chunk-digests", filepath.Join(dir, "x.nwb"))
	chunk := sectionsOf(t, filepath.Join(dir, "x.nwb"), "x/777", run)
	// A package of twelve sections.
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		b := make([]byte, 40_000)
		for k := range b {
			b[k] = "abcdefgh"[rnd.IntN(8)]
		}
		p := filepath.Join(dir, "pkg", fmt.Sprintf("%03d", i))
		os.MkdirAll(filepath.Dir(p), 0o777)
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run("pack", "-o", filepath.Join(dir, "pkg.rvn"), filepath.Join(dir, "pkg"))
	run("pack", "-o", filepath.Join(dir, "pkg.bundle"), "--shards", "3", filepath.Join(dir, "pkg"))
	record := sectionsOf(t, filepath.Join(dir, "pkg.bundle"), "200", run)
	section := sectionsOf(t, filepath.Join(dir, "pkg.rvn"), "200", run)
	ref, err := os.ReadFile("../../format/lindi/testdata/p03_index_growth.lindi.tar")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ref.lindi.tar"), ref, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	x, err := os.Stat(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	endOfX := fmt.Sprintf("%d-%d", x.Size()-65536, x.Size()-1)
	var mu sync.Mutex
	var log []string
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		log = append(log, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Range")))
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"cat", web.URL + "/x.caf", "b/wanted"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=100000-100005"}},
		{[]string{"cat", "--as", "caf", web.URL + "/x", "b/wanted"}, []string{"GET /x bytes=-65536", "GET /x bytes=100000-100005"}},
		{[]string{"cat", web.URL + "/x", "b/wanted"}, []string{"GET /x bytes=-65536", "GET /x bytes=0-65535", "GET /x bytes=100000-100005"}},
		// cat --range compares the whole file with its checksum, unless the file is
		// long or the user turns this off.
		{[]string{"cat", "--range", "10-20", web.URL + "/x.caf", "a/first"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=0-99999"}},
		{[]string{"cat", "--range", "10-20", "--no-verify", web.URL + "/x.caf", "a/first"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=10-19"}},
		{[]string{"ls", "-R", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536"}},
		{[]string{"info", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf.parity bytes=-131072"}},
		// All contents in one request: adjacent ones are joined. Parity is looked for.
		{[]string{"verify", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=0-200005", "GET /x.caf.parity bytes=-131072"}},
		{[]string{"verify", "--parity", "none", web.URL + "/x.caf"}, []string{"GET /x.caf bytes=-65536", "GET /x.caf bytes=0-200005"}},

		// RVN: the start with the section table, then one section, which has a
		// megabyte stored in a third of that.
		{[]string{"cat", web.URL + "/pkg.rvn", "200"}, []string{"GET /pkg.rvn bytes=0-262143", "GET /pkg.rvn " + section}},
		{[]string{"ls", "-R", web.URL + "/pkg.rvn"}, []string{"GET /pkg.rvn bytes=0-262143"}},

		// HDF5: the index, the end of the archive to which it belongs, and the chunk.
		{[]string{"cat", "--decode", "--slice", "777000:777010", web.URL + "/x.nwb", "x"}, []string{"GET /x.nwb bytes=-4096", "GET /x.nwb " + chunk}},

		// DataBundle: all files with fixed names at once, then the header of the
		// shard, then one record.
		{[]string{"cat", web.URL + "/pkg.bundle", "200"}, []string{
			"GET /pkg.bundle/index/000003.log bytes=0-65535", "GET /pkg.bundle/index/000004.sst bytes=-1048576",
			"GET /pkg.bundle/index/CURRENT bytes=0-65535", "GET /pkg.bundle/index/MANIFEST-000002 bytes=0-65535",
			"GET /pkg.bundle/shard-00000000 bytes=0-4095", "GET /pkg.bundle/shard-00000001 bytes=0-4095",
			"GET /pkg.bundle/shard-00000001 " + record}},

		// LINDI: the start of the archive, then the rest of index and lindi.json, then
		// the chunk; all at once if the archive is short enough.
		{[]string{"cat", "--view", "zarr", web.URL + "/large.lindi.tar", "x/7"}, []string{"GET /large.lindi.tar bytes=0-65535", "GET /large.lindi.tar bytes=65536-177737", "GET /large.lindi.tar bytes=1210368-1211367"}},
		{[]string{"cat", "--view", "zarr", web.URL + "/small.lindi.tar", "x/7"}, []string{"GET /small.lindi.tar bytes=0-65535"}},
		// First the members, then the keys, from the bytes that were read for the
		// members.
		{[]string{"info", "--parity", "none", web.URL + "/large.lindi.tar"}, []string{"GET /large.lindi.tar bytes=0-65535", "GET /large.lindi.tar bytes=65536-138756", "GET /large.lindi.tar bytes=65536-177737"}},
		{[]string{"info", "--parity", "none", web.URL + "/small.lindi.tar"}, []string{"GET /small.lindi.tar bytes=0-65535"}},
		// The reference implementation's archive, whose index has moved: one request
		// more, and hardly any padding.
		{[]string{"cat", "--view", "zarr", web.URL + "/ref.lindi.tar", "many/d/7"}, []string{"GET /ref.lindi.tar bytes=0-65535", "GET /ref.lindi.tar bytes=244736-310271", "GET /ref.lindi.tar bytes=651776-717311"}},
	} {
		log = nil
		run(tt.args...)
		// To recognise an archive, both ends are requested at once. If the start
		// arrives first, the size is known, and the request for the end uses it.
		for i, line := range log {
			if line == "GET /x bytes="+endOfX {
				log[i] = "GET /x bytes=-65536"
			}
		}
		// Verbs that read entries first request an index beside the archive.
		index := tt.args[0] == "cat" || tt.args[0] == "ls"
		if index != (len(log) > 0 && strings.Contains(log[0], ".holdall bytes=-")) {
			t.Errorf("%s: first asked for %q", strings.Join(tt.args, " "), log[:1])
		}
		if index {
			log = log[1:]
		}
		slices.Sort(log)
		slices.Sort(tt.want)
		if !slices.Equal(log, tt.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", strings.Join(tt.args, " "), strings.Join(log, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestOakStoreThatCannotBeListedTakesFewRequests checks that a server that
// cannot list gets few requests for the possible file names of a store.
func TestOakStoreThatCannotBeListedTakesFewRequests(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.MkdirAll(in, 0o777); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 10_000) // starts before the tail that is read first
	for name, content := range map[string][]byte{"short": []byte("short"), "long": long} {
		if err := os.WriteFile(filepath.Join(in, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.String()
	}
	run("pack", "-f", "oak", "-o", filepath.Join(dir, "store"), in)
	var mu sync.Mutex
	var log []string
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		log = append(log, path.Base(r.URL.Path)+" "+r.Header.Get("Range"))
		mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	open := []string{"data00000a.tar bytes=-65536", "data00000b.tar bytes=-65536", "data00001a.tar bytes=-65536", "journal.log bytes=-65536", "store.holdall bytes=-18432"}
	for _, tt := range []struct {
		name string
		want string
		more int // requests for the content
	}{{"short", "short", 0}, {"long", string(long), 3}} {
		log = nil
		if got := run("cat", "--as", "oak", web.URL+"/store", tt.name+"/jcr:content/jcr:data"); got != tt.want {
			t.Errorf("%s: %d bytes, expected %d", tt.name, len(got), len(tt.want))
		}
		slices.Sort(log)
		asked := slices.DeleteFunc(slices.Clone(log), func(line string) bool { return slices.Contains(open, line) })
		if len(log)-len(asked) != len(open) || len(asked) > tt.more {
			t.Errorf("%s:\n%s\nexpected\n%s\nand at most %d more", tt.name, strings.Join(log, "\n"), strings.Join(open, "\n"), tt.more)
		}
	}
}

// TestRunsAreReadByFewRequests reads ten thousand adjacent chunks of 500
// bytes, which take a few requests.
func TestRunsAreReadByFewRequests(t *testing.T) {
	const chunks, size = 10_000, 500
	dir, rnd := t.TempDir(), testkit.Rand(t)
	var text bytes.Buffer
	fmt.Fprintf(&text, `{"refs":{".zgroup":{"zarr_format":2},"x/.zarray":{"chunks":[%d],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[%d],"zarr_format":2}`, size, chunks*size)
	for _, i := range rnd.Perm(chunks) {
		fmt.Fprintf(&text, `,"x/%d":"%s"`, i, strings.Repeat(string(rune('a'+i%26)), size))
	}
	text.WriteString("}}")
	if err := os.WriteFile(filepath.Join(dir, "x.lindi.json"), text.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.Bytes()
	}
	run("convert", "--consolidate", "4MiB", filepath.Join(dir, "x.lindi.json"), filepath.Join(dir, "x.lindi.tar"))
	var n atomic.Int64
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	for _, args := range [][]string{
		{"convert", "--view", "zarr", web.URL + "/x.lindi.tar", filepath.Join(dir, "x.caf")},
		{"cat", "--decode=npy", web.URL + "/x.lindi.tar", "x"},
	} {
		n.Store(0)
		out := run(args...)
		t.Logf("%s: %d requests", args[0], n.Load())
		if n.Load() > 15 {
			t.Errorf("%v: %d requests", args, n.Load())
		}
		if args[0] == "cat" {
			out = out[len(out)-chunks*size:]
			for i := range chunks {
				if want := byte('a' + i%26); out[i*size] != want || out[i*size+size-1] != want {
					t.Fatalf("chunk %d is of another place", i)
				}
			}
		}
	}
	run("diff", "--view", "zarr", filepath.Join(dir, "x.lindi.tar"), filepath.Join(dir, "x.lindi.json"))
}

// What a sync requests before it knows what to fetch, it requests one after the other.
func TestSyncKnowsWhatToFetchAfterFewRequests(t *testing.T) {
	testkit.Long(t)
	dir := t.TempDir()
	run := func(args ...string) string {
		var out, errOut bytes.Buffer
		if code := newApp(nil, &out, &errOut).run(t.Context(), args); code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, errOut.String())
		}
		return out.String()
	}
	was, is := map[string]string{}, map[string]string{}
	for i := range 5000 {
		name := fmt.Sprintf("d%02d/file%04d", i/100, i)
		was[name] = fmt.Sprintf("%0*d", 100+i%5000, i)
		if is[name] = was[name]; i%100 == 0 {
			is[name] = fmt.Sprintf("%x", i*i)
		}
	}
	old, in := testkit.Tree(t, filepath.Join(dir, "old"), was), testkit.Tree(t, filepath.Join(dir, "in"), is)
	var requests atomic.Int64
	files := http.FileServer(http.Dir(dir))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		files.ServeHTTP(w, r)
	}))
	defer web.Close()
	for _, name := range []string{"bare.caf", "x.caf", "x.tar", "x.zip", "x.rvn", "x.lindi.tar"} {
		run("pack", "-q", "--no-sync", "-o", filepath.Join(dir, name), in)
		if name != "bare.caf" {
			run("index", "-q", "--chunk-digests", filepath.Join(dir, name))
		}
		requests.Store(0)
		var sum struct{ Bytes, Fetched, Requests int64 }
		if err := json.Unmarshal([]byte(run("sync", "-n", "--json", web.URL+"/"+name, old, "-o", filepath.Join(dir, "y"))), &sum); err != nil {
			t.Fatal(err)
		}
		if n := requests.Load(); n > 5 || sum.Requests == 0 {
			t.Errorf("%s: %d requests to know what to fetch: %+v", name, n, sum)
		}
	}
}
