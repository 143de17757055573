package zip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storetest"
)

// repaired repairs a zip, and returns the result.
func repaired(t testing.TB, b []byte) ([]byte, format.Plan, error) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.zip", b)
	plan, err := repair(t.Context(), st, "x.zip", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}, func(format.Problem) {})
	if err != nil {
		return b, plan, err
	}
	var out bytes.Buffer
	at := int64(0)
	for _, e := range plan.Edits {
		if e.Off < at || e.Len < 0 || e.Off+e.Len > int64(len(b)) {
			t.Fatalf("bytes %d+%d behind %d, of %d", e.Off, e.Len, at, len(b))
		}
		out.Write(b[at:e.Off])
		if err := e.Write(&out); err != nil {
			t.Fatal(err)
		}
		at = e.Off + e.Len
	}
	out.Write(b[at:])
	return out.Bytes(), plan, nil
}

// known is a zip whose sizes stand in front of contents, as ours do.
func known(t testing.TB) []byte {
	t.Helper()
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.zip", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"d/text", strings.Repeat("text and more text. ", 500)}, {"d/stored", "as it is"}, {"d/empty", ""}, {"last", strings.Repeat("the last ", 99)}} {
		e := format.Entry{Name: c[0], Size: int64(len(c[1])), Mode: 0o640, HasMode: true, ModTime: when}
		if err := w.Add(t.Context(), e, strings.NewReader(c[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st.Get("x.zip")
}

func TestRepairKeepsWhatIsRight(t *testing.T) {
	header := func(b []byte, name string) int { return bytes.Index(b, []byte(name)) - localLen }
	row := func(b []byte, name string) int { return bytes.LastIndex(b, []byte(name)) - rowLen }
	for from, whole := range map[string][]byte{"ours": known(t), "streamed": sample(t, ""), "behind a program": append([]byte("#!"+strings.Repeat("a program. ", 99)), sample(t, "")...)} {
		all, _, _ := listed(t, whole)
		dir := bytes.Index(whole, []byte(rowMagic))
		for what, c := range map[string]struct {
			change func(b []byte) []byte
			lost   string
		}{
			"nothing":                {func(b []byte) []byte { return b }, ""},
			"no directory":           {func(b []byte) []byte { return b[:dir] }, ""},
			"half a directory":       {func(b []byte) []byte { return b[:dir+100] }, ""},
			"no end":                 {func(b []byte) []byte { return b[:bytes.LastIndex(b[:len(b)-6], []byte(endMagic))] }, ""},
			"a row":                  {func(b []byte) []byte { b[row(b, "d/stored")] ^= 1; return b }, ""},
			"a place in a row":       {func(b []byte) []byte { b[row(b, "d/stored")+42] ^= 5; return b }, ""},
			"a header":               {func(b []byte) []byte { b[header(b, "d/text")] ^= 1; return b }, ""},
			"all of a header":        {func(b []byte) []byte { copy(b[header(b, "d/text"):], strings.Repeat("?", localLen)); return b }, ""},
			"a header of nothing":    {func(b []byte) []byte { clear(b[header(b, "d/empty"):][:localLen]); return b }, ""},
			"the length of a name":   {func(b []byte) []byte { b[header(b, "d/stored")+26] += 3; return b }, "d/stored"},
			"a content":              {func(b []byte) []byte { b[header(b, "d/text")+localLen+len("d/text")+40] ^= 1; return b }, "d/text"},
			"a content, and the end": {func(b []byte) []byte { b[header(b, "d/text")+localLen+len("d/text")+40] ^= 1; return b[:dir] }, "d/text"},
		} {
			what := from + ", " + what
			b := c.change(bytes.Clone(whole))
			got, plan, err := repaired(t, b)
			if err != nil || plan.Partial != (c.lost != "") || plan.Changes() == bytes.Equal(b, whole) {
				t.Errorf("%s: %+v, %v", what, plan, err)
				continue
			}
			want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == c.lost })
			list, notes, doubt := listed(t, got)
			slices.Sort(list)
			slices.Sort(want)
			if !slices.Equal(list, want) || len(notes) > 0 || doubt != nil {
				t.Errorf("%s: %q, %+v, %+v", what, list, notes, doubt)
			}
			z, err := zip.NewReader(bytes.NewReader(got), int64(len(got)))
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			for _, f := range z.File {
				if f.Method == zstd {
					continue
				}
				in, err := f.Open()
				if err == nil {
					_, err = io.Copy(io.Discard, in)
				}
				if err != nil {
					t.Errorf("%s: %s: %v", what, f.Name, err)
				}
			}
			if _, again, err := repaired(t, got); err != nil || again.Changes() {
				t.Errorf("%s, again: %+v, %v", what, again, err)
			}
		}
	}
}

// readable returns the files whose contents match their checksums, each as its name and
// content.
func readable(t testing.TB, b []byte) (files []string) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.zip", b)
	r, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
	if err != nil {
		return nil
	}
	defer r.Close()
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault != nil || e.Kind != format.File || e.Size == 0 || e.Size > 1<<20 {
			continue
		}
		if c := content(t, r, b, e); int64(len(c)) == e.Size && string(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(c))) == e.Digest.Sum {
			files = append(files, e.Name+"\x00"+string(c))
		}
	}
	return files
}

