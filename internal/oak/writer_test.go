package oak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

func tmp() (sorter.Scratch, error) { return os.CreateTemp("", "holdall-test-") }

// newWriter begins the store s of st.
func newWriter(t testing.TB, st store.Store, param map[string]string) format.Writer {
	t.Helper()
	w, err := create(t.Context(), st, "s", format.CreateOptions{Scratch: tmp, Param: param})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func addText(t testing.TB, w format.Writer, e format.Entry, content string) error {
	t.Helper()
	e.Size = int64(len(content))
	return w.Add(t.Context(), e, strings.NewReader(content))
}

func property(name, typ string, more ...string) format.Entry {
	e := format.Entry{Name: name, Kind: format.Property, Attr: map[string]string{typeAttr: typ}}
	for i := 0; i+1 < len(more); i += 2 {
		e.Attr[more[i]] = more[i+1]
	}
	return e
}

func mustCommit(t testing.TB, w format.Writer) format.Summary {
	t.Helper()
	sum, err := w.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func treeOptions() holdall.OpenOptions {
	return holdall.OpenOptions{Formats: []*format.Format{Format}, View: treeView}
}

// contents are the entries of the tree of s, each as text.
func contents(t testing.TB, st store.Store) map[string]string {
	t.Helper()
	a, err := holdall.Open(t.Context(), "s", treeOptions().In(st))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	all := map[string]string{}
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(e.Kind, e.Attr)
		if e.Kind.HasContent() {
			r, err := a.OpenEntry(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err = errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			text += " " + string(b)
		}
		all[e.Name] = text
	}
	return all
}

func TestATreeIsWrittenAsItWasRead(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"types", "wide", "multitar", "empty-store", "checkpoints", "gc-online"} {
		t.Run(name, func(t *testing.T) {
			from, to := fixture(t, name), &storetest.Mem{}
			a, err := holdall.Open(t.Context(), "s", treeOptions().In(from))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			o := holdall.PackOptions{Format: "oak", Formats: []*format.Format{Format}}
			o.Store = to
			if _, err := holdall.Convert(t.Context(), a, "s", o); err != nil {
				t.Fatal(err)
			}
			if want, got := contents(t, from), contents(t, to); !maps.Equal(want, got) {
				t.Errorf("%d entries, expected %d, or others", len(got), len(want))
			}
			_, err = holdall.Verify(t.Context(), "s", holdall.VerifyOptions{OpenOptions: treeOptions().In(to)}, func(p holdall.Problem) { t.Error(p) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAFileBecomesWhatJackrabbitMakesOfIt(t *testing.T) {
	st := &storetest.Mem{}
	w := newWriter(t, st, nil)
	at := time.Date(2026, 1, 2, 4, 4, 5, 678_912_345, time.FixedZone("", 3600))
	for _, e := range []format.Entry{{Name: "d/a.TXT", ModTime: at}, {Name: "d", Kind: format.Dir, ModTime: at}, {Name: "e/f/b"}} {
		content := ""
		if e.Kind == format.File {
			content = "content of " + e.Name
		}
		if err := addText(t, w, e, content); err != nil {
			t.Fatal(err)
		}
	}
	sum := mustCommit(t, w)
	if sum.Entries != 3 || sum.Content != 34 || !slices.Equal(sum.Volumes, []string{"s/data00000a.tar", "s/manifest", "s/journal.log"}) {
		t.Errorf("%+v", sum)
	}
	const date = "property map[type:Date] 2026-01-02T03:04:05.678Z"
	name := func(s string) string { return "property map[type:Name] " + s }
	want := map[string]string{
		"d": "dir map[]", "d/jcr:primaryType": name("nt:folder"), "d/jcr:created": date,
		"d/a.TXT": "dir map[]", "d/a.TXT/jcr:primaryType": name("nt:file"), "d/a.TXT/jcr:created": date,
		"d/a.TXT/jcr:content": "dir map[]", "d/a.TXT/jcr:content/jcr:primaryType": name("nt:resource"), "d/a.TXT/jcr:content/jcr:lastModified": date,
		"d/a.TXT/jcr:content/jcr:mimeType": "property map[type:String] text/plain", "d/a.TXT/jcr:content/jcr:data": "property map[type:Binary] content of d/a.TXT",
		"e": "dir map[]", "e/jcr:primaryType": name("nt:folder"), "e/f": "dir map[]", "e/f/jcr:primaryType": name("nt:folder"),
		"e/f/b": "dir map[]", "e/f/b/jcr:primaryType": name("nt:file"),
		"e/f/b/jcr:content": "dir map[]", "e/f/b/jcr:content/jcr:primaryType": name("nt:resource"),
		"e/f/b/jcr:content/jcr:mimeType": "property map[type:String] application/octet-stream", "e/f/b/jcr:content/jcr:data": "property map[type:Binary] content of e/f/b",
	}
	got := contents(t, st)
	for n, text := range want {
		if got[n] != text {
			t.Errorf("%s: %q, expected %q", n, got[n], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, expected %d: %q", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
	if journal := string(st.Get("s/journal.log")); !strings.HasSuffix(journal, fmt.Sprintf(" root %d\n", at.UnixMilli())) {
		t.Errorf("journal: %q, expected the newest entry's time", journal)
	}
}

func TestPropertiesBecomePropertiesAgain(t *testing.T) {
	st := &storetest.Mem{}
	w := newWriter(t, st, nil)
	entries := []struct {
		e       format.Entry
		content string
	}{
		{property("top", "String"), "text"},
		{property("n/jcr:mixinTypes", "Name", multipleAttr, "true"), `["mix:a","mix:b"]`},
		{property("n/long", "Long"), "-12"},
		{property("n/large", "String"), strings.Repeat("large ", 100_000)},
		{property("n/none", "Date", multipleAttr, "true"), "[]"},
		{property("n/odd", "String", multipleAttr, "true"), `["","\"\\\n\u0001","ä",` + `"` + strings.Repeat("x", 40_000) + `"]`},
		{format.Entry{Name: "n/all", Kind: format.Dir, Attr: map[string]string{typeAttr: "Binary", multipleAttr: "true"}}, ""},
		{property("n/all/1", "Binary"), strings.Repeat("b", 17_000)},
		{property("n/all/0", "Binary"), "\x00\xff"},
		{format.Entry{Name: "n/both", Kind: format.Dir}, ""},
		{property("n/both%prop", "Boolean"), "true"},
		{property("n/both/0", "Binary"), "no value of several"},
		{format.Entry{Name: "bare", Kind: format.Dir}, ""},
	}
	want := map[string]string{"n": "dir map[]"}
	for _, c := range entries {
		if err := addText(t, w, c.e, c.content); err != nil {
			t.Fatal(err)
		}
		want[c.e.Name] = fmt.Sprint(c.e.Kind, c.e.Attr)
		if c.e.Kind.HasContent() {
			want[c.e.Name] += " " + c.content
		}
	}
	mustCommit(t, w)
	got := contents(t, st)
	for n, text := range want {
		if got[n] != text {
			t.Errorf("%s: %.200q, expected %.200q", n, got[n], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d entries, expected %d", len(got), len(want))
	}
}

func TestWhatHasNoPlaceInATreeIsRefusedByName(t *testing.T) {
	array := []string{multipleAttr, "true"}
	cases := []struct {
		e       format.Entry
		content string
		want    string
	}{
		{format.Entry{Name: "a\nb"}, "", "names of tree nodes"},
		{format.Entry{Name: "a%prop"}, "", "names of tree nodes"},
		{format.Entry{Name: "a%prop/b"}, "", "names of tree nodes"},
		{format.Entry{Name: "%lost1"}, "", "names of tree nodes"},
		{format.Entry{Name: "a/%/b"}, "", "without a slash"},
		{format.Entry{Name: "a%2Fb"}, "", "without a slash"},
		{format.Entry{Name: `c:\d`}, "", "drive"},
		{format.Entry{Name: "../a"}, "", ".."},
		{format.Entry{Name: strings.Repeat("d/", 1000) + "f"}, "", "1000 levels"},
		{format.Entry{Name: strings.Repeat("d/", 999) + "f"}, "", "1000 levels"},
		{format.Entry{Name: strings.Repeat("d", 300_000)}, "", "bytes"},
		{format.Entry{Name: "link", Kind: format.Symlink, Link: "a"}, "", "a symlink"},
		{property("p", ""), "", "a type of Oak"},
		{property("p", "Text"), "", "a type of Oak"},
		{property("p", "Binary", array...), "[]", "a folder"},
		{format.Entry{Name: "p", Kind: format.Dir, Attr: map[string]string{typeAttr: "Binary"}}, "", "a folder"},
		{property("p", "Long", array...), `["1",2]`, "value 1: array at 5: expected a string, found '2'"},
		{property("p", "Long", array...), `["1"`, "unexpected EOF"},
		{property("p", "Long", array...), `["1"] x`, "expected the end"},
		{property("p", "Long", array...), `"1"`, "expected a ["},
		{property("p", "Long", array...), `["\ud800"]`, "surrogate"},
		{property("p", "Long", array...), `["\x"]`, "an escape"},
		{property("p", "Long", array...), "[\"\n\"]", "control character"},
	}
	st := &storetest.Mem{}
	w := newWriter(t, st, nil)
	for _, c := range cases {
		err := addText(t, w, c.e, c.content)
		e, ok := errors.AsType[kit.EntryError](err)
		if !ok || e.EntryName() != c.e.Name || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q: error is %.200v, expected %q", c.e.Name, err, c.want)
		}
	}
	if err := addText(t, w, format.Entry{Name: "100%25 of it%20"}, ""); err != nil {
		t.Error(err)
	}
	mustCommit(t, w)
	if got := contents(t, st); got["100%2525 of it%20"] != "dir map[]" || len(got) != 6 {
		t.Errorf("found %q", got)
	}
}

func TestParametersThatCannotBeAreRefused(t *testing.T) {
	for _, param := range []map[string]string{
		{"tar-size": "1000"}, {"tar-size": "x"}, {"tar-size": "99999999999"}, {"time": "yesterday"}, {"level": "3"},
	} {
		if Format.CheckParams(format.ToCreate, param) != nil {
			continue
		}
		if w, err := create(t.Context(), &storetest.Mem{}, "s", format.CreateOptions{Scratch: tmp, Param: param}); err == nil {
			t.Errorf("%v is accepted", param)
			w.Abort()
		}
	}
}

func TestAStoreHasTheTimeThatIsGiven(t *testing.T) {
	stores := map[string]*storetest.Mem{}
	for _, at := range []string{"2026-01-02T03:04:05Z", "2027-01-02T03:04:05Z"} {
		st := &storetest.Mem{}
		w := newWriter(t, st, map[string]string{"time": at})
		if err := addText(t, w, format.Entry{Name: "a", ModTime: time.Now()}, "a"); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, w)
		parsed, _ := time.Parse(time.RFC3339, at)
		if journal := string(st.Get("s/journal.log")); !strings.HasSuffix(journal, fmt.Sprintf(" root %d\n", parsed.UnixMilli())) {
			t.Errorf("journal: %q", journal)
		}
		stores[string(st.Get("s/journal.log")[:36])] = st
	}
	if len(stores) != 2 {
		t.Error("segments of different times have one name")
	}
}

func TestATarEndsWhereItShould(t *testing.T) {
	st := &storetest.Mem{}
	w := newWriter(t, st, map[string]string{"tar-size": fmt.Sprint(1 << 20)})
	for i := range 20 {
		if err := addText(t, w, format.Entry{Name: fmt.Sprint(i)}, strings.Repeat("x", 300_000)); err != nil {
			t.Fatal(err)
		}
	}
	if sum := mustCommit(t, w); len(sum.Volumes) < 6 {
		t.Errorf("files %q", sum.Volumes)
	}
	got := contents(t, st)
	if want := "property map[type:Binary] " + strings.Repeat("x", 300_000); got["7/jcr:content/jcr:data"] != want {
		t.Errorf("%d bytes of content", len(got["7/jcr:content/jcr:data"]))
	}
}

// endless is content that takes no memory, and looks what others take.
type endless struct {
	left int64
	look func()
}

func (z *endless) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	if z.left/(16<<20) != (z.left-n)/(16<<20) {
		z.look()
	}
	z.left -= n
	return int(n), nil
}

// discarding is a store that discards the content of what is written.
type discarding struct{ *storetest.Mem }

func (d discarding) Can() store.Abilities {
	return store.Abilities{Create: func(context.Context, string, store.Wishes) (store.Writer, error) { return discarded{}, nil }}
}

type discarded struct{}

func (discarded) Write(p []byte) (int, error)                { return len(p), nil }
func (discarded) Commit(context.Context) (store.Info, error) { return store.Info{}, nil }
func (discarded) Abort() error                               { return nil }
func (discarded) Can() store.WriterAbilities                 { return store.WriterAbilities{} }

func TestALargeFileIsNotHeldInMemory(t *testing.T) {
	testkit.Serial(t)
	const size = 256 << 20
	var most uint64
	look := func() { most = max(most, testkit.Live()) }
	look()
	base := most
	w := newWriter(t, discarding{&storetest.Mem{}}, nil)
	if err := w.Add(t.Context(), format.Entry{Name: "large", Size: size}, &endless{size, look}); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, w)
	if limit := base + 8<<20; most > limit {
		t.Errorf("%d KiB, expected at most %d", most>>10, limit>>10)
	}
}

// arrayOf takes an array apart.
func arrayOf(b []byte) (all []string, err error) {
	a := &arrayReader{in: bufio.NewReader(bytes.NewReader(b))}
	for a.next() {
		s, err := io.ReadAll(a)
		if err != nil {
			return all, err
		}
		all = append(all, string(s))
	}
	return all, a.err
}

// FuzzArray accepts what encoding/json accepts, except for bytes that are not UTF-8 and halves of
// surrogate pairs, and reads the same.
func FuzzArray(f *testing.F) {
	for _, s := range []string{`[]`, ` [ "a" , "" ] `, `["\u00e4\ud83d\ude00\"\\\/\b\f\n\r\t"]`, `["a",]`, `[,]`, `["\ud800"]`, `["a" "b"]`, `["a"`, `[1]`, "[\"\x01\"]", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := arrayOf(b)
		var want []*string
		wantErr := json.Unmarshal(b, &want)
		for _, s := range want {
			if s == nil || strings.Contains(*s, "�") {
				return // null, or what json replaces
			}
		}
		if bytes.TrimSpace(b) != nil && string(bytes.TrimSpace(b)) == "null" {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: error is %v, expected %v", b, err, wantErr)
		}
		for i := range want {
			if err == nil && (len(got) != len(want) || got[i] != *want[i]) {
				t.Fatalf("%q: %q", b, got)
			}
		}
	})
}

// What the tree shows as an array is read as the values that it was made of.
func TestArraysAreReadAsTheyAreShown(t *testing.T) {
	values := []string{"", "a", "\"\\/\b\f\n\r\t\x00\x1f", "ä\U0001f600", "not \xff utf-8", strings.Repeat("long", 5000)}
	b := []byte("[")
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		escapeJSON([]byte(v), func(p []byte) bool {
			b = append(b, p...)
			return true
		})
		b = append(b, '"')
	}
	got, err := arrayOf(append(b, ']'))
	if err != nil || !slices.Equal(got, values) {
		t.Errorf("%q, %v", got, err)
	}
}
