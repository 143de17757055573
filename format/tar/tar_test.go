package tar

import (
	"archive/tar"
	"bytes"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/store/storetest"
)

func TestFormat(t *testing.T) { formattest.Run(t, Format) }

// sample is a tar as another program writes it, in each of the formats.
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

func TestOthersTarsConform(t *testing.T) {
	for name, f := range map[string]tar.Format{"ustar": tar.FormatUSTAR, "pax": tar.FormatPAX, "gnu": tar.FormatGNU} {
		t.Run(name, func(t *testing.T) {
			formattest.RunArchive(t, Format, map[string][]byte{"x.tar": sample(t, f)}, "x.tar")
		})
	}
	t.Run("zstd", func(t *testing.T) {
		formattest.RunArchive(t, Format, map[string][]byte{"x.tar.zst": compressed(t, sample(t, tar.FormatPAX))}, "x.tar.zst")
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

func FuzzOpen(f *testing.F) {
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		f.Add(sample(f, format))
		f.Add(compressed(f, sample(f, format)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &storetest.Mem{}
		st.Put("x.tar", b)
		r, err := open(t.Context(), st, "x.tar", format.OpenOptions{Limits: format.Limits{Index: 1 << 20}})
		if err != nil {
			return
		}
		defer r.Close()
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for x, err := range r.Extents(t.Context(), e, 0, e.Size) {
				if err != nil || x.Off < 0 || x.Off+x.Len > int64(len(b)) || x.Size != e.Size {
					t.Errorf("%q: %+v, %v", e.Name, x, err)
				}
			}
		}
	})
}
