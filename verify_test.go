package holdall_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/zarr"
)

// referenceTar is a LINDI tar as the reference writes it: JSON in its own layout, and no
// digests. It returns where the content of each member begins, too.
func referenceTar(t *testing.T, refs map[string]any, blobs map[string][]byte) ([]byte, map[string]int) {
	t.Helper()
	type row struct {
		D int    `json:"d"`
		N string `json:"n"`
		O int    `json:"o"`
		S int    `json:"s"`
	}
	text := func(v any, room int) []byte {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil || len(b) > room {
			t.Fatal(len(b), err)
		}
		return append(b, bytes.Repeat([]byte(" "), room-len(b))...)
	}
	const room = 8192
	names := []string{".tar_entry.json", ".tar_index.json", "lindi.json"}
	members := map[string][]byte{names[2]: text(map[string]any{"refs": refs}, room)}
	for name, b := range blobs {
		names, members[name] = append(names, name), b
	}
	slices.Sort(names[3:])
	var rows []row
	places, at := map[string]int{}, 0
	for i, name := range names {
		n := []int{1024, room, room}[min(i, 2)]
		if i > 2 {
			n = len(members[name])
		}
		rows, places[name] = append(rows, row{at + 512, name, at, n}), at+512
		at += 512 + (n+511)&^511
	}
	members[names[0]] = text(map[string]any{"index": rows[1]}, 1024)
	members[names[1]] = text(map[string]any{"files": rows}, room)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(members[name])), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(members[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), places
}

