package zip

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ulikunitz/xz"
	lz "github.com/ulikunitz/xz/lzma"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPythonsZipsConform(t *testing.T) {
	t.Run("dos", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.zip": fixture(t, "dos.zip")}, "x.zip")
	})
}

func TestPythonsZipsAreRead(t *testing.T) {
	text := strings.Repeat("a line of text\n", 200)
	for _, c := range []struct {
		file string
		want map[string]format.Entry
	}{
		{"stream.zip", map[string]format.Entry{
			"stored":       {Size: 3000, Mode: 0o644},
			"long numbers": {Size: 3000, Mode: 0o644},
			"grün/ü.txt":   {Size: 3000, Mode: os.ModeSetuid | 0o755},
			"bz":           {Size: 3000, Mode: 0o644},
			"folder":       {Kind: format.Dir, Mode: 0o700},
			"link":         {Kind: format.Symlink, Mode: 0o777, Link: "stored"},
		}},
		{"dos.zip", map[string]format.Entry{"üBER.TXT": {Size: 3000}, "plain": {}}},
	} {
		b := fixture(t, c.file)
		r := opened(t, b)
		n := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			w, ok := c.want[e.Name]
			if !ok || e.Kind != w.Kind || e.Size != w.Size || e.Mode != w.Mode || e.Link != w.Link || (e.Fault == nil) != (w.Fault == nil) || e.ModTime.Year() != 2021 {
				t.Errorf("%s: %+v", c.file, e)
			}
			if e.Fault != nil && e.Fault.Code != w.Fault.Code {
				t.Errorf("%s: %+v", c.file, e.Fault)
			}
			if e.Size > 0 && e.Fault == nil && string(content(t, r, b, e)) != text {
				t.Errorf("%s: %s has another content", c.file, e.Name)
			}
		}
		if n != len(c.want) {
			t.Errorf("%s: %d entries, expected %d", c.file, n, len(c.want))
		}
	}
}

