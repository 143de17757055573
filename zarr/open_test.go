package zarr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/holdall/holdall/internal/testkit"
)

const oneByte = `{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"|u1","order":"C","compressor":null,"filters":null,"fill_value":9}`

func softLink(target string) []byte { return fmt.Appendf(nil, `{"_SOFT_LINK":{"path":%q}}`, target) }

// tree is a hierarchy with links in it.
func tree() keyed {
	return keyed{
		".zgroup":         []byte(`{"zarr_format":2}`),
		"g/.zgroup":       []byte(`{"zarr_format":2}`),
		"g/a/.zarray":     []byte(oneByte),
		"g/a/0":           {1, 2},
		"abs/.zgroup":     []byte(`{"zarr_format":2}`),
		"abs/.zattrs":     softLink("/g/a"),
		"togroup/.zattrs": softLink("/g"),
		"g/rel/.zattrs":   softLink("a"),
		"g/up/.zattrs":    softLink("../abs"),
		"loop/.zattrs":    softLink("/loop2"),
		"loop2/.zattrs":   softLink("loop"),
		"self/.zattrs":    softLink("/self/x"),
		"gone/.zattrs":    softLink("/nowhere"),
		"odd/.zattrs":     []byte(`{"_SOFT_LINK":["x"]}`),
		"three/zarr.json": []byte(`{"zarr_format":3}`),
		"four/zarr.json":  []byte(`{"zarr_format":4}`),
		"five/zarr.json":  []byte(`{"zarr_format":3,"node_type":"group","attributes":{}}`),
	}
}

func TestOpenFollowsSoftLinks(t *testing.T) {
	for _, name := range []string{"g/a", "/g/a/", "abs", "togroup/a", "togroup/rel", "g/rel", "g/up", "x/../abs"} {
		a, err := Open(t.Context(), tree(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b bytes.Buffer
		if err := a.WriteElements(t.Context(), &b); err != nil || a.Path != "g/a" || b.String() != "\x01\x02\x09\x09" {
			t.Errorf("%s: at %s, %q, %v", name, a.Path, b.Bytes(), err)
		}
	}
}

func TestAttributes(t *testing.T) {
	src := tree()
	src["g/.zattrs"] = []byte(`{"a":[1,NaN]}`)
	src["bad/.zattrs"] = []byte(`[]`)
	src["six/zarr.json"] = []byte(`{"zarr_format":3,"node_type":"group","attributes":{"b":"x"}}`)
	for at, want := range map[string]string{"": "{}", "g": `{"a":[1,NaN]}`, "/g/": `{"a":[1,NaN]}`, "g/rel": `{"_SOFT_LINK":{"path":"a"}}`, "five": "{}", "six": `{"b":"x"}`, "none": "{}"} {
		attrs, err := Attributes(t.Context(), src, at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
		} else if got := string(appendJSON(nil, attrs)); got != want {
			t.Errorf("%s: %s, expected %s", at, got, want)
		}
	}
	for _, at := range []string{"bad", "three"} {
		if _, err := Attributes(t.Context(), src, at); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestOpenSaysWhatIsNoArray(t *testing.T) {
	for name, want := range map[string]error{
		"": ErrGroup, "g": ErrGroup, "togroup": ErrGroup, "gone": fs.ErrNotExist, "g/b": fs.ErrNotExist, "g/a/b": fs.ErrNotExist,
		"loop": ErrCorrupt, "self": ErrCorrupt, "odd": ErrCorrupt, "three": ErrCorrupt, "four": errors.ErrUnsupported, "five": ErrGroup,
	} {
		if _, err := Open(t.Context(), tree(), name); !errors.Is(err, want) {
			t.Errorf("%q: %v, expected %v", name, err, want)
		}
	}
}

func TestMarksOfLindi(t *testing.T) {
	k := keyed{".zarray": []byte(strings.Replace(oneByte, "[4]", "[1]", 1)), "0": {5, 6}, ".zattrs": []byte(`{"_SCALAR":true,"unit":NaN}`)}
	a, err := Open(t.Context(), k, "")
	if err != nil || !a.Scalar {
		t.Fatal(a, err)
	}
	var b bytes.Buffer
	if err := a.WriteNPY(t.Context(), &b); err != nil || !strings.Contains(b.String(), "'shape': (), }") || !strings.HasSuffix(b.String(), "\n\x05") {
		t.Errorf("%q, %v", b.Bytes(), err)
	}
	k[".zarray"] = []byte(oneByte)
	if _, err := Open(t.Context(), k, ""); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a scalar of four: %v", err)
	}
	delete(k, "0")
	k[".zattrs"] = []byte(`{"_EXTERNAL_ARRAY_LINK":{"link_type":"hdf5_dataset","url":"https://a.example/f.h5","name":"x/y"},"_COMPOUND_DTYPE":[["a","int32"],["r","<REFERENCE>"]]}`)
	if a, err = Open(t.Context(), k, ""); err != nil || *a.External != (External{"https://a.example/f.h5", "x/y"}) {
		t.Fatal(a, err)
	}
	if c := a.Compound(); len(c) != 2 || c[1] != (CompoundField{"r", "<REFERENCE>"}) {
		t.Error(c)
	}
	b.Reset()
	err = a.WriteNPY(t.Context(), &b)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), `"x/y" in the HDF5 file "https://a.example/f.h5"`) || b.Len() > 0 {
		t.Error(err, b.Len())
	}

	a, err = Open(t.Context(), unwritten{k}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteElements(t.Context(), &b); err != nil || b.String() != "\t\t\t\t" {
		t.Errorf("of a chunk that was never written: %q, %v", b.Bytes(), err)
	}
}

// unwritten has the keys of arrays whose elements lie elsewhere, too.
type unwritten struct{ keyed }

func (f unwritten) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	v, err := f.keyed.Get(ctx, key, limit)
	if err != nil && key[0] != '.' {
		err = ErrUnwritten
	}
	return v, err
}

func (f unwritten) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if _, err := f.Get(ctx, key, maxSize); err != nil {
		return nil, err
	}
	return f.keyed.GetRange(ctx, key, off, n)
}

