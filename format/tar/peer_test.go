package tar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// fixture returns a tar of GNU tar, decompressed.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Read(t, "testdata/"+name+".tar")
}

var sparseKinds = []string{"gnu", "pax-0.0", "pax-0.1", "pax-1.0"}

func mustOpen(t testing.TB, name string, b []byte, o format.OpenOptions) format.Reader {
	t.Helper()
	st := &storetest.Mem{}
	st.Put(name, b)
	r, err := open(t.Context(), st, name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// content reads e as an engine does, from the archive's bytes.
func content(t testing.TB, r format.Reader, b []byte, e format.Entry, off, n int64) []byte {
	t.Helper()
	out := make([]byte, e.Size)
	for i := range out {
		out[i] = '?'
	}
	for x, err := range r.Extents(t.Context(), e, off, n) {
		if err != nil {
			t.Fatal(err)
		}
		to := out[x.At:][:x.Size]
		switch x.Codec {
		case codec.Zero:
			clear(to)
		case codec.Raw:
			copy(to, b[x.Off:][:x.Len])
		default:
			c, _ := codec.Lookup(x.Codec)
			d, err := c.Decode(bytes.NewReader(b[x.Off:][:x.Len]))
			if err == nil {
				_, err = io.CopyN(io.Discard, d, x.Skip)
			}
			if err == nil {
				_, err = io.ReadFull(d, to)
			}
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
		}
	}
	return out[off : off+n]
}

func TestSparseFilesHaveTheirHoles(t *testing.T) {
	testkit.Serial(t)
	want := map[string]string{
		"d/dense": "ff79e2b0d27f3b9dbe6ad5df4d744f773b2c406c79f94f10c2b5f1e1f6a790f8",
		"d/few":   "69066f4931c3c6cdabe5ef277812df7428528e1a02e4f2d08e703f986f14fec4",
		"d/hole":  "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58",
		"d/many":  "9f7f21449bc2d267970e3dca91f70d1eed99cc854418fa7cd052e9828e31da01",
	}
	for _, kind := range sparseKinds {
		plain := fixture(t, kind)
		for name, b := range map[string][]byte{"x.tar": plain, "x.tgz": zipped(t, plain, 40<<10), "x.tar.zst": inFrames(t, plain, 50<<10)} {
			for _, once := range []bool{false, true} {
				r := mustOpen(t, name, b, format.OpenOptions{Once: once})
				found, zeros := 0, int64(0)
				for e, err := range r.Entries(t.Context()) {
					if err != nil || e.Fault != nil {
						t.Fatalf("%s %s %v: %+v, %v", kind, name, once, e, err)
					}
					if e.Kind != format.File {
						continue
					}
					found++
					sum := sha256.Sum256(content(t, r, b, e, 0, e.Size))
					if hex.EncodeToString(sum[:]) != want[e.Name] {
						t.Errorf("%s %s, once %v: %s is not what it was", kind, name, once, e.Name)
					}
					for x := range r.Extents(t.Context(), e, 0, e.Size) {
						if x.Codec == codec.Zero {
							zeros += x.Size
						}
					}
					if e.Name == "d/few" {
						if got := content(t, r, b, e, 1<<20+3, 9); string(got) != "dlemiddle" {
							t.Errorf("%s %s, once %v: %q", kind, name, once, got)
						}
					}
				}
				if found != len(want) || zeros < 4<<20 {
					t.Errorf("%s %s, once %v: %d files, %d bytes of holes", kind, name, once, found, zeros)
				}
			}
		}
	}
}

func TestSparseTarsConform(t *testing.T) {
	testkit.Serial(t)
	b, err := os.ReadFile("testdata/pax-1.0.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	formattest.RunArchive(t, Format, map[string][]byte{"x.tar.gz": b}, "x.tar.gz")
}

// kindOf is what archive/tar's header would be here.
func kindOf(h *tar.Header) (kind format.Kind, listed bool) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, tar.TypeChar, tar.TypeBlock:
		return format.File, true
	case tar.TypeDir:
		name := cleaned(h.Name)
		return format.Dir, name != "" && name != "."
	case tar.TypeSymlink:
		return format.Symlink, true
	case tar.TypeLink:
		return format.HardLink, true
	case tar.TypeFifo:
		return format.Fifo, true
	}
	return 0, false
}

// FuzzPeer compares what we make of a tar with what archive/tar does, as far as that
// accepts it: names, sizes, kinds, links, times, and where contents begin.
func FuzzPeer(f *testing.F) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		f.Add(sample(f, format))
	}
	for _, kind := range append(sparseKinds, "v7") {
		b := fixture(f, kind)
		f.Add(b)
		f.Add(b[:min(len(b), 8<<10)])
	}
	f.Add(longNames(f))
	f.Fuzz(func(t *testing.T, b []byte) { comparePeer(t, b) })
}