// array is a .zarray of numbers in chunks of a length.
func array(n, chunk int, codec string) map[string]any {
	return map[string]any{"zarr_format": 2, "shape": []int{n}, "chunks": []int{chunk}, "dtype": "<i2", "order": "C",
		"fill_value": 0, "filters": nil, "compressor": map[string]any{"id": codec, "level": 5}}
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gunzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// verified returns what a check finds, but for notes.
func verified(t *testing.T, st *storetest.Mem, name string, o holdall.VerifyOptions) (sum holdall.Verified, found, notes []holdall.Problem) {
	t.Helper()
	o.Store = st
	sum, err := holdall.Verify(t.Context(), name, o, func(p holdall.Problem) {
		if p.Severity == format.Note {
			notes = append(notes, p)
		} else {
			found = append(found, p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, found, notes
}

// counted are numbers that compress.
func counted(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// Bits of gzip chunks without digests are changed: the check tells of it, unless the chunk decodes to
// the same. One bit of each byte is chosen at random, and all with HOLDALL_LONG=8.
func TestEachBitOfAChunkWithoutDigestIsProven(t *testing.T) {
	testkit.Long(t)
	raw := counted(200)
	chunk := gzipped(t, raw)
	pair := append(slices.Clone(chunk), chunk...)
	b, places := referenceTar(t, map[string]any{
		".zgroup": map[string]any{"zarr_format": 2},
		// two chunks lie in one member, and one in lindi.json
		"x/.zarray": array(300, 100, "gzip"), "x/0": []any{"./blobs/x", 0, len(chunk)}, "x/1": []any{"./blobs/x", len(chunk), len(chunk)},
		"x/2": "base64:" + base64.StdEncoding.EncodeToString(chunk),
	}, map[string][]byte{"blobs/x": pair})
	st := &storetest.Mem{}
	st.Put("x.lindi.tar", b)
	if sum, found, _ := verified(t, st, "x.lindi.tar", holdall.VerifyOptions{}); len(found) > 0 || sum.Unproven+sum.Proven.Decoding != 3 {
		t.Fatalf("%+v, %v", sum, found)
	}
	told, rnd := 0, testkit.Rand(t)
	bits := func() []int { return rnd.Perm(8)[:min(testkit.Rounds(t, 1), 8)] }
	try := func(at, bit int, key string, same func(b []byte) bool) {
		t.Helper()
		c := bytes.Clone(b)
		c[at] ^= 1 << bit
		st.Put("x.lindi.tar", c)
		_, found, _ := verified(t, st, "x.lindi.tar", holdall.VerifyOptions{})
		if len(found) > 0 {
			told++
			if p := found[0]; p.Severity != format.Error || p.Code != format.BadData || p.Entry != key || p.Volume != "x.lindi.tar" || p.Off > int64(at) {
				t.Fatalf("bit %d of byte %d, of %s: %+v", bit, at, key, p)
			}
		} else if !same(c) {
			t.Fatalf("bit %d of byte %d, of %s: sound", bit, at, key)
		}
	}
	for i := range pair {
		from := places["blobs/x"] + i/len(chunk)*len(chunk)
		for _, bit := range bits() {
			try(places["blobs/x"]+i, bit, fmt.Sprintf("x/%d", i/len(chunk)), func(b []byte) bool {
				got, err := gunzip(b[from : from+len(chunk)])
				return err == nil && bytes.Equal(got, raw)
			})
		}
	}
	if n := len(pair) * min(testkit.Rounds(t, 1), 8); told < n*7/10 {
		t.Errorf("of %d bits %d were told", n, told)
	}
	from := bytes.Index(b, []byte(`"base64:`)) + len(`"base64:`)
	n := base64.StdEncoding.EncodedLen(len(chunk))
	for i := range n {
		for _, bit := range bits() {
			if c := b[from+i] ^ 1<<bit; c == '"' || c == '\\' || c < ' ' || c >= 0x80 {
				continue // it is another text then, which is told of as that
			}
			try(from+i, bit, "x/2", func(b []byte) bool {
				stored, err := base64.StdEncoding.DecodeString(string(b[from : from+n]))
				if err != nil {
					return false
				}
				got, err := gunzip(stored)
				return err == nil && bytes.Equal(got, raw)
			})
		}
	}
}

// What cannot be decoded is told of, whatever the codec; and what is told of cannot be.
func TestDamageThatDecodingShowsIsWhatACheckTells(t *testing.T) {
	testkit.Serial(t)
	const name = "p10_codecs.lindi.tar"
	b := testkit.Read(t, "format/lindi/testdata/"+name)
	st := &storetest.Mem{}
	st.Put(name, b)
	members, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer members.Close()
	rnd, told, blobs := testkit.Rand(t), 0, 0
	for e, err := range members.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		array, ok := strings.CutPrefix(e.Name, "blobs/")
		if !ok {
			continue
		}
		array = strings.TrimSuffix(array, "/0")
		blobs++
		for x, err := range members.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				c := bytes.Clone(b)
				c[x.Off+rnd.Int64N(x.Len)] ^= 1 << rnd.IntN(8)
				st.Put(name, c)
				_, found, _ := verified(t, st, name, holdall.VerifyOptions{})
				if err := decodes(t, st, name, array); (err != nil) != (len(found) > 0) {
					t.Errorf("%s: %v, and the check finds %v", e.Name, err, found)
				}
				told += len(found)
			}
		}
	}
	if blobs < 9 || told < 40 {
		t.Errorf("%d chunks, %d findings", blobs, told)
	}
}

// decodes reads an array.
func decodes(t *testing.T, st *storetest.Mem, name, at string) error {
	t.Helper()
	keys, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: st, View: "zarr"})
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	a, err := zarr.Open(t.Context(), zarr.Files(keys.FS(t.Context())), at)
	if err != nil {
		t.Fatal(err)
	}
	return a.WriteElements(t.Context(), io.Discard)
}

func TestHowFarContentsWithoutDigestsAreProven(t *testing.T) {
	chunk := gzipped(t, counted(200))
	text := []byte(`{"a": [1, NaN]}`)
	long := gzipped(t, counted(202))
	for _, test := range []struct {
		name     string
		zarray   map[string]any
		key      string
		blob     []byte
		unproven int64
		message  string
	}{
		{"a checksum", array(100, 100, "gzip"), "x/0", chunk, 3, ""},
		{"more than a chunk", array(100, 100, "gzip"), "x/0", long, 4, "codec gzip: expected at most 200 bytes, found more"},
		{"less than a chunk", array(101, 101, "gzip"), "x/0", chunk, 4, "expected a chunk of 202 bytes, found 200"},
		{"a checksum of much", array(15e6, 15e6, "gzip"), "x/0", gzipped(t, make([]byte, 30e6)), 3, ""},
		{"less than much", array(15e6, 15e6, "gzip"), "x/0", chunk, 4, "expected a chunk of 30000000 bytes, found 200"},
		{"a codec that nobody knows", array(100, 100, "of-my-own"), "x/0", chunk, 4, ""},
		{"chunks larger than the limit", array(1<<40, 1<<40, "gzip"), "x/0", chunk, 4, ""},
		{"no key of a chunk", array(100, 100, "gzip"), "x/0.0", chunk, 4, ""},
		{"no chunk", array(100, 100, "gzip"), "y/0", chunk, 4, ""},
		{"JSON", array(100, 100, "gzip"), "x/.zattrs", text, 4, ""},
		{"JSON that ends early", array(100, 100, "gzip"), "x/.zattrs", text[:9], 4, "cannot be decoded"},
	} {
		b, places := referenceTar(t, map[string]any{"x/.zarray": test.zarray, test.key: []any{"./blobs/b", 0, len(test.blob)}}, map[string][]byte{"blobs/b": test.blob})
		for _, view := range []string{"members", "zarr"} {
			st := &storetest.Mem{}
			st.Put("x.lindi.tar", b)
			sum, found, _ := verified(t, st, "x.lindi.tar", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{View: view}})
			weak := sum.Unproven + sum.Proven.Decoding + int64(len(found))
			if want := test.unproven - map[string]int64{"zarr": 2}[view]; weak != want {
				t.Errorf("%s, %s: %d unproven or only decoded, expected %d", test.name, view, weak, want)
			}
			if (len(found) > 0) != (test.message != "") {
				t.Errorf("%s, %s: %v", test.name, view, found)
			}
			for _, p := range found {
				if !strings.Contains(p.Message, test.message) || p.Entry != test.key || p.Code != format.BadData || p.Off != int64(places["blobs/b"]) {
					t.Errorf("%s, %s: %+v", test.name, view, p)
				}
			}
			if _, found, _ := verified(t, st, "x.lindi.tar", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{View: view}, Quick: true}); len(found) > 0 {
				t.Errorf("%s, %s, quick: %v", test.name, view, found)
			}
		}
	}
}

