package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/oak/internal/nodejson"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

// The first ones are from the reference's documentation, except for one that is wrong there.
func TestPlatformNamesAreTheReferences(t *testing.T) {
	for _, c := range [][2]string{
		{"test.jpg", "test.jpg"}, {"cq:content", "_cq_content"}, {"cq:test_image.jpg", "_cq_test_image.jpg"}, {"test_image.jpg", "test_image.jpg"},
		{"_testimage.jpg", "_testimage.jpg"}, {"_test_image.jpg", "__test_image.jpg"}, {"cq:test:image.jpg", "_cq_test%3aimage.jpg"},
		{"_cq_:test.jpg", "__cq_%3atest.jpg"}, {"_cq:test.jpg", "_cq%3atest.jpg"}, {"cq_:test.jpg", "cq_%3atest.jpg"},
		{"a%b", "a%25b"}, {"a<b>|\"?\\", "a%3cb%3e%7c%22%3f%5c"}, {"ü 中", "ü 中"}, {"_", "_"}, {"__", "___"}, {"jcr:content", "_jcr_content"},
	} {
		if got := PlatformName(c[0]); got != c[1] {
			t.Errorf("%q: got %q, want %q", c[0], got, c[1])
		}
		if got := repositoryName(c[1]); got != c[0] {
			t.Errorf("%q: got %q back, want %q", c[1], got, c[0])
		}
	}
}

