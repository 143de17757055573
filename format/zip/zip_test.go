package zip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	zst "github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

var when = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// sample returns a zip as another program writes it.
func sample(t testing.TB, front string) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(front)
	w := zip.NewWriter(&b)
	w.SetOffset(int64(len(front)))
	w.RegisterCompressor(zstd, func(out io.Writer) (io.WriteCloser, error) { return zst.NewWriter(out) })
	for _, f := range []struct {
		name, content string
		method        uint16
		mode          fs.FileMode
	}{
		{"d/", "", zip.Store, fs.ModeDir | 0o750},
		{"d/text", strings.Repeat("text and more text. ", 500), zip.Deflate, 0o640},
		{"d/stored", "as it is", zip.Store, fs.ModeSetuid | 0o755},
		{"d/empty", "", zip.Deflate, 0o600},
		{"d/modern", strings.Repeat("zstd ", 1000), zstd, 0o600},
		{"link", "d/text", zip.Deflate, fs.ModeSymlink | 0o777},
	} {
		h := &zip.FileHeader{Name: f.name, Method: f.method, Modified: when}
		h.SetMode(f.mode)
		out, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(out, f.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetComment("a comment, PK\x05\x06"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOthersZipsConform(t *testing.T) {
	for name, front := range map[string]string{"plain": "", "behind a program": "#!/bin/sh\nexit 1\n" + strings.Repeat("\x7f", 500)} {
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, Format, map[string][]byte{"x.zip": sample(t, front)}, "x.zip")
		})
	}
}

