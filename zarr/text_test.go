package zarr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

// uncompressed is a hierarchy of one array in one chunk.
func uncompressed(dtype, shape string, chunk []byte) keyed {
	return keyed{
		".zarray": fmt.Appendf(nil, `{"zarr_format":2,"shape":%s,"chunks":%s,"dtype":%s,"order":"C","compressor":null,"filters":null,"fill_value":null}`, shape, shape, dtype),
		"0" + strings.Repeat(".0", strings.Count(shape, ",")): chunk,
	}
}

func textOf(t *testing.T, src Source) string {
	t.Helper()
	a, err := Open(t.Context(), src, "")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.WriteText(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// inText gives the text of one golden array.
func inText(t *testing.T, name string) string {
	t.Helper()
	g, ok := goldens(t)[name]
	if !ok {
		t.Fatalf("no golden array %q", name)
	}
	return textOf(t, g.Keys)
}

func TestTextOfShapes(t *testing.T) {
	for name, want := range map[string]string{
		"0-d":                     "3.5\n",
		"empty":                   "",
		"chunk larger than shape": "0\n1\n2\n3\n4\n5\n",
		"json2 missing":           "\"alpha\"\n\"\"\n\"none\"\n\"none\"\n\"\\\"quoted\\\"\"\n",
		"vlen-utf8":               "alpha\n\né中\U0001f600\n\"tab\\there\"\n\"\\\"quoted\\\"\"\n",
		"vlen-bytes":              "a\n{\"base64\":\"/wA=\"}\n\n",
		"json2 grid C":            "1\t-2.5\tnull\ntrue\tNaN\t-Infinity\n0\t0\t\"x\"\n",
		"json2 words":             "\"alpha\"\n\"\"\n\"é中\U0001f600\"\n\"tab\\there\"\n\"\\\"quoted\\\"\"\n\"\\ud800 lone\"\n\"c\\u0085\\u0000\"\n",
	} {
		if got := inText(t, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	got := inText(t, "4-d C")
	if !strings.HasPrefix(got, "0\t1\n2\t3\n4\t5\n\n6\t7\n") || strings.Count(got, "\n\n") != 19 || strings.Count(got, "\n") != 60+19 {
		t.Errorf("4-d: %q", got)
	}
}

func TestTextOfStructuredElements(t *testing.T) {
	line, _, _ := strings.Cut(inText(t, "structured"), "\n")
	if want := `[0,0,"xy",[[7,7,7],[7,7,7]],[3,"1970-01-01T00:00:00"]]`; line != want {
		t.Errorf("got %s, want %s", line, want)
	}
}

func TestTextOfTimes(t *testing.T) {
	for _, c := range []struct {
		v    int64
		kind byte
		unit string
		want string
	}{
		{0, 'M', "ns", "1970-01-01T00:00:00.000000000"},
		{-1, 'M', "ms", "1969-12-31T23:59:59.999"},
		{951782400, 'M', "s", "2000-02-29T00:00:00"},
		{-62135596801, 'M', "s", "0000-12-31T23:59:59"},
		{-62167219201, 'M', "s", "-0001-12-31T23:59:59"},
		{19849, 'M', "D", "2024-05-06"},
		{1, 'M', "W", "1970-01-08"},
		{-1, 'M', "M", "1969-12"},
		{30, 'M', "Y", "2000"},
		{5, 'M', "h", "1970-01-01T05"},
		{2, 'M', "25m", "1970-01-01T00:50"},
		{1, 'M', "as", "1970-01-01T00:00:00.000000000000000001"},
		{math.MaxInt64, 'M', "D", "9223372036854775807*D"},
		{math.MaxInt64, 'M', "25s", "9223372036854775807*25s"},
		{math.MaxInt64, 'M', "s", "292277026596-12-04T15:30:07"},
		{math.MinInt64, 'M', "s", "NaT"},
		{7, 'M', "", "7"},
		{3, 'm', "25s", "75s"},
		{-3, 'm', "D", "-3D"},
		{math.MinInt64, 'm', "D", "NaT"},
	} {
		if got := string(appendTime(nil, c.v, c.kind, c.unit)); got != c.want {
			t.Errorf("%d %c8[%s]: got %s, want %s", c.v, c.kind, c.unit, got, c.want)
		}
	}
}

func TestTextOfFloatsReadsBackTheSame(t *testing.T) {
	for h := range 1 << 16 {
		v := fromHalf(uint16(h))
		text := string(appendFloat(nil, uint64(h), 2))
		back, err := strconv.ParseFloat(text, 64)
		if err != nil || !math.IsNaN(v) && toHalf(back) != uint16(h) {
			t.Fatalf("half %#x is %v, written %s, read %v (%v)", h, v, text, back, err)
		}
		if len(text) > 12 {
			t.Errorf("half %#x is written %s", h, text)
		}
	}
	for v, want := range map[float64]string{0.1: "0.1", 1e21: "1e+21", 1e20: "100000000000000000000", 1e-7: "1e-07", 3: "3", math.Copysign(0, -1): "-0"} {
		if got := string(appendFloat(nil, math.Float64bits(v), 8)); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := string(appendFloat(nil, uint64(math.Float32bits(0.1)), 4)); got != "0.1" {
		t.Errorf("float32 0.1 is %s", got)
	}
}

func TestTextOfComplexNumbersAndRawBytes(t *testing.T) {
	chunk := make([]byte, 0, 16)
	for _, v := range []float32{1, -2.5, float32(math.NaN()), 3} {
		bits := math.Float32bits(v)
		chunk = append(chunk, byte(bits>>24), byte(bits>>16), byte(bits>>8), byte(bits))
	}
	if got := textOf(t, uncompressed(`">c8"`, "[2]", chunk)); got != "1-2.5j\nNaN+3j\n" {
		t.Errorf("got %q", got)
	}
	if got := textOf(t, uncompressed(`"|V2"`, "[2]", []byte{1, 2, 0xfe, 0xff})); got != "0102\nfeff\n" {
		t.Errorf("got %q", got)
	}
	if got := textOf(t, uncompressed(`[["z","<c8"],["v","|V1"]]`, "[1]", make([]byte, 9))); got != "[[0,0],\"00\"]\n" {
		t.Errorf("got %q", got)
	}
}

func TestTextOfByteStringsThatAreNoText(t *testing.T) {
	if got := textOf(t, uncompressed(`"|S2"`, "[3]", []byte("a\x00\xff\xfe\x1b["))); got != "a\n{\"base64\":\"//4=\"}\n\"\\u001b[\"\n" {
		t.Errorf("got %q", got)
	}
	// U+FFFD itself is text like any other.
	if got := string(appendCell(nil, "\ufffd ok")); got != "\ufffd ok" {
		t.Errorf("got %q", got)
	}
}

func TestCharacterBeyondUnicodeIsAnErrorInText(t *testing.T) {
	a, err := Open(t.Context(), uncompressed(`"<U1"`, "[1]", []byte{0, 0, 0x11, 0}), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteText(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "element 0: expected a character, found 0x110000") {
		t.Error(err)
	}
}

func TestWrittenJSONReadsBackTheSame(t *testing.T) {
	for _, text := range []string{`{"a":[1,null,true,"x\u0000\u009b\"\\"],"é":{}}`, `"\ud800"`, `"\udc00\ud800a"`, `[[],[[]]]`, `-0.5e-3`, `NaN`, `[-Infinity,Infinity]`} {
		room := int64(1 << 20)
		v, err := parseJSON([]byte(text), &room)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out := appendJSON(nil, v)
		again, err := parseJSON(out, &room)
		if err != nil || string(appendJSON(nil, again)) != string(out) {
			t.Errorf("%s became %s: %v", text, out, err)
		}
	}
	var std any
	if err := json.Unmarshal(appendJSON(nil, map[string]any{"b": "\x7f", "a": json.Number("1")}), &std); err != nil {
		t.Error(err)
	}
}

func TestValuesOfStrings(t *testing.T) {
	for _, tt := range []struct {
		dtype, chunk, want string
	}{
		{`"|S3"`, "ab\x00\xff\x00\x00", `["ab",{"base64":"/w=="}]`},
		{`"<U1"`, "\xe9\x00\x00\x00\x00\x00\x00\x00", `["é",""]`},
		{`"|S0"`, "", `["",""]`},
	} {
		a, err := Open(t.Context(), uncompressed(tt.dtype, "[2]", []byte(tt.chunk)), "")
		if err != nil {
			t.Fatal(err)
		}
		v, err := a.Values(t.Context())
		if got := string(appendJSON(nil, v)); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v, expected %s", tt.dtype, got, err, tt.want)
		}
	}
	for dtype, chunk := range map[string]string{`"<U1"`: "\xff\xff\xff\xff\x00\x00\x00\x00", `"<i4"`: "12345678"} {
		a, err := Open(t.Context(), uncompressed(dtype, "[2]", []byte(chunk)), "")
		if err != nil {
			t.Fatal(err)
		}
		if v, err := a.Values(t.Context()); err == nil {
			t.Errorf("%s: %v", dtype, v)
		}
	}
}
