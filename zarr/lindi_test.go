package zarr_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/zarr"
)

// An expectation is what the reference's notes beside a fixture say of an array.
type expectation struct {
	Shape     []int64 `json:"shape"`
	DType     string  `json:"dtype"`
	Chunks    []int64 `json:"chunks"`
	Data      string  `json:"data_sha256"`
	Values    string  `json:"values_sha256"`
	ReadError string  `json:"read_error"`
	Scalar    bool    `json:"scalar"`
	Compound  [][]any `json:"compound_dtype"`
}

const lindiData = "../format/lindi/testdata"

// The placeholder host of the fixtures stands for their folder.
func init() {
	store.Register("https", func(_ context.Context, address string) (store.Store, string, error) {
		name, ok := strings.CutPrefix(address, "https://data.holdall.invalid/")
		if !ok {
			return nil, "", errors.New(address + ": not the fixtures' host")
		}
		return local.New(lindiData), name, nil
	})
}

func TestReadsTheArraysOfLindiArchives(t *testing.T) {
	const dir = lindiData
	notes, err := filepath.Glob(dir + "/p*.expect.json")
	if err != nil || len(notes) < 13 {
		t.Fatalf("%d fixtures, %v", len(notes), err)
	}
	read := 0
	for _, note := range notes {
		raw, err := os.ReadFile(note)
		if err != nil {
			t.Fatal(err)
		}
		var e struct {
			Arrays map[string]expectation `json:"arrays"`
			Links  map[string]struct {
				Resolves string `json:"resolves_to"`
			} `json:"soft_links"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(note), ".expect.json")
		t.Run(name, func(t *testing.T) {
			arc, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: local.New(dir),
				View: "zarr", Formats: []*format.Format{lindi.Format}, External: []string{"any"}})
			if err != nil {
				t.Fatal(err)
			}
			defer arc.Close()
			for path, want := range e.Arrays {
				for _, src := range []zarr.Source{arc, together{arc}} {
					a, err := zarr.Open(t.Context(), src, path)
					if err != nil {
						t.Errorf("%s: %v", path, err)
						continue
					}
					checkArray(t, a, want)
				}
				read++
			}
			for from, to := range e.Links {
				array, ok := e.Arrays[strings.TrimPrefix(to.Resolves, "/")]
				a, err := zarr.Open(t.Context(), arc, from)
				if !ok {
					if !errors.Is(err, zarr.ErrGroup) {
						t.Errorf("%s leads to a group, and opening it gives %v", from, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", from, err)
					continue
				}
				checkArray(t, a, array)
			}
		})
	}
	if read < 61 {
		t.Errorf("only %d arrays", read)
	}
}

// together reads chunks as if they were far away.
type together struct{ *holdall.Archive }

func (together) Batches() bool { return true }

// errOnce is what one chunk of a failing source gives.
var errOnce = errors.New("this one fails")

type failing struct{ together }

func (f failing) GetAll(ctx context.Context, keys []string, limit int64, each func(int, []byte, error) error) error {
	return f.together.GetAll(ctx, keys, limit, func(i int, b []byte, err error) error {
		if i == len(keys)-1 {
			b, err = nil, errOnce
		}
		return each(i, b, err)
	})
}

func TestErrorsOfChunksReadTogetherNameThem(t *testing.T) {
	arc, err := holdall.Open(t.Context(), "p10_codecs.lindi.tar", holdall.OpenOptions{Store: local.New(lindiData), View: "zarr", Formats: []*format.Format{lindi.Format}})
	if err != nil {
		t.Fatal(err)
	}
	defer arc.Close()
	a, err := zarr.Open(t.Context(), failing{together{arc}}, "blosc_zstd")
	if err != nil {
		t.Fatal(err)
	}
	err = a.WriteElements(t.Context(), io.Discard)
	k, ok := errors.AsType[*zarr.KeyError](err)
	if !ok || !strings.HasPrefix(k.Key, "blosc_zstd/") || !errors.Is(err, errOnce) {
		t.Error(err)
	}
}

func checkArray(t *testing.T, a *zarr.Array, want expectation) {
	t.Helper()
	if !slices.Equal(a.Shape, want.Shape) || !slices.Equal(a.Chunks, want.Chunks) || a.DType.Name != want.DType ||
		a.Scalar != want.Scalar || len(a.Compound()) != len(want.Compound) {
		t.Errorf("%s: shape %v, chunks %v, dtype %s", a.Path, a.Shape, a.Chunks, a.DType)
	}
	var got, expected string
	var err error
	if a.DType.Kind == 'O' {
		var values []any
		values, err = a.Values(t.Context())
		got, expected = sum(canonical(values)), want.Values
	} else {
		var b bytes.Buffer
		err = a.WriteElements(t.Context(), &b)
		got, expected = sum(b.Bytes()), want.Data
	}
	if want.ReadError != "" {
		if err == nil {
			t.Errorf("%s: read, where the reference says %s", a.Path, want.ReadError)
		}
		return
	}
	if err != nil || got != expected {
		t.Errorf("%s: %v; sha256 %s, expected %s", a.Path, err, got, expected)
	}
	if err := a.WriteText(t.Context(), io.Discard); err != nil {
		t.Errorf("%s: as text: %v", a.Path, err)
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// canonical is JSON as the notes hash it: names in order, no escapes but those
// that must be.
func canonical(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(marked(v)); err != nil {
		panic(err)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

func marked(v any) any {
	switch v := v.(type) {
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = marked(out[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = marked(v[k])
		}
		return out
	case json.Number:
		if v == "NaN" || strings.HasSuffix(string(v), "Infinity") {
			return map[string]any{"$float": string(v)}
		}
	}
	return v
}
