package rvn

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store/storetest"
)

func TestOrderIsThatOfTheReference(t *testing.T) {
	for _, name := range fixtures(t) {
		if strings.HasPrefix(name, "ext-") {
			continue
		}
		a, _, err := contentsOf(t, fixture(t, name))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []format.Entry
		for i := range a.index.Len() {
			want = append(want, a.index.Entry(i))
		}
		got = slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, order)
		for i := range want {
			if got[i].Name != want[i].Name {
				t.Errorf("%s: entry %d is %q, want %q", name, i, got[i].Name, want[i].Name)
				break
			}
		}
	}
}

// write packs entries whose content is their name.
func write(t *testing.T, o format.CreateOptions, entries ...format.Entry) (*storetest.Mem, error) {
	t.Helper()
	st := &storetest.Mem{}
	o.Scratch = fileScratch(t)
	w, err := create(t.Context(), st, "x.rvn", o)
	if err != nil {
		return st, err
	}
	for _, e := range entries {
		content := ""
		if e.Kind == format.File {
			content = e.Name
			e.Size = int64(len(content))
		}
		if err := w.Add(t.Context(), e, strings.NewReader(content)); err != nil {
			return st, err
		}
	}
	_, err = w.Commit(t.Context())
	return st, err
}

func TestWhatHasNoPlaceIsNamedBeforeAnythingIsWritten(t *testing.T) {
	people := func(n int) (out []format.Entry) {
		for i := range n {
			out = append(out, format.Entry{Name: fmt.Sprint(i), Owner: fmt.Sprint("user", i), Group: "g"})
		}
		return out
	}
	dirs := func(n int) (out []format.Entry) {
		for i := range n {
			out = append(out, format.Entry{Name: fmt.Sprint(i), Kind: format.Dir})
		}
		return out
	}
	one := func(e format.Entry) []format.Entry { return []format.Entry{e} }
	for _, c := range []struct {
		manifest []format.Entry
		want     string
	}{
		{one(format.Entry{Name: "big", Size: 1 << 40}), "big: size: 1099511627776 bytes: expected at most 1099511627775"},
		{one(format.Entry{Name: "big", Size: 3 << 30}), "big: size: 3221225472 bytes: the reference fails on sizes whose lower 32 bits are 2 GiB or more"},
		{one(format.Entry{Name: "big", Size: 5 << 30}), ""},
		{one(format.Entry{Name: strings.Repeat("n", 256)}), "name: 256 bytes: expected at most 255"},
		{one(format.Entry{Name: "d/" + strings.Repeat("n", 255)}), ""},
		{one(format.Entry{Name: "l", Kind: format.Symlink, Link: strings.Repeat("n", 1<<16)}), "l: link target: 65536 bytes: expected at most 65535"},
		{one(format.Entry{Name: "l", Kind: format.Symlink}), "l: link target: empty"},
		{one(format.Entry{Name: "old", ModTime: time.Unix(-1, 0)}), "old: time: 1969-12-31 is before 1970: readers fail on such times"},
		{one(format.Entry{Name: "f", Owner: strings.Repeat("o", 33)}), `has 33 bytes: expected at most 32`},
		{people(256), ""},
		{people(257), `256: owner: "user256" would be number 257, but the limit is 256`},
		{dirs(65535), ""},
		{dirs(65536), "65535: directory: more than 65535"},
		{append(one(format.Entry{Name: "../x"}), format.Entry{Name: "y", Owner: "\x00"}), "../x: name: it contains ..\ny: owner: the name contains a NUL byte"},
	} {
		st, err := write(t, format.CreateOptions{Manifest: c.manifest})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("found %v, want %q", err, c.want)
		}
		if err != nil && st.Get("x.rvn") != nil {
			t.Errorf("%s: something was written", c.want)
		}
	}
}

func TestMetadataIsWhatItIsGiven(t *testing.T) {
	for _, c := range []struct{ metadata, prefix, abi, want string }{
		{"", "", "", "abi: \"\"\nflatsize: 1\nnamebase: \"unset\"\nprefix: \"\"\nsubpackage: \"unset\"\nvariant: \"unset\"\n"},
		{"namebase = x; version: 2", "/raven", "linux:x86_64", "abi: \"linux:x86_64\"\nflatsize: 1\nnamebase: \"x\"\nprefix: \"/raven\"\nsubpackage: \"unset\"\nvariant: \"unset\"\nversion: 2\n"},
		{"{ not ucl", "", "", "abi: \"\"\ndesc: \"{ not ucl\"\nflatsize: 1\nnamebase: \"unset\"\nprefix: \"\"\nsubpackage: \"unset\"\nvariant: \"unset\"\n"},
		{"flatsize: 99", "", "", "abi: \"\"\nflatsize: 1\nnamebase: \"unset\"\nprefix: \"\"\nsubpackage: \"unset\"\nvariant: \"unset\"\n"},
	} {
		o := format.CreateOptions{Param: map[string]string{paramMetadata: c.metadata}}
		if c.prefix != "" {
			o.Param[paramPrefix], o.Param[paramABI] = c.prefix, c.abi
		}
		st, err := write(t, o, format.Entry{Name: "f"})
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := contentsOf(t, st.Get("x.rvn"))
		if err != nil {
			t.Fatal(err)
		}
		if m, err := a.metadata(); err != nil || string(m.text) != c.want {
			t.Errorf("%q became\n%s, want\n%s; %v", c.metadata, m.text, c.want, err)
		}
	}
	if _, err := write(t, format.CreateOptions{Param: map[string]string{paramMetadata: strings.Repeat(" ", maxMetadata+1)}}); err == nil || !strings.Contains(err.Error(), "524289 bytes") {
		t.Errorf("too much metadata: %v", err)
	}
}

// A single file is read by decoding only its section.
func TestSectionsEndBetweenFiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.rvn", format.CreateOptions{Scratch: fileScratch(t), Param: map[string]string{paramSections: "65536"}})
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{}
	for i := range 200 {
		n := rnd.IntN(20_000)
		if i == 77 {
			n = 300_000
		}
		sizes = append(sizes, n)
		b := bytes.Repeat([]byte{byte(i)}, n)
		if err := w.Add(t.Context(), format.Entry{Name: fmt.Sprintf("%03d", i), Size: int64(n)}, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, content, err := contentsOf(t, st.Get("x.rvn"))
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for i, n := range sizes {
		at := a.index.start(i)
		if !bytes.Equal(content[at:at+int64(n)], bytes.Repeat([]byte{byte(i)}, n)) {
			t.Errorf("content of %d differs", i)
		}
		extents := 0
		for range (&reader{a, a.byName}).Extents(t.Context(), a.index.Entry(i), 0, int64(n)) {
			extents++
		}
		if n < 65536*3/4 && extents > 1 {
			cut++
		}
	}
	if cut > 40 {
		t.Errorf("%d files lie in two sections", cut)
	}
	for i, s := range a.table.sections[1:] {
		if n := s.flat - a.table.sections[i].flat; n > 65536 {
			t.Errorf("section %d has %d bytes", i, n)
		}
	}
}

func TestModesKeepTheirBits(t *testing.T) {
	for m := range uint16(0o10000) {
		if got := uint16(kit.UnixMode(kit.ModeOfUnix(uint32(m)))); got != m {
			t.Errorf("%o becomes %o", m, got)
		}
	}
	if kit.ModeOfUnix(0o4755) != 0o755|fs.ModeSetuid {
		t.Error(kit.ModeOfUnix(0o4755))
	}
}
