package unpack_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/caf"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/format/tar"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/archivetest"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/internal/write/unpack"
	"github.com/holdall/holdall/store/storetest"
)

// leadingOut are entries of which some lead out of the folder or are in the way of others, and
// leaves says why which of them are left out.
var (
	leadingOut = []format.Entry{
		{Name: "ok/file"},
		{Name: "up", Kind: format.Symlink, Link: "../up"},
		{Name: "abs", Kind: format.Symlink, Link: "/etc/passwd"},
		{Name: "ok/sibling", Kind: format.Symlink, Link: "../other"},
		{Name: "ok/up", Kind: format.Symlink, Link: "../../up"},
		{Name: "trick", Kind: format.Symlink, Link: "ok/sibling/../../up"},
		{Name: "drive", Kind: format.Symlink, Link: `C:\x`},
		{Name: "back", Kind: format.Symlink, Link: `..\..\x`},
		{Name: "self", Kind: format.Symlink, Link: "ok"},
		{Name: "self/through", Kind: format.File},
		{Name: "hard", Kind: format.HardLink, Link: "ok/file"},
		{Name: "hardout", Kind: format.HardLink, Link: "/etc/passwd"},
		{Name: "hardlate", Kind: format.HardLink, Link: "self"},
		{Name: "ok", Kind: format.File},
		{Name: "setid", Mode: 0o755 | fs.ModeSetuid, HasMode: true},
		{Name: "pipe", Kind: format.Fifo, Mode: 0o600, HasMode: true},
	}
	leadingOutContents = map[string]string{"ok/file": "content", "self/through": "gotcha"}
	leaves             = map[string]string{
		"up": "unsafe-path link-outside", "abs": "unsafe-path link-outside", "ok/up": "unsafe-path link-outside", "trick": "unsafe-path link-outside",
		"drive": "unsafe-path link-outside", "back": "unsafe-path link-outside",
		"self/through": "unsafe-path name-conflict", "hardout": "dangling", "hardlate": "dangling", "ok": "unsafe-path name-conflict",
	}
)

