package lindi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// expect is what the notes beside a fixture specify.
type expect struct {
	Opens     bool                 `json:"reference_opens"`
	Members   []expectMember       `json:"members"`
	Files     []expectMember       `json:"files"`
	Unindexed []string             `json:"unindexed"`
	RFS       map[string]expectKey `json:"rfs"`
	SoftLinks map[string]struct {
		Resolves string `json:"resolves_to"`
	} `json:"soft_links"`
	URLMap map[string]string `json:"url_map"`
	Damage struct {
		Cause string         `json:"cause"`
		Lost  []expectMember `json:"lost_members"`
	} `json:"damage"`
	Repaired struct {
		Members     []expectMember       `json:"members"`
		RFS         map[string]expectKey `json:"rfs"`
		Recoverable bool                 `json:"lindi_json_recoverable"`
	} `json:"after_ideal_repair"`
}

type expectMember struct {
	Name   string `json:"n"`
	O      int64  `json:"o"`
	D      int64  `json:"d"`
	Size   int64  `json:"s"`
	SHA256 string `json:"sha256"`
	Short  bool   `json:"short"`
}

type expectKey struct {
	Kind         string `json:"kind"`
	JSON         any    `json:"json"`
	Size         int64  `json:"size"`
	SHA256       string `json:"sha256"`
	StoredSize   int64  `json:"stored_size"`
	StoredSHA256 string `json:"stored_sha256"`
	ReadError    string `json:"read_error"`
}

// fixtures calls test for each archive of testdata, with its notes and a store that contains the
// archive under its name, and the objects that it refers to.
func fixtures(t *testing.T, test func(t *testing.T, st *storetest.Mem, name string, want expect)) {
	for _, name := range testkit.Names(t, "testdata", ".expect.json", 22) {
		t.Run(name, func(t *testing.T) {
			var want expect
			testkit.JSON(t, filepath.Join("testdata", name+".expect.json"), &want)
			test(t, fixtureStore(t, name), name, want)
		})
	}
}

