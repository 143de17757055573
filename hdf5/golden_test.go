package hdf5

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// fixtures are the files that interop/hdf5/fixtures.py has made.
const fixtures = 32

// A described object is what h5py says of one.
type described struct {
	Kind  string `json:"kind"`
	Attrs map[string]struct {
		Shape  []int64 `json:"shape"`
		Values []any   `json:"values"`
		Unread string  `json:"unread"`
	} `json:"attrs"`
	Links    map[string][]string `json:"links"`
	Shape    []int64             `json:"shape"`
	MaxShape []int64             `json:"maxshape"`
	Chunks   []int64             `json:"chunks"`
	Filters  []int               `json:"filters"`
	Stored   any                 `json:"stored"`
	Offset   *int64              `json:"offset"`
	CRC      *uint32             `json:"crc"`
	Values   []any               `json:"values"`
	Unread   string              `json:"unread"`
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(t.Context(), inMemory(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func inMemory(t testing.TB, b []byte) store.Object {
	t.Helper()
	var st storetest.Mem
	st.Put("x.h5", b)
	return storetest.Open(t, &st, "x.h5")
}

func TestReadsWhatTheReferenceReads(t *testing.T) { compareFixtures(t, "testdata") }

// The same files are made anew, of other numbers.
func TestReadsWhatTheReferenceWrites(t *testing.T) {
	testkit.Serial(t)
	python, dir := testkit.Needs(t, "HOLDALL_HDF5_PYTHON"), t.TempDir()
	seed := strconv.FormatUint(testkit.Seed(t), 10)
	if out, err := exec.CommandContext(t.Context(), python, "../interop/hdf5/fixtures.py", dir, seed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compareFixtures(t, dir)
}

func compareFixtures(t *testing.T, dir string) {
	for _, name := range testkit.Names(t, dir, ".h5.gz", fixtures) {
		t.Run(name, func(t *testing.T) {
			var want map[string]described
			testkit.JSON(t, filepath.Join(dir, name+".json"), &want)
			compareFile(t, testkit.Read(t, filepath.Join(dir, name+".h5")), want)
		})
	}
}

func compareFile(t *testing.T, b []byte, want map[string]described) {
	f := openBytes(t, b)
	found, byAddr := map[string]*Object{}, map[int64]*Object{}
	for o, err := range f.Walk(t.Context(), WalkOptions{Values: true}) {
		if err != nil {
			t.Fatal(err)
		}
		found[o.Path], byAddr[o.Addr] = o, o
	}
	for name, d := range want {
		o := found[name]
		if o == nil { // by another link
			at, err := f.Find(t.Context(), name)
			if err != nil {
				t.Error(err)
				continue
			}
			o = byAddr[at.Addr]
		}
		delete(found, o.Path)
		c := comparison{t, f, name}
		c.object(o, d)
	}
	for name := range found {
		t.Errorf("%s is none of the reference's", name)
	}
}

// A comparison is of an object with what the reference says of it.
type comparison struct {
	*testing.T
	f    *File
	name string
}

func (c comparison) wrong(what string, got, want any) {
	c.Helper()
	c.Errorf("%s: %s: %.300s, expected %.300s", c.name, what, fmt.Sprint(got), fmt.Sprint(want))
}

func (c comparison) object(o *Object, d described) {
	if o.Kind.String() != d.Kind {
		c.wrong("kind", o.Kind, d.Kind)
		return
	}
	refused := d.Unread != "" || o.Layout.Class == Virtual || o.Layout.Class == External || checkFilters(o.Filters) != nil
	if o.Err != nil && !refused {
		c.Errorf("%s: %v", c.name, o.Err)
	}
	if len(o.Attributes) != len(d.Attrs) {
		c.wrong("attributes", len(o.Attributes), len(d.Attrs))
	}
	for _, a := range o.Attributes {
		w, ok := d.Attrs[a.Name]
		if a.Err != nil || !ok {
			c.Errorf("%s: attribute %q (%v): %v", c.name, a.Name, ok, a.Err)
			continue
		}
		if a.Space.Null != (w.Shape == nil) || !a.Space.Null && !slices.Equal(a.Space.Dims, w.Shape) {
			c.wrong("shape of "+a.Name, a.Space, w.Shape)
		}
		c.values("attribute "+a.Name, a.Type, a.Values, w.Values)
	}
	switch o.Kind {
	case Group:
		c.links(o, d)
	case Dataset:
		c.dataset(o, d, refused)
	}
}

func (c comparison) links(o *Object, d described) {
	if len(o.Links) != len(d.Links) {
		c.wrong("links", len(o.Links), len(d.Links))
	}
	for _, l := range o.Links {
		got := []string{"hard"}
		switch l.Kind {
		case SoftLink:
			got = []string{"soft", l.Target}
		case ExternalLink:
			got = []string{"external", l.File, l.Target}
		}
		if !slices.Equal(got, d.Links[l.Name]) {
			c.wrong("link "+l.Name, got, d.Links[l.Name])
		}
	}
}

func (c comparison) dataset(o *Object, d described, refused bool) {
	if d.Shape == nil {
		if !o.Space.Null {
			c.wrong("shape", o.Space, "none")
		}
		return
	}
	if !slices.Equal(o.Space.Dims, d.Shape) || !slices.Equal(o.Space.Max, d.MaxShape) {
		c.wrong("shape", o.Space, fmt.Sprint(d.Shape, d.MaxShape))
	}
	if !slices.Equal(o.Layout.Chunk, d.Chunks) {
		c.wrong("chunks", o.Layout.Chunk, d.Chunks)
	}
	ids := []int{}
	for _, x := range o.Filters {
		ids = append(ids, x.ID)
	}
	if !slices.Equal(ids, d.Filters) {
		c.wrong("filters", ids, d.Filters)
	}
	// Without elements h5py gives the byte before the file's own first one.
	if d.Offset != nil && *d.Offset != o.Layout.Addr && (o.Layout.Addr != undefined || *d.Offset != c.f.Base-1) {
		c.wrong("offset", o.Layout.Addr, *d.Offset)
	}
	if d.Chunks != nil {
		c.stored(o, d.Stored)
	}
	if refused {
		if err := o.Readable(); !errors.Is(err, errors.ErrUnsupported) {
			c.wrong("error", err, "unsupported")
		}
		return
	}
	p := make([]byte, o.Bytes())
	if err := o.Read(c.Context(), p, nil, nil); err != nil {
		c.Errorf("%s: %v", c.name, err)
		return
	}
	if d.CRC != nil && crc32.ChecksumIEEE(p) != *d.CRC {
		c.Errorf("%s: other elements: %.60x", c.name, p)
	}
	var all bytes.Buffer
	if err := o.WriteElements(c.Context(), &all); err != nil || !bytes.Equal(all.Bytes(), p) {
		c.Errorf("%s: WriteElements: %d bytes, %v", c.name, all.Len(), err)
	}
	if d.Values != nil {
		n := min(len(d.Values), int(o.Space.Elements()))
		got, err := c.f.Values(c.Context(), o.Type, p[:int64(n)*o.Type.Size])
		if err != nil {
			c.Errorf("%s: %v", c.name, err)
			return
		}
		c.values("elements", o.Type, got, d.Values)
	}
}

// stored compares where chunks are.
func (c comparison) stored(o *Object, want any) {
	var got []any
	for x, err := range o.Chunks(c.Context()) {
		if err != nil {
			c.Errorf("%s: %v", c.name, err)
			return
		}
		at := []any{}
		for _, v := range x.Offset {
			at = append(at, float64(v))
		}
		got = append(got, []any{at, float64(x.Addr), float64(x.Size), float64(x.Mask)})
	}
	if n, ok := want.(float64); ok {
		if len(got) != int(n) {
			c.wrong("chunks", len(got), n)
		}
		return
	}
	order := func(all []any) {
		slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	all := want.([]any)
	order(got)
	order(all)
	if fmt.Sprint(got) != fmt.Sprint(all) {
		c.wrong("stored", got, all)
	}
}

func (c comparison) values(what string, t *Datatype, got, want []any) {
	c.Helper()
	if len(got) != len(want) {
		c.wrong("number of "+what, len(got), len(want))
		return
	}
	for i := range got {
		g := c.canonical(t, got[i])
		w := c.canonicalWant(want[i])
		if !reflect.DeepEqual(g, w) {
			c.wrong(fmt.Sprintf("%s %d (%v)", what, i, t), g, w)
			return
		}
	}
}

// canonical makes of a value what the golden file has for it.
func (c comparison) canonical(t *Datatype, v any) any {
	switch v := v.(type) {
	case int64:
		if t.Bool() && v != 0 { // NumPy knows no others
			return 1.0
		} else if t.Bool() {
			return 0.0
		}
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return map[string]any{"f": floatText(v)}
	case string:
		var runes []rune
		for i := range len(v) {
			runes = append(runes, rune(v[i]))
		}
		return map[string]any{"s": string(runes)}
	case []byte:
		return map[string]any{"b": hex.EncodeToString(v)}
	case Ref:
		if v == 0 {
			return map[string]any{"ref": nil}
		}
		return map[string]any{"ref": int64(v)}
	case RegionValue:
		return map[string]any{"region": v.Object != 0}
	case []any:
		out := []any{}
		for i, x := range v {
			inner := t.Base
			if t.Class == Compound {
				inner = t.Fields[i].Type
			}
			out = append(out, c.canonical(inner, x))
		}
		return out
	}
	return fmt.Sprintf("%T", v)
}

func floatText(v float64) string {
	if math.IsNaN(v) {
		return "nan"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// canonicalWant makes floats look alike, and paths of references addresses.
func (c comparison) canonicalWant(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["f"].(string); ok {
			x, err := strconv.ParseFloat(s, 64)
			if err != nil {
				c.Fatal(err)
			}
			return map[string]any{"f": floatText(x)}
		}
		if s, ok := v["ref"].(string); ok {
			o, err := c.f.Find(c.Context(), s)
			if err != nil {
				c.Fatal(err)
			}
			return map[string]any{"ref": o.Addr}
		}
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, c.canonicalWant(x))
		}
		return out
	}
	return v
}