func TestExtractRefusesWhatLeadsOut(t *testing.T) {
	t.Parallel()
	src := archiveOf(t, tiny.Format, leadingOut, leadingOutContents)
	for _, dry := range []bool{true, false} {
		outer := t.TempDir()
		into := filepath.Join(outer, "in")
		if err := os.Mkdir(into, 0o777); err != nil {
			t.Fatal(err)
		}
		sum, refused, err := extract(t, src, into, unpack.Options{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(refused, leaves) || sum.Failed != int64(len(leaves)) || sum.Entries != int64(len(leadingOut)-len(leaves)) {
			t.Errorf("dry %v: refused %v; %+v", dry, refused, sum)
		}
		if list, err := os.ReadDir(outer); len(list) != 1 || err != nil {
			t.Errorf("something got out: %v", list)
		}
		if dry {
			if list := filesIn(t, into); len(list) != 0 {
				t.Errorf("a dry run left %v", list)
			}
			continue
		}
		wantFile(t, into, "hard", "content")
		if to, err := os.Readlink(filepath.Join(into, "ok/sibling")); to != "../other" {
			t.Errorf("a link that stays inside: %q, %v", to, err)
		}
	}
	// A caller that hears of no failure gets the first one.
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if sum, err := unpack.Extract(t.Context(), src, root, unpack.Options{}); err == nil || sum.Failed != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// Elements are removed from names, and what led out before leads out still.
func TestElementsOfNamesAreRemoved(t *testing.T) {
	t.Parallel()
	src := archiveOf(t, tiny.Format, []format.Entry{
		{Name: "../z"}, {Name: "a/../../w"}, {Name: "top"}, {Name: "one/two/f"}, {Name: "x/twice"}, {Name: "y/twice"}, {Name: "/abs/g"},
		{Name: "h/l", Kind: format.HardLink, Link: "one/two/f"},
	}, map[string]string{"../z": "z", "a/../../w": "w", "top": "t", "one/two/f": "first", "x/twice": "x", "y/twice": "y", "/abs/g": "g"})
	for _, dry := range []bool{true, false} {
		outer := t.TempDir()
		into := testkit.Tree(t, outer, map[string]string{"in/": ""}) + "/in"
		_, refused, err := extract(t, src, into, unpack.Options{Strip: 1, DryRun: dry})
		if want := []string{"../z", "a/../../w", "twice"}; err != nil || !slices.Equal(slices.Sorted(maps.Keys(refused)), want) {
			t.Errorf("dry %v: refused %v, %v", dry, refused, err)
		}
		if list, err := os.ReadDir(outer); len(list) != 1 || err != nil {
			t.Errorf("something got out: %v", list)
		}
		if got := filesIn(t, into); !dry && !slices.Equal(got, []string{"g", "l", "twice", "two/f"}) {
			t.Errorf("found %v", got)
		} else if !dry {
			wantFile(t, into, "two/f", "first")
			wantFile(t, into, "l", "first")
		}
	}
}

// Links that lead out are made if that is wished, but nothing is written through them.
func TestLinksThatLeadOutAreMadeOnWish(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	into := testkit.Tree(t, filepath.Join(outer, "in"), map[string]string{"x": "x"})
	src := archiveOf(t, tiny.Format, []format.Entry{{Name: "l", Kind: format.Symlink, Link: "../out"}, {Name: "l/f"}}, map[string]string{"l/f": "gotcha"})
	_, refused, err := extract(t, src, into, unpack.Options{OutsideLinks: true})
	if err != nil || !maps.Equal(refused, map[string]string{"l/f": "unsafe-path name-conflict"}) {
		t.Errorf("%v, %v", refused, err)
	}
	if to, err := os.Readlink(filepath.Join(into, "l")); to != "../out" {
		t.Errorf("%q, %v", to, err)
	}
	testkit.Tree(t, filepath.Join(outer, "out"), map[string]string{"kept": "kept"})
	other := filesOf(t, tiny.Format, map[string]string{"l/f": "gotcha"})
	for _, dry := range []bool{true, false} {
		if _, refused, err := extract(t, other, into, unpack.Options{Overwrite: true, DryRun: dry}); err != nil || len(refused) != 1 {
			t.Errorf("dry %v: %v, %v", dry, refused, err)
		}
	}
	if got := filesIn(t, filepath.Join(outer, "out")); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("%q", got)
	}
}

func TestTimesAndModesSurviveATrip(t *testing.T) {
	t.Parallel()
	mtime := time.Date(2024, 2, 29, 12, 30, 0, 123456789, time.UTC)
	src := archiveOf(t, tiny.Format, []format.Entry{
		{Name: "d", Kind: format.Dir, Mode: 0o500, HasMode: true, ModTime: mtime},
		{Name: "d/f", Mode: 0o604, HasMode: true, ModTime: mtime},
		{Name: "d/p", Kind: format.Fifo, Mode: 0o640, HasMode: true, ModTime: mtime},
		{Name: "d/l", Kind: format.Symlink, Link: "f", ModTime: mtime},
	}, nil)
	dir := t.TempDir()
	if sum := extractAll(t, src, dir, unpack.Options{}); sum.Entries != 4 {
		t.Errorf("%+v", sum)
	}
	for name, mode := range map[string]fs.FileMode{"d": 0o500 | fs.ModeDir, "d/f": 0o604, "d/p": 0o640 | fs.ModeNamedPipe} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode || !info.ModTime().Equal(mtime) {
			t.Errorf("%s: %v %v, %v", name, info.Mode(), info.ModTime(), err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "d/l")); err != nil || !info.ModTime().Equal(mtime) {
		t.Errorf("%v, %v", info, err)
	}
	os.Chmod(filepath.Join(dir, "d"), 0o700)
}

// What a killed extraction left is taken away by the next one, and what others have under
// way is not.
func TestExtractTakesAwayWhatWasLeft(t *testing.T) {
	t.Parallel()
	src := filesOf(t, caf.Format, map[string]string{"d/a": "alpha"})
	const temp, mark = "d/sub/.holdall-ABCDEFGHIJKL-1a.tmp", ".extract.holdall-lock"
	for _, living := range []bool{false, true} {
		dir := testkit.Tree(t, t.TempDir(), map[string]string{temp: "half", "d/.holdall-mine.tmp": "mine", mark: ""})
		if living {
			f, err := os.Open(filepath.Join(dir, mark))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := sysfile.ShareLock(f); errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
		}
		extractAll(t, src, dir, unpack.Options{})
		for name, there := range map[string]bool{"d/a": true, "d/.holdall-mine.tmp": true, temp: living, mark: living} {
			if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != there {
				t.Errorf("others at work %v: %s: %v", living, name, err)
			}
		}
	}
}

var some = map[string]string{"a": "alpha", "d/b": strings.Repeat("beta", 3000), "d/e/c": "gamma", "d/e/f": "", "dx": "delta", "long": strings.Repeat("0123456789abcdef", 70_000)}

func TestAFileThatIsThereIsKeptUnlessItMayBeReplaced(t *testing.T) {
	t.Parallel()
	entries := append(entriesOf(some), format.Entry{Name: "link", Kind: format.Symlink, Link: "a"}, format.Entry{Name: "pipe", Kind: format.Fifo}, format.Entry{Name: "a2", Kind: format.HardLink, Link: "a"})
	src := archiveOf(t, tiny.Format, entries, some)
	there := map[string]string{"a": "mine", "d/e/c": "mine", "long/file": "mine", "link": "mine", "pipe": "mine", "dx": "mine"}
	for _, c := range []struct {
		overwrite bool
		refused   map[string]string
	}{
		{false, map[string]string{"a": "exists", "d/e/c": "exists", "dx": "exists", "long": "exists", "link": "exists", "pipe": "exists", "a2": "dangling"}},
		{true, map[string]string{"long": "bad-data"}},
	} {
		for _, dry := range []bool{true, false} {
			what := fmt.Sprintf("overwrite %v, dry %v", c.overwrite, dry)
			dir := testkit.Tree(t, t.TempDir(), there)
			sum, refused, err := extract(t, src, dir, unpack.Options{Overwrite: c.overwrite, DryRun: dry})
			if err != nil || !maps.Equal(refused, c.refused) || sum.Failed != int64(len(refused)) || sum.Entries != int64(len(entries)-len(refused)) {
				t.Fatalf("%s: %+v, %v, %v", what, sum, refused, err)
			}
			for name, mine := range there {
				want := mine
				if _, is := some[name]; is && c.overwrite && !dry {
					want = some[name]
				}
				if (name == "link" || name == "pipe") && c.overwrite && !dry {
					continue // what they are now is looked at below
				}
				wantFile(t, dir, name, want)
			}
			if dry || !c.overwrite {
				continue
			}
			if to, err := os.Readlink(filepath.Join(dir, "link")); to != "a" {
				t.Errorf("%q, %v", to, err)
			}
			if info, err := os.Lstat(filepath.Join(dir, "pipe")); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
				t.Errorf("%v, %v", info, err)
			}
			wantFile(t, dir, "a2", "alpha")
		}
	}
}

func TestWhatIsNamedIsExtracted(t *testing.T) {
	t.Parallel()
	for what, src := range map[string]*content.Source{"listed": filesOf(t, caf.Format, some), "by an index": indexed(t, some)} {
		for _, c := range []struct {
			names []string
			want  []string
		}{
			{nil, slices.Sorted(maps.Keys(some))},
			{[]string{"."}, slices.Sorted(maps.Keys(some))},
			{[]string{"a"}, []string{"a"}},
			{[]string{"d/"}, []string{"d/b", "d/e/c", "d/e/f"}},
			{[]string{"d/e", "d", "d/e/c", "dx"}, []string{"d/b", "d/e/c", "d/e/f", "dx"}},
		} {
			dir := t.TempDir()
			sum := extractAll(t, src, dir, unpack.Options{Names: c.names})
			files := 0
			for _, name := range c.want {
				wantFile(t, dir, name, some[name])
				files++
			}
			if got := filesIn(t, dir); !slices.Equal(got, c.want) || sum.Entries < int64(files) {
				t.Errorf("%s: %q: found %q, expected %q; %+v", what, c.names, got, c.want, sum)
			}
		}
		if _, _, err := extract(t, src, t.TempDir(), unpack.Options{Names: []string{"a", "nothing"}}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// indexed is an archive that is read by its index, which knows what is below a folder.
func indexed(t *testing.T, files map[string]string) *content.Source {
	t.Helper()
	st, name := written(t, caf.Format, entriesOf(files), files)
	below := archivetest.Open(t, st, name)
	var b bytes.Buffer
	if _, err := kept.Build(t.Context(), &b, below.Reader, name, kept.Head{Format: "caf"}, kept.Options{Scratch: sorter.TempFile}); err != nil {
		t.Fatal(err)
	}
	st.Put("index", b.Bytes())
	o, err := st.Open(t.Context(), "index")
	if err != nil {
		t.Fatal(err)
	}
	x, err := kept.Open(t.Context(), o, "index", name, 1, 18<<10, false)
	if err != nil {
		t.Fatal(err)
	}
	src := content.New(st, name, nil, 0)
	src.Read(caf.Format, kept.NewReader(x, src.ProvenBefore, func(ctx context.Context) (format.Reader, error) {
		return caf.Format.Open(ctx, st, name, format.OpenOptions{})
	}))
	src.UseIndex(x)
	t.Cleanup(func() { src.Close() })
	return src
}

func TestPatternsSelectAmongWhatIsNamed(t *testing.T) {
	t.Parallel()
	filter, err := glob.NewFilter([]string{"d"}, []string{"f"})
	if err != nil {
		t.Fatal(err)
	}
	m := &meter.Meter{WantTotal: true}
	dir := t.TempDir()
	sum := extractAll(t, filesOf(t, caf.Format, some), dir, unpack.Options{Filter: filter, Meter: m})
	if got, want := filesIn(t, dir), []string{"d/b", "d/e/c"}; !slices.Equal(got, want) || sum.Entries != 2 {
		t.Errorf("%q, %+v", got, sum)
	}
	n := int64(len(some["d/b"]) + len(some["d/e/c"]))
	if p := m.Snapshot(); p.Entries != 2 || p.TotalEntries != 2 || p.Bytes != n || p.TotalBytes != n || sum.Bytes != n {
		t.Errorf("%+v, %+v", p, sum)
	}
}

// A limit ends an extraction that would exceed it. Only one about a name leaves just that out.
func TestLimits(t *testing.T) {
	t.Parallel()
	src := filesOf(t, tiny.Format, some)
	for what, limits := range map[string]unpack.Limits{
		"more than 1 entries": {Entries: 1},
		"more than 100 bytes": {Bytes: 100},
		"names too deep":      {Depth: 2},
		"":                    {Entries: -1, Bytes: -1, Ratio: -1, Depth: -1},
	} {
		sum, refused, err := extract(t, src, t.TempDir(), unpack.Options{Max: limits})
		switch {
		case what == "":
			if err != nil || sum.Entries != int64(len(some)) {
				t.Errorf("%+v, %v", sum, err)
			}
		case limits.Depth > 0:
			if err != nil || !maps.Equal(refused, map[string]string{"d/e/c": "limit", "d/e/f": "limit"}) {
				t.Errorf("%v, %v", refused, err)
			}
		default:
			bad, ok := errors.AsType[*format.CorruptError](err)
			if !ok || bad.Problem.Code != format.Limit || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %+v, %v", what, sum, err)
			}
		}
	}
}

// What an archive has no bytes for is not written, however much it claims, unless that is wished.
func TestContentThatIsOutOfProportionIsRefused(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, h := range []*zip.FileHeader{{Name: "small"}, {Name: "bomb", Method: zip.Deflate, CompressedSize64: 100, UncompressedSize64: 1 << 40}} {
		to, err := w.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		to.Write(make([]byte, h.CompressedSize64))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st := &storetest.Mem{}
	st.Put("x.zip", b.Bytes())
	src := archivetest.Open(t, st, "x.zip")
	_, _, err := extract(t, src, t.TempDir(), unpack.Options{})
	if bad, ok := errors.AsType[*format.CorruptError](err); !ok || bad.Problem.Code != format.Limit || bad.Problem.Entry != "bomb" || !strings.Contains(err.Error(), "more than 1000 times as many") {
		t.Errorf("%v", err)
	}
	sum, refused, err := extract(t, src, t.TempDir(), unpack.Options{Max: unpack.Limits{Ratio: -1}})
	if err != nil || sum.Entries != 1 || len(refused) != 1 || refused["bomb"] == "" {
		t.Errorf("%+v, %v, %v", sum, refused, err)
	}
}

// A damaged file is left out. If that is wished, what can be read of it is kept beside it: with
// zeros for what cannot, and never under the file's own name.
func TestDamagedFilesAreKeptOnlyOnWishAndBesideTheirPlace(t *testing.T) {
	t.Parallel()
	rnd := testkit.Rand(t)
	files := map[string]string{"long": string(testkit.Noise(rnd, 2<<20)), "small": string(testkit.Noise(rnd, 5000)), "sound": "sound"}
	for _, name := range []string{"caf", "lindi", "databundle"} {
		f := format.All().ByName(name)
		st, src := damaged(t, f, files, "long", "small")
		for _, keep := range []bool{false, true} {
			for _, dry := range []bool{true, false} {
				dir, told := t.TempDir(), map[string]string{}
				sum, _, err := extract(t, src, dir, unpack.Options{KeepDamaged: keep, DryRun: dry, OnError: func(p format.Problem, err error) { told[p.Entry] = p.Message }})
				if err != nil || sum.Failed != int64(len(told)) || told["sound"] != "" || told["small"] == "" && told["long"] == "" || sum.Entries+sum.Failed != 3 {
					t.Fatalf("%s: %+v, %v, %v", name, sum, told, err)
				}
				left := filesIn(t, dir)
				want := len(files) - len(told)
				if keep {
					want = len(files)
				}
				if dry {
					want = 0
				}
				if len(left) != want {
					t.Errorf("%s: %q are left, expected %d", name, left, want)
				}
				for entry, what := range told {
					if _, err := os.Lstat(filepath.Join(dir, entry)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s: %s: %v", name, entry, err)
					}
					if !keep || dry {
						continue
					}
					b, err := os.ReadFile(filepath.Join(dir, entry+".damaged"))
					if err != nil || len(b) != len(files[entry]) {
						t.Fatalf("%s: %s: %d bytes, %v", name, entry, len(b), err)
					}
					zeros := 0
					for i := range b {
						if b[i] != files[entry][i] && b[i] == 0 {
							zeros++
						} else if b[i]^files[entry][i] > 1 {
							t.Fatalf("%s: %s: byte %d is another", name, entry, i)
						}
					}
					if !strings.Contains(what, "in "+entry+".damaged") || zeros > 1 && !strings.Contains(what, "with zeros for ") {
						t.Errorf("%s: %s: %d zeros: %s", name, entry, zeros, what)
					}
				}
			}
		}
		if name != "caf" {
			continue
		}
		// Nothing is compared if that is wished.
		dir := t.TempDir()
		if sum := extractAll(t, archivetest.OpenAs(t, st, "x.caf", f, format.OpenOptions{}), dir, unpack.Options{NoVerify: true}); sum.Entries != 3 {
			t.Errorf("%+v", sum)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "long")); err != nil || len(b) != len(files["long"]) || string(b) == files["long"] {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		wantFile(t, dir, "sound", "sound")
	}
}

// damaged is an archive in which a bit in the middle of some files is turned.
func damaged(t *testing.T, f *format.Format, files map[string]string, names ...string) (*storetest.Mem, *content.Source) {
	t.Helper()
	st, name := written(t, f, entriesOf(files), files)
	sound := archivetest.OpenAs(t, st, name, f, format.OpenOptions{})
	turned := map[string][]byte{}
	for _, n := range names {
		for x, err := range sound.Extents(t.Context(), archivetest.Lookup(t, sound, n)) {
			if err != nil {
				t.Fatal(err)
			}
			if turned[x.Object] == nil {
				turned[x.Object] = st.Get(x.Object)
			}
			turned[x.Object][x.Off+x.Len/2] ^= 1
			break
		}
	}
	for object, b := range turned {
		st.Put(object, b)
	}
	return st, archivetest.OpenAs(t, st, name, f, format.OpenOptions{})
}

// What the archive says of owners is set if we may, and left alone on wish.
func TestOwnersAreSetByRootUnlessNotWished(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	entries := []format.Entry{{Name: "d", Kind: format.Dir}, {Name: "d/f", HasMode: true, Mode: 0o755 | fs.ModeSetuid}, {Name: "l", Kind: format.Symlink, Link: "d/f"}, {Name: "p", Kind: format.Fifo}, {Name: "unknown"}}
	for i := range entries {
		entries[i].Owner, entries[i].Group = "1234", "4321"
	}
	entries[4].Owner, entries[4].Group = "nobody-of-this-name", "4321"
	src := archiveOf(t, tar.Format, entries, map[string]string{"d/f": "content"})
	for _, no := range []bool{false, true} {
		dir := t.TempDir()
		extractAll(t, src, dir, unpack.Options{NoOwner: no})
		for _, e := range entries {
			info, err := os.Lstat(filepath.Join(dir, e.Name))
			if err != nil {
				t.Fatal(err)
			}
			uid, gid, ok := tree.OwnerOf(info)
			if given := uid == 1234 && gid == 4321; ok && given == (no || e.Name == "unknown") {
				t.Errorf("no owner %v: %s is %d's and %d's", no, e.Name, uid, gid)
			}
			if set := info.Mode()&fs.ModeSetuid != 0; e.Name == "d/f" && set == no {
				t.Errorf("no owner %v: mode %v", no, info.Mode())
			}
		}
	}
}

// An extraction that is cancelled leaves no file that is not complete.
func TestCancelledExtractionLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	m := &meter.Meter{OnEntry: func(string) { cancel(stop) }}
	if _, err := unpack.Extract(ctx, filesOf(t, caf.Format, some), root, unpack.Options{Meter: m}); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	left := filesIn(t, dir)
	if len(left) == len(some) {
		t.Errorf("%q", left)
	}
	for _, name := range left {
		wantFile(t, dir, name, some[name])
	}
}
