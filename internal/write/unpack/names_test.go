package unpack_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store/storetest"
)

// extracted extracts an archive, and returns the files that this made.
func extracted(t *testing.T, name string, b []byte) (files []string, into string, sum unpack.Done, failed []format.Problem) {
	t.Helper()
	into = t.TempDir()
	st := &storetest.Mem{}
	st.Put(name, b)
	sum, _, err := extract(t, archivetest.Open(t, st, name), into, unpack.Options{OnError: func(p format.Problem, _ error) { failed = append(failed, p) }})
	if err != nil {
		t.Fatal(err)
	}
	return filesIn(t, into), into, sum, failed
}

func TestNamesThatOthersWriteAreExtracted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no files of such names")
	}
	var tarred, zipped bytes.Buffer
	w := tar.NewWriter(&tarred)
	for _, h := range []*tar.Header{
		{Name: "/etc/x"},
		{Name: "//etc//y"},
		{Name: "/etc/z", Linkname: "/etc/x", Typeflag: tar.TypeLink},
		{Name: "/../up"},
		{Name: "M\xf6bel/b", Format: tar.FormatGNU},
	} {
		h.Mode = 0o644
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	z := zip.NewWriter(&zipped)
	for _, h := range []*zip.FileHeader{
		{Name: `win\dir\`, CreatorVersion: 10 << 8},
		{Name: `win\dir\a`, CreatorVersion: 0},
		{Name: `win\..\..\up`, CreatorVersion: 0},
		{Name: `unix\b`, CreatorVersion: 3 << 8},
		{Name: "M\xf6bel/c", CreatorVersion: 3 << 8, NonUTF8: true},
		{Name: "/etc/d", CreatorVersion: 3 << 8},
	} {
		if _, err := z.CreateRaw(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b        []byte
		want     []string
		stripped int64
	}{
		"x.tar": {tarred.Bytes(), []string{"M\xf6bel/b", "etc/x", "etc/y", "etc/z"}, 3},
		"x.zip": {zipped.Bytes(), []string{"M\xf6bel/c", "etc/d", `unix\b`, "win/dir/a"}, 1},
	} {
		files, _, sum, failed := extracted(t, name, c.b)
		slices.Sort(files)
		if !slices.Equal(files, c.want) || sum.Stripped != c.stripped || len(failed) != 1 || failed[0].Class != "name-traversal" {
			t.Errorf("%s: %q, %+v, %+v", name, files, sum, failed)
		}
	}
}

// Holes of a sparse file take no room on the disk, and are no bomb.
func TestHolesStayHoles(t *testing.T) {
	t.Parallel()
	const size = 1<<30 + 1<<20
	h := make([]byte, 1024, 4096)
	copy(h, "sparse")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], "00000001000\x0000000000000\x00        S")
	copy(h[257:], "ustar  \x00")
	copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00%011o\x00%011o\x00", size/2, 512, size, 0))
	copy(h[483:], fmt.Sprintf("%011o\x00", size))
	copy(h[512:], strings.Repeat("data", 128))
	sum := 0
	for _, c := range h[:512] {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	files, into, _, failed := extracted(t, "x.tar", h[:2048])
	if len(files) != 1 || len(failed) != 0 {
		t.Fatalf("%q, %+v", files, failed)
	}
	f, err := os.Open(filepath.Join(into, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != size {
		t.Fatalf("%v, %v", info, err)
	}
	b := make([]byte, 520)
	if _, err := f.ReadAt(b, size/2-4); err != nil || string(b) != "\x00\x00\x00\x00"+strings.Repeat("data", 128)+"\x00\x00\x00\x00" {
		t.Errorf("%q, %v", b, err)
	}
}

// What cannot be read is no reason to stop, however long it says it is.
func TestAFileThatIsCutOffDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{{Name: "small", Mode: 0o644}, {Name: "large", Mode: 0o644, Size: 16 << 30}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	files, _, sum, failed := extracted(t, "x.tar", b.Bytes())
	if !slices.Equal(files, []string{"small"}) || len(failed) != 1 || sum.Entries != 1 {
		t.Errorf("%q, %+v, %+v", files, sum, failed)
	}
}