// Keys lead to parts of a member, and parts overlap; the same of a folder.
func TestPartsOfAMemberAreProvenEachByItself(t *testing.T) {
	const many = 20
	chunk := gzipped(t, counted(200))
	n := len(chunk)
	blob := bytes.Repeat(chunk, many)
	refs := map[string]any{}
	for name, chunks := range map[string]int{"one": 1, "two": 2, "three": 3} {
		refs[name+"/.zarray"] = array(100*chunks*many, 100*chunks, "gzip") // gzip has several members in a row
		for i := range many - chunks + 1 {
			refs[fmt.Sprintf("%s/%d", name, i)] = []any{"./blobs/b", i * n, chunks * n}
		}
	}
	text, err := json.Marshal(map[string]any{"refs": refs})
	if err != nil {
		t.Fatal(err)
	}
	for damaged := -1; damaged < many; damaged++ {
		c := bytes.Clone(blob)
		var want []string
		if damaged >= 0 {
			c[damaged*n+n-1] ^= 1 // of the length that gzip notes
		}
		for name, chunks := range map[string]int{"one": 1, "two": 2, "three": 3} {
			for i := max(damaged-chunks+1, 0); damaged >= 0 && i <= min(damaged, many-chunks); i++ {
				want = append(want, fmt.Sprintf("%s/%d", name, i))
			}
		}
		slices.Sort(want)
		b, _ := referenceTar(t, refs, map[string][]byte{"blobs/b": c})
		st := &storetest.Mem{}
		st.Put("x.lindi.tar", b)
		st.Put("x.lindi.d/lindi.json", text)
		st.Put("x.lindi.d/blobs/b", c)
		for _, name := range []string{"x.lindi.tar", "x.lindi.d"} {
			_, found, _ := verified(t, st, name, holdall.VerifyOptions{})
			var got []string
			for _, p := range found {
				got = append(got, p.Entry)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, chunk %d: %v, expected %v", name, damaged, got, want)
			}
		}
	}
}

