package caf

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

const someObject = `,"object":{"modified":"2026-05-01T10:00:00.5Z","etag":"\"a\\\u0007\"","headers":{"content-type":"image/jpeg","x-amz-meta-a":"b\"ü"}}`

var someAttr = map[string]string{"etag": "\"a\\\a\"", "content-type": "image/jpeg", "x-amz-meta-a": "b\"ü"}

// rewritten returns an archive with the contents of another one.
func rewritten(t *testing.T, archive []byte, o format.CreateOptions) []byte {
	t.Helper()
	r, err := open(t.Context(), mem(archive), "x.caf", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := &storetest.Mem{}
	w, err := create(t.Context(), m, "x.caf", o)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		b, err := content(t, r, e, archive)
		if err == nil {
			err = w.Add(t.Context(), e, bytes.NewReader(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.Get("x.caf")
}

// Rows of objects record them, and other rows are unchanged.
func TestRowsSayWhatObjectsTheyWere(t *testing.T) {
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	m := &storetest.Mem{}
	w, err := create(t.Context(), m, "x.caf", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []format.Entry{
		{Name: "none", ModTime: at, Attr: map[string]string{"kind": "x", "X-Amz-Meta-A": "y"}},
		{Name: "all", ModTime: at.Add(time.Second / 2), Attr: someAttr},
		{Name: "tag", Attr: map[string]string{"etag": `"x"`}},
		{Name: "header", ModTime: time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC), Attr: map[string]string{"expires": ""}},
		{Name: "whole", ModTime: at.In(time.FixedZone("", 3600)), Attr: map[string]string{"etag": `"x"`}},
		{Name: "last"},
	} {
		if err := w.Add(t.Context(), e, bytes.NewReader(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	archive := m.Get("x.caf")
	wantGocafReads(t, archive, map[string][]byte{"none": {}, "all": {}, "tag": {}, "header": {}, "whole": {}, "last": {}})
	for name, want := range map[string]string{"none": "", "all": someObject, "tag": `,"object":{"etag":"\"x\""}`, "header": `,"object":{"headers":{"expires":""}}`,
		"whole": `,"object":{"modified":"2026-05-01T10:00:00Z","etag":"\"x\""}`, "last": ""} {
		row := fmt.Sprintf(`"%s":{"start_byte":0,"end_byte":0,"blake3":"af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"%s}`, name, want)
		if !bytes.Contains(archive, []byte(row)) {
			t.Errorf("expected %s in %q", row, archive)
		}
	}
	if again := rewritten(t, archive, format.CreateOptions{}); !bytes.Equal(again, archive) {
		t.Errorf("rewritten: %q\nwas %q", again, archive)
	}
	if plain := rewritten(t, archive, format.CreateOptions{NoDigests: true}); bytes.Contains(plain, []byte("object")) {
		t.Errorf("plain: %q", plain)
	}
	e := lookup(t, archive, "all", true)
	if !maps.Equal(e.Attr, someAttr) || !e.ModTime.Equal(at.Add(time.Second/2)) || !reflect.DeepEqual(e, lookup(t, archive, "all", false)) {
		t.Errorf("%+v", e)
	}
	e.Attr["etag"] = "changed" // it is the caller's
	if e := lookup(t, archive, "none", false); e.Attr != nil || !e.ModTime.IsZero() {
		t.Errorf("%+v", e)
	}
}

// What only looks like what we write is kept as it is.
func TestObjectsOfOthersAreKeptAsTheyAre(t *testing.T) {
	for _, k := range []struct {
		object string
		ours   bool
	}{
		{`{"etag":"x"}`, true}, {" {\n\"etag\" : \"x\" }", true}, {`{"etag":"\u0041\/"}`, true},
		{`{"headers":{"content-type":"a","expires":"b"}}`, true}, {`{"modified":"2026-05-01T10:00:00.123456789Z","etag":"x"}`, true},
		{`{}`, false}, {`5`, false}, {`null`, false}, {`[]`, false}, {`{"etag":""}`, false}, {`{"etag":5}`, false}, {`{"headers":{}}`, false},
		{`{"etag":"x","more":1}`, false}, {`{"headers":{"expires":"b"},"etag":"x"}`, false}, {`{"headers":{"expires":"b","content-type":"a"}}`, false},
		{`{"headers":{"expires":"b","expires":"a"}}`, false}, {`{"headers":{"Expires":"b"}}`, false}, {`{"headers":{"etag":"b"}}`, false},
		{`{"headers":{"expires":1}}`, false}, {`{"etag":"\ud800"}`, false}, {`{"modified":"2026-05-01T10:00:00Z"}`, false},
		{`{"modified":"2026-05-01","etag":"x"}`, false}, {`{"modified":"2026-05-01T10:00:00+01:00","etag":"x"}`, false},
		{`{"modified":"2026-05-01T10:00:00.0123456789Z","etag":"x"}`, false}, {`{"modified":"0900-05-01T10:00:00Z","etag":"x"}`, false},
		{`{"etag":"x"},"object":{"etag":"y"}`, true},
	} {
		index := `{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5,"object":` + k.object + `},"b":{"start_byte":5,"end_byte":9}}}`
		whole := scanIndex([]byte(index), 0)
		wantSameInBlocks(t, []byte(index), whole)
		archive := appendFooter([]byte("012345678"+index), int64(len(index)))
		e := lookup(t, archive, "a", false)
		if ours := e.Attr["etag"] != "" || e.Attr["content-type"] != ""; ours != k.ours || !k.ours && e.Attr[extraAttr] != `"object":`+k.object {
			t.Errorf("%s: %+v", k.object, e.Attr)
		}
		again := rewritten(t, rewritten(t, archive, format.CreateOptions{}), format.CreateOptions{})
		if !k.ours && !bytes.Contains(again, []byte(`"object":`+k.object+`}`)) {
			t.Errorf("%s: %q", k.object, again)
		}
		if strings.Contains(k.object, `"y"`) && !bytes.Contains(again, []byte(`"object":{"etag":"x"}`)) {
			t.Errorf("%s: %q", k.object, again)
		}
	}
}

// A repair keeps what rows record about objects, except the ETag of one that is truncated.
func TestRepairKeepsWhatIsSaidOfObjects(t *testing.T) {
	index := `{"format_version":"1.0","files":{"c":{"start_byte":5,"end_byte":19` + someObject + `},"a":{"start_byte":0,"end_byte":5` + someObject + `},}}`
	archive := appendFooter([]byte("0123456789"+index), int64(len(index)))
	plan, err := repair(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(format.Problem) {})
	if err != nil {
		t.Fatal(err)
	}
	repaired := apply(t, archive, plan)
	if e := lookup(t, repaired, "a", false); !maps.Equal(e.Attr, someAttr) || e.ModTime.IsZero() {
		t.Errorf("%+v", e)
	}
	if e := lookup(t, repaired, "c.damaged", false); e.Attr["etag"] != "" || e.Attr["content-type"] != "image/jpeg" || e.ModTime.IsZero() || e.Size != 5 {
		t.Errorf("%+v", e)
	}
}

// objectRows returns n rows of objects. If own is set, each has different headers.
func objectRows(n int, own bool) *sparse {
	b := appendHead(nil, "", false)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		e := format.Entry{ModTime: time.Unix(int64(i), 0), Attr: map[string]string{"etag": fmt.Sprintf(`"%032x"`, i), "content-type": fmt.Sprint("text/", i%7)}}
		if own {
			e.Attr["x-amz-meta-n"] = fmt.Sprint(i)
		}
		b = appendRow(b, fmt.Sprintf("%07d", i), int64(i)*100, int64(i)*100+100, fmt.Sprintf("%032d", i), "", appendObject(nil, e))
	}
	b = ended(b, false)
	return &sparse{size: int64(n)*100 + int64(len(b)), end: b}
}

func TestStreamedObjectsAreTheLoadedOnes(t *testing.T) {
	testkit.Serial(t)
	s := objectRows(30_000, true)
	once, loaded := entriesOf(t, s, format.OpenOptions{Once: true}), entriesOf(t, s, format.OpenOptions{})
	if len(once) != 30_000 || !reflect.DeepEqual(once, loaded) || once[29_999].Attr["x-amz-meta-n"] != "29999" || once[7].ModTime.Unix() != 7 {
		t.Errorf("%d streamed and %d loaded entries differ", len(once), len(loaded))
	}
}

// A row takes its record, name, digest, time and ETag, and headers if no other has them.
func TestLoadedObjectsTakeLittleMemory(t *testing.T) {
	testkit.Serial(t)
	const n = 100_000
	for own, most := range map[bool]uint64{false: 32 + 7 + 32 + 24 + 34 + 30, true: 32 + 7 + 32 + 24 + 34 + 30 + 110} {
		s := objectRows(n, own)
		before := testkit.Live()
		r, err := open(t.Context(), s, "x.caf", format.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if took := testkit.Live() - before; took > n*most {
			t.Errorf("own headers %v: %d bytes a row, expected at most %d", own, took/n, most)
		}
		if e, err := r.Lookup(t.Context(), "0000017"); err != nil || e.Attr["content-type"] != "text/3" {
			t.Errorf("%+v, %v", e, err)
		}
		r.Close()
	}
}