// As 7-Zip and Python compress; LZMA has a mark at its end, or none.
func TestOthersCompressionsAreRead(t *testing.T) {
	text := strings.Repeat("text and more text. ", 500)
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, open := range map[string]func(io.Writer) (io.WriteCloser, error){
		"xz": func(out io.Writer) (io.WriteCloser, error) { return xz.WriterConfig{DictCap: 1 << 16}.NewWriter(out) },
		"lzma": func(out io.Writer) (io.WriteCloser, error) {
			return lz.WriterConfig{DictCap: 1 << 16, Size: int64(len(text)), SizeInHeader: true}.NewWriter(&rehead{w: out})
		},
		"lzma, marked": func(out io.Writer) (io.WriteCloser, error) {
			return lz.WriterConfig{DictCap: 1 << 16, EOSMarker: true}.NewWriter(&rehead{w: out})
		},
	} {
		var c bytes.Buffer
		z, err := open(&c)
		if err == nil {
			_, err = io.WriteString(z, text)
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		h := &zip.FileHeader{Name: name, Method: lzma, CRC32: crc32.ChecksumIEEE([]byte(text)), CompressedSize64: uint64(c.Len()), UncompressedSize64: uint64(len(text))}
		switch name {
		case "xz":
			h.Method = 95
		case "lzma, marked":
			h.Flags = flagMarked
		}
		out, err := w.CreateRaw(h)
		if err == nil {
			_, err = out.Write(c.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if list := readable(t, b.Bytes()); len(list) != 3 {
		t.Errorf("%.99q", list)
	}
	got, plan, err := repaired(t, b.Bytes()[:b.Len()-9])
	if list := readable(t, got); err != nil || plan.Partial || len(list) != 3 {
		t.Errorf("repaired: %.99q, %+v, %v", list, plan, err)
	}
	formattest.RunArchive(t, Format, map[string][]byte{"x.zip": b.Bytes()}, "x.zip")
}

// rehead makes the header of a file of LZMA that of zip.
type rehead struct {
	w    io.Writer
	head []byte
}

func (z *rehead) Write(p []byte) (int, error) {
	if len(z.head) == lz.HeaderLen {
		return z.w.Write(p)
	}
	z.head = append(z.head, p...)
	if len(z.head) < lz.HeaderLen {
		return len(p), nil
	}
	_, err := z.w.Write(append(append([]byte{9, 20, 5, 0}, z.head[:5]...), z.head[lz.HeaderLen:]...))
	z.head = z.head[:lz.HeaderLen]
	return len(p), err
}

// content reads e as an engine does, from the archive's bytes.
func content(t testing.TB, r format.Reader, b []byte, e format.Entry) (out []byte) {
	t.Helper()
	for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
		if err != nil {
			return nil
		}
		stored := b[x.Off:][:x.Len]
		if x.Codec == codec.Raw {
			return stored
		}
		c, _ := codec.Lookup(x.Codec)
		d, err := c.Decode(bytes.NewReader(stored))
		if err != nil {
			return nil
		}
		defer d.Close()
		most := e.Size + 1
		if x.Unit == 0 {
			most = e.Size
		}
		if out, err = io.ReadAll(io.LimitReader(d, most)); err != nil {
			return nil
		}
	}
	return out
}

// FuzzPeer compares what we make of a zip with what archive/zip does, as far as both
// accept it: names, sizes, contents.
func FuzzPeer(f *testing.F) {
	f.Add(sample(f, ""))
	f.Add(sample(f, "in front"))
	f.Add(fixture(f, "stream.zip"))
	f.Add(fixture(f, "dos.zip"))
	f.Fuzz(func(t *testing.T, b []byte) {
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		st := &storetest.Mem{}
		st.Put("x.zip", b)
		x, err := open(t.Context(), st, "x.zip", format.OpenOptions{})
		if err != nil {
			return // a directory that does not end where it should
		}
		defer x.Close()
		r := x.(*reader)
		if r.doubt != nil {
			return // reading continues after damage
		}
		if r.table.Len() != len(z.File) {
			t.Fatalf("%d entries, archive/zip has %d", r.table.Len(), len(z.File))
		}
		for i, h := range z.File {
			e := r.table.Entry(i)
			if e.Name != strings.TrimSuffix(h.Name, "/") && h.Flags&flagUTF8 == 0 && utf8.ValidString(e.Name) {
				continue // of another code page, or named by an extra field
			}
			if strings.Contains(h.Name, `\`) {
				continue // of Windows
			}
			if e.Name != strings.TrimSuffix(h.Name, "/") || e.Fault == nil && e.Kind == format.File && uint64(e.Size) != h.UncompressedSize64 {
				t.Fatalf("%q of %d bytes; archive/zip has %q of %d", e.Name, e.Size, h.Name, h.UncompressedSize64)
			}
			if e.Fault != nil || e.Kind != format.File || e.Size == 0 || e.Size > 1<<20 {
				continue
			}
			in, err := h.Open()
			if err != nil {
				continue
			}
			want, err := io.ReadAll(in)
			if got := content(t, r, b, e); err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%q has another content than archive/zip finds", e.Name)
			}
		}
	})
}

// BenchmarkOpen opens a zip of empty files in no order, as Info-ZIP describes them.
func BenchmarkOpen(b *testing.B) {
	b.Run("1000000", func(b *testing.B) {
		const n = 1_000_000
		var all []byte
		rows := make([]row, n)
		for i := range rows {
			rows[i] = row{name: fmt.Sprintf("objects/%03d/object-%d.json", i*7919%1000, i), maker: madeByUnix, external: 0o100644 << 16, time: when.Add(0), off: uint64(len(all))}
			all = rows[i].appendLocal(all)
		}
		e := end{count: n, off: uint64(len(all))}
		for i := range rows {
			all = rows[i].append(all)
		}
		e.size = uint64(len(all)) - e.off
		dir := b.TempDir()
		st := local.New(dir)
		if err := os.WriteFile(filepath.Join(dir, "x.zip"), appendEnd(all, e), 0o600); err != nil {
			b.Fatal(err)
		}
		all, rows = nil, nil
		for b.Loop() {
			r, err := open(b.Context(), st, "x.zip", format.OpenOptions{})
			if err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
		b.StopTimer()
		before := testkit.Live()
		r, err := open(b.Context(), st, "x.zip", format.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(testkit.Live()-before)/n, "held-B/entry")
		r.Close()
	})
}
