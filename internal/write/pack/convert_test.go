package pack_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

var everyFormat = []string{"x.caf", "x.tar", "x.zip", "x.rvn", "x.lindi.tar", "x.bundle"}

// near is a store on the disk.
func near(t *testing.T) *local.Store {
	t.Helper()
	st := local.New(t.TempDir())
	st.NoSync = true
	return st
}

func TestEveryFormatIsConvertedIntoEveryOther(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 300), "d/e/c": "", "large": string(numbered(1<<20+5000, 1))}
	dir := testkit.Tree(t, t.TempDir(), files)
	for _, disk := range []bool{false, true} {
		var st store.Store = &storetest.Mem{}
		if disk {
			st = near(t)
		}
		for _, from := range everyFormat {
			if _, err := pack.Pack(t.Context(), st, from, []string{dir}, pack.Options{}); err != nil {
				t.Fatal(err)
			}
			src := archivetest.Open(t, st, from)
			for _, to := range everyFormat {
				to = "of-" + from + to[1:]
				sum, err := pack.Convert(t.Context(), src, st, to, pack.Options{OnError: func(name string, err error) { t.Errorf("%s to %s: %s: %v", from, to, name, err) }})
				if err != nil {
					t.Fatalf("%s to %s: %v", from, to, err)
				}
				out := archivetest.Open(t, st, to)
				if got := archivetest.Contents(t, out); !maps.Equal(got, files) || sum.Entries < 4 || sum.Failed > 0 {
					t.Errorf("%s to %s: %d files, %+v", from, to, len(got), sum)
				}
				archivetest.Sound(t, out, format.Note)
				if dirs := src.Format.Keeps&^out.Format.Keeps&format.KeepsModes != 0; dirs != slices.Contains(sum.Lost, "modes") {
					t.Errorf("%s to %s: lost %q", from, to, sum.Lost)
				}
			}
		}
	}
}

