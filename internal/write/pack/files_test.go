package pack_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// A source that breaks off while it is packed leaves the others right.
func TestPackGoesOnWithoutWhatFails(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "first", "b": strings.Repeat("b", 3<<20), "c": "third"})
	if os.Geteuid() != 0 {
		os.Chmod(filepath.Join(dir, "b"), 0)
	} else {
		os.Remove(filepath.Join(dir, "b"))
		if err := os.Symlink("nowhere", filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
	}
	st, failed := &storetest.Mem{}, []string{}
	sum, err := pack.Pack(t.Context(), st, "x.caf", []string{filepath.Join(dir, "a"), filepath.Join(dir, "c"), dir},
		pack.Options{OnError: func(name string, _ error) { failed = append(failed, name) }})
	if err != nil || sum.Entries < 4 || sum.Failed != int64(len(failed)) {
		t.Fatalf("%+v, %q, %v", sum, failed, err)
	}
	src := archivetest.Open(t, st, "x.caf")
	archivetest.Sound(t, src, format.Note)
	want := map[string]string{"a": "first", "c": "third", filepath.Base(dir) + "/a": "first", filepath.Base(dir) + "/c": "third"}
	if got := archivetest.Contents(t, src); !maps.Equal(got, want) {
		t.Errorf("found %.200v", got)
	}
}

func TestCancelledPackLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": strings.Repeat("x", 8<<20)})
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pack.Pack(ctx, local.New(out), "x.caf", []string{dir}, pack.Options{}); err == nil {
		t.Error("packed all the same")
	}
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// packed packs paths into an archive in memory.
func packed(t *testing.T, name string, paths []string, o pack.Options) (*content.Source, pack.Summary) {
	t.Helper()
	st := &storetest.Mem{}
	sum, err := pack.Pack(t.Context(), st, name, paths, o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return archivetest.Open(t, st, name), sum
}

// namesIn are the names in an archive, in stored order.
func namesIn(t *testing.T, src *content.Source) (names []string) {
	t.Helper()
	for _, e := range archivetest.Entries(t, src) {
		names = append(names, e.Name)
	}
	return names
}

func TestOptionsSelectAndChangeWhatIsPacked(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha", "d/b": "beta", "d/c.tmp": "gamma", "d/e/f": "delta", "empty/": ""})
	for name, to := range map[string]string{"link": "a", "dlink": "d"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		name    string
		o       pack.Options
		want    string
		dropped map[string]int64
	}{
		"all in a tar":      {"x.tar", pack.Options{}, "a d d/b d/c.tmp d/e d/e/f dlink empty link", nil},
		"all in a CAF":      {"x.caf", pack.Options{}, "a d/b d/c.tmp d/e/f", map[string]int64{"dir": 1, "symlink": 2}},
		"links followed":    {"x.caf", pack.Options{Follow: true}, "a d/b d/c.tmp d/e/f link", map[string]int64{"dir": 1, "symlink": 1}},
		"some included":     {"x.tar", pack.Options{Include: []string{"d"}, Exclude: []string{"*.tmp"}}, "d d/b d/e d/e/f", nil},
		"only a few, a tar": {"x.tar", pack.Options{Only: map[string]bool{"d/e/f": true, "a": true}}, "a d d/e d/e/f", nil},
		"only a few, a CAF": {"x.caf", pack.Options{Only: map[string]bool{"d/e/f": true, "a": true}}, "a d/e/f", nil},
		"with a prefix":     {"x.caf", pack.Options{Prefix: "p/", Only: map[string]bool{"a": true}}, "p/a", nil},
	} {
		src, sum := packed(t, c.name, []string{dir}, c.o)
		if got := strings.Join(slices.Sorted(slices.Values(namesIn(t, src))), " "); got != c.want || !maps.Equal(sum.Dropped, c.dropped) {
			t.Errorf("%s: found %s, expected %s; %v left out", what, got, c.want, sum.Dropped)
		}
		archivetest.Sound(t, src, format.Note)
	}
	then := time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)
	src, _ := packed(t, "x.tar", []string{dir}, pack.Options{Time: then, Attrs: map[string]pack.Attr{
		"a": {Owner: "somebody", Group: "some", Mode: 0o421, HasMode: true}, "d/b": {Group: "some"}}})
	for _, e := range archivetest.Entries(t, src) {
		if !e.ModTime.Equal(then) || (e.Owner == "somebody" && e.Mode.Perm() == 0o421) != (e.Name == "a") || (e.Group == "some") != (e.Name == "a" || e.Name == "d/b") {
			t.Errorf("%+v", e)
		}
	}
	// Names begin with the last element of each path if there are several. Listed ones stay.
	src, _ = packed(t, "x.caf", []string{filepath.Join(dir, "d/e"), filepath.Join(dir, "a")}, pack.Options{})
	if got := archivetest.Contents(t, src); !maps.Equal(got, map[string]string{"e/f": "delta", "a": "alpha"}) {
		t.Errorf("found %v", got)
	}
	src, _ = packed(t, "x.caf", []string{filepath.Join(dir, "d/b"), filepath.Join(dir, "d")}, pack.Options{Listed: true})
	if got := namesIn(t, src); len(got) == 0 || !strings.HasSuffix(got[0], filepath.ToSlash(filepath.Join(dir, "d/b"))[1:]) || strings.Contains(strings.Join(got, " "), "c.tmp") {
		t.Errorf("found %q", got)
	}
}