// A web answers for sources, and counts what it is asked.
func TestSourcesOutsideAreAsked(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		switch r.URL.Path {
		case "/there", "/short":
			http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(make([]byte, 100)))
		case "/closed":
			http.Error(w, "no", http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	refs := map[string]any{".zgroup": map[string]any{"zarr_format": 2}}
	for i := range 3 {
		for _, name := range []string{"there", "short", "closed", "gone"} {
			end := map[string]int{"short": 1}[name]
			refs[fmt.Sprintf("%s/%d", name, i)] = []any{web.URL + "/" + name, 50 * i / 2, 50 + end}
		}
	}
	refs["near/0"], refs["near/1"] = []any{"beside.bin", 0, 10}, []any{"./beside.bin", 0, 10}
	refs["near/2"], refs["near/3"] = []any{"none.bin", 0, 10}, []any{"./none.bin", 0, 10}
	text, err := json.Marshal(map[string]any{"refs": refs})
	if err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("x.lindi.json", text)
	st.Put("beside.bin", make([]byte, 10))
	said := func(all []holdall.Problem) (out []string) {
		for _, p := range all {
			out = append(out, fmt.Sprintf("%v %v %s", p.Severity, p.Code, strings.ReplaceAll(p.Message, web.URL, "web")))
		}
		slices.Sort(out)
		return out
	}
	gone := "error dangling none.bin, with 2 references to it, does not exist"
	for _, test := range []struct {
		name  string
		o     holdall.VerifyOptions
		found []string
		notes []string
		asked int
	}{
		{"quick", holdall.VerifyOptions{Quick: true, OpenOptions: holdall.OpenOptions{External: []string{"any"}}}, nil,
			[]string{"note dangling 16 references outside of the archive: not checked"}, 0},
		{"its own folder", holdall.VerifyOptions{}, []string{gone}, []string{
			"note dangling 12 references outside of the archive: not checked",
			"note dangling 2 references outside of the archive: their content cannot be verified"}, 0},
		{"the web", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{External: []string{web.URL}}}, []string{
			"error dangling none.bin, with 2 references to it, does not exist",
			"error dangling web/gone, with 3 references to it, does not exist",
			"error out-of-bounds web/short, with 3 references to it, has 100 bytes, but references go up to byte 101",
			"warning dangling web/closed, with 3 references to it, could not be checked: info web/closed: 403 Forbidden: permission denied"},
			[]string{"note dangling 5 references outside of the archive: their content cannot be verified"}, 4},
	} {
		clear(asked)
		_, found, notes := verified(t, st, "x.lindi.json", test.o)
		if got := said(found); !slices.Equal(got, test.found) || !slices.Equal(said(notes), test.notes) || len(asked) != test.asked {
			t.Errorf("%s: found\n%s\nnotes\n%s\nasked %v", test.name, strings.Join(got, "\n"), strings.Join(said(notes), "\n"), asked)
		}
		for path, n := range asked {
			if n > 1 {
				t.Errorf("%s: %s was asked %d times", test.name, path, n)
			}
		}
	}
}

// Chunks of HDF5 files whose filters compare checksums, or cannot decode what is wrong, are
// named, as keys of Zarr and as datasets.
func TestVerifyNamesDamagedChunks(t *testing.T) {
	file := testkit.Read(t, "hdf5/testdata/filters_latest.h5")
	faults := func(b []byte, view string) (named []string) {
		st := &storetest.Mem{}
		st.Put("x.h5", b)
		sum, err := holdall.Verify(t.Context(), "x.h5", holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st, View: view}}, func(p holdall.Problem) {
			if p.Severity == format.Error {
				named = append(named, p.Entry)
			}
		})
		if err != nil || sum.Errors != int64(len(named)) {
			t.Errorf("view %q: %q are named; %+v, %v", view, named, sum, err)
		}
		return named
	}
	views := []string{"", "objects"}
	known := map[string][]string{} // filters that are not supported
	for _, view := range views {
		known[view] = faults(file, view)
	}
	st := &storetest.Mem{}
	st.Put("x.h5", file)
	a, err := holdall.Open(t.Context(), "x.h5", holdall.OpenOptions{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, array := range []string{"gzip", "gzip_shuffle", "fletcher32", "all"} {
		e, err := a.Lookup(t.Context(), array+"/0.0")
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(file)
		for x, err := range a.Extents(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			bad[x.Off+x.Len/2] ^= 0x10
		}
		for i, want := range []string{array + "/0.0", array} {
			named := faults(bad, views[i])
			if more := slices.DeleteFunc(named, func(name string) bool { return slices.Contains(known[views[i]], name) }); !slices.Equal(more, []string{want}) {
				t.Errorf("view %q: %q are named, expected %s", views[i], more, want)
			}
		}
	}
}
