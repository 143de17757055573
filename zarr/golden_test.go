package zarr

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/testkit"
)

// A keyed source holds its values in memory.
type keyed map[string][]byte

func (k keyed) Get(_ context.Context, key string, limit int64) ([]byte, error) {
	v, ok := k[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if int64(len(v)) > limit {
		return nil, overLimit(key, int64(len(v)), limit)
	}
	return v, nil
}

func (k keyed) GetRange(_ context.Context, key string, off, n int64) ([]byte, error) {
	v, ok := k[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	from, err := Within(off, n, int64(len(v)))
	if err != nil {
		return nil, err
	}
	return v[from : from+n], nil
}

// A golden array is what the reference stored, and what it then read.
type golden struct {
	Keys   keyed  `json:"keys"`
	NPY    string `json:"npy"`
	Values any    `json:"values"`
}

func readGolden(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

func goldens(t testing.TB) map[string]golden {
	t.Helper()
	var g map[string]golden
	readGolden(t, "golden.json", &g)
	if len(g) < 180 {
		t.Fatalf("only %d golden arrays", len(g))
	}
	return g
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// goldens3 are arrays of version 3.
func goldens3(t testing.TB) map[string]golden {
	t.Helper()
	var g map[string]golden
	readGolden(t, "golden3.json", &g)
	if len(g) < 80 {
		t.Fatalf("only %d golden arrays", len(g))
	}
	return g
}

func TestReadsWhatTheReferenceReads(t *testing.T) {
	all := goldens(t)
	for name, g := range goldens3(t) {
		all["3 "+name] = g
	}
	for name, g := range all {
		t.Run(name, func(t *testing.T) {
			a, err := Open(t.Context(), g.Keys, "")
			if err != nil {
				t.Fatal(err)
			}
			if a.DType.Kind == 'O' {
				checkValues(t, a, g.Values)
				return
			}
			var npy bytes.Buffer
			if err := a.WriteNPY(t.Context(), &npy); err != nil {
				t.Fatal(err)
			}
			if digest(npy.Bytes()) != g.NPY {
				t.Errorf("another file than numpy.save writes: %q", npy.Bytes()[:min(npy.Len(), 400)])
			}
			var raw bytes.Buffer
			if err := a.WriteElements(t.Context(), &raw); err != nil {
				t.Fatal(err)
			}
			if n, ok := a.Bytes(); !ok || n != int64(raw.Len()) || !bytes.HasSuffix(npy.Bytes(), raw.Bytes()) {
				t.Errorf("Bytes says %d (%v), WriteElements writes %d", n, ok, raw.Len())
			}
		})
	}
}

func checkValues(t *testing.T, a *Array, want any) {
	t.Helper()
	values, err := a.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := canon(values)
	// Go's decoder has replaced the surrogates of the golden file: so must we.
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var again any
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, expected) {
		t.Errorf("got  %s\nwant %s", text, expected)
	}
	if err := a.WriteNPY(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "text") {
		t.Errorf("WriteNPY of objects: %v", err)
	}
}

// canon marks what JSON lacks as the golden file does.
func canon(v any) any {
	switch v := v.(type) {
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = canon(out[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = canon(v[k])
		}
		return out
	case []byte:
		return map[string]any{"$bytes": hex.EncodeToString(v)}
	case json.Number:
		if v == "NaN" || strings.HasSuffix(string(v), "Infinity") {
			return map[string]any{"$float": string(v)}
		}
	case string:
		if !utf8.ValidString(v) {
			return strings.ToValidUTF8(v, "\ufffd")
		}
	}
	return v
}