// Files of all sizes are packed in all formats, from and to disks and elsewhere, and counted.
func TestFilesOfAllSizesAreCountedAndPacked(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i, n := range []int{0, 1, 1000, 256 << 10, 256<<10 + 1, 900 << 10, 1 << 20, 3 << 20} {
		files[fmt.Sprintf("d%d/%d", i%3, i)] = string(numbered(n, i))
	}
	for i := range 200 {
		files[fmt.Sprintf("many/%03d", i)] = fmt.Sprint(i)
	}
	size := int64(0)
	for _, b := range files {
		size += int64(len(b))
	}
	dir := testkit.Tree(t, t.TempDir(), files)
	for _, name := range []string{"x.caf", "x.tar", "x.zip", "x.rvn", "x.lindi.tar", "x.bundle"} {
		for _, disk := range []bool{false, true} {
			for _, plain := range []bool{false, true} {
				if testkit.Race() && disk == plain {
					continue // two of four show what is concurrent
				}
				var st store.Store = &storetest.Mem{}
				if disk {
					near := local.New(t.TempDir())
					near.NoSync = true
					st = near
				}
				m := &meter.Meter{WantTotal: true}
				sum, err := pack.Pack(t.Context(), st, name, []string{dir}, pack.Options{Meter: m, Plain: plain, Jobs: 3})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				p := m.Snapshot()
				if p.TotalEntries == 0 && !format.All().ByExtension(name).WantsManifest {
					p.TotalEntries, p.TotalBytes = int64(len(files)), size // packed before all were counted
				}
				if p.TotalEntries != int64(len(files)) || p.TotalBytes != size || p.Bytes != size || p.Entries < int64(len(files)) || sum.Content < size {
					t.Errorf("%s: %+v, %+v; %d files, %d bytes", name, p, sum, len(files), size)
				}
				src := archivetest.Open(t, st, name)
				if got := archivetest.Contents(t, src); !maps.Equal(got, files) {
					t.Errorf("%s, disk %v: other contents in %d files", name, disk, len(got))
				}
				archivetest.Sound(t, src, format.Note)
			}
		}
	}
}

func TestSeveralNamesOfAFileArePackedAsLinks(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha", "d/b": "beta"})
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "d/a")); err != nil {
		t.Skip(err)
	}
	src, _ := packed(t, "x.tar", []string{dir}, pack.Options{Prefix: "p/"})
	if e := archivetest.Lookup(t, src, "p/d/a"); e.Kind != format.HardLink || e.Link != "p/a" {
		t.Errorf("%+v", e)
	}
	src, sum := packed(t, "x.caf", []string{dir}, pack.Options{})
	if got := archivetest.Contents(t, src); !maps.Equal(got, map[string]string{"a": "alpha", "d/a": "alpha", "d/b": "beta"}) || sum.Entries != 3 {
		t.Errorf("found %v, %+v", got, sum)
	}
	// They become files where there are no links, and the first of them is what the others need.
	tar, _ := packed(t, "x.tar", []string{dir}, pack.Options{})
	to := &storetest.Mem{}
	sum, err := pack.Convert(t.Context(), tar, to, "y.caf", pack.Options{})
	if err != nil || !slices.Contains(sum.Lost, "hard links (stored as copies)") || !slices.Contains(sum.Lost, "modes") {
		t.Errorf("%+v, %v", sum, err)
	}
	if got := archivetest.Contents(t, archivetest.Open(t, to, "y.caf")); !maps.Equal(got, map[string]string{"a": "alpha", "d/a": "alpha", "d/b": "beta"}) {
		t.Errorf("found %v", got)
	}
}

