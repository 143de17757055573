package rvn

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// expected is what the reference reads from an archive.
type expected struct {
	Header   map[string]any             `json:"header"`
	Groups   []string                   `json:"groups"`
	Owners   []string                   `json:"owners"`
	Metadata *string                    `json:"metadata"`
	Content  string                     `json:"content_blake3"`
	Entries  json.RawMessage            `json:"entries"`
	Defaults map[string]json.RawMessage `json:"defaults_by_type"`
	What     string                     `json:"what"`
	Valid    bool                       `json:"spec_valid"`
}

// expectedEntry is one of expected.Entries.
type expectedEntry struct {
	Path      *string `json:"path"`
	PathHex   string  `json:"path_hex"`
	Type      string  `json:"type"`
	Mode      string  `json:"mode"`
	Owner     string  `json:"owner"`
	Group     string  `json:"group"`
	Seconds   int64   `json:"mtime_s"`
	Nanos     int64   `json:"mtime_ns"`
	Size      int64   `json:"size"`
	Blake3    string  `json:"blake3"`
	Target    *string `json:"target"`
	TargetHex string  `json:"target_hex"`
}

func fixtures(t testing.TB, prefixes ...string) []string {
	t.Helper()
	var out []string
	for _, name := range testkit.Names(t, "testdata", ".rvn", 129) {
		if len(prefixes) == 0 && !strings.HasPrefix(name, "dmg-") || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out = append(out, name)
		}
	}
	return out
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".rvn")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func expectation(t testing.TB, name string) expected {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".expect.json")
	if err != nil {
		t.Fatal(err)
	}
	var x expected
	if err := json.Unmarshal(b, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x expected) entries(t testing.TB) []expectedEntry {
	t.Helper()
	var list []expectedEntry
	if json.Unmarshal(x.Entries, &list) == nil {
		return list
	}
	var table struct {
		Columns []string            `json:"columns"`
		Rows    [][]json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal(x.Entries, &table); err != nil {
		t.Fatal(err)
	}
	for _, row := range table.Rows {
		object := map[string]json.RawMessage{}
		for i, c := range table.Columns {
			object[c] = row[i]
		}
		var kind string
		if err := json.Unmarshal(object["type"], &kind); err != nil {
			t.Fatal(err)
		}
		var e expectedEntry
		if d := x.Defaults[kind]; d != nil {
			if err := json.Unmarshal(d, &e); err != nil {
				t.Fatal(err)
			}
		}
		b, err := json.Marshal(object)
		if err == nil {
			err = json.Unmarshal(b, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func fromHex(t testing.TB, plain *string, hexed string) string {
	t.Helper()
	if plain != nil {
		return *plain
	}
	b, err := hex.DecodeString(hexed)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// line is an entry in words.
func (e expectedEntry) line(t testing.TB) string {
	mode, err := strconv.ParseUint(e.Mode, 8, 16)
	if err != nil {
		t.Fatal(err)
	}
	digest := ""
	if strings.Trim(e.Blake3, "0") != "" {
		digest = "blake3:" + e.Blake3
	}
	target := ""
	if e.Target != nil || e.TargetHex != "" {
		target = fromHex(t, e.Target, e.TargetHex)
	}
	kind := map[string]string{"directory": "dir", "regular": "file", "symlink": "symlink", "hardlink": "hardlink", "fifo": "fifo"}[e.Type]
	return fmt.Sprintf("%q %s %o %s %s %s %d %s %q", fromHex(t, e.Path, e.PathHex), kind, mode, e.Owner, e.Group,
		time.Unix(e.Seconds, e.Nanos).UTC().Format(time.RFC3339Nano), e.Size, digest, target)
}

func lineOf(e format.Entry) string {
	return fmt.Sprintf("%q %s %o %s %s %s %d %s %q", e.Name, e.Kind, kit.UnixMode(e.Mode), e.Owner, e.Group,
		e.ModTime.Format(time.RFC3339Nano), e.Size, e.Digest, e.Link)
}

// contentsOf reads all contents in the order of records.
func contentsOf(t testing.TB, b []byte) (*archive, []byte, error) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.rvn", b)
	a, err := load(t.Context(), st, "x.rvn", format.OpenOptions{})
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { a.obj.Close() })
	var out []byte
	src := a.newSource(t.Context())
	defer src.close()
	_, err = src.copyFile(0, a.index.total, func(p []byte) error {
		out = append(out, p...)
		return nil
	})
	return a, out, err
}

func TestWhatTheReferenceWroteReadsAsItReadsIt(t *testing.T) {
	testkit.Serial(t)
	for _, name := range fixtures(t) {
		if strings.HasPrefix(name, "ext-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			want := expectation(t, name)
			a, content, err := contentsOf(t, fixture(t, name))
			if err != nil {
				t.Fatal(err)
			}
			entries := want.entries(t)
			if len(entries) != a.index.Len() {
				t.Errorf("%d entries, want %d", a.index.Len(), len(entries))
			}
			for i, e := range entries[:min(len(entries), a.index.Len())] {
				if got := lineOf(a.index.Entry(i)); got != e.line(t) {
					t.Errorf("entry %d:\n%s, want\n%s", i, got, e.line(t))
				}
			}
			for i, g := range want.Groups {
				if got, _ := person(a.index.groups, i); got != g {
					t.Errorf("group %d: %q, want %q", i, got, g)
				}
			}
			for i, o := range want.Owners {
				if got, _ := person(a.index.owners, i); got != o {
					t.Errorf("owner %d: %q, want %q", i, got, o)
				}
			}
			m, err := a.metadata()
			if err != nil {
				t.Error(err)
			}
			if want.Metadata != nil && string(m.text) != *want.Metadata {
				t.Errorf("metadata:\n%s, want\n%s", m.text, *want.Metadata)
			}
			if sum := blake3.Sum256(content); want.Content != "" && hex.EncodeToString(sum[:]) != want.Content {
				t.Error("contents differ")
			}
			if len(a.notes) > 0 {
				t.Errorf("it is said to be odd: %+v", a.notes)
			}
		})
	}
}

// fileScratch gives temporary room in files.
func fileScratch(t testing.TB) func() (sorter.Scratch, error) {
	return func() (sorter.Scratch, error) { return os.CreateTemp(t.TempDir(), "scratch") }
}