// hostile returns a zip with a row that claims the content of another row. The missing header
// would be made within intact content, which has a row or none.
func hostile(t testing.TB, listed bool) []byte {
	t.Helper()
	var b []byte
	add := func(name, content string) row {
		x := row{name: name, crc: crc32.ChecksumIEEE([]byte(content)), stored: uint64(len(content)), size: uint64(len(content)), off: uint64(len(b)), maker: madeByUnix}
		b = append(x.appendLocal(b), content...)
		return x
	}
	// As a header's lengths and name: 80 bytes on there is the other content.
	sound := add("sound", "a content that is"+strings.Repeat(".", 26)+"\x04\x00\x2e\x00evil"+strings.Repeat(".", 10))
	victim := add("victim", strings.Repeat("evil", 9))
	evil := victim
	evil.name, evil.off = "evil", uint64(bytes.Index(b, []byte("evil"))-localLen)
	rows := []row{evil, victim, sound}
	if !listed {
		rows = rows[:2]
	}
	e := end{count: uint64(len(rows)), off: uint64(len(b))}
	for _, x := range rows {
		b = x.append(b)
	}
	e.size = uint64(len(b)) - e.off
	return appendEnd(b, e)
}

func TestAHostileRowChangesNoContent(t *testing.T) {
	for _, listed := range []bool{false, true} {
		b := hostile(t, listed)
		got, plan, err := repaired(t, b)
		if err != nil || !plan.Partial || len(plan.Edits) != 1 {
			t.Fatalf("%+v, %v", plan, err)
		}
		if list := readable(t, got); len(list) != 2 || !strings.HasPrefix(list[0], "sound") || !strings.HasPrefix(list[1], "victim") {
			t.Errorf("%q", list)
		}
	}
}

// The end records of these are wrong, and some row seems to prove them. They are no inputs of the
// fuzzer, which would look for more such rows instead of for other damage.
func TestAMisplacedDirectoryIsRepairedAtOnce(t *testing.T) {
	all, err := filepath.Glob("testdata/misplaced/*.zip")
	if err != nil || len(all) != 7 {
		t.Fatal(all, err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, plan, err := repaired(t, b)
		if err != nil || !plan.Changes() {
			t.Fatalf("%s: %+v, %v", name, plan, err)
		}
		if _, again, err := repaired(t, got); err != nil || again.Changes() {
			t.Errorf("%s: repaired, it has still to be repaired: %+v, %v", name, again, err)
		}
	}
}

// Whatever is wrong, a repair gives a zip that needs none, in which all is that could be
// read before, and panics on nothing.
func FuzzRepair(f *testing.F) {
	for _, b := range [][]byte{known(f), sample(f, ""), sample(f, "in front"), hostile(f, false), hostile(f, true)} {
		f.Add(b)
		f.Add(b[:bytes.Index(b, []byte(rowMagic))+60])
		torn := bytes.Clone(b)
		torn[bytes.Index(b, []byte(localMagic))] ^= 1
		f.Add(torn)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, plan, err := repaired(t, b)
		if err != nil || !plan.Changes() {
			return
		}
		if _, again, err := repaired(t, got); err != nil || again.Changes() {
			t.Errorf("repaired, it has still to be repaired: %+v, %v", again, err)
		}
		after := readable(t, got)
		for _, x := range readable(t, b) {
			if !slices.Contains(after, x) {
				t.Errorf("%.99q could be read before", x)
			}
		}
	})
}

// Without a directory, nothing tells what the bytes are in front of the first header that is left.
func TestACutHeadIsALoss(t *testing.T) {
	whole := sample(t, "")
	cut := whole[bytes.Index(whole, []byte("d/text"))+1 : bytes.Index(whole, []byte(rowMagic))]
	_, plan, err := repaired(t, cut)
	if err != nil || !plan.Partial || !strings.Contains(strings.Join(plan.Lost, "\n"), "at byte 0 belong to no file") {
		t.Errorf("%+v, %v", plan, err)
	}
}
