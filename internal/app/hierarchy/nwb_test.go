package hierarchy_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/lindi"
	"github.com/holdall/holdall/internal/app/hierarchy"
	"github.com/holdall/holdall/store/storetest"
)

// refs are the keys of an archive with their values: texts, or values that are
// encoded as JSON.
type refs map[string]any

const group = `{"zarr_format":2}`

// numbers adds an array with one axis, in chunks of ten.
func (r refs) numbers(at string, n int, attrs string) refs {
	r[at+"/.zarray"] = fmt.Sprintf(`{"zarr_format":2,"shape":[%d],"chunks":[10],"dtype":"|u1","order":"C","compressor":null,"filters":null,"fill_value":0}`, n)
	if attrs != "" {
		r[at+"/.zattrs"] = attrs
	}
	for i := range (n + 9) / 10 {
		b := make([]byte, 10)
		for k := range b {
			b[k] = byte(10*i + k)
		}
		r[fmt.Sprintf("%s/%d", at, i)] = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
	return r
}

func (r refs) words(at string, words ...string) refs {
	all := append([]string{}, words...)
	text, _ := json.Marshal(append(anys(all), "|O", []int{len(all)}))
	r[at+"/.zarray"] = fmt.Sprintf(`{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":"|O","order":"C","compressor":null,"filters":[{"id":"json2"}],"fill_value":""}`, len(all), max(1, len(all)))
	r[at+"/0"] = string(text)
	return r
}

func (r refs) group(at, attrs string) refs {
	r[at+"/.zgroup"], r[at+"/.zattrs"] = group, attrs
	return r
}

func anys(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

func file() refs {
	return refs{".zgroup": group, ".zattrs": `{"neurodata_type":"NWBFile","nwb_version":"2.7.0"}`}
}

func (r refs) read(t *testing.T) *hierarchy.Hierarchy {
	t.Helper()
	b, err := json.Marshal(map[string]any{"refs": r})
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Mem{}
	m.Put("x.lindi.json", b)
	a, err := holdall.Open(t.Context(), "x.lindi.json", holdall.OpenOptions{Store: m, View: "zarr", Formats: []*format.Format{lindi.Format}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if !hierarchy.Is(t.Context(), a) {
		t.Error("it is no hierarchy")
	}
	h, err := hierarchy.Read(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (r refs) nwb(t *testing.T, timed int) *hierarchy.NWB {
	t.Helper()
	n, err := r.read(t).NWB(t.Context(), timed)
	if err != nil || n == nil {
		t.Fatal(n, err)
	}
	return n
}

func TestNWBSaysWhatIsThere(t *testing.T) {
	r := file().words("session_description", "two\nlines").words("general/experimenter", "a", "b").words("general/keywords").
		group("general/subject", `{"neurodata_type":"Subject"}`).words("general/subject/species", "Mus").
		group("general/devices/d", `{"neurodata_type":"Device","description":"x"}`).group("general/devices/models", `{}`).
		group("units", `{"neurodata_type":"Units","colnames":["a","b",3]}`).numbers("units/id", 7, "").
		group("acquisition/a", `{"neurodata_type":"TimeSeries"}`).numbers("acquisition/a/data", 25, `{"unit":"V","conversion":0.5}`).numbers("acquisition/a/timestamps", 25, "").
		group("acquisition/linked", `{"neurodata_type":"MySeries"}`).group("acquisition/linked/data", `{"_SOFT_LINK":{"path":"/acquisition/a/data"}}`).numbers("acquisition/linked/starting_time", 1, `{"rate":50}`).
		group("acquisition/film", `{"neurodata_type":"ImageSeries"}`).numbers("acquisition/film/timestamps", 3, "").
		group("acquisition/own", `{"neurodata_type":"Own"}`).numbers("acquisition/own/data", 4, "").
		group("processing/behavior/BehavioralTimeSeries", `{"neurodata_type":"BehavioralTimeSeries"}`)
	n := r.nwb(t, 10)
	if n.Err != nil {
		t.Error(n.Err)
	}
	got, _ := json.MarshalIndent(n, "", " ")
	want := `{
 "version": "2.7.0",
 "session": {
  "description": "two\nlines",
  "experimenter": [
   "a",
   "b"
  ]
 },
 "subject": {
  "species": "Mus"
 },
 "devices": [
  {
   "name": "d",
   "type": "Device",
   "description": "x"
  }
 ],
 "series": [
  {
   "path": "acquisition/a",
   "type": "TimeSeries",
   "shape": [
    25
   ],
   "dtype": "|u1",
   "unit": "V",
   "conversion": 0.5,
   "timestamps": 25,
   "start": 0,
   "duration": 24
  },
  {
   "path": "acquisition/film",
   "type": "ImageSeries",
   "timestamps": 3,
   "start": 0,
   "duration": 2
  },
  {
   "path": "acquisition/linked",
   "type": "MySeries",
   "shape": [
    25
   ],
   "dtype": "|u1",
   "unit": "V",
   "conversion": 0.5,
   "rate": 50,
   "start": 0,
   "duration": 0.5
  }
 ],
 "tables": [
  {
   "path": "units",
   "type": "Units",
   "rows": 7,
   "columns": [
    "a",
    "b"
   ]
  }
 ]
}`
	if string(got) != want {
		t.Errorf("%s\nexpected\n%s", got, want)
	}
}

func TestWhatIsNoNWBIsNone(t *testing.T) {
	for _, attrs := range []string{`{}`, `{"neurodata_type":3}`, `{"neurodata_type":"TimeSeries"}`} {
		h := (refs{".zgroup": group, ".zattrs": attrs}).numbers("x", 3, "").read(t)
		if n, err := h.NWB(t.Context(), 1); n != nil || err != nil {
			t.Errorf("%s: %+v, %v", attrs, n, err)
		}
		if len(h.Arrays) != 1 || h.Arrays[0].Path != "x" || h.Arrays[0].Meta.Elements() != 3 {
			t.Errorf("%+v", h.Arrays)
		}
	}
}

// TestNWBOfDamagedFiles checks that damage is reported with its place, and
// that the rest is returned.
func TestNWBOfDamagedFiles(t *testing.T) {
	ok := func() refs {
		return file().words("identifier", "id").group("a", `{"neurodata_type":"TimeSeries"}`).numbers("a/data", 20, "").numbers("a/timestamps", 20, "")
	}
	for name, damage := range map[string]struct {
		do          func(refs)
		of, session string // parts of the errors' text
	}{
		"a text":         {do: func(r refs) { r["identifier/0"] = "[" }, session: "identifier"},
		"what describes": {do: func(r refs) { r["identifier/.zarray"] = "[" }, session: "identifier"},
		"data":           {do: func(r refs) { r["a/data/.zarray"] = "{" }, of: "a/data"},
		"data, a link":   {do: func(r refs) { delete(r, "a/data/.zarray"); r.group("a/data", `{"_SOFT_LINK":{"path":"/none"}}`) }, of: "none"},
		"the last time": {do: func(r refs) {
			r["a/timestamps/1"] = "base64:" + base64.StdEncoding.EncodeToString([]byte("too long for that"))
		}, of: "a/timestamps/1"},
		"times of two axes": {do: func(r refs) {
			r["a/timestamps/.zarray"] = strings.Replace(r["a/timestamps/.zarray"].(string), `"shape":[20],"chunks":[10]`, `"shape":[20,1],"chunks":[10,1]`, 1)
		}, of: "a/timestamps"},
		"times of words": {do: func(r refs) { delete(r, "a/timestamps/1"); r.words("a/timestamps", "x") }, of: "a/timestamps"},
		"attributes":     {do: func(r refs) { r.group("b", "[]") }, session: "b/.zattrs"},
	} {
		r := ok()
		damage.do(r)
		n := r.nwb(t, 10)
		if damage.session != "" && (n.Err == nil || !strings.Contains(n.Err.Error(), damage.session)) || damage.session == "" && n.Err != nil {
			t.Errorf("%s: %v", name, n.Err)
		}
		if len(n.Series) != 1 || n.Series[0].Path != "a" {
			t.Fatalf("%s: %+v", name, n.Series)
		}
		if s := n.Series[0]; damage.of == "" && (s.Error != "" || s.Duration == nil) || damage.of != "" && !strings.Contains(s.Error, damage.of) {
			t.Errorf("%s: %q, %v", name, s.Error, s.Duration)
		}
	}
	r := file()
	r["x/.zarray"] = "{"
	if h := r.read(t); len(h.Arrays) != 1 || h.Arrays[0].Err == nil {
		t.Errorf("%+v", h.Arrays)
	}
}

// TestTimesOfTheFirstSeries checks that of thousands of series, only the first
// have their times read.
func TestTimesOfTheFirstSeries(t *testing.T) {
	r := file()
	for i := range 3000 {
		at := fmt.Sprintf("acquisition/s%04d", i)
		r.group(at, `{"neurodata_type":"TimeSeries"}`).numbers(at+"/data", 1, "").numbers(at+"/timestamps", 11, "")
	}
	n := r.nwb(t, 5)
	if len(n.Series) != 3000 || n.Series[4].Duration == nil || *n.Series[4].Duration != 10 || n.Series[5].Duration != nil || *n.Series[2999].Timestamps != 11 {
		t.Errorf("%d series, %+v", len(n.Series), n.Series[4:6])
	}
}

// TestNWBOfHugeTexts checks that an array that claims many elements, but has
// none, takes no memory.
func TestNWBOfHugeTexts(t *testing.T) {
	r := file()
	for _, dtype := range []string{"|O", "|S1", "<U1000000", "|u1"} {
		at := "general/lab"
		r[at+"/.zarray"] = fmt.Sprintf(`{"zarr_format":2,"shape":[1000000000000],"chunks":[1000],"dtype":%q,"order":"C","compressor":null,"filters":%s,"fill_value":""}`, dtype, map[bool]string{true: `[{"id":"json2"}]`, false: "null"}[dtype == "|O"])
		if dtype == "|u1" {
			r[at+"/.zarray"] = strings.Replace(r[at+"/.zarray"].(string), `"fill_value":""`, `"fill_value":0`, 1)
		}
		if n := r.nwb(t, 1); n.Err == nil || n.Session.Lab != "" {
			t.Errorf("%s: %v, %.100q", dtype, n.Err, n.Session.Lab)
		}
	}
}

func TestHierarchyEndsWithItsContext(t *testing.T) {
	h := file().words("identifier", "x").read(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.NWB(ctx, 1); !errors.Is(err, ctx.Err()) {
		t.Error(err)
	}
}