func TestASetOfChunks(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("%02d", i)] = string(numbered(1000, i))
	}
	dir := testkit.Tree(t, t.TempDir(), files)
	st := local.New(dir) // the set lies within what is packed
	st.NoSync = true
	for round, c := range []struct {
		size    int64
		volumes int
		older   string
	}{{2500, 5, ""}, {2500, 5, ""}, {4500, 3, "x-00004.caf"}} {
		sum, err := pack.Pack(t.Context(), st, "x.caf", []string{dir}, pack.Options{ChunkSize: c.size})
		if err != nil || sum.Entries != 10 || len(sum.Volumes) != c.volumes || sum.Volumes[0] != "x-00001.caf" || sum.Older != c.older {
			t.Fatalf("round %d: %+v, %v", round, sum, err)
		}
		got := map[string]string{}
		for _, name := range sum.Volumes {
			maps.Copy(got, archivetest.Contents(t, archivetest.Open(t, st, name)))
		}
		if !maps.Equal(got, files) {
			t.Errorf("round %d: found %d files", round, len(got))
		}
	}
	for what, o := range map[string]pack.Options{"negative": {ChunkSize: -1}, "negative, too": {ChunkMax: -1}, "no chunks": {ChunkSize: 1 << 20, Format: "tar"}} {
		if _, err := pack.Pack(t.Context(), &storetest.Mem{}, "x.caf", []string{dir}, o); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if name := pack.ChunkName("dir.d/x.CAF", 12, ".caf"); name != "dir.d/x-00012.CAF" {
		t.Error(name)
	}
	if name := pack.ChunkName(".caf", 1, ".caf"); name != ".caf-00001.caf" {
		t.Error(name)
	}
}