func TestFoldersAreSources(t *testing.T) {
	fsys := fstest.MapFS{}
	for key, v := range tree() {
		fsys[key] = &fstest.MapFile{Data: v}
	}
	a, err := Open(t.Context(), Files(fsys), "togroup/a")
	if err != nil {
		t.Fatal(err)
	}
	if got := new(bytes.Buffer); a.WriteText(t.Context(), got) != nil || got.String() != "1\n2\n9\n9\n" {
		t.Errorf("%q", got)
	}
	src := Files(fsys)
	if _, err := src.Get(t.Context(), "g/a/0", 1); !errors.Is(err, ErrLimit) {
		t.Errorf("a value over the limit: %v", err)
	}
	for _, key := range []string{"g", "../x", "", "nothing"} {
		if _, err := src.Get(t.Context(), key, 9); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", key, err)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := src.Get(canceled, "g/a/0", 9); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestChunkThatIsNotWholeIsAnError(t *testing.T) {
	k := tree()
	for stored, want := range map[string]string{
		"\x01":         "\x01\x00\x09\x09", // short: LINDI's contiguous data
		"":             "g/a/0: expected a chunk of 2 bytes, found 0",
		"\x01\x02\x03": "g/a/0: ",
	} {
		k["g/a/0"] = []byte(stored)
		a, err := Open(t.Context(), k, "g/a")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		err = a.WriteElements(t.Context(), &b)
		if err == nil && b.String() != want || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %q, %v", stored, b.Bytes(), err)
		}
	}
	// Bools and strings are never filled up, nor is what a codec gave.
	for _, meta := range []string{
		strings.ReplaceAll(strings.ReplaceAll(oneByte, "|u1", "|b1"), "9", "false"),
		strings.ReplaceAll(oneByte, `"compressor":null`, `"compressor":{"id":"bitround"}`),
	} {
		a, err := Open(t.Context(), keyed{".zarray": []byte(meta), "0": {1}}, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.WriteElements(t.Context(), io.Discard); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", meta, err)
		}
	}
}