func opened(t testing.TB, b []byte) format.Reader {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.zip", b)
	r, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestEntriesOfOthersAreRead(t *testing.T) {
	r := opened(t, sample(t, ""))
	for name, want := range map[string]format.Entry{
		"d":        {Kind: format.Dir, Mode: 0o750},
		"d/text":   {Size: 10_000, Mode: 0o640},
		"d/stored": {Size: 8, Mode: fs.ModeSetuid | 0o755},
		"d/empty":  {Mode: 0o600},
		"d/modern": {Size: 5000, Mode: 0o600},
		"link":     {Kind: format.Symlink, Link: "d/text", Mode: 0o777},
	} {
		e, err := r.Lookup(t.Context(), name)
		if err != nil || e.Fault != nil || e.Kind != want.Kind || e.Size != want.Size || e.Mode != want.Mode || !e.HasMode || e.Link != want.Link || !e.ModTime.Equal(when) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// What has no place in the old fields: the numbers of a long archive.
func TestLongNumbersComeBack(t *testing.T) {
	want := row{name: "x", size: 5 << 40, stored: 6 << 32, off: 7 << 33, method: deflated, crc: 9, time: when, maker: madeByUnix, external: unixFile << 16}
	b := want.append(nil)
	got, n, err := parseRow(append(b, "PK"...), nil)
	if err != nil || n != len(b) || got != want {
		t.Errorf("%+v, %d, %v; expected %+v, %d", got, n, err, want, len(b))
	}
	e := end{count: 1 << 20, size: 5 << 32, off: 6 << 40}
	b = appendEnd(nil, e)
	if _, off, n, ok := parseLocator(b[end64Len:]); !ok || off != e.off+e.size || n != 1 {
		t.Errorf("the longer end is reported at %d", off)
	}
	if got, ok := parseEnd64(b); !ok || got != e {
		t.Errorf("%+v, expected %+v", got, e)
	}
	if got := parseEnd(b[end64Len+locatorLen:]); !got.long {
		t.Errorf("%+v does not lead to the longer end", got)
	}
}

func TestManyEntriesAreReadByTheStandardLibrary(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	w, err := create(t.Context(), st, "x.zip", format.CreateOptions{Scratch: func() (sorter.Scratch, error) {
		return os.CreateTemp(t.TempDir(), "")
	}})
	if err != nil {
		t.Fatal(err)
	}
	const n = 70_000
	for i := range n {
		b := binary.BigEndian.AppendUint32(nil, uint32(i))
		if err := w.Add(t.Context(), format.Entry{Name: time.Duration(i).String(), Size: 4, ModTime: when.Add(time.Duration(i) * time.Nanosecond * 100)}, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := st.Get("x.zip")
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(z.File) != n {
		t.Fatalf("%v", err)
	}
	for i, f := range z.File {
		if f.Name != time.Duration(i).String() || f.Modified.Unix() != when.Unix() {
			t.Fatalf("entry %d is %q of %v", i, f.Name, f.Modified)
		}
	}
	e, err := opened(t, b).Lookup(t.Context(), "69.999µs")
	if err != nil || !e.ModTime.Equal(when.Add(69_999*100)) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestDamageIsSaid(t *testing.T) {
	whole := sample(t, "")
	dir := bytes.Index(whole, []byte(rowMagic))
	for what, c := range map[string]struct {
		change func([]byte) []byte
		code   format.Code
	}{
		"cut off":                {func(b []byte) []byte { return b[:len(b)/2] }, format.MissingIndex},
		"a directory that lies":  {func(b []byte) []byte { b[dir] = 'Q'; return b }, format.BadIndex},
		"a header that is none":  {func(b []byte) []byte { copy(b[bytes.Index(b, []byte("d/text"))-30:], "none"); return b }, format.BadHeader},
		"a name":                 {func(b []byte) []byte { b[bytes.LastIndex(b, []byte("d/text"))+2] ^= 1; return b }, format.BadHeader},
		"encrypted":              {func(b []byte) []byte { b[dir+8] |= flagEncrypted; return b }, format.Unsupported},
		"a method of the future": {func(b []byte) []byte { b[dir+10] = 77; return b }, format.Unsupported},
	} {
		st := &storetest.Mem{}
		st.Put("x.zip", c.change(bytes.Clone(whole)))
		var said []format.Problem
		if err := verify(t.Context(), st, "x.zip", format.OpenOptions{}, func(p format.Problem) { said = append(said, p) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if len(said) == 0 || said[0].Code != c.code {
			t.Errorf("%s: %+v", what, said)
		}
	}
}

// listed returns the listed names, and what is reported about the archive.
func listed(t testing.TB, b []byte) (list []string, notes []format.Problem, doubt *format.Problem) {
	t.Helper()
	r := opened(t, b)
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Fault != nil {
			t.Errorf("%+v", e)
		}
		list = append(list, e.Name)
	}
	about, err := r.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list, about.Notes, r.Can().Doubt()
}

// What others read, though it does not end where it should, or begin.
func TestWhatIsAroundAnArchiveDoesNotMatter(t *testing.T) {
	whole, front := sample(t, ""), strings.Repeat("a program. ", 99)
	want, _, _ := listed(t, whole)
	long := bytes.Clone(whole[:len(whole)-len("a comment, PK\x05\x06")-endLen])
	e := parseEnd(whole[len(long):])
	long = appendEnd(long, end{count: math.MaxUint16, size: e.size, off: e.off}) // with a longer end
	putCount(long, e)
	for what, c := range map[string]struct {
		b     []byte
		notes int
	}{
		"zeros behind":           {append(bytes.Clone(whole), make([]byte, 3000)...), 0},
		"bytes behind":           {append(bytes.Clone(whole), strings.Repeat("behind. ", 4000)...), 1},
		"a cut comment":          {whole[:len(whole)-7], 1},
		"bytes in front":         {append([]byte(front), whole...), 0},
		"in front, and behind":   {append(append([]byte(front), whole...), front...), 1},
		"a longer end":           {long, 0},
		"a longer end, in front": {append([]byte(front), long...), 0},
		"a too short directory":  {shorter(whole), 0},
	} {
		list, notes, doubt := listed(t, c.b)
		if !slices.Equal(list, want) || len(notes) != c.notes || doubt != nil {
			t.Errorf("%s: %q, %+v, %+v", what, list, notes, doubt)
		}
		r := opened(t, c.b)
		if e, err := r.Lookup(t.Context(), "d/stored"); err != nil || string(content(t, r, c.b, e)) != "as it is" {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
	}
}

// shorter is a zip whose end says that its directory is shorter than it is.
func shorter(b []byte) []byte {
	b = bytes.Clone(b)
	b[bytes.LastIndex(b[:len(b)-6], []byte(endMagic))+12] -= 9
	return b
}

// putCount repairs the number of entries in a longer end.
func putCount(b []byte, e end) {
	at := bytes.LastIndex(b, []byte(end64Magic))
	binary.LittleEndian.PutUint64(b[at+24:], e.count)
	binary.LittleEndian.PutUint64(b[at+32:], e.count)
}

func TestADamagedDirectoryIsReadOn(t *testing.T) {
	whole := sample(t, "")
	want, _, _ := listed(t, whole)
	row := bytes.LastIndex(whole, []byte("d/empty")) - rowLen
	for what, change := range map[string]func(b []byte){
		"no row":        func(b []byte) { b[row] = 'Q' },
		"a long name":   func(b []byte) { b[row+29] = 0xff },
		"a longer name": func(b []byte) { b[row+28]++ },
		"the number":    func(b []byte) { b[bytes.LastIndex(b[:len(b)-10], []byte(endMagic))+10]++ },
	} {
		b := bytes.Clone(whole)
		change(b)
		list, _, doubt := listed(t, b)
		w := slices.Clone(want)
		switch what {
		case "no row", "a long name":
			w = slices.DeleteFunc(w, func(n string) bool { return n == "d/empty" })
		case "a longer name":
			list = slices.DeleteFunc(list, func(n string) bool { return strings.HasPrefix(n, "d/empty") })
			w = slices.DeleteFunc(w, func(n string) bool { return n == "d/empty" || n == "d/modern" })
		}
		if !slices.Equal(list, w) && what != "a longer name" || doubt == nil || doubt.Code != format.BadIndex {
			t.Errorf("%s: %q, %+v", what, list, doubt)
		}
	}
}

func FuzzRow(f *testing.F) {
	b := sample(f, "")
	f.Add(b[bytes.Index(b, []byte(rowMagic)):])
	f.Add((&row{name: "x", size: 1 << 40, time: when}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := parseRow(b, nil)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		r.mode()
		if again, _, err := parseRow(r.append(nil), nil); err != nil || again.name != r.name || again.size != r.size || again.stored != r.stored || again.off != r.off {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add(sample(f, ""))
	f.Add(sample(f, "in front"))
	f.Add(append(sample(f, ""), "behind"...))
	torn := sample(f, "")
	torn[bytes.LastIndex(torn, []byte("d/empty"))-rowLen] = 'Q'
	f.Add(torn)
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.zip", b)
		if err := verify(t.Context(), st, "x.zip", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}, func(format.Problem) {}); err != nil {
			t.Fatal(err)
		}
	})
}

// "zip - -" writes its standard input as a pipe, and MS-DOS has a bit for folders whose names do not
// end in a slash.
func TestModesThatOthersWrite(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	add := func(name string, maker, external uint32, content string) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, CreatorVersion: uint16(maker<<8 | 20), ExternalAttrs: external})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	add("-", madeByUnix, (unixPipe|0o600)<<16, "from a pipe")
	add("folder", 0, dosDir, "")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r := opened(t, b.Bytes())
	e, err := r.Lookup(t.Context(), "-")
	if err != nil || e.Kind != format.File || e.Fault != nil || string(content(t, r, b.Bytes(), e)) != "from a pipe" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := r.Lookup(t.Context(), "folder"); err != nil || e.Kind != format.Dir {
		t.Errorf("%+v, %v", e, err)
	}
}