func TestWhatANewFormatCannotStoreIsCounted(t *testing.T) {
	t.Parallel()
	st := &storetest.Mem{}
	w, err := format.All().ByName("tar").Create(t.Context(), st, "x.tar", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []format.Entry{{Name: "full", Kind: format.Dir}, {Name: "full/f"}, {Name: "empty", Kind: format.Dir}, {Name: "l", Kind: format.Symlink, Link: "full/f"},
		{Name: "p", Kind: format.Fifo}, {Name: "h", Kind: format.HardLink, Link: "full/f"}, {Name: "lost", Kind: format.HardLink, Link: "nowhere"}} {
		if err := w.Add(t.Context(), e, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	src := archivetest.Open(t, st, "x.tar")
	sum, err := pack.Convert(t.Context(), src, st, "y.caf", pack.Options{OnError: func(name string, err error) { t.Error(name, err) }})
	if want := map[string]int64{"dir": 1, "symlink": 1, "fifo": 1, "hardlink": 1}; err != nil || !maps.Equal(sum.Dropped, want) || sum.Entries != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	for _, o := range []pack.Options{{Include: []string{"full"}}, {Exclude: []string{"h", "lost"}}, {Prefix: "p/"}} {
		sum, err := pack.Convert(t.Context(), src, st, "y.tar", o)
		names := namesIn(t, archivetest.Open(t, st, "y.tar"))
		switch {
		case err != nil || sum.Entries != int64(len(names)):
			t.Errorf("%+v: %+v, %v", o, sum, err)
		case o.Include != nil && !slices.Equal(names, []string{"full", "full/f"}), o.Exclude != nil && len(names) != 5, o.Prefix != "" && (len(names) != 7 || names[0] != "p/full"):
			t.Errorf("%+v: %q", o, names)
		}
	}
	if _, err := pack.Convert(t.Context(), src, st, "z.tar", pack.Options{Include: []string{"nothing"}}); !errors.Is(err, pack.ErrNothing) || st.Get("z.tar") != nil {
		t.Errorf("%v", err)
	}
	disk := near(t)
	if _, err := pack.Convert(t.Context(), src, disk, "x.tar", pack.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pack.Convert(t.Context(), archivetest.Open(t, disk, "x.tar"), disk, "x.tar", pack.Options{Force: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an archive is converted into itself: %v", err)
	}
}

// What is converted is compared: a damaged file is left out and named, and its bytes get no new
// digest, wherever it lies and however it is copied.
func TestConvertLeavesOutWhatIsDamaged(t *testing.T) {
	testkit.Serial(t)
	t.Parallel()
	rnd := testkit.Rand(t)
	files := map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 40), "long": string(testkit.Noise(rnd, 1<<20+1<<19))}
	dir := testkit.Tree(t, t.TempDir(), files)
	for _, k := range []struct {
		from  string
		param map[string]string
	}{{"x.caf", nil}, {"x.lindi.tar", nil}, {"x.rvn", nil}, {"x.zip", nil}, {"x.bundle", map[string]string{"align": "1"}}} {
		st := near(t)
		if _, err := pack.Pack(t.Context(), st, k.from, []string{dir}, pack.Options{Param: k.param}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "long"} {
			mem, disk := damagedCopy(t, st, k.from, name)
			for _, to := range []string{"y.caf", "y.zip", "y.tar", "y.lindi.tar", "y.bundle"} {
				for _, src := range []*content.Source{mem, disk} {
					out, left := store.Store(&storetest.Mem{}), map[string]bool{}
					if src == disk {
						out = near(t)
					}
					sum, err := pack.Convert(t.Context(), src, out, to, pack.Options{OnError: func(name string, _ error) { left[name] = true }})
					if err != nil || sum.Failed != int64(len(left)) || len(left) == 0 || !left[name] && k.param == nil && k.from != "x.rvn" { // a block of the others has several files
						t.Fatalf("%s to %s, %s: %+v, %v, %v", k.from, to, name, sum, left, err)
					}
					want := maps.Clone(files)
					for name := range left {
						delete(want, name)
					}
					if got := archivetest.Contents(t, archivetest.Open(t, out, to)); !maps.Equal(got, want) {
						t.Errorf("%s to %s, %s: other contents in %d files", k.from, to, name, len(got))
					}
				}
				if _, err := pack.Convert(t.Context(), mem, &storetest.Mem{}, to, pack.Options{}); err == nil {
					t.Errorf("%s to %s, %s: nobody hears of it, and it goes on", k.from, to, name)
				}
			}
		}
	}
}

// damagedCopy copies an archive to memory and to another folder, turns a bit in the middle of a
// file there, and opens it in both.
func damagedCopy(t *testing.T, st store.Store, archive, name string) (mem, disk *content.Source) {
	t.Helper()
	sound := archivetest.Open(t, st, archive)
	volumes, err := sound.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var at format.Extent
	for x, err := range sound.Extents(t.Context(), archivetest.Lookup(t, sound, name)) {
		if err != nil {
			t.Fatal(err)
		}
		at = x
		break
	}
	m, d := &storetest.Mem{}, near(t)
	for _, v := range volumes {
		o, err := st.Open(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		info, err := o.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size)
		if err := o.ReadAt(t.Context(), b, 0); err != nil {
			t.Fatal(err)
		}
		o.Close()
		if v == at.Object {
			b[at.Off+at.Len/2] ^= 1
		}
		m.Put(v, b)
		w, err := d.Can().Create(t.Context(), v, store.Wishes{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return archivetest.Open(t, m, archive), archivetest.Open(t, d, archive)
}

// Contents stay where they are if the new archive can refer to them and that is wished.
func TestAnArchiveThatRefersHasNoCopies(t *testing.T) {
	t.Parallel()
	st := near(t)
	files := map[string]string{}
	for i := range 5 {
		files[fmt.Sprintf("a/%d", i)] = string(numbered(3000, i))
	}
	files["a/.zarray"] = `{"chunks":[3000],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[15000],"zarr_format":2}`
	files[".zgroup"] = `{"zarr_format":2}`
	dir := testkit.Tree(t, t.TempDir(), files)
	if _, err := pack.Pack(t.Context(), st, "x.caf", []string{dir}, pack.Options{}); err != nil {
		t.Fatal(err)
	}
	src := archivetest.Open(t, st, "x.caf")
	for _, c := range []struct {
		refer, at string
		embed     bool
		referred  int64
	}{{"", "", false, 0}, {pack.ReferHere, "x.caf", false, 5}, {"https://example.org/x.caf", "https://example.org/x.caf", true, 5}} {
		sum, err := pack.Convert(t.Context(), src, st, "y.lindi.json", pack.Options{Refer: c.refer, Embed: c.embed})
		if err != nil || sum.Referred < c.referred || c.referred == 0 && sum.Referred > 0 {
			t.Fatalf("%q: %+v, %v", c.refer, sum, err)
		}
		out := openZarr(t, st, "y.lindi.json")
		for x, err := range out.Extents(t.Context(), archivetest.Lookup(t, out, "a/3")) {
			if err != nil || x.External != (c.refer != "") || c.refer != "" && !strings.HasSuffix(x.Object, c.at) {
				t.Errorf("%q: %+v, %v", c.refer, x, err)
			}
		}
		if c.refer != pack.ReferHere {
			continue
		}
		if got := archivetest.Contents(t, out); got["a/3"] != files["a/3"] {
			t.Errorf("found %.100q", got["a/3"])
		}
		// References stay references, or become contents on wish.
		for _, o := range []pack.Options{{}, {Embed: true}, {Embed: true, Refer: pack.ReferHere}} {
			embed := o.Embed
			sum, err := pack.Convert(t.Context(), out, st, "z.lindi.json", o)
			if err != nil || (sum.Referred < 5) != embed {
				t.Errorf("%+v: %+v, %v", o, sum, err)
			}
			if got := archivetest.Contents(t, openZarr(t, st, "z.lindi.json")); got["a/3"] != files["a/3"] {
				t.Errorf("embed %v: found %.100q", embed, got["a/3"])
			}
		}
	}
}

// Chunks that are stored together are converted in the order in which they are joined.
func TestContentsThatAreJoinedAreSorted(t *testing.T) {
	t.Parallel()
	st := &storetest.Mem{}
	w, err := format.All().ByName("caf").Create(t.Context(), st, "x.caf", format.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{".zgroup": `{"zarr_format":2}`, "a/.zarray": `{"chunks":[2000],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[24000],"zarr_format":2}`}
	names := []string{".zgroup", "a/.zarray"}
	for i := range 12 {
		name := fmt.Sprintf("a/%d", 11-i)
		want[name] = string(numbered(2000, i))
		names = append(names, name)
	}
	for _, name := range names {
		if err := w.Add(t.Context(), format.Entry{Name: name, Size: int64(len(want[name]))}, strings.NewReader(want[name])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum, err := pack.Convert(t.Context(), archivetest.Open(t, st, "x.caf"), st, "y.lindi.tar", pack.Options{Param: map[string]string{"as": "zarr", "consolidate": "10000"}})
	if err != nil {
		t.Fatalf("%+v, %v", sum, err)
	}
	out := openZarr(t, st, "y.lindi.tar")
	got := archivetest.Contents(t, out)
	for name, b := range want {
		if strings.HasPrefix(name, "a/") && name != "a/.zarray" && got[name] != b || got[name] == "" || len(got) != len(want) {
			t.Errorf("%s: found %.100q of %d keys", name, got[name], len(got))
		}
	}
	last := int64(-1)
	for i := range 4 {
		for x, err := range out.Extents(t.Context(), archivetest.Lookup(t, out, fmt.Sprintf("a/%d", i))) {
			if err != nil || x.Off <= last {
				t.Errorf("a/%d is at %d, after %d, %v", i, x.Off, last, err)
			}
			last = x.Off
		}
	}
}

// An archive of some kilobytes with a file in very many folders does not become one of gigabytes.
func TestWhatIsWrittenIsBoundedByWhatWasRead(t *testing.T) {
	st := &storetest.Mem{}
	var b bytes.Buffer
	z := tar.NewWriter(&b)
	for _, name := range []string{strings.Repeat("d/", 30000) + "f", "sound"} {
		if err := z.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	st.Put("x.tar", b.Bytes())
	src := archivetest.Open(t, st, "x.tar")
	for _, to := range everyFormat {
		failed := 0
		sum, err := pack.Convert(t.Context(), src, st, "y"+to[1:], pack.Options{OnError: func(string, error) { failed++ }})
		if err != nil || failed != 1 || len(sum.LeftOut) != 1 || sum.Stored > 1<<20 {
			t.Errorf("%s: %d failed, %d bytes, %v", to, failed, sum.Stored, err)
		}
	}
}
