package zarr

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func TestMetaInWords(t *testing.T) {
	m, err := ParseMeta([]byte(`{"zarr_format":2,"shape":[10,7],"chunks":[4,3],"dtype":">f4","order":"F","dimension_separator":"/","fill_value":NaN,
		"filters":[{"id":"shuffle","elementsize":4},{"id":"zlib","level":1}],"compressor":{"id":"blosc","cname":"lz4","shuffle":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	n, ok := m.Bytes()
	if m.Codecs() != "shuffle + zlib + blosc(lz4,bitshuffle)" || m.NumChunks() != 9 || !slices.Equal(m.Grid(), []int64{3, 3}) ||
		m.Elements() != 70 || n != 280 || !ok || m.ChunkKey(1, 2) != "1/2" || m.Order != 'F' || m.DType.String() != ">f4" || m.DType.Kind != 'f' {
		t.Errorf("%s %+v", m.Codecs(), m)
	}
	m, err = ParseMeta([]byte(oneByte))
	if err != nil || m.Codecs() != "none" || m.ChunkKey(3) != "3" {
		t.Error(m, err)
	}
}

// replaced puts something else for the value of a name of oneByte.
func replaced(name, value string) string {
	out := []string{}
	for _, p := range strings.SplitAfter(strings.Trim(oneByte, "{}"), ",") {
		if strings.HasPrefix(p, `"`+name+`":`) {
			p = `"` + name + `":` + value + ","
		}
		out = append(out, p)
	}
	return "{" + strings.TrimSuffix(strings.Join(out, ""), ",") + "}"
}

func TestHostileMetaIsRefused(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"shape", "[-1]", "shape: axis 0: expected a length, found -1"},
		{"shape", "[1.5]", "shape: axis 0: expected a length, found 1.5"},
		{"shape", "4", "shape: expected a list of lengths, found 4"},
		{"shape", "[1,2]", "chunks: expected 2 lengths like shape, found 1"},
		{"shape", "[99999999999999999999]", "shape: axis 0: expected a length, found 99999999999999999999"},
		{"shape", "[" + strings.Repeat("1,", 64) + "1]", "shape: expected at most 64 axes, found 65"},
		{"chunks", "[0]", "chunks: expected a length above 0 for axis 0, found 0"},
		{"dtype", "7", "dtype: expected a string or a list, found 7"},
		{"dtype", "[]", "dtype: a structured type without fields"},
		{"dtype", `["a"]`, `dtype: field 0: expected [name, type] or [name, type, shape], found "a"`},
		{"dtype", `[[1,"<i4"]]`, "dtype: field 0: expected a name, found 1"},
		{"dtype", `[["a","|S900000000"],["b","|S900000000"]]`, "dtype: its elements are larger than 1073741824 bytes"},
		{"dtype", `[["a","<i4",[4000000000,4000000000]]]`, `dtype: field "a": its shape [4000000000 4000000000] is too large`},
		{"dtype", `[["a","<i4",-2]]`, `dtype: field "a": expected a list of lengths, found -2`},
		{"dtype", strings.Repeat(`[["a",`, 30) + `"<i4"` + strings.Repeat("]]", 30), "dtype: structured types are nested more than 20 deep"},
		{"order", `"A"`, `order: expected "C" or "F", found "A"`},
		{"zarr_format", "3", "zarr_format 3 is not supported, only 2"},
		{"zarr_format", "null", "zarr_format: expected 2, found null"},
		{"compressor", `"zlib"`, `compressor: expected an object with an id, found "zlib"`},
		{"compressor", `{}`, `compressor: expected an object with an id, found {}`},
		{"filters", `{}`, `filters: expected a list or null, found {}`},
		{"filters", `[null]`, `filters: number 0: expected an object with an id, found null`},
		{"filters", "[" + strings.Repeat(`{"id":"zlib"},`, 32) + `{"id":"zlib"}]`, "filters: expected at most 32, found 33"},
	} {
		_, err := ParseMeta([]byte(replaced(c.name, c.value)))
		if err == nil || err.Error() != c.want || kindOf(err) == nil {
			t.Errorf("%s %.60s: %v", c.name, c.value, err)
		}
	}
	for _, text := range []string{"", "[]", "{", `{"a":1,}`, oneByte + "x", strings.Repeat("[", 1000), "\xff", `{"a":"` + "\n" + `"}`, `{"a":01}`, `"\u12"`} {
		if _, err := ParseMeta([]byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	big := strings.NewReplacer("[4]", "[4000000000,4000000000]", "[2]", "[1,1]").Replace(oneByte)
	if _, err := ParseMeta([]byte(big)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more than can be counted: %v", err)
	}
}

func TestFillValueOfAnotherTypeIsAnError(t *testing.T) {
	for _, c := range []struct{ dtype, fill string }{
		{"|u1", "256"}, {"|u1", "-1"}, {"<i4", "1.5"}, {"<i4", `"NaN"`}, {"<f4", `"x"`}, {"|b1", "2"}, {"|S2", `"YWJj"`}, {"|S2", `"?"`},
		{"|V2", `"YQ=="`}, {"<U1", `"ab"`}, {"<c8", "[1]"}, {"<M8[s]", "true"}, {"<i8", "9223372036854775808"},
	} {
		meta := strings.NewReplacer("|u1", c.dtype, `"fill_value":9`, `"fill_value":`+c.fill).Replace(oneByte)
		a, err := Open(t.Context(), keyed{".zarray": []byte(meta)}, "")
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if err := a.WriteElements(t.Context(), io.Discard); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "fill_value") {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestMissingFillValueIsZero(t *testing.T) {
	for _, dtype := range []string{"<f8", "|b1", "|S3", "<U2", "|V3", "<c16", "<M8[s]"} {
		meta := strings.NewReplacer("|u1", dtype, `"fill_value":9`, `"fill_value":null`).Replace(oneByte)
		a, err := Open(t.Context(), keyed{".zarray": []byte(meta)}, "")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := a.WriteElements(t.Context(), &b); err != nil || !bytes.Equal(b.Bytes(), make([]byte, 4*a.DType.Size)) {
			t.Errorf("%s: %x, %v", dtype, b.Bytes(), err)
		}
	}
}

func TestWhatIsOverTheLimitIsRefusedUnmade(t *testing.T) {
	for name, meta := range map[string]string{
		"one chunk":     strings.NewReplacer("[4]", "[2000000000]", "[2]", "[2000000000]").Replace(oneByte),
		"chunk too far": strings.NewReplacer("[2]", "[4611686018427387904]", "|u1", "<f8").Replace(oneByte),
		"a row":         strings.NewReplacer("[4]", "[10,2000000000]", "[2]", "[1,1000]").Replace(oneByte),
		"a wide row":    strings.NewReplacer("[4]", "[1,4000000000000000000]", "[2]", "[1,1]").Replace(oneByte),
		"an element":    strings.NewReplacer("|u1", "|V1000000000", ":9", ":0").Replace(oneByte),
		"objects":       strings.NewReplacer("[4]", "[2000000000]", "[2]", "[2000000000]", "|u1", "|O", `"filters":null`, `"filters":[{"id":"json2"}]`).Replace(oneByte),
	} {
		a, err := Open(t.Context(), keyed{".zarray": []byte(meta)}, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := testkit.Allocated(func() { err = a.WriteText(t.Context(), io.Discard) }); !errors.Is(err, ErrLimit) || n > 1<<20 {
			t.Errorf("%s: %v, having made %d bytes", name, err, n)
		}
	}
}

// A huge array of which nothing is there is given in pieces, not at once.
func TestSparseArrayIsStreamed(t *testing.T) {
	meta := strings.NewReplacer("[4]", "[1000000000000000000]", "[2]", "[1000000]").Replace(oneByte)
	a, err := Open(t.Context(), keyed{".zarray": []byte(meta)}, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &fullAfter{left: 64 << 20}
	if n := testkit.Allocated(func() { err = a.WriteElements(t.Context(), w) }); !errors.Is(err, errFault) || n > 40<<20 {
		t.Errorf("%v, having made %d bytes", err, n)
	}
	if w.wrong {
		t.Error("something other than the fill value")
	}
}

type fullAfter struct {
	left  int
	wrong bool
}

func (f *fullAfter) Write(p []byte) (int, error) {
	if bytes.Count(p, []byte{9}) != len(p) {
		f.wrong = true
	}
	if f.left -= len(p); f.left < 0 {
		return 0, errFault
	}
	return len(p), nil
}

func TestObjectsAreCountedAgainstTheLimit(t *testing.T) {
	for _, text := range []string{"[" + strings.Repeat("[],", 100000) + `"|O",[100000]]`, "[" + strings.Repeat("{},", 100000) + `"|O",[100000]]`} {
		room := int64(1 << 20)
		var err error
		if n := testkit.Allocated(func() { _, err = decodeJSON2([]byte(text), []int64{100000}, &room) }); !errors.Is(err, ErrLimit) || n > 2<<20 {
			t.Errorf("%v, having made %d bytes", err, n)
		}
	}
	g := goldens(t)["json2 words"]
	a, err := Open(t.Context(), g.Keys, "")
	if err != nil {
		t.Fatal(err)
	}
	a.Limit = 700
	if _, err := a.Values(t.Context()); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
}
