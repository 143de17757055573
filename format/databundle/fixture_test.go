package databundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// expected is the description of a fixture's contents in the file beside it.
type expected struct {
	Compression string `json:"compression"`
	Error       string `json:"error"` // classes of the errors of opening, with bars between
	Entries     []struct {
		Path     string `json:"path"`
		PathHex  string `json:"path_hex"`
		Type     string `json:"type"`
		Size     int64  `json:"size"`
		CRC      uint32 `json:"crc32c"`
		SHA256   string `json:"sha256"`
		Shard    uint64 `json:"shard"`
		Offset   int64  `json:"offset"`
		UserData *struct {
			URL   string `json:"type_url"`
			Value string `json:"value_hex"`
		} `json:"user_data"`
	} `json:"entries"`
	Errors map[string]string `json:"errors"` // by path, in hex
}

func fixtures(t testing.TB) (names []string) {
	return testkit.Names(t, "testdata", ".expect.json", 18)
}

// fixture returns the objects of a bundle, which is called b in the store.
func fixture(t testing.TB, name string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	testkit.Put(st, testkit.Files(t, filepath.Join("testdata", name)), "", "b/")
	return st
}

func expectation(t testing.TB, name string) (x expected) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".expect.json"))
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// classOf returns the word that expectations use for an error.
func classOf(err error) string {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return strings.ReplaceAll(c.Class, "-", "_")
	}
	if d, ok := errors.AsType[*holdall.DigestError](err); ok && d != nil {
		return "checksum_mismatch"
	}
	if err != nil {
		return "record_corrupt"
	}
	return ""
}

func oneOf(class, classes string) bool {
	for _, c := range strings.Split(classes, "|") {
		if c == class {
			return true
		}
	}
	return false
}

func TestFixturesAreReadAsTheyShouldBe(t *testing.T) {
	for _, name := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			want := expectation(t, name)
			ctx := t.Context()
			a, err := holdall.Open(ctx, "b", holdall.OpenOptions{Store: fixture(t, name), Formats: []*format.Format{Format}})
			if want.Error != "" {
				if !oneOf(classOf(err), want.Error) {
					t.Fatalf("open: expected %s, found %v", want.Error, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			seen := map[string]bool{}
			byName := map[string]holdall.Entry{}
			for e, err := range a.Entries(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				byName[e.Name] = e
			}
			for _, w := range want.Entries {
				path := w.Path
				if w.PathHex != "" {
					b, _ := hex.DecodeString(w.PathHex)
					path = string(b)
				}
				seen[path] = true
				e, ok := byName[path]
				if !ok {
					t.Errorf("%q is not there", path)
					continue
				}
				classes, bad := want.Errors[hex.EncodeToString([]byte(path))]
				if e.Fault != nil && bad && oneOf(strings.ReplaceAll(e.Fault.Class, "-", "_"), classes) {
					continue
				}
				if (e.Kind == format.Dir) != (w.Type == "dir") || e.Size != w.Size {
					t.Errorf("%q: a %v of %d bytes, expected a %s of %d", path, e.Kind, e.Size, w.Type, w.Size)
				}
				if u := w.UserData; u != nil && (e.Attr[userTypeAttr] != u.URL || e.Attr[userValueAttr] != u.Value) {
					t.Errorf("%q: user data %q", path, e.Attr)
				}
				if w.Type == "dir" {
					continue
				}
				sum, err := contentSum(ctx, a, path)
				switch {
				case bad && !oneOf(classOf(err), classes):
					t.Errorf("%q: expected %s, found %v", path, classes, err)
				case !bad && err != nil:
					t.Errorf("%q: %v", path, err)
				case !bad && sum != w.SHA256:
					t.Errorf("%q: content differs", path)
				}
			}
			for n := range byName {
				if _, bad := want.Errors[hex.EncodeToString([]byte(n))]; !seen[n] && !bad {
					t.Errorf("%q should not be there", n)
				}
			}
		})
	}
}

func contentSum(ctx context.Context, a *holdall.Archive, name string) (string, error) {
	e, err := a.Lookup(ctx, name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if err := a.WriteContent(ctx, h, e); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func TestKeysAreThoseOfTheReference(t *testing.T) {
	b, err := os.ReadFile("testdata/keyvec.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 2 {
			continue
		}
		n++
		kind, value, key := f[0], f[1], ""
		if len(f) > 2 {
			key = f[2]
		} else { // the empty string
			value, key = "", f[1]
		}
		want, err := hex.DecodeString(key)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch kind {
		case "varuint":
			v, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := appendVaruint(nil, v); !bytes.Equal(got, want) {
				t.Errorf("%d: expected %x, found %x", v, want, got)
			}
			if got, rest, err := varuint(want); err != nil || got != v || len(rest) > 0 {
				t.Errorf("%x: expected %d, found %d, %v", want, v, got, err)
			}
		case "bytes":
			s, err := hex.DecodeString(value)
			if err != nil {
				t.Fatal(err)
			}
			if got := appendBytes(nil, string(s)); !bytes.Equal(got, want) {
				t.Errorf("%x: expected %x, found %x", s, want, got)
			}
			if got, rest, err := cutBytes(append(want, 7)); err != nil || got != string(s) || len(rest) != 1 {
				t.Errorf("%x: expected %x, found %x, %v", want, s, got, err)
			}
		default:
			t.Errorf("a vector of %q", kind)
		}
	}
	if n < 400 {
		t.Errorf("%d vectors", n)
	}
}
