package zip

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	zst "github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

var when = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// sample is a zip as another program writes it.
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
	got, n, err := parseRow(append(b, "PK"...))
	if err != nil || n != len(b) || got != want {
		t.Errorf("%+v, %d, %v; expected %+v, %d", got, n, err, want, len(b))
	}
	e := end{count: 1 << 20, size: 5 << 32, off: 6 << 40}
	b = appendEnd(nil, e)
	if off, ok := parseLocator(b[end64Len:]); !ok || off != e.off+e.size {
		t.Errorf("the longer end is said to be at %d", off)
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
	w, err := create(t.Context(), st, "x.zip", format.CreateOptions{Scratch: func() (format.Scratch, error) {
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

func FuzzRow(f *testing.F) {
	b := sample(f, "")
	f.Add(b[bytes.Index(b, []byte(rowMagic)):])
	f.Add((&row{name: "x", size: 1 << 40, time: when}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := parseRow(b)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		r.mode()
		if again, _, err := parseRow(r.append(nil)); err != nil || again.name != r.name || again.size != r.size || again.stored != r.stored || again.off != r.off {
			t.Fatalf("%+v comes back as %+v, %v", r, again, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add(sample(f, ""))
	f.Add(sample(f, "in front"))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.zip", b)
		if err := verify(t.Context(), st, "x.zip", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}}, func(format.Problem) {}); err != nil {
			t.Fatal(err)
		}
	})
}
