package explore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format/hdf5"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// refs are the keys of a hierarchy with their values, in LINDI's JSON form.
type refs map[string]any

func (r refs) group(at string, attrs map[string]any) {
	r[strings.TrimPrefix(at+"/.zgroup", "/")] = map[string]any{"zarr_format": 2}
	if attrs != nil {
		r[strings.TrimPrefix(at+"/.zattrs", "/")] = attrs
	}
}

func (r refs) meta(at, dtype string, shape, chunks []int64, attrs map[string]any) {
	var filters any
	if dtype == "|O" {
		filters = []any{map[string]any{"id": "json2"}}
	}
	r[at+"/.zarray"] = map[string]any{"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "order": "C", "fill_value": 0, "filters": filters, "compressor": nil}
	if attrs != nil {
		r[at+"/.zattrs"] = attrs
	}
}

// numbers adds an array of numbers, in chunks of the given length.
func numbers[T any](r refs, at, dtype string, chunk int, attrs map[string]any, values ...T) {
	r.meta(at, dtype, []int64{int64(len(values))}, []int64{int64(chunk)}, attrs)
	for i := 0; i*chunk < len(values); i++ {
		part := slices.Clone(values[i*chunk : min((i+1)*chunk, len(values))])
		for len(part) < chunk {
			part = append(part, *new(T))
		}
		b, err := binary.Append(nil, binary.LittleEndian, part)
		if err != nil {
			panic(err)
		}
		r[fmt.Sprintf("%s/%d", at, i)] = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
}

// objects adds an array of JSON values.
func objects(r refs, at string, attrs map[string]any, values ...any) {
	r.meta(at, "|O", []int64{int64(len(values))}, []int64{int64(len(values))}, attrs)
	text, err := json.Marshal(append(values, "|O", []int{len(values)}))
	if err != nil {
		panic(err)
	}
	r[at+"/0"] = string(text)
}

func (r refs) serve(t testing.TB) *site {
	t.Helper()
	text, err := json.Marshal(map[string]any{"generationMetadata": map[string]any{}, "refs": r})
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Mem{}
	m.Put("x.lindi.json", text)
	return serving(t, opened(m, "x.lindi.json", lindi.Format))
}

type cell struct {
	T, R, F string
	L       []cell
	N       *int64
}

// String formats lists with their elements, and faults in braces.
func (c cell) String() string {
	switch {
	case c.F != "":
		return "{" + c.F + "}"
	case c.N != nil:
		s := ""
		for i, x := range c.L {
			if i > 0 {
				s += " "
			}
			s += x.String()
		}
		if int64(len(c.L)) < *c.N {
			s += fmt.Sprintf(" of %d", *c.N)
		}
		return "[" + s + "]"
	case c.R != "":
		return "->" + c.R
	}
	return c.T
}

type tableAnswer struct {
	Type, Description, Fault string
	Rows                     int64
	More                     int
	Columns                  []struct {
		Name, Description, Unit, Table, Fault string
		Number                                bool
		Nested                                int
		Fields                                []string
	}
	IDs   []cell
	Cells [][]cell
}

func (a tableAnswer) column(name string) string {
	for i, c := range a.Columns {
		if c.Name == name {
			s := []string{}
			for _, x := range a.Cells[i] {
				s = append(s, x.String())
			}
			return strings.Join(s, "; ")
		}
	}
	return "no such column"
}

func (s *site) tableOf(path string, more ...string) tableAnswer {
	s.t.Helper()
	return ask[tableAnswer](s, "/api/table", append([]string{"a", "x", "view", "zarr", "path", path}, more...)...)
}

func index(r refs, at string, values ...int64) {
	numbers(r, at, "<i8", 4, map[string]any{"neurodata_type": "VectorIndex"}, values...)
}

func TestATableIsToldByRows(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.group("t", map[string]any{"neurodata_type": "DynamicTable", "description": "all kinds", "colnames": []string{"word", "n", "f", "ok", "to", "made", "row", "list", "lists", "pair", "wide", "gone", "a/b", "short"}})
	numbers(r, "t/id", "<i8", 3, nil, 10, 11, 12, 13, int64(math.MaxInt64))
	objects(r, "t/word", map[string]any{"description": "what was said"}, "one", "<b>two</b>", "", "ünï", strings.Repeat("long ", 200))
	numbers(r, "t/n", "<u8", 2, nil, uint64(math.MaxUint64), 1, 2, 3, 4)
	numbers(r, "t/f", "<f8", 5, map[string]any{"unit": "volts"}, 0.1, math.NaN(), math.Inf(-1), 1e300, -0.5)
	numbers(r, "t/ok", "|b1", 5, nil, true, false, true, true, false)
	ref := func(to string) any {
		return map[string]any{"_REFERENCE": map[string]any{"path": to, "object_id": "x"}}
	}
	objects(r, "t/to", nil, ref("/t"), ref("/t/n"), nil, ref("/a/../t"), ref("/"))
	numbers(r, "t/made", "|u1", 5, map[string]any{"elements": ref("/t/names")}, byte(0), 1, 2, 1, 3)
	objects(r, "t/names", nil, "low", "mid", "high")
	numbers(r, "t/row", "<i4", 5, map[string]any{"neurodata_type": "DynamicTableRegion", "table": ref("/t")}, int32(4), 3, 2, 1, 0)
	numbers(r, "t/list", "<i2", 4, nil, int16(1), 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	index(r, "t/list_index", 2, 2, 11, 11, 12)
	objects(r, "t/lists", nil, "a", "b", "c", "d")
	index(r, "t/lists_index", 1, 3, 4)
	index(r, "t/lists_index_index", 1, 1, 3, 3, 3)
	objects(r, "t/pair", map[string]any{"_COMPOUND_DTYPE": []any{[]any{"first", "int32"}, []any{"then", "<REFERENCE>"}}}, []any{1, ref("/t")}, []any{2, nil}, []any{3, nil}, []any{4, nil}, []any{5, nil})
	r.meta("t/wide", "|u1", []int64{5, 20, 3}, []int64{5, 20, 3}, nil)
	r["t/wide/0.0.0"] = "base64:" + base64.StdEncoding.EncodeToString(slices.Repeat([]byte{1, 2, 3}, 100))
	numbers(r, "t/short", "<i4", 2, nil, int32(1), 2)
	a := r.serve(t).tableOf("t")
	if a.Type != "DynamicTable" || a.Description != "all kinds" || a.Rows != 5 || len(a.Columns) != 14 || fmt.Sprint(a.IDs) != "[10 11 12 13 9223372036854775807]" {
		t.Errorf("the table is %+v", a)
	}
	for name, want := range map[string]string{
		"n":     "18446744073709551615; 1; 2; 3; 4",
		"f":     "0.1; NaN; -Infinity; 1e+300; -0.5",
		"ok":    "true; false; true; true; false",
		"to":    "->t; ->t/n; null; ->t; /",
		"made":  "low; mid; high; mid; {3 is not one of the 3 names}",
		"row":   "4; 3; 2; 1; 0",
		"list":  "[1 2]; []; [3 4 5 6 7 8 9 10 of 9]; []; [12]",
		"lists": "[[a]]; []; [[b c] [d]]; []; []",
		"pair":  "[1 ->t]; [2 null]; [3 null]; [4 null]; [5 null]",
		"wide":  "[1 1 1 1 1 1 1 1 of 60]; [1 1 1 1 1 1 1 1 of 60]; [1 1 1 1 1 1 1 1 of 60]; [1 1 1 1 1 1 1 1 of 60]; [1 1 1 1 1 1 1 1 of 60]",
		"short": "1; 2",
	} {
		if got := a.column(name); got != want {
			t.Errorf("column %s is\n%s, expected\n%s", name, got, want)
		}
	}
	if got := a.column("word"); !strings.HasPrefix(got, "one; <b>two</b>; ; ünï; long long") || !strings.HasSuffix(got, "…") {
		t.Errorf("words are %s", got)
	}
	for i, want := range map[int]string{11: "no such array", 12: "not a column name", 13: "2 rows, but the table has 5", 0: ""} {
		if got := a.Columns[i].Fault; got != want {
			t.Errorf("column %s says %q, expected %q", a.Columns[i].Name, got, want)
		}
	}
	if c := a.Columns[6]; c.Table != "t" || !c.Number || a.Columns[0].Description != "what was said" || a.Columns[2].Unit != "volts" || a.Columns[8].Nested != 2 || !slices.Equal(a.Columns[9].Fields, []string{"first", "then"}) {
		t.Errorf("columns are %+v", a.Columns)
	}
	s := r.serve(t)
	if got := s.tableOf("t", "from", "2", "n", "2"); got.column("list") != "[3 4 5 6 7 8 9 10 of 9]; []" || got.column("lists") != "[[b c] [d]]; []" || fmt.Sprint(got.IDs) != "[12 13]" {
		t.Errorf("two rows are %v, %s, %s", got.IDs, got.column("list"), got.column("lists"))
	}
	if got := s.tableOf("t", "from", "99"); got.Rows != 5 || len(got.IDs) != 0 {
		t.Errorf("beyond the end are %v", got.IDs)
	}
	for _, path := range []string{"", "t/n", "none"} {
		if code, body, _ := s.get("/api/table", "a", "x", "view", "zarr", "path", path); code != 400 {
			t.Errorf("%q is answered with %d %s", path, code, body)
		}
	}
	// In the view of its members, these paths do not exist.
	if code, _, _ := s.get("/api/table", "a", "x", "view", "members", "path", "t"); code != 400 {
		t.Errorf("members are answered with %d", code)
	}
	// An entry lists the ways in which an entry can be shown.
	type entry struct{ Array, Grouped, Table, Units, Series bool }
	for path, want := range map[string]entry{"t": {Grouped: true, Table: true}, "t/n": {Array: true}, "t/.zattrs": {}} {
		if got := ask[entry](s, "/api/entry", "a", "x", "view", "zarr", "path", path); got != want {
			t.Errorf("%s is %+v", path, got)
		}
	}
}

// TestDamagedTablesSayWhere checks that the values of an index or a shape are
// not trusted.
func TestDamagedTablesSayWhere(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.group("t", map[string]any{"colnames": []string{"list", "far", "hole", "bad", "deep", "huge"}})
	numbers(r, "t/id", "<i8", 6, nil, int64(0), 1, 2, 3, 4, 5)
	data := func(name string, values ...int64) {
		numbers(r, "t/"+name, "<i8", 2, nil, int64(1), 2, 3, 4, 5, 6)
		index(r, "t/"+name+"_index", values...)
	}
	data("list", 2, 1, 3, -1, 6, 6)
	data("far", 1, 7, math.MaxInt64, math.MinInt64, 5, 6)
	numbers(r, "t/hole", "<i8", 2, nil, int64(1), 2, 3, 4, 5, 6)
	r["t/hole/1"] = "base64:AAAA" // a chunk that is too long for no codec, and too short for one with a codec
	r["t/hole/.zarray"].(map[string]any)["compressor"] = map[string]any{"id": "zlib", "level": 1}
	r.meta("t/bad", "<i8", []int64{6}, []int64{math.MaxInt64 / 16}, nil)
	numbers(r, "t/deep", "<i8", 6, nil, int64(1))
	index(r, "t/deep_index", 1, 1<<40)
	index(r, "t/deep_index_index", 0, 2, 2, 1<<40, 1, 2)
	r.meta("t/huge", "<i8", []int64{6, 1 << 40, 1 << 10}, []int64{1, 64, 64}, nil)
	s := r.serve(t)
	var a tableAnswer
	if n := testkit.Allocated(func() { a = s.tableOf("t") }); n > 32<<20 {
		t.Errorf("%d bytes were taken", n)
	}
	for name, want := range map[string]string{
		"list": "[1 2]; {list_index: row 1 ends at 1, before it begins at 2}; [2 3]; {list_index: row 3 ends at -1, but there are 6 elements}; {list_index: row 3 ends at -1, but there are 6 elements}; []",
		"far":  "[1]; {far_index: row 1 ends at 7, but there are 6 elements}; {far_index: row 2 ends at 9223372036854775807, but there are 6 elements}; {far_index: row 3 ends at -9223372036854775808, but there are 6 elements}; {far_index: row 3 ends at -9223372036854775808, but there are 6 elements}; [6]",
		"deep": "[]; [[1] {deep_index: row 1 ends at 1099511627776, but there are 1 elements}]; []; {deep_index_index: row 3 ends at 1099511627776, but there are 2 elements}; {deep_index_index: row 3 ends at 1099511627776, but there are 2 elements}; [{deep_index: row 1 ends at 1099511627776, but there are 1 elements}]",
	} {
		if got := a.column(name); got != want {
			t.Errorf("column %s is\n%s, expected\n%s", name, got, want)
		}
	}
	if got := a.column("hole"); !strings.Contains(got, "t/hole/1: codec zlib") {
		t.Errorf("a damaged chunk is %s", got)
	}
	if got := a.column("bad"); strings.Count(got, "{") != 6 || !strings.Contains(got, "limit") {
		t.Errorf("a chunk that is too large is %s", got)
	}
	if got := a.column("huge"); !strings.Contains(got, "of 1125899906842624") {
		t.Errorf("rows that are huge are %s", got)
	}
	// If a chunk cannot be read, most of a table still can.
	r = refs{}
	r.group("", nil)
	r.group("t", map[string]any{"colnames": []string{"n"}})
	numbers(r, "t/id", "<i8", 6, nil, int64(0), 1, 2, 3, 4, 5)
	numbers(r, "t/n", "|u1", 2, nil, byte(1), 2, 3, 4, 5, 6)
	r["t/n/.zarray"].(map[string]any)["filters"] = []any{map[string]any{"id": "adler32"}}
	for i, part := range [][]byte{{3, 0, 1, 0, 1, 2}, {3, 0, 1, 0, 3, 4}, {}} {
		sum := uint32(1)
		b := uint32(0)
		for _, x := range part[min(4, len(part)):] {
			sum += uint32(x)
			b += sum
		}
		if len(part) > 0 {
			part = append(binary.LittleEndian.AppendUint32(nil, b<<16|sum), part[4:]...)
		}
		if i == 1 {
			part[5] ^= 1
		}
		r[fmt.Sprintf("t/n/%d", i)] = "base64:" + base64.StdEncoding.EncodeToString(part)
	}
	if got := r.serve(t).tableOf("t").column("n"); !strings.HasPrefix(got, "1; 2; {t/n/1: ") || !strings.Contains(got, "; {t/n/2: ") {
		t.Errorf("a table with two damaged chunks is %s", got)
	}
}

// TestEachViewHasPictures checks that a file has the same pictures in each of
// its views.
func TestEachViewHasPictures(t *testing.T) {
	m := &storetest.Mem{}
	m.Put("tables.nwb", testkit.Read(t, "testdata/tables.nwb"))
	s := serving(t, opened(m, "tables.nwb", hdf5.Format))
	type entry struct {
		Array, Grouped, Table, Units, Series bool
		Kind                                 string
	}
	for _, view := range []string{"zarr", "zarr3", "objects"} {
		kind := "dir"
		if view == "objects" {
			kind = "file"
		}
		for path, want := range map[string]entry{
			"units": {Grouped: true, Table: true, Units: true, Kind: "dir"}, "intervals/trials": {Grouped: true, Table: true, Kind: "dir"}, "acquisition/movie": {Grouped: true, Series: true, Kind: "dir"},
			"units/waveform_mean": {Array: true, Kind: kind}, "general": {Kind: "dir"},
		} {
			if got := ask[entry](s, "/api/entry", "a", "x", "view", view, "path", path); got != want {
				t.Errorf("%s in view %s is %+v", path, view, got)
			}
		}
		a := ask[tableAnswer](s, "/api/table", "a", "x", "view", view, "path", "units", "n", "1")
		if a.Rows != 40 || a.column("quality") != "good" || len(a.IDs) != 1 {
			t.Errorf("units in view %s are %+v", view, a)
		}
		if code, _, _ := s.get("/api/array/data", "a", "x", "view", view, "path", "units/waveform_mean"); code != 200 {
			t.Errorf("an array in view %s is answered with %d", view, code)
		}
	}
	if got := ask[entry](s, "/api/entry", "a", "x", "view", "objects", "path", "acquisition/movie/data@unit"); got.Array || got.Kind != "property" {
		t.Errorf("an attribute is %+v", got)
	}
	// Of a million rows, only the chunks with the requested rows are read.
	if n := testkit.Allocated(func() { s.tableOf("intervals/trials", "from", "999900") }); n > 8<<20 {
		t.Errorf("the last rows of a million took %d bytes", n)
	}
}

type rasterAnswer struct {
	Units, Spikes, From, Bins, Every int64
	Start, End                       float64
	Counts                           []byte
	Told                             []struct{ Spikes, Within int64 }
	Faults                           []struct {
		Unit int64
		Why  string
	}
}

func (s *site) rasterOf(more ...string) rasterAnswer {
	s.t.Helper()
	return ask[rasterAnswer](s, "/api/raster", append([]string{"a", "x", "view", "zarr", "path", "units"}, more...)...)
}

func TestSpikesAreCounted(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.group("units", map[string]any{"neurodata_type": "Units", "colnames": []string{"spike_times"}})
	numbers(r, "units/id", "<i8", 4, nil, int64(0), 1, 2, 3)
	numbers(r, "units/spike_times", "<f8", 3, nil, 0, 1, 1.01, 2, 10, 4, 5, math.NaN())
	index(r, "units/spike_times_index", 5, 5, 7, 8)
	s := r.serve(t)
	a := s.rasterOf("bins", "10")
	if a.Units != 4 || a.Spikes != 8 || a.Start != 0 || a.End != 10 || a.Every != 0 || len(a.Faults) != 0 || fmt.Sprint(a.Told) != "[{5 5} {0 0} {2 2} {1 0}]" {
		t.Errorf("the raster is %+v", a)
	}
	if want := []byte{1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}; !slices.Equal(a.Counts[:30], want) {
		t.Errorf("counts are %v", a.Counts)
	}
	if a = s.rasterOf("bins", "4", "start", "1", "end", "2", "from", "0", "n", "1"); fmt.Sprint(a.Told) != "[{5 3}]" || !slices.Equal(a.Counts, []byte{2, 0, 0, 1}) {
		t.Errorf("a second is %+v", a)
	}
	if a = s.rasterOf("from", "2", "n", "2", "bins", "2"); a.From != 2 || a.Start != 4 || a.End != 5 || !slices.Equal(a.Counts, []byte{1, 1, 0, 0}) {
		t.Errorf("two units are %+v", a)
	}
	for _, q := range [][]string{{"from", "4"}, {"bins", "0"}, {"n", "1000"}, {"start", "NaN"}, {"bins", "8000", "n", "500"}, {"end", "x"}} {
		if code, _, _ := s.get("/api/raster", append([]string{"a", "x", "view", "zarr", "path", "units"}, q...)...); code != 400 {
			t.Errorf("%v is answered with %d", q, code)
		}
	}
	if a = s.rasterOf("start", "-1e308", "end", "1e308", "bins", "3"); a.Counts[1] != 5 {
		t.Errorf("all of time is %v", a.Counts)
	}
	numbers(r, "units/spike_times", "<f8", 8, nil, math.MaxFloat64, math.MaxFloat64, math.Inf(1), math.NaN(), math.MaxFloat64, 1, 1, 1)
	if a = r.serve(t).rasterOf("n", "1", "bins", "2"); !slices.Equal(a.Counts, []byte{0, 3}) {
		t.Errorf("the last of all times is %+v", a)
	}
	// The values of its index and its shape are not trusted.
	numbers(r, "units/spike_times", "<f8", 3, nil, 0, 1, 1.01, 2, 10, 4, 5, math.NaN())
	index(r, "units/spike_times_index", 5, 3, math.MaxInt64, 8)
	r["units/spike_times/1"] = "AAAA"
	r["units/spike_times/.zarray"].(map[string]any)["compressor"] = map[string]any{"id": "zlib", "level": 1}
	a = r.serve(t).rasterOf()
	if len(a.Faults) != 4 || a.Faults[1].Why != "spike_times_index: row 1 ends at 3, before it begins at 5" || !strings.Contains(a.Faults[0].Why, "codec zlib") {
		t.Errorf("faults are %+v", a.Faults)
	}
	// If there are very many spikes, only some are read.
	r.meta("units/spike_times", "<f8", []int64{1 << 50}, []int64{1 << 16}, nil)
	for i := range 3 {
		delete(r, fmt.Sprintf("units/spike_times/%d", i))
	}
	index(r, "units/spike_times_index", 1<<49, 1<<50, 1<<50, 1<<50)
	if n := testkit.Allocated(func() { a = r.serve(t).rasterOf() }); n > 256<<20 {
		t.Errorf("%d bytes were taken", n)
	}
	if a.Every != 1<<38 || a.Told[0].Spikes != 1<<49 {
		t.Errorf("very many spikes are %d, every %d", a.Told[0].Spikes, a.Every)
	}
}

func TestAttributesAreTold(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.group("g", map[string]any{"description": "it", "list": []int{1, 2}, "nan": "NaN"})
	r.group("link", map[string]any{"_SOFT_LINK": map[string]any{"path": "/g"}})
	r.group("loop", map[string]any{"_SOFT_LINK": map[string]any{"path": "/loop"}})
	r["raw/.zgroup"] = map[string]any{"zarr_format": 2}
	r["raw/.zattrs"] = `{"x": NaN, "y": [1, -Infinity], "z": 1e999}`
	s := r.serve(t)
	for path, want := range map[string]string{"g": `{"description":"it","list":[1,2],"nan":"NaN"}`, "link": `{"description":"it","list":[1,2],"nan":"NaN"}`, "raw": `{"x":"NaN","y":[1,"-Infinity"],"z":1e999}`} {
		if got := ask[struct{ Attrs json.RawMessage }](s, "/api/attributes", "a", "x", "view", "zarr", "path", path).Attrs; string(got) != want {
			t.Errorf("%s has %s", path, got)
		}
	}
	if code, _, _ := s.get("/api/attributes", "a", "x", "view", "zarr", "path", "loop"); code != 400 {
		t.Errorf("a loop is answered with %d", code)
	}
}

func TestASeriesHasATimeThatJSONHas(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.group("s", map[string]any{"neurodata_type": "TimeSeries"})
	numbers(r, "s/data", "<i2", 4, map[string]any{"unit": "volts", "conversion": 0.001, "offset": 0.5}, int16(1), 2, 3, 4)
	numbers(r, "s/starting_time", "<f8", 1, map[string]any{"rate": 10}, math.NaN())
	type answer struct {
		Scale struct {
			Start, Rate, Conversion, Offset float64
			Times, Fault                    string
		}
	}
	scale := func() any {
		return ask[answer](r.serve(t), "/api/array", "a", "x", "view", "zarr", "path", "s/data").Scale
	}
	check := func(want string) {
		t.Helper()
		if got := fmt.Sprintf("%+v", scale()); got != want {
			t.Errorf("the scale is %s, expected %s", got, want)
		}
	}
	check("{Start:0 Rate:10 Conversion:0.001 Offset:0.5 Times: Fault:starting_time is not a time, using 0}")
	numbers(r, "s/starting_time", "<f8", 1, map[string]any{"rate": 10}, 2.5)
	check("{Start:2.5 Rate:10 Conversion:0.001 Offset:0.5 Times: Fault:}")
	numbers(r, "s/starting_time", "<f8", 1, map[string]any{"rate": 0}, 2.5)
	check("{Start:0 Rate:0 Conversion:0.001 Offset:0.5 Times: Fault:starting_time has no rate}")
	for _, key := range []string{".zarray", ".zattrs", "0"} {
		delete(r, "s/starting_time/"+key)
	}
	numbers(r, "s/timestamps", "<f8", 3, nil, 1.0, 2, 4)
	check("{Start:0 Rate:0 Conversion:0.001 Offset:0.5 Times: Fault:3 timestamps for 4 samples}")
	numbers(r, "s/timestamps", "<f8", 4, nil, 1.0, 2, 4, 8)
	check("{Start:0 Rate:0 Conversion:0.001 Offset:0.5 Times:s/timestamps Fault:}")
}

func TestImagesOfColours(t *testing.T) {
	r := refs{}
	r.group("", nil)
	r.meta("film", "|u1", []int64{2, 3, 4, 3}, []int64{2, 3, 4, 3}, nil)
	pixels := make([]byte, 72)
	for i := range pixels {
		pixels[i] = byte(i)
	}
	r["film/0.0.0.0"] = "base64:" + base64.StdEncoding.EncodeToString(pixels)
	r.meta("floats", "<f4", []int64{2, 3, 3}, []int64{2, 3, 3}, nil)
	s := r.serve(t)
	window := func(path string, more ...string) (w struct {
		Kind              string
		From, Count, Step []int64
	}, n int) {
		code, b, head := s.get("/api/array/data", append([]string{"a", "x", "view", "zarr", "path", path}, more...)...)
		if err := json.Unmarshal([]byte(head.Get("Holdall-Window")), &w); err != nil || code != 200 {
			t.Fatalf("%q: %d %s", more, code, b)
		}
		return w, len(b) / 4
	}
	if w, n := window("film", "from", "1,0,0,0"); w.Kind != "colours" || n != 36 || !slices.Equal(w.From, []int64{1, 0, 0, 0}) || !slices.Equal(w.Count, []int64{1, 3, 4, 3}) {
		t.Errorf("the film is %+v of %d", w, n)
	}
	if w, n := window("film", "points", "12"); n > 12 || w.Count[3] != 3 || w.Step[1] != 2 {
		t.Errorf("few pixels are %+v of %d", w, n)
	}
	if w, _ := window("floats"); w.Kind != "image" {
		t.Errorf("other numbers are %+v", w)
	}
	if code, _, _ := s.get("/api/array/data", "a", "x", "view", "zarr", "path", "film", "from", "0,0,0,1"); code != 400 {
		t.Errorf("two of three colours are answered with %d", code)
	}
}

// FuzzTables requests tables with arbitrary indexes and shapes.
func FuzzTables(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, int64(5), int64(2), int64(1), uint16(0))
	f.Add(bytes.Repeat([]byte{255}, 40), int64(1)<<60, int64(1)<<40, int64(7), uint16(3))
	f.Add([]byte{9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, int64(9), int64(3), int64(0), uint16(1))
	f.Add([]byte("\xff\xff\xff\xe7\xff\xff"), int64(1)<<60, int64(1)<<40, int64(-57), uint16(36)) // this once took seconds
	f.Fuzz(func(t *testing.T, ends []byte, rows, chunk, from int64, kind uint16) {
		if len(ends) > 4096 {
			return
		}
		r := refs{}
		r.group("", nil)
		r.group("units", map[string]any{"colnames": []string{"spike_times", "word", "wide"}})
		r.meta("units/id", "<i8", []int64{rows}, []int64{chunk}, nil)
		r.meta("units/spike_times", []string{"<f8", "<i2", "|O", "|b1", "|S3"}[kind%5], []int64{rows}, []int64{chunk}, nil)
		r["units/spike_times/0"] = "base64:" + base64.StdEncoding.EncodeToString(ends)
		r.meta("units/spike_times_index", []string{"<i8", "<u4", "|u1"}[kind%3], []int64{int64(len(ends))}, []int64{max(1, int64(len(ends)))}, nil)
		r["units/spike_times_index/0"] = "base64:" + base64.StdEncoding.EncodeToString(ends)
		objects(r, "units/word", map[string]any{"elements": map[string]any{"_REFERENCE": map[string]any{"path": "units/word"}}}, string(ends), nil, 3, []any{ends})
		r.meta("units/wide", "<i4", []int64{rows, chunk, from}, []int64{chunk, max(1, rows), 1}, nil)
		s := r.serve(t)
		if n := testkit.Allocated(func() {
			for _, q := range []string{"table?n=20&from=", "raster?n=20&bins=50&from="} {
				w := httptest.NewRecorder()
				s.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/%s%d&a=x&view=zarr&path=units", q, max(0, from)), nil))
				if w.Code == http.StatusInternalServerError || w.Code == http.StatusOK && !json.Valid(w.Body.Bytes()) {
					t.Errorf("%s%d: %d %s", q, from, w.Code, w.Body)
				}
			}
		}); n > 512<<20 {
			t.Errorf("%d bytes were taken", n)
		}
	})
}