// An archive that is replaced, or its parity, is not packed into the new one.
func TestTheArchiveItselfIsNotPacked(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha", "other.parity": "other"})
	st := local.New(dir)
	st.NoSync = true
	for _, name := range []string{"x.caf", "x.tar"} {
		for range 2 {
			if _, err := pack.Pack(t.Context(), st, name, []string{dir}, pack.Options{Protect: 0.1, Exclude: []string{"*.caf*"}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := namesIn(t, archivetest.Open(t, st, name)); !slices.Equal(got, []string{"a", "other.parity"}) {
			t.Errorf("%s: found %q", name, got)
		}
	}
	if _, err := pack.Pack(t.Context(), st, "set.caf", []string{dir}, pack.Options{Protect: 0.1, ChunkSize: 3, Include: []string{"a", "set*"}}); err != nil {
		t.Fatal(err)
	}
	sum, err := pack.Pack(t.Context(), st, "set.caf", []string{dir}, pack.Options{Protect: 0.1, ChunkSize: 3, Include: []string{"a", "set*"}})
	if err != nil || sum.Entries != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestWhatIsReplacedIsKnownBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha"})
	st := &storetest.Mem{}
	try := func(name string, o pack.Options) error {
		_, err := pack.Pack(t.Context(), st, name, []string{dir}, o)
		return err
	}
	st.Put("x.caf", []byte("a letter, and no archive"))
	if err := try("x.caf", pack.Options{}); !errors.Is(err, fs.ErrExist) || string(st.Get("x.caf")) != "a letter, and no archive" {
		t.Errorf("%v", err)
	}
	if err := try("x.caf", pack.Options{Force: true}); err != nil {
		t.Error(err)
	}
	if err := try("x.caf", pack.Options{}); err != nil {
		t.Errorf("an archive is replaced: %v", err)
	}
	if err := try("x.caf", pack.Options{Once: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	st.Put("x-00002.caf", []byte("a letter, and no archive"))
	testkit.Tree(t, dir, map[string]string{"b": "beta"})
	if err := try("x.caf", pack.Options{ChunkSize: 5}); !errors.Is(err, fs.ErrExist) || st.Get("x-00001.caf") != nil {
		t.Errorf("a chunk: %v", err)
	}
	near := local.New(dir)
	if _, err := pack.Pack(t.Context(), near, "x.caf", []string{filepath.Join(dir, "a"), filepath.Join(dir, "x.caf")}, pack.Options{}); err == nil {
		t.Error("an input that is the output is taken")
	}
	for name, o := range map[string]pack.Options{
		"x.unknown": {}, "y.caf": {Format: "unknown"}, "z.caf": {Param: map[string]string{"level": "9"}}, "x.h5": {}, "p.caf": {Include: []string{"[a"}}, "q": {Format: "hdf5"},
	} {
		if err := try(name, o); err == nil || st.Get(name) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := try("x.h5", pack.Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

func TestNothingToPackIsAnError(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha"})
	st := &storetest.Mem{}
	if _, err := pack.Pack(t.Context(), st, "x.caf", []string{t.TempDir()}, pack.Options{}); !errors.Is(err, pack.ErrNothing) {
		t.Errorf("%v", err)
	}
	if _, err := pack.Pack(t.Context(), st, "x.caf", []string{dir}, pack.Options{Exclude: []string{"a"}}); !errors.Is(err, pack.ErrNothing) {
		t.Errorf("%v", err)
	}
	if _, err := pack.Pack(t.Context(), st, "x.caf", []string{filepath.Join(dir, "b")}, pack.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	none := func(func(pack.Object, error) bool) {}
	asked := 0
	o := pack.Options{NoEmpty: true, Confirm: func(context.Context) error { asked++; return nil }}
	if sum, err := pack.Objects(t.Context(), st, "x.caf", none, o); err != nil || sum.Entries != 0 || asked != 1 {
		t.Errorf("%+v, %v, %d", sum, err, asked)
	}
	if st.Get("x.caf") != nil {
		t.Error("an archive is there")
	}
	if _, err := pack.Objects(t.Context(), st, "x.caf", none, pack.Options{}); err != nil || st.Get("x.caf") == nil {
		t.Errorf("an archive of no objects: %v", err)
	}
}

// A file that cannot be packed is named, and what is done then is the caller's choice.
func TestAFileThatCannotBePackedIsNamed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "p") // the address of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Tree(t, dir, map[string]string{"a": "alpha", "z": "omega"})
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	for _, name := range []string{"x.caf", "x.tar"} {
		st, failed := &storetest.Mem{}, map[string]error{}
		note := func(name string, err error) { failed[name] = err }
		sum, err := pack.Pack(t.Context(), st, name, []string{dir}, pack.Options{Prefix: "p/", OnError: note})
		if err != nil || sum.Failed != 1 || !errors.Is(failed["p/s"], tree.ErrSpecial) || sum.Entries != 2 {
			t.Errorf("%+v, %v, %v", sum, failed, err)
		}
		st = &storetest.Mem{}
		if _, err := pack.Pack(t.Context(), st, name, []string{dir}, pack.Options{}); !errors.Is(err, tree.ErrSpecial) || st.Get(name) != nil {
			t.Errorf("%v", err)
		}
		stop := errors.New("stop")
		if _, err := pack.Pack(t.Context(), st, name, []string{dir}, pack.Options{OnError: note, Judge: func(string, error) error { return stop }}); !errors.Is(err, stop) || st.Get(name) != nil {
			t.Errorf("%v", err)
		}
	}
}

// A store that fails ends the pack with its error, and nothing appears.
func TestAStoreThatFailsEndsThePack(t *testing.T) {
	t.Parallel()
	dir := testkit.Tree(t, t.TempDir(), map[string]string{"a": "alpha", "large": string(numbered(3<<20, 1))})
	full := errors.New("no room is left")
	for _, op := range []string{"create", "write", "commit"} {
		for _, name := range []string{"x.caf", "x.tar", "x.lindi.tar"} {
			below := &storetest.Mem{}
			fault := storetest.Count(storetest.Nth(op, 1, full))
			_, err := pack.Pack(t.Context(), storetest.Fault(below, fault.Inject), name, []string{dir}, pack.Options{OnError: func(name string, err error) { t.Errorf("%s: %v", name, err) }})
			if err := fault.Surfaced(err); err != nil || below.Get(name) != nil {
				t.Errorf("%s, %s: %v", op, name, err)
			}
		}
	}
}