// fixtureStore returns a store with an archive of testdata and what lies beside it.
func fixtureStore(t testing.TB, names ...string) *storetest.Mem {
	st := &storetest.Mem{}
	for _, name := range append(names, "p07_source.h5", "p11_external.bin") {
		err := filepath.WalkDir(filepath.Join("testdata", name), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			st.Put(strings.TrimPrefix(filepath.ToSlash(p), "testdata/"), b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// content reads all of an entry, as the engine would; outside gives the name of
// what an external address leads to.
func content(ctx context.Context, st store.Store, r format.Reader, e format.Entry, outside func(string) string) ([]byte, error) {
	out := make([]byte, e.Size)
	for x, err := range r.Extents(ctx, e, 0, e.Size) {
		if err != nil {
			return nil, err
		}
		switch x.Codec {
		case codec.Zero:
			clear(out[x.At:][:x.Size])
			continue
		case codec.Inline:
			copy(out[x.At:][:x.Size], x.Data)
			continue
		}
		name := x.Object
		if x.External {
			name = outside(name)
		}
		o, err := st.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		err = o.ReadAt(ctx, out[x.At:][:x.Size], x.Off)
		o.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestFixturesReadAsTheReferenceReadsThem(t *testing.T) {
	fixtures(t, func(t *testing.T, st *storetest.Mem, name string, want expect) {
		if !want.Opens {
			t.Skip("damaged beyond what the reference opens: see the tests of repair")
		}
		outside := func(address string) string {
			for prefix, dir := range want.URLMap {
				if rest, ok := strings.CutPrefix(address, prefix); ok {
					return path.Join(dir, rest)
				}
			}
			return address
		}
		r, err := Format.Open(t.Context(), st, name, format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for _, m := range append(want.Members, want.Files...) {
			e, err := r.Lookup(t.Context(), m.Name)
			if err != nil || e.Size != m.Size {
				t.Errorf("%s: %d bytes, %v; expected %d", m.Name, e.Size, err, m.Size)
				continue
			}
			if m.Short {
				if e.Fault == nil || e.Fault.Code != format.Truncated {
					t.Errorf("%s is cut off, but reads without a word: %+v", m.Name, e.Fault)
				}
				continue
			}
			b, err := content(t.Context(), st, r, e, outside)
			if err != nil || hashOf(b) != m.SHA256 {
				t.Errorf("%s: %v, or other content", m.Name, err)
			}
		}
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(append(want.Members, want.Files...), func(m expectMember) bool { return m.Name == e.Name }) && formOf(name) != jsonForm {
				t.Errorf("%s: not expected", e.Name)
			}
			n++
		}
		k, err := Format.Open(t.Context(), st, name, format.OpenOptions{View: zarrView})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		for key, w := range want.RFS {
			e, err := k.Lookup(t.Context(), key)
			if err != nil {
				t.Errorf("%s: %v", key, err)
				continue
			}
			if w.ReadError != "" {
				if e.Fault == nil {
					t.Errorf("%s: the reference says %s, we say nothing", key, w.ReadError)
				}
				continue
			}
			if w.StoredSize > 0 && w.StoredSize < w.Size && e.Fault != nil && strings.HasPrefix(name, "x01") {
				continue // cut off: the reference fills up with zeros
			}
			b, err := content(t.Context(), st, k, e, outside)
			if err != nil {
				t.Errorf("%s: %v", key, err)
				continue
			}
			if w.Kind == "json" {
				var got any
				if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, w.JSON) {
					t.Errorf("%s: %s, %v; expected %v", key, b, err, w.JSON)
				}
				continue
			}
			if h := hashOf(b); h != w.SHA256 && h != w.StoredSHA256 {
				t.Errorf("%s: %d bytes %.200q, expected %d (stored %d)", key, len(b), b, w.Size, w.StoredSize)
			}
			if strings.HasPrefix(key, "shortlast/") && hashOf(b) != w.SHA256 {
				t.Errorf("%s: a short chunk of plain numbers is not filled up", key)
			}
		}
		n = 0
		for e, err := range k.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := want.RFS[e.Name]; !ok {
				t.Errorf("%s: not expected", e.Name)
			}
			n++
		}
		if n != len(want.RFS) {
			t.Errorf("%d keys, expected %d", n, len(want.RFS))
		}
		for link, l := range want.SoftLinks {
			to := strings.TrimPrefix(l.Resolves, "/")
			for _, end := range []string{".zarray", ".zattrs"} {
				real, err := k.Lookup(t.Context(), to+"/"+end)
				if err != nil {
					continue
				}
				got, err := k.Lookup(t.Context(), link+"/"+end)
				if err != nil || end == ".zarray" && got.Size != real.Size {
					t.Errorf("%s/%s: %v; it leads to %s", link, end, err, to)
				}
			}
		}
	})
}

// What has no usable index is found by its headers.
func TestFixturesAreFoundByTheirHeaders(t *testing.T) {
	fixtures(t, func(t *testing.T, st *storetest.Mem, name string, want expect) {
		if want.Damage.Cause == "" {
			t.Skip("not damaged")
		}
		r, err := Format.Open(t.Context(), st, name, format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for _, m := range want.Repaired.Members {
			e, err := r.Lookup(t.Context(), m.Name)
			if err != nil {
				// The index is good, and does not know it.
				if !slices.Contains(want.Unindexed, m.Name) && !strings.HasPrefix(name, "x06") && !strings.HasPrefix(name, "x07") {
					t.Errorf("%s: %v", m.Name, err)
				}
				continue
			}
			b, err := content(t.Context(), st, r, e, nil)
			if err != nil || hashOf(b) != m.SHA256 {
				t.Errorf("%s: %v, or other content", m.Name, err)
			}
		}
		k, err := Format.Open(t.Context(), st, name, format.OpenOptions{View: zarrView})
		if !want.Repaired.Recoverable {
			if !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("there is no %s, but it opens: %v", rfsName, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		k.Close()
	})
}