func comparePeer(t *testing.T, b []byte) {
	if codecOf(b) != codec.Raw {
		return
	}
	for at := 0; at+blockSize <= len(b); at += blockSize {
		for _, field := range [][]byte{b[at+124 : at+136], b[at+136 : at+148], b[at+148 : at+156]} { // size, time and checksum
			if digits := bytes.TrimLeft(field, "\x00 "); len(digits) > 0 && bytes.LastIndexByte(field[:len(field)-len(digits)], 0) > 0 {
				return // archive/tar reads digits after any NULs, GNU tar only after one
			}
		}
	}
	in := bytes.NewReader(b)
	peer := tar.NewReader(in)
	src := &source{ctx: t.Context(), obj: memory{b}, size: int64(len(b)), step: leastStep}
	s := newScanner(src)
	for {
		h, err := peer.Next()
		if err != nil {
			return
		}
		kind, listed := kindOf(h)
		if h.Typeflag == tar.TypeXGlobalHeader || !listed {
			continue
		}
		at := int64(len(b) - in.Len())
		if err := s.next(); err != nil {
			t.Fatalf("%q: %v", h.Name, err)
		}
		m := &s.m
		if string(m.name) != cleaned(h.Name) || m.kind != kind || kind == format.File && h.Typeflag != tar.TypeChar && h.Typeflag != tar.TypeBlock && (m.size != h.Size || m.at != at) {
			t.Fatalf("%q, a %v of %d bytes at %d; archive/tar has %q, a %v of %d bytes at %d", m.name, m.kind, m.size, m.at, h.Name, kind, h.Size, at)
		}
		link := h.Linkname
		if kind == format.HardLink {
			link = cleaned(link)
		}
		if (kind == format.HardLink || kind == format.Symlink) && string(m.link) != link {
			t.Fatalf("%q leads to %q; archive/tar has %q", m.name, m.link, h.Linkname)
		}
		if len(s.global.mtime) == 0 && !h.ModTime.Equal(unixTime(m.sec, m.nsec)) {
			t.Fatalf("%q is of %v; archive/tar has %v", m.name, unixTime(m.sec, m.nsec), h.ModTime)
		}
		if m.fault == nil && m.sparse != nil && m.size < 1<<24 {
			got := spread(b, m)
			if want, err := io.ReadAll(peer); err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%q has another content than archive/tar finds", m.name)
			}
		}
	}
}

// spread is the content of a sparse file.
func spread(b []byte, m *member) []byte {
	out := make([]byte, m.size)
	at := m.at
	for _, x := range m.sparse.spans {
		if at+x.n > int64(len(b)) {
			return nil
		}
		copy(out[x.off:], b[at:at+x.n])
		at += x.n
	}
	return out
}

// longNames has what has no room in a header, as three dialects have it.
func longNames(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	long := strings.Repeat("long/", 60)
	for _, h := range []*tar.Header{
		{Name: long + "gnu", Linkname: long + "x", Typeflag: tar.TypeSymlink, Format: tar.FormatGNU},
		{Name: long + "pax", Linkname: long + "y", Typeflag: tar.TypeLink, Format: tar.FormatPAX},
		{Name: strings.Repeat("half/", 20) + "ustar", Typeflag: tar.TypeReg, Format: tar.FormatUSTAR},
		{Name: "large ids", Typeflag: tar.TypeReg, Uid: 1 << 30, Gid: 1 << 30, Format: tar.FormatGNU},
		{Typeflag: tar.TypeXGlobalHeader, Name: "global", PAXRecords: map[string]string{"uname": "everybody", "path": "nobody"}},
		{Name: "as all are", Typeflag: tar.TypeReg, Format: tar.FormatUSTAR},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWeAgreeWithArchiveTar(t *testing.T) {
	comparePeer(t, longNames(t))
	for _, kind := range append(sparseKinds, "v7") {
		comparePeer(t, fixture(t, kind))
	}
	r := mustOpen(t, "x.tar", longNames(t), format.OpenOptions{})
	e, err := r.Lookup(t.Context(), "as all are")
	if err != nil || e.Owner != "everybody" {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = r.Lookup(t.Context(), "large ids"); err != nil || e.Owner != "1073741824" {
		t.Errorf("%+v, %v", e, err)
	}
}
