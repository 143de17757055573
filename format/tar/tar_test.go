package tar

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store/storetest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// sample returns a tar as another program writes it, in the given format.
func sample(t testing.TB, f tar.Format) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./d/", Typeflag: tar.TypeDir, Mode: 0o750, Uname: "somebody", Gname: "some"},
		{Name: "./d/a", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 5, Uid: 123, Gid: 45},
		{Name: "./d/link", Typeflag: tar.TypeSymlink, Linkname: "../x"},
		{Name: "./d/hard", Typeflag: tar.TypeLink, Linkname: "./d/a"},
		{Name: "./pipe", Typeflag: tar.TypeFifo, Mode: 0o600},
		{Name: "./empty", Typeflag: tar.TypeReg},
	} {
		h.Format, h.ModTime = f, time.Unix(1_600_000_000, 0)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compressed(t testing.TB, b []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(b, nil)
}

// inFrames compresses b by frames of so many bytes, with one to be skipped in front of
// each, as parallel compressors write them.
func inFrames(t testing.TB, b []byte, n int) (all []byte) {
	t.Helper()
	for part := range slices.Chunk(b, n) {
		all = append(all, 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4)
		all = append(all, compressed(t, part)...)
	}
	return all
}

// zipped compresses b by members of so many bytes.
func zipped(t testing.TB, b []byte, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	for part := range slices.Chunk(b, n) {
		z := gzip.NewWriter(&out)
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// by compresses b as the repair of such a tar does.
func by(t testing.TB, name string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := compressor(&out, name, "")
	if err == nil {
		_, err = z.Write(b)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bzipped is sample(t, tar.FormatPAX), as the bzip2 command has it: there is nothing here
// that writes it.
const bzipped = "QlpoMTFBWSZTWYVACIoAAH97kOmABEBAAf+EAH12b95gBEAASDAA+GwZSPVMmTBMhiM0jJk0N6gMip7Kho0ZNNA0ZGTBNAESk0o9NNIBkyMR6npAaMnHfgOPpWu86+M06sxTAeb8wpoRC1YoE16tZs" +
	"Psb7Llp00ZBpButg6axLQsQCIhEPLlyM85w3eMhBhC4dxF6JniCXjF74gpVbMcuFgGOMTLIqocM19hINCkhhopsWNYERiVSC74NzJzoIBiVVCWDhjZB2UWPpoBDvASkLCCGjUnPBqEev6seQN04KkC" +
	"cQ4rq6h17l+AC0bEvkx7YMaww/OvYg7i7kinChIQqAERQA=="

func TestOthersTarsConform(t *testing.T) {
	for name, f := range map[string]tar.Format{"ustar": tar.FormatUSTAR, "pax": tar.FormatPAX, "gnu": tar.FormatGNU} {
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, Format, map[string][]byte{"x.tar": sample(t, f)}, "x.tar")
		})
	}
	t.Run("zstd", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tar.zst": compressed(t, sample(t, tar.FormatPAX))}, "x.tar.zst")
	})
	t.Run("gzip", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tgz": zipped(t, sample(t, tar.FormatPAX), 1<<20)}, "x.tgz")
	})
	t.Run("frames", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tar.zst": inFrames(t, sample(t, tar.FormatPAX), 3000)}, "x.tar.zst")
	})
	t.Run("lz4", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tar.lz4": by(t, codec.LZ4, sample(t, tar.FormatPAX))}, "x.tar.lz4")
	})
	t.Run("xz", func(t *testing.T) {
		var b bytes.Buffer
		z, err := xz.WriterConfig{DictCap: lzma.MinDictCap}.NewWriter(&b) // little to be allocated
		if err == nil {
			_, err = z.Write(sample(t, tar.FormatPAX))
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		formattest.RunArchive(t, Format, map[string][]byte{"x.txz": b.Bytes()}, "x.txz")
	})
	t.Run("bzip2", func(t *testing.T) {
		b, err := base64.StdEncoding.DecodeString(bzipped)
		if err != nil {
			t.Fatal(err)
		}
		formattest.RunArchive(t, Format, map[string][]byte{"x.tbz2": b}, "x.tbz2")
	})
	t.Run("members", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tgz": zipped(t, sample(t, tar.FormatPAX), 3000)}, "x.tgz")
	})
}

func TestEntriesAreWhatTheirHeadersSay(t *testing.T) {
	st := &storetest.Mem{}
	st.Put("x.tar", sample(t, tar.FormatPAX))
	r, err := open(t.Context(), st, "x.tar", format.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := map[string]format.Entry{}
	for e, err := range r.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name] = e
	}
	a := got["d/a"]
	if len(got) != 6 || a.Size != 5 || a.Owner != "123" || a.Group != "45" || a.FileMode().String() != "urwxr-xr-x" || a.ModTime.Unix() != 1_600_000_000 {
		t.Errorf("%d entries, d/a is %+v", len(got), a)
	}
	if got["d"].Owner != "somebody" || got["d/hard"].Link != "d/a" || got["d/link"].Link != "../x" || got["pipe"].Kind != format.Fifo {
		t.Errorf("%+v", got)
	}
}

// A zstd block that is longer than the bytes that a probe has cannot be decoded.
func TestALongFirstBlockIsBelievedByItsName(t *testing.T) {
	noise := make([]byte, 4*kit.ProbeSize)
	rand.NewChaCha8([32]byte{}).Read(noise)
	z := compressed(t, noise)
	for name, want := range map[string]format.Match{"x.tar.zst": format.Likely, "x.TZST": format.Likely, "x.zst": format.No, "x": format.No} {
		if found := detect(format.Probe{Name: name, Size: int64(len(z)), Head: z[:kit.ProbeSize]}); found != want {
			t.Errorf("%s: expected %v, found %v", name, want, found)
		}
	}
}

func TestTarsOfOthersCompressionsAreNotWritten(t *testing.T) {
	for _, name := range []string{"x.tar.xz", "x.TBZ2", "x.tar.lz4", "x.tar.lz", "x.tar.Z", "x.tar.lzma"} {
		st := &storetest.Mem{}
		if _, err := create(t.Context(), st, name, format.CreateOptions{}); !errors.Is(err, errors.ErrUnsupported) || st.Get(name) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		b := sample(f, format)
		f.Add(b)
		f.Add(compressed(f, b))
		f.Add(inFrames(f, b, 1000))
		f.Add(zipped(f, b, 1000))
		f.Add(by(f, codec.XZ, b))
		f.Add(by(f, codec.LZ4, b))
		torn := bytes.Clone(b)
		torn[blockSize+20] ^= 1
		f.Add(torn)
	}
	for _, kind := range sparseKinds {
		f.Add(fixture(f, kind)[:8<<10])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.tar", b)
		for _, once := range []bool{false, true} {
			r, err := open(t.Context(), st, "x.tar", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}, Once: once})
			if err != nil {
				return
			}
			defer r.Close()
			for e, err := range r.Entries(t.Context()) {
				if err != nil && once {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				at := int64(0)
				for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
					if err != nil || x.At != at || x.Size <= 0 || x.Off < 0 || x.Len < 0 || x.Off+x.Len > int64(len(b)) || x.Skip < 0 || x.Unit > 0 && x.Skip+x.Size > x.Unit {
						t.Errorf("%q: %+v, %v", e.Name, x, err)
					}
					at += x.Size
				}
				if e.Fault == nil && e.Kind.HasContent() && at != e.Size {
					t.Errorf("%q: extents of %d bytes, it has %d", e.Name, at, e.Size)
				}
			}
		}
	})
}
