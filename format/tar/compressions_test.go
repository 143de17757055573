package tar

import (
	"slices"
	"testing"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// What other programs compressed is the tar that it was, whatever its name.
func TestOthersCompressionsOfATar(t *testing.T) {
	read := func(name string, b []byte) (all []string) {
		st := &storetest.Mem{}
		st.Put(name, b)
		a, err := holdall.Open(t.Context(), name, holdall.OpenOptions{Store: st, Formats: []*format.Format{Format}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		defer a.Close()
		for e, err := range a.Entries(t.Context()) {
			content := []byte{}
			if err == nil && e.Kind == format.File {
				content = make([]byte, e.Size)
				_, err = a.ReadAt(t.Context(), e, content, 0)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", name, e.Name, err)
			}
			all = append(all, e.Name+" "+string(content))
		}
		return all
	}
	plain := testkit.Read(t, "testdata/gnu.tar")
	want := read("x.tar", plain)
	for _, end := range []string{".lz", ".Z", ".lzma", ".lz4"} {
		b := testkit.Read(t, "testdata/gnu.tar"+end)
		for _, name := range []string{"x.tar" + end, "x"} {
			if got := read(name, b); len(got) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s: %d entries, expected %d", name, len(got), len(want))
			}
		}
	}
	// The others need larger buffers, each time that they are opened.
	formattest.RunArchive(t, Format, map[string][]byte{"x.tar.Z": testkit.Read(t, "testdata/gnu.tar.Z")}, "x.tar.Z")
}