// Every byte of every golden chunk matters: whatever is cut off is an error, or
// data that are still right, as behind the end of a compressed stream.
func TestTruncatedChunksGiveNoWrongData(t *testing.T) {
	for name, g := range goldens(t) {
		if !strings.HasPrefix(name, "compressor") && !strings.HasPrefix(name, "filters") && !strings.HasPrefix(name, "noise") {
			continue
		}
		key := "0.0"
		if _, ok := g.Keys[key]; !ok {
			key = "0"
		}
		whole := textOf(t, g.Keys)
		for _, cut := range []int{0, 1, 2, len(g.Keys[key]) / 2, len(g.Keys[key]) - 5, len(g.Keys[key]) - 1} {
			k := maps.Clone(g.Keys)
			k[key] = k[key][:cut]
			a, err := Open(t.Context(), k, "")
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := a.WriteText(t.Context(), &b); err == nil && b.String() != whole {
				t.Errorf("%s: %d of %d bytes give other data and no error", name, cut, len(g.Keys[key]))
			} else if ke := (*KeyError)(nil); err != nil && (!errors.As(err, &ke) || ke.Key != key || !errors.Is(err, ErrCorrupt)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestUnknownCodecsAreNamed(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"compressor":null`, `"compressor":{"id":"zfpy"}`, `/: codec "zfpy" is not supported`},
		{`"filters":null`, `"filters":[{"id":"categorize"}]`, `/: codec "categorize" is not supported`},
		{`"filters":null`, `"filters":[{"id":"delta","dtype":"<c8"}]`, `/: codec "delta": dtype <c8 is not supported`},
		{`"|u1"`, `"|O"`, "/: object array without a filter that defines its objects"},
		{`"|u1"`, `"<f16"`, "/: dtype <f16 is not supported"},
	} {
		a, err := Open(t.Context(), keyed{".zarray": []byte(strings.Replace(oneByte, c.from, c.to, 1))}, "")
		if err != nil {
			t.Errorf("%s: opening, which needs no elements: %v", c.to, err)
			continue
		}
		if err := a.WriteText(t.Context(), io.Discard); !errors.Is(err, errors.ErrUnsupported) || err.Error() != c.want {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	pickled := strings.NewReplacer(`"|u1"`, `"|O"`, `"filters":null`, `"filters":[{"id":"pickle"}]`).Replace(oneByte)
	a, err := Open(t.Context(), keyed{".zarray": []byte(pickled)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if ce := (*CodecError)(nil); !errors.As(a.WriteText(t.Context(), io.Discard), &ce) || ce.Codec != "pickle" || ce.Path != "/" {
		t.Error(ce)
	}
}

// A source that fails once, and counts what it is asked.
type failing struct {
	Source
	at    int64
	calls atomic.Int64
}

var errFault = errors.New("fault")

func (f *failing) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	if f.calls.Add(1) == f.at {
		return nil, errFault
	}
	return f.Source.Get(ctx, key, limit)
}

func TestFirstFailureStopsReading(t *testing.T) {
	src := &failing{Source: goldens(t)["many chunks"].Keys, at: 20}
	a, err := Open(t.Context(), src, "")
	if err != nil {
		t.Fatal(err)
	}
	err = a.WriteElements(t.Context(), io.Discard)
	if ke := (*KeyError)(nil); !errors.Is(err, errFault) || !errors.As(err, &ke) || ke.Key == "" {
		t.Error(err)
	}
	if n := src.calls.Load(); n > 100 {
		t.Errorf("%d calls", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.WriteElements(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := a.WriteNPY(t.Context(), brokenWriter{}); !errors.Is(err, errFault) {
		t.Error(err)
	}
	if err := a.WriteText(t.Context(), brokenWriter{}); !errors.Is(err, errFault) {
		t.Error(err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errFault }

// A few bytes that claim a gigabyte must not have it made.
func TestClaimsOfObjectsMakeNoMemory(t *testing.T) {
	const gig = 1 << 30
	var err error
	n := testkit.Allocated(func() {
		room := int64(gig)
		_, err = decodeVlenUTF8([]byte{0, 0, 0, 0x40, 0}, []int64{gig}, &room)
	})
	if err == nil || n > 4<<20 {
		t.Errorf("%v, having made %d bytes", err, n)
	}
}
