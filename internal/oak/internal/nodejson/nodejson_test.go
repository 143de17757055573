package nodejson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

func TestMain(m *testing.M) { testkit.SerialPackage(m) }

// encode writes a node, and returns it as properties in the order of the store.
func encode(t testing.TB, o Options, path string, n segment.Node) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := NewEncoder(&b, o).Node(t.Context(), path, n); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func noise(n int) string { return string(testkit.Noise(rand.New(rand.NewPCG(uint64(n), 0)), n)) }

func one(name string, typ segment.PropertyType, text string) property {
	return property{name: name, typ: typ, values: []value{{text: text}}}
}

func several(name string, typ segment.PropertyType, texts ...string) property {
	p := property{name: name, typ: typ, multi: true}
	for _, s := range texts {
		p.values = append(p.values, value{text: s})
	}
	return p
}

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("value ", i))
	}
	return all
}

func sameProperties(a, b []property) bool {
	byName := func(a, b property) int { return strings.Compare(a.name, b.name) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, byName)
	slices.SortFunc(b, byName)
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

func manyProperties(n int) (all []property) {
	for i := range n {
		all = append(all, one(fmt.Sprint("property ", i), segment.String, strings.Repeat("x", 20)))
	}
	return all
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	m := newMaker(t)
	for _, c := range []struct {
		name  string
		props []property
	}{
		{"nothing", nil},
		{"short values", []property{one("a", segment.Decimal, "1E+400"), one("b", segment.Double, "-0.0"), one("c", segment.String, ""), one("\x01\"\\\n\tü", segment.Name, "\x00\x7f\"\\ü\u2028")}},
		{"arrays", []property{several("none", segment.String), several("some", segment.Boolean, "true", "false", ""), several("bytes", segment.Binary, "", "\xff", "abc")}},
		{"text that is not UTF-8", []property{one("a", segment.String, "\xff\xfe"), several("b", segment.String, "fine", "\xc3", "fine")}},
		{"binaries", []property{one("a", segment.Binary, noise(inlineBytes)), one("b", segment.Binary, noise(inlineBytes+1)), one("c", segment.Binary, noise(pieceBytes)), one("d", segment.Binary, noise(2*pieceBytes+1))}},
		{"long texts", []property{one("a", segment.String, strings.Repeat("grüße", 400_000)), one("b", segment.String, strings.Repeat("x", lineBytes)+"\xff"), one("c", segment.String, strings.Repeat("\x01", lineBytes-1000))}},
		{"a blob", []property{{name: "a", typ: segment.Binary, values: []value{{text: "0123#7", blob: true}}}, {name: "b", typ: segment.Binary, multi: true, values: []value{{text: "\xff#1", blob: true}, {text: "x"}}}}},
		{"long arrays", []property{several("a", segment.String, numbers(arrayValues)...), several("b", segment.String, numbers(2*arrayValues+1)...), several("c", segment.Binary, noise(300_000), "", noise(100_000), noise(600_000), noise(50_000))}},
		{"an array of long texts", []property{several("a", segment.String, strings.Repeat("ä", 700_000), "short", strings.Repeat("b", 2_000_000), strings.Repeat("c", 700_000), strings.Repeat("d", 700_000))}},
		{"more properties than a line has", manyProperties(30_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := encode(t, plain, "/a/ü\"", m.node(c.props...))
			for line := range bytes.Lines(b) {
				if len(line) > 7*lineBytes { // control characters take six bytes each
					t.Errorf("a line of %d bytes", len(line))
				}
			}
			got, err := decode(bytes.NewReader(b))
			if err != nil || len(got) != 1 || got[0].path != "/a/ü\"" {
				t.Fatalf("%d nodes, %v", len(got), err)
			}
			if !sameProperties(got[0].properties, c.props) {
				t.Errorf("%.2000v\nexpected\n%.2000v", got[0].properties, c.props)
			}
		})
	}
}

func TestLinesAreAsTheyAreDescribed(t *testing.T) {
	n := newMaker(t).node(one("jcr:primaryType", segment.Name, "nt:unstructured"), several("tags", segment.String, "x", "\xff"),
		one("data", segment.Binary, "\x00\x01\x02"), property{name: "elsewhere", typ: segment.Binary, values: []value{{text: "0a#12", blob: true}}})
	for _, want := range []string{`{"path":"/content/a","properties":{`, `"jcr:primaryType":{"type":"Name","value":"nt:unstructured"}`,
		`"tags":{"type":"String","multiple":true,"values":["x",{"base64":"/w=="}]}`, `"data":{"type":"Binary","length":3,"base64":"AAEC"}`,
		`"elsewhere":{"type":"Binary","blob":"0a#12"}`} {
		if got := string(encode(t, plain, "/content/a", n)); !strings.Contains(got, want) {
			t.Errorf("%s has no %s", got, want)
		}
	}
}

func TestContentsOfBinariesAreLeftOutIfAsked(t *testing.T) {
	o := plain
	o.NoBinaries = true
	n := newMaker(t).node(one("a", segment.Binary, "abc"), one("s", segment.String, "text"), one("b", segment.Binary, noise(1<<20)), several("c", segment.Binary, "x"))
	b := encode(t, o, "/", n)
	got, err := decode(bytes.NewReader(b))
	if err != nil || bytes.Count(b, []byte("\n")) != 1 {
		t.Fatal(string(b), err)
	}
	for _, p := range got[0].properties {
		if p.values[0].omitted != (p.typ == segment.Binary) {
			t.Errorf("%+v", p)
		}
	}
}

func TestObjectsLeaveOutWhatIsLong(t *testing.T) {
	n := newMaker(t).node(one("a", segment.String, strings.Repeat("x", 5000)), one("b", segment.String, "short"), several("c", segment.String, numbers(5000)...), one("d", segment.Binary, noise(9000)))
	o := plain
	o.Limit = 4096
	b, lost, err := AppendProperties(t.Context(), nil, n, o)
	if err != nil || lost != 0 || len(b) > 3*o.Limit {
		t.Fatal(len(b), lost, err)
	}
	got, err := decode(strings.NewReader(`{"path":"/","properties":` + string(b) + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "d"} {
		if !got[0].find(name).values[0].omitted {
			t.Errorf("%s is there", name)
		}
	}
	if !got[0].find("c").omitted || got[0].find("b").values[0].text != "short" {
		t.Errorf("%s", b)
	}
}

func TestDamageIsNamedAndTheRestIsThere(t *testing.T) {
	m := newMaker(t)
	n := m.node(one("a", segment.Binary, noise(3*pieceBytes)), one("b", segment.String, "sound"), several("c", segment.Binary, "x", noise(40_000), "y"))
	for id := range m.memory {
		if !id.IsData() {
			delete(m.memory, id)
		}
	}
	var b bytes.Buffer
	e := NewEncoder(&b, plain)
	if err := errors.Join(e.Node(t.Context(), "/x", n), e.LostNode("/y", Lost{What: "gone", Segment: "s"})); err != nil {
		t.Fatal(err)
	}
	got, err := decode(&b)
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	c := got[0].find("c").values
	if !got[0].find("a").values[0].lost || got[0].find("b").values[0].text != "sound" || !c[1].lost || c[0].text != "x" || c[2].text != "y" {
		t.Errorf("%+v", got[0])
	}
	if l := got[1].lost; l == nil || l.What != "gone" || l.Segment != "s" || l.Tar != "" {
		t.Errorf("%+v", l)
	}
	if e.Lost() != 5 {
		t.Errorf("%d lost", e.Lost())
	}
}

func TestWhatIsNoExportIsRefusedWithItsLine(t *testing.T) {
	const big = `{"path":"/a","properties":{"p":{"type":"Binary","length":5,"follows":true}}}` + "\n"
	const many = `{"path":"/a","properties":{"p":{"type":"Long","multiple":true,"count":3,"follows":true}}}` + "\n"
	for _, c := range []struct {
		in   string
		line int64
	}{
		{"x\n", 1}, {"\n", 1}, {"{}\n", 1}, {"[]\n", 1}, {`{"path":"/"}` + "\n", 1},
		{`{"path":"/","properties":{}}`, 1},
		{`{"path":"/","properties":{}} {}` + "\n", 1},
		{`{"path":"/","path":"/","properties":{}}` + "\n", 1},
		{`{"Path":"/","properties":{}}` + "\n", 1},
		{`{"path":"/","properties":{},"tar":"x"}` + "\n", 1},
		{`{"path":"\ud800","properties":{}}` + "\n", 1},
		{`{"path":"\udc00\ud800","properties":{}}` + "\n", 1},
		{"{\"path\":\"\xff\",\"properties\":{}}\n", 1},
		{`{"path":"/","more":true,"properties":{}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"Text","value":""}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"value":""}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String"}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","value":1}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","values":[]}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","multiple":false,"value":""}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","multiple":true,"value":""}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","blob":"x"}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"Binary","length":2,"base64":"AAEC"}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"Binary","length":-1}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"Binary","base64":"AAE"}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","multiple":true,"count":99999999,"follows":true}}}` + "\n", 1},
		{`{"path":"/","properties":{"a":{"type":"String","value":""},"a":{"type":"String","value":""}}}` + "\n", 1},
		{big, 2}, {big + big, 2},
		{big + `{"path":"/a","property":"p","index":0,"offset":1,"base64":"AAEC"}` + "\n", 2},
		{big + `{"path":"/a","property":"q","index":0,"offset":0,"base64":"AAEC"}` + "\n", 2},
		{big + `{"path":"/a","property":"p","index":0,"offset":0,"text":"abc"}` + "\n", 2},
		{big + `{"path":"/a","property":"p","index":0,"offset":0,"base64":""}` + "\n", 2},
		{big + `{"path":"/a","property":"p","index":0,"offset":0,"base64":"AAECAAEC"}` + "\n", 2},
		{big + `{"path":"/a","property":"p","index":0,"offset":0,"base64":"AAEC"}` + "\n", 3},
		{many + `{"path":"/a","property":"p","from":0,"values":[]}` + "\n", 2},
		{many + `{"path":"/a","property":"p","from":0,"values":["1","2","3","4"]}` + "\n", 2},
		{many + `{"path":"/a","property":"p","from":0,"values":["1","2"]}` + "\n" + `{"path":"/a","property":"p","from":1,"values":["3"]}` + "\n", 3},
		{`{"path":"` + strings.Repeat("x", maxLine) + `","properties":{}}` + "\n", 1},
	} {
		_, err := decode(strings.NewReader(c.in))
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line {
			t.Errorf("%.200s: %v, expected an error of line %d", c.in, err, c.line)
		}
	}
}

func TestContentThatNobodyReadsIsPassedOver(t *testing.T) {
	m := newMaker(t)
	b := encode(t, plain, "/a", m.node(one("p", segment.Binary, noise(500_000)), several("q", segment.String, numbers(30_000)...)))
	b = append(b, encode(t, plain, "/b", m.node())...)
	d := NewDecoder(bytes.NewReader(b))
	var paths []string
	var left io.Reader
	for {
		item, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind == NodeItem {
			paths = append(paths, item.Path)
		}
		if item.Content != nil {
			left = item.Content
		}
	}
	if !slices.Equal(paths, []string{"/a", "/b"}) {
		t.Error(paths)
	}
	if n, err := left.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a content that is past was read")
	}
}

func TestTheLastNodeIsFoundWhereverAnExportBreaksOff(t *testing.T) {
	m := newMaker(t)
	var all []byte
	var starts []int
	for i, n := range []segment.Node{m.node(), m.node(one("p", segment.Binary, noise(500_000))), m.node(manyProperties(25_000)...), m.node(several("q", segment.String, numbers(30_000)...)), m.node(one("x", segment.String, "y"))} {
		starts = append(starts, len(all))
		all = append(all, encode(t, plain, fmt.Sprint("/", i), n)...)
	}
	var cuts []int
	for i := 0; i < len(all); i += 50_021 {
		cuts = append(cuts, i)
	}
	for _, s := range starts {
		cuts = append(cuts, s, s+1, s+30)
	}
	for _, cut := range append(cuts, len(all)) {
		path, off, err := LastNode(bytes.NewReader(all[:cut]), int64(cut))
		if err != nil {
			t.Fatal(cut, err)
		}
		// The last node whose own line is whole.
		want, wantPath := 0, ""
		for i, s := range starts {
			if end := s + bytes.IndexByte(all[s:], '\n'); end < cut {
				want, wantPath = s, fmt.Sprint("/", i)
			}
		}
		if path != wantPath || off != int64(want) {
			t.Errorf("cut at %d: %q at %d, expected %q at %d", cut, path, off, wantPath, want)
		}
	}
	for _, bad := range []string{"x\n", "[]\n", "notes of somebody", "{}", `{"name":"/"}` + "\n", strings.Repeat("x", maxLine+1) + "\n"} {
		if path, off, err := LastNode(strings.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("%.40q: %q at %d", bad, path, off)
		}
	}
}

func FuzzWhatIsWrittenIsReadAgain(f *testing.F) {
	f.Add("name", "text", uint8(1), uint16(3), 10, false)
	f.Add("", "\xff\x00\"", uint8(2), uint16(0), 0, true)
	f.Add("n", "grüße", uint8(1), uint16(10100), 1, false)
	f.Add("n", "grüße", uint8(1), uint16(2), 200_000, false)
	f.Add("jcr:mixinTypes", "x", uint8(7), uint16(2), 1, true)
	f.Fuzz(func(t *testing.T, name, text string, typ uint8, n uint16, times int, odd bool) {
		name = strings.ToValidUTF8(name, "?")
		times = max(1, min(times, 3_000_000/(len(text)+1)))
		n = min(n, 11_000)
		if times > 10 {
			n = min(n, 3)
		}
		p := property{name: name, typ: segment.PropertyType(typ%12 + 1), multi: odd || n != 1}
		for i := range int(n) {
			v := value{text: strings.Repeat(text, times)}
			if odd && i%3 == 1 {
				v.text = text
			}
			p.values = append(p.values, v)
		}
		node := newMaker(t).node(p, one(name+"2", segment.String, text))
		b := encode(t, plain, name, node)
		got, err := decode(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%v in %.500q", err, b)
		}
		if len(got) != 1 || got[0].path != name || !sameProperties(got[0].properties, []property{p, one(name+"2", segment.String, text)}) {
			t.Fatalf("%.500v\n%.500v", got, p)
		}
	})
}

// Anything that cannot be in an export is an error with its place, and nothing that is missing is
// assumed.
func FuzzDecoder(f *testing.F) {
	m := newMaker(f)
	f.Add(encode(f, plain, "/a", m.node(one("p", segment.Binary, noise(70_000)), several("q", segment.String, "a", "\xff"), one("r", segment.Date, "x"))))
	f.Add([]byte(`{"path":"/a","properties":{"p":{"type":"Long","multiple":true,"count":2,"follows":true}}}` + "\n" + `{"path":"/a","property":"p","from":0,"values":["1",{"length":3,"follows":true}]}` + "\n" + `{"path":"/a","property":"p","index":1,"offset":0,"text":"abc"}` + "\n"))
	f.Add([]byte(`{"path":"/\ud83d\ude00","lost":"x","tar":"t"}` + "\n" + `{"path":"/","properties":{"a":{"type":"Name","lost":"y","segment":"z"}}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := decode(bytes.NewReader(b))
		if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Line < 1 || e.Offset > int64(len(b))) {
			t.Fatal(err)
		}
		if _, off, err := LastNode(bytes.NewReader(b), int64(len(b))); err == nil && off > int64(len(b)) {
			t.Fatal(off)
		}
	})
}