func TestNamesComeBackFromXML(t *testing.T) {
	for _, name := range []string{"a", "1", "a b", "_x0041_", "x_x", "😀", "ü", "xmlns", "XML", "xml", ".a", "-", "a[2]", "a\tb", "_", "__x", "\u0001"} {
		b := appendXMLName(nil, name)
		if got := readXMLName(string(b)); got != name {
			t.Errorf("%q: got %q back from %q", name, got, b)
		}
		if strings.Trim(string(b), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || strings.Contains("0123456789.-", string(b[:1])) {
			t.Errorf("%q: %q is no name of XML", name, b)
		}
	}
	if got := readXMLName("_xd83d_a_xZZZZ_"); got != "\uFFFDa_xZZZZ_" {
		t.Errorf("half a pair: %q", got)
	}
}

func TestAttributesAreReadAsTheReferenceDoes(t *testing.T) {
	for text, want := range map[string]attribute{
		"":                     {Values: []string{""}},
		"a":                    {Values: []string{"a"}},
		`\0`:                   {Values: []string{""}},
		"a,b]":                 {Values: []string{"a,b]"}},
		`\{Long}1`:             {Values: []string{"{Long}1"}},
		`\[a]`:                 {Values: []string{"[a]"}},
		"{Long}1":              {Type: segment.Integer, Values: []string{"1"}},
		"{Binary}":             {Type: segment.Binary, Values: []string{""}},
		"{BinaryRef}x:y":       {Type: segment.Binary, Reference: true, Values: []string{"x:y"}},
		"[]":                   {Multi: true},
		"{Boolean}[]":          {Multi: true, Type: segment.Boolean},
		`[\0]`:                 {Multi: true, Values: []string{""}},
		"[,]":                  {Multi: true, Values: []string{"", ""}},
		"[a,]":                 {Multi: true, Values: []string{"a", ""}},
		`[a\,b,c\\,]]`:         {Multi: true, Values: []string{"a,b", `c\`, "]"}},
		"[a":                   {Multi: true, Values: []string{"a"}},
		`\u0041\ud83d\ude00\ü`: {Values: []string{"A😀ü"}},
		`{Name}[a:b,c]`:        {Type: segment.Name, Multi: true, Values: []string{"a:b", "c"}},
	} {
		got, err := parseAttribute(text)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || len(got.Values) != len(want.Values) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"{Long", "{Strange}1", `\u12`, `\ud83d`, `\udc00\ud83d`, `\uzzzz`} {
		if got, err := parseAttribute(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// memory are files of a package, in order.
type memory [][2]string

func (memory) Name() string { return "p.zip" }

func (m memory) Entries(context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for i, f := range m {
			e := format.Entry{Name: strings.TrimSuffix(f[0], "/"), Kind: format.File, Size: int64(len(f[1])), Ref: i}
			if e.Name != f[0] {
				e.Kind = format.Dir
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (m memory) Open(_ context.Context, e format.Entry) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(m[e.Ref.(int)][1])), nil
}

func options() Options {
	return Options{
		Escape:   func(name string, _ bool) string { return name },
		Prefix:   func(prefix, _ string) (string, error) { return prefix, nil },
		Check:    func(segment.PropertyType, string) bool { return true },
		MimeType: func(string) string { return "text/x-test" },
		Scratch:  func() (sorter.Scratch, error) { return sorter.TempFile() },
	}
}

// told returns the nodes of a package, with one property a line. If a property occurs several
// times, the last one counts.
func told(t testing.TB, files Files, o Options) ([]string, error) {
	t.Helper()
	r, err := NewReader(t.Context(), files, o)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	elements := map[string][]string{}
	for item, err := range r.Items(t.Context()) {
		if err != nil {
			return nil, err
		}
		key := func(name string) string { return item.Path + " " + name }
		switch item.Kind {
		case nodejson.NodeItem:
			all[item.Path] = ""
			for _, p := range item.Properties {
				var values []string
				for _, v := range p.Values {
					values = append(values, v.Content)
				}
				if all[key(p.Name)] = fmt.Sprintf("%s %q", p.Type, values); p.Multi {
					all[key(p.Name)] += " multiple"
				}
				if p.Kind == nodejson.Follows {
					all[key(p.Name)] = fmt.Sprintf("%s %q multiple", p.Type, elements[key(p.Name)][:p.Count])
				}
			}
		case nodejson.ContentItem:
			b, err := io.ReadAll(item.Content)
			if err != nil {
				return nil, err
			}
			all[key(item.Property)] = fmt.Sprintf("content %q", b)
		case nodejson.ElementItem:
			b, err := io.ReadAll(item.Content)
			if err != nil {
				return nil, err
			}
			if k := key(item.Property); item.Property == childOrder {
				elements[k] = append(elements[k], string(b))
			} else {
				all[fmt.Sprintf("%s[%d]", k, item.From)] = fmt.Sprintf("content %q", b)
			}
		default:
			t.Fatalf("kind %d", item.Kind)
		}
	}
	var lines []string
	for name, text := range all {
		lines = append(lines, strings.TrimSpace(name+" "+text))
	}
	slices.Sort(lines)
	return lines, nil
}

const (
	all       = `<workspaceFilter version="1.0"><filter root="/a"/></workspaceFilter>`
	beginning = `<?xml version="1.0" encoding="UTF-8"?><jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0" `
)

func TestAllFormsOfPackagesAreRead(t *testing.T) {
	files := memory{
		{FilterXML, `<workspaceFilter version="1.0">
			<filter root="/a"><exclude pattern="/a/no.*"/><exclude pattern="/a/.*/secret" matchProperties="true"/></filter>
			<filter root="/gone" type="cleanup"/></workspaceFilter>`},
		{NodeTypes, "<my='x'>\n[my:Sorted] > nt:base // a comment\n  orderable\n- * (undefined)\n[my:Loose]\n- orderable (string)\n/* [nt:unstructured] */"},
		{"META-INF/vault/definition/.content.xml", "anything"},
		{"jcr_root/.vlt", "x"},
		{"jcr_root/other/.content.xml", beginning + `jcr:primaryType="nt:folder" x="1"/>`},
		{"jcr_root/a/late/.content.xml", beginning + `jcr:primaryType="nt:folder"/>`},
		{"jcr_root/a/.content.xml", beginning + `jcr:primaryType="nt:unstructured" jcr:title="x
			y&#10;z" secret="1">
			<!-- comment --><second/><first jcr:primaryType="my:Sorted" secret="1"><b jcr:primaryType="my:Loose"/><_x0031_ jcr:primaryType="my:Loose"/></first>
			<no jcr:primaryType="nt:unstructured"/><file.txt/></jcr:root>`},
		{"jcr_root/a/second.xml", beginning + `jcr:primaryType="nt:unstructured" jcr:mixinTypes="[mix:title]" data="{Binary}" many="{Binary}[,]"/>`},
		{"jcr_root/a/second/data.binary", "D"},
		{"jcr_root/a/second/many[1].binary", "M1"},
		{"jcr_root/a/file.txt", "F"},
		{"jcr_root/a/file.txt.dir/.content.xml", beginning + `jcr:primaryType="nt:file"><jcr:content jcr:primaryType="oak:Resource" jcr:mimeType="text/plain"/></jcr:root>`},
		{"jcr_root/a/no.txt", "N"},
		{"jcr_root/a/plain.xml", "<plain/>"},
		{"jcr_root/a/_my_empty/", ""},
	}
	got, err := told(t, files, options())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/a",
		`/a :childOrder Name ["second" "first" "file.txt" "late" "plain.xml"] multiple`,
		`/a jcr:primaryType Name ["nt:unstructured"]`,
		`/a jcr:title String ["x    y\nz"]`,
		`/a secret String ["1"]`,
		"/a/file.txt",
		`/a/file.txt jcr:primaryType Name ["nt:file"]`,
		"/a/file.txt/jcr:content",
		`/a/file.txt/jcr:content jcr:data content "F"`,
		`/a/file.txt/jcr:content jcr:mimeType String ["text/plain"]`,
		`/a/file.txt/jcr:content jcr:primaryType Name ["oak:Resource"]`,
		"/a/first",
		`/a/first :childOrder Name ["b" "1"] multiple`,
		`/a/first jcr:primaryType Name ["my:Sorted"]`,
		"/a/first/1",
		`/a/first/1 jcr:primaryType Name ["my:Loose"]`,
		"/a/first/b",
		`/a/first/b jcr:primaryType Name ["my:Loose"]`,
		"/a/late",
		`/a/late jcr:primaryType Name ["nt:folder"]`,
		"/a/my:empty",
		`/a/my:empty jcr:primaryType Name ["nt:folder"]`,
		"/a/plain.xml",
		`/a/plain.xml jcr:primaryType Name ["nt:file"]`,
		"/a/plain.xml/jcr:content",
		`/a/plain.xml/jcr:content jcr:data content "<plain/>"`,
		`/a/plain.xml/jcr:content jcr:mimeType String ["text/x-test"]`,
		`/a/plain.xml/jcr:content jcr:primaryType Name ["nt:resource"]`,
		"/a/second",
		`/a/second :childOrder Name [] multiple`,
		`/a/second data content "D"`,
		`/a/second jcr:mixinTypes Name ["mix:title"] multiple`,
		`/a/second jcr:primaryType Name ["nt:unstructured"]`,
		`/a/second many Binary ["" ""] multiple`,
		`/a/second many[1] content "M1"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNamespacesMayHaveOtherPrefixes(t *testing.T) {
	o := options()
	o.Prefix = func(prefix, uri string) (string, error) {
		switch uri {
		case "http://my":
			return "store", nil
		case "http://bad":
			return "", errors.New("no such namespace")
		}
		return prefix, nil
	}
	got, err := told(t, memory{{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + `xmlns:m="http://my" jcr:primaryType="m:type" m:p="{Path}/x/m:y" n="{Name}[m:n,other:n]" s="m:s"><m:c jcr:primaryType="nt:folder"/></jcr:root>`}}, o)
	want := []string{"/a", `/a :childOrder Name ["store:c"] multiple`, `/a jcr:primaryType Name ["store:type"]`, `/a n Name ["store:n" "other:n"] multiple`, `/a s String ["m:s"]`,
		`/a store:p Path ["/x/store:y"]`, "/a/store:c", `/a/store:c jcr:primaryType Name ["nt:folder"]`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v\n%s", err, strings.Join(got, "\n"))
	}
	_, err = told(t, memory{{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + `xmlns:b="http://bad" jcr:primaryType="nt:folder" b:x="1"/>`}}, o)
	if e, ok := errors.AsType[*Error](err); !ok || e.Entry != "jcr_root/a/.content.xml" || e.Line != 1 {
		t.Error(err)
	}
}

func TestWhatIsNoPackageIsRefused(t *testing.T) {
	for what, files := range map[string]memory{
		"no filter":       {{"jcr_root/a/.content.xml", beginning + "/>"}},
		"filter":          {{FilterXML, "<x/>"}},
		"filter root":     {{FilterXML, `<workspaceFilter><filter root="a"/></workspaceFilter>`}},
		"pattern":         {{FilterXML, `<workspaceFilter><filter root="/a"><include pattern="(?=x)"/></filter></workspaceFilter>`}},
		"node types":      {{FilterXML, all}, {NodeTypes, strings.Repeat(" ", mostNodeTypes+1)}},
		"torn":            {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ">"}},
		"other end":       {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + "></x>"}},
		"document type":   {{FilterXML, all}, {"jcr_root/a/.content.xml", `<!DOCTYPE x [<!ENTITY e "e">]>` + beginning + "/>"}},
		"entity":          {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` x="&e;"/>`}},
		"prefix":          {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` my:x="1"/>`}},
		"type":            {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` x="{Strange}1"/>`}},
		"hidden property": {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` _x003a_x="1"/>`}},
		"slash":           {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` x="1"><b_x002f_c x="1"/></jcr:root>`}},
		"way out":         {{FilterXML, all}, {"jcr_root/a/%2e%2e/x.txt", ""}},
		"hidden file":     {{FilterXML, all}, {"jcr_root/a/%3ax.txt", ""}},
		"too deep":        {{FilterXML, all}, {"jcr_root/a/.content.xml", beginning + ` x="1">` + strings.Repeat(`<a x="1">`, mostDepth)}},
		"latin":           {{FilterXML, all}, {"jcr_root/a/.content.xml", `<?xml version="1.0" encoding="ISO-8859-1"?>` + beginning[38:] + "/>"}},
	} {
		got, err := told(t, files, options())
		if e, ok := errors.AsType[*Error](err); !ok || e.Package != "p.zip" || e.Entry == "" {
			t.Errorf("%s: got %q, %v, want an Error", what, got, err)
		}
	}
}

// A long element costs no more memory than there may be.
func TestALongElementIsRefused(t *testing.T) {
	testkit.Serial(t)
	s := newScanner(io.MultiReader(strings.NewReader(`<x y="`), &endless{}))
	if _, err := s.next(); err == nil || !strings.Contains(err.Error(), errMarkup.Error()) {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// Whatever a Writer writes is read back unchanged.
func TestTextsComeBack(t *testing.T) {
	texts := []string{"", "a", " ", "\t\n\r\n", "[", "{Long}", `\`, `\0`, `\u0041`, "a,b", "]", "\x00\x01\x1f\x7f\u0085", "\uFFFE\uFFFF\uFFFD", "😀ü", `<>&"'`, "]]>", "--", "&amp;"}
	rnd := rand.New(rand.NewPCG(1, 1))
	random := func() (s string) {
		for range rnd.IntN(4) {
			s += texts[rnd.IntN(len(texts))]
		}
		return s
	}
	for range 2000 {
		typ := []segment.PropertyType{segment.String, segment.URI, segment.Name}[rnd.IntN(3)]
		multi := rnd.IntN(2) == 0
		values := []string{random()}
		for multi && rnd.IntN(3) > 0 {
			values = append(values, random())
		}
		if multi && rnd.IntN(5) == 0 {
			values = nil
		}
		var b bytes.Buffer
		w := NewWriter(&b, func(string) (string, bool) { return "uri", true })
		w.Start("x")
		w.Attribute("a b", typ, multi)
		for _, v := range values {
			w.Value()
			if v == "" && len(values) == 1 {
				w.Empty()
			}
			for len(v) > 0 { // in parts, which may be torn
				n := 1 + rnd.IntN(len(v))
				w.Write([]byte(v[:n]))
				v = v[n:]
			}
		}
		w.EndAttribute()
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		s := newScanner(&b)
		e, err := s.next()
		if err != nil || len(e.attrs) != 1 || readXMLName(e.attrs[0].local) != "a b" {
			t.Fatalf("%v, %v", e, err)
		}
		got, err := parseAttribute(e.attrs[0].value)
		if typ == segment.String {
			got.Type = typ
		}
		if err != nil || got.Type != typ || got.Multi != multi || !slices.Equal(got.Values, values) {
			t.Fatalf("%q: got %+v, %v, want %q", e.attrs[0].value, got, err, values)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(beginning + `jcr:primaryType="nt:unstructured" x="{Long}[1,2]"><a/><b x="1"><c y="\u0041"/></b></jcr:root>`))
	f.Add([]byte(`<?xml version='1.0'?><!-- > --><a xmlns='u' b='"
'><![CDATA[<]]></a>`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		_, err := told(t, memory{{FilterXML, all}, {"jcr_root/a/.content.xml", string(doc)}, {"jcr_root/a/x.xml", string(doc)}, {NodeTypes, string(doc)}}, options())
		if _, ok := errors.AsType[*Error](err); err != nil && !ok {
			t.Errorf("%T: %v", err, err)
		}
		readFilter(bytes.NewReader(doc))
	})
}

func FuzzName(f *testing.F) {
	f.Add("_jcr_content")
	f.Add("_x0041_%41")
	f.Fuzz(func(t *testing.T, s string) {
		if got := repositoryName(PlatformName(s)); got != s && utf8.ValidString(s) {
			t.Errorf("%q: got %q", s, got)
		}
		if got := readXMLName(string(appendXMLName(nil, s))); got != s && utf8.ValidString(s) {
			t.Errorf("%q: got %q", s, got)
		}
		if a, err := parseAttribute(s); err == nil && !a.Multi && len(a.Values) != 1 {
			t.Errorf("%q: %+v", s, a)
		}
	})
}
