package holdall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// editions are the files of two versions of an archive. In the second, a few files are others, one is new and one
// is gone.
func editions(t *testing.T, n, size int) (was, is map[string]string) {
	rnd := testkit.Rand(t)
	was, is = map[string]string{}, map[string]string{}
	for i := range n {
		name := fmt.Sprintf("d%02d/f%04d", i/50, i)
		was[name] = string(testkit.Noise(rnd, 1+rnd.IntN(2*size)))
		if is[name] = was[name]; i%100 == 7 {
			is[name] = string(testkit.Noise(rnd, 1+rnd.IntN(2*size)))
		}
	}
	delete(is, "d00/f0003")
	is["d00/new"] = string(testkit.Noise(rnd, size))
	return was, is
}

// versionAs packs files into an archive in memory, all with one time.
func versionAs(t *testing.T, format string, param, files map[string]string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	if _, err := holdall.Pack(t.Context(), "x", []string{tree(t, files)}, holdall.PackOptions{Store: st, Format: format, Param: param, Time: time.Unix(1_700_000_000, 0)}); err != nil {
		t.Fatal(err)
	}
	return st
}

// indexed writes an index with digests beside the archive x in st.
func indexed(t *testing.T, st *storetest.Mem) *storetest.Mem {
	t.Helper()
	if _, err := holdall.BuildIndex(t.Context(), "x", "x"+kept.Suffix, holdall.IndexOptions{To: st, Chunk: 64 << 10, OpenOptions: holdall.OpenOptions{}.In(st)}); err != nil {
		t.Fatal(err)
	}
	return st
}

func openedBeside(t *testing.T, st store.Store) *holdall.Archive {
	t.Helper()
	a, err := holdall.Open(t.Context(), "x", holdall.OpenOptions{Store: st, Index: holdall.UseIndex{Beside: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func synced(ctx context.Context, st store.Store, out string, old ...*holdall.Archive) (holdall.Synced, error) {
	o := holdall.SyncOptions{NoSync: true}
	o.Store, o.Index.Beside = st, true
	return holdall.Sync(ctx, "x", old, out, o)
}

// sameAs requires that a copy is the archive x in st, byte for byte, and that nothing else is left.
func sameAs(t *testing.T, st *storetest.Mem, out string) {
	t.Helper()
	n := 0
	for _, name := range objectsIn(t, st) {
		if name == "x"+kept.Suffix {
			continue
		}
		n++
		got, err := os.ReadFile(out + strings.TrimPrefix(name, "x"))
		if err != nil || !bytes.Equal(got, st.Get(name)) {
			t.Errorf("%s: %v, or other bytes", name, err)
		}
	}
	if err := filepath.WalkDir(filepath.Dir(out), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && p != out+kept.Suffix {
			n--
		}
		if strings.Contains(d.Name(), ".holdall-sync") {
			t.Errorf("%s is left", p)
		}
		return err
	}); err != nil || n != 0 {
		t.Errorf("%d files too few: %v", n, err)
	}
}

func TestSyncFetchesOnlyWhatIsNewInEveryFormat(t *testing.T) {
	was, is := editions(t, 600, 12<<10)
	for _, c := range []struct {
		format, param string
		most          int64 // percent
	}{{"caf", "", 3}, {"lindi", "", 3}, {"tar", "", 3}, {"zip", "", 3}, {"databundle", "", 35}, {"databundle", "compression none", 20}, {"rvn", "sections 65536", 20}} {
		t.Run(c.format+c.param, func(t *testing.T) {
			param := map[string]string{}
			if key, value, ok := strings.Cut(c.param, " "); ok {
				param[key] = value
			}
			old := openedBeside(t, indexed(t, versionAs(t, c.format, param, was)))
			st := indexed(t, versionAs(t, c.format, param, is))
			out := filepath.Join(t.TempDir(), "y")
			sum, err := synced(t.Context(), st, out, old)
			if err != nil {
				t.Fatal(err)
			}
			sameAs(t, st, out)
			if got := sum.Fetched * 100 / sum.Bytes; got > c.most || sum.Fetched+sum.Copied != sum.Bytes || sum.Resumed != 0 || !sum.Proven {
				t.Errorf("%d %% fetched: %+v", got, sum)
			}
			// The copy has the index, by which the next sync copies everything.
			a, err := holdall.Open(t.Context(), out, holdall.OpenOptions{Index: holdall.UseIndex{Beside: true}})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if sum, err := synced(t.Context(), st, out+"2", a); err != nil || sum.Fetched > sum.Bytes/50 {
				t.Errorf("again: %+v, %v", sum, err)
			}
		})
	}
}

func TestSyncCopiesFromFoldersAndArchivesOfOtherFormats(t *testing.T) {
	was, is := editions(t, 200, 8<<10)
	folder, err := holdall.Open(t.Context(), tree(t, was), holdall.OpenOptions{Format: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for name, old := range map[string]*holdall.Archive{
		"folder": folder, "tar without an index": openedBeside(t, versionAs(t, "tar", nil, was)), "lindi": openedBeside(t, versionAs(t, "lindi", nil, was)),
	} {
		t.Run(name, func(t *testing.T) {
			st := versionAs(t, "caf", nil, is)
			out := filepath.Join(t.TempDir(), "y")
			sum, err := synced(t.Context(), st, out, old)
			if err != nil || sum.Fetched*100 > sum.Bytes*5 {
				t.Errorf("%+v, %v", sum, err)
			}
			sameAs(t, st, out)
		})
	}
}

// What an old archive has no digests of is read, cut as the new one is. So an old archive needs no index, and its own
// may have other pieces.
func TestOldArchivesNeedNoIndex(t *testing.T) {
	was, is := editions(t, 200, 8<<10)
	was["long"] = string(testkit.Noise(testkit.Rand(t), 3<<20))
	is["long"], is["again"] = was["long"], was["long"]
	for _, c := range []struct {
		format, old   string
		index, oldHas bool
		most          int64 // percent
		param         map[string]string
	}{
		{format: "tar", old: "tar", index: true, most: 3},
		{format: "zip", old: "zip", index: true, most: 3},
		{format: "rvn", old: "rvn", index: true, most: 20, param: map[string]string{"sections": "65536"}},
		{format: "databundle", old: "databundle", index: true, most: 35},
		{format: "caf", old: "tar", index: true, most: 3},
		{format: "caf", old: "tar", oldHas: true, most: 3},
		{format: "tar", old: "caf", index: true, oldHas: true, most: 5},
	} {
		t.Run(fmt.Sprintf("%s from %s %v", c.format, c.old, c.oldHas), func(t *testing.T) {
			st, from := versionAs(t, c.format, c.param, is), versionAs(t, c.old, c.param, was)
			if c.index {
				indexed(t, st)
			}
			if c.oldHas {
				indexed(t, from)
			}
			out := filepath.Join(t.TempDir(), "y")
			sum, err := synced(t.Context(), st, out, openedBeside(t, from))
			if err != nil || sum.Fetched*100 > sum.Bytes*c.most {
				t.Errorf("%d %% fetched: %+v, %v", sum.Fetched*100/max(sum.Bytes, 1), sum, err)
			}
			sameAs(t, st, out)
		})
	}
}

// A file that takes more than one section or frame begins with one, so a short one before it may change.
func TestChangeBeforeALongFileCostsNoMore(t *testing.T) {
	was := map[string]string{"a": "one", "b": string(testkit.Noise(testkit.Rand(t), 5<<20))}
	is := map[string]string{"a": "another", "b": was["b"]}
	st, old := indexed(t, versionAs(t, "rvn", nil, is)), openedBeside(t, versionAs(t, "rvn", nil, was))
	out := filepath.Join(t.TempDir(), "y")
	if sum, err := synced(t.Context(), st, out, old); err != nil || sum.Fetched > 1<<10 {
		t.Errorf("%+v, %v", sum, err)
	}
	sameAs(t, st, out)
	var ends [2][]byte
	for i, files := range []map[string]string{was, is} {
		st := &storetest.Mem{}
		if _, err := holdall.Pack(t.Context(), "x.tar.zst", []string{tree(t, files)}, holdall.PackOptions{Store: st, Time: time.Unix(1_700_000_000, 0)}); err != nil {
			t.Fatal(err)
		}
		ends[i] = st.Get("x.tar.zst")
		ends[i] = ends[i][len(ends[i])-5<<20:]
	}
	if !bytes.Equal(ends[0], ends[1]) {
		t.Error("tar.zst: other frames")
	}
}

func TestWithoutDigestsSyncFetchesEverything(t *testing.T) {
	was, is := editions(t, 50, 4<<10)
	st, old := versionAs(t, "tar", nil, is), openedBeside(t, versionAs(t, "tar", nil, was))
	out := filepath.Join(t.TempDir(), "y")
	sum, err := synced(t.Context(), st, out, old)
	if err != nil || sum.Proven || sum.Fetched != sum.Bytes {
		t.Errorf("%+v, %v", sum, err)
	}
	sameAs(t, st, out)
}

// An old archive whose index lies, or which changes while it is read, only makes a sync fetch more.
func TestWrongOldArchivesNeverGiveAWrongCopy(t *testing.T) {
	was, is := editions(t, 300, 8<<10)
	for _, f := range []string{"caf", "tar"} {
		st := indexed(t, versionAs(t, f, nil, is))
		for name, spoil := range map[string]func(old *storetest.Mem, rnd func(int) int) store.Store{
			"wrong bytes": func(old *storetest.Mem, rnd func(int) int) store.Store {
				b := bytes.Clone(old.Get("x"))
				for range 50 {
					b[rnd(len(b)*9/10)] ^= 1
				}
				old.Put("x", b)
				return old
			},
			"changes": func(old *storetest.Mem, rnd func(int) int) store.Store {
				n, after := 0, 20+rnd(100)
				return storetest.Around(old, func(op, name string, act func() error) error {
					if n++; n == after {
						old.Put("x", make([]byte, len(old.Get("x"))))
					}
					return act()
				})
			},
			"fails": func(old *storetest.Mem, rnd func(int) int) store.Store {
				n, every := 0, 5+rnd(20)
				return storetest.Fault(old, func(op, name string, off, long int64) error {
					if n++; n > 40 && n%every == 0 {
						return errors.New("no")
					}
					return nil
				})
			},
		} {
			t.Run(f+" "+name, func(t *testing.T) {
				rnd := testkit.Rand(t)
				old := indexed(t, versionAs(t, f, nil, was))
				out := filepath.Join(t.TempDir(), "y")
				if _, err := synced(t.Context(), st, out, openedBeside(t, serially(spoil(old, rnd.IntN)))); err != nil {
					t.Fatal(err)
				}
				sameAs(t, st, out)
			})
		}
	}
}

// serially returns a store whose requests are made one after the other.
func serially(st store.Store) store.Store {
	one := make(chan struct{}, 1)
	return storetest.Around(st, func(_, _ string, act func() error) error {
		one <- struct{}{}
		defer func() { <-one }()
		return act()
	})
}

// Long files are copied, compared and fetched in parts. One of an old archive that is damaged at its end is fetched.
func TestLongFilesAreSyncedToo(t *testing.T) {
	rnd := testkit.Rand(t)
	was := map[string]string{"a": string(testkit.Noise(rnd, 3<<20)), "b": string(testkit.Noise(rnd, 3<<20)), "c": string(testkit.Noise(rnd, 3<<20))}
	is := maps.Clone(was)
	is["b"] = is["b"][:2<<20] + "x" + is["b"][2<<20:]
	st, from := versionAs(t, "caf", nil, is), versionAs(t, "caf", nil, was)
	b := bytes.Clone(from.Get("x"))
	b[9<<20-5] ^= 1 // of c
	from.Put("x", b)
	out := filepath.Join(t.TempDir(), "y")
	if sum, err := synced(t.Context(), st, out, openedBeside(t, from)); err != nil || sum.Copied != 3<<20 {
		t.Errorf("%+v, %v", sum, err)
	}
	sameAs(t, st, out)
	indexed(t, st) // now only pieces of b are others
	if sum, err := synced(t.Context(), st, out+"2", openedBeside(t, indexed(t, from))); err != nil || sum.Fetched > 2<<20 {
		t.Errorf("%+v, %v", sum, err)
	}
	if got, err := os.ReadFile(out + "2"); err != nil || !bytes.Equal(got, st.Get("x")) {
		t.Errorf("%v, or other bytes", err)
	}
}

// A sync that ends early, whatever fails, leaves what was there, and the next one goes on.
func TestInterruptedSyncGoesOn(t *testing.T) {
	was, is := editions(t, 300, 8<<10)
	old := openedBeside(t, versionAs(t, "caf", nil, was))
	st := versionAs(t, "caf", nil, is)
	out := filepath.Join(t.TempDir(), "y")
	before := []byte("before")
	if err := os.WriteFile(out, before, 0o666); err != nil {
		t.Fatal(err)
	}
	force := func(st store.Store) (holdall.Synced, error) {
		o := holdall.SyncOptions{NoSync: true, Force: true}
		o.Store = st
		return holdall.Sync(t.Context(), "x", []*holdall.Archive{old}, out, o)
	}
	for at := int64(1); ; at++ {
		var n atomic.Int64
		sum, err := force(storetest.Fault(st, func(op, name string, off, long int64) error {
			if n.Add(1) >= at {
				return errors.New("no")
			}
			return nil
		}))
		if err == nil {
			if at < 4 || sum.Resumed == 0 || sum.Copied != 0 {
				t.Errorf("%d requests, %+v", at, sum)
			}
			break
		}
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, before) {
			t.Fatalf("after %d requests: %v, or other bytes", at, err)
		}
	}
	sameAs(t, st, out)
}

func TestArchiveThatChangesWhileItIsSyncedIsAnError(t *testing.T) {
	was, is := editions(t, 300, 8<<10)
	old := openedBeside(t, versionAs(t, "caf", nil, was))
	st, next := versionAs(t, "caf", nil, is), versionAs(t, "caf", nil, was).Get("x")
	out := filepath.Join(t.TempDir(), "y")
	var n atomic.Int64
	changing := storetest.Around(st, func(op, name string, act func() error) error {
		if n.Add(1) == 4 {
			st.Put("x", next)
		}
		return act()
	})
	if _, err := synced(t.Context(), changing, out, old); !errors.Is(err, store.ErrChanged) {
		t.Errorf("found %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found %v", err)
	}
	if _, err := synced(t.Context(), st, out, old); err != nil {
		t.Fatal(err)
	}
	sameAs(t, st, out)
}

// A folder may be replaced object by object, at any time. The copy is one version or the other, or there is none.
func TestFolderThatChangesWhileItIsSyncedIsAnError(t *testing.T) {
	was, is := editions(t, 60, 8<<10)
	for _, digests := range []bool{true, false} {
		first, second := versionAs(t, "databundle", nil, was), versionAs(t, "databundle", nil, is)
		if digests {
			indexed(t, first)
		}
		old := openedBeside(t, indexed(t, versionAs(t, "databundle", nil, was)))
		whole := 0
		for at := int64(1); ; at++ {
			st := first.Clone()
			var n atomic.Int64
			changing := serially(storetest.Around(st, func(op, name string, act func() error) error {
				if n.Add(1) == at {
					for _, name := range objectsIn(t, second) {
						st.Put(name, second.Get(name))
					}
				}
				return act()
			}))
			out := filepath.Join(t.TempDir(), "y")
			if _, err := synced(t.Context(), changing, out, old); err == nil {
				whole++
				want := second
				if got, err := os.ReadFile(out + "/shard-00000000"); err == nil && bytes.Equal(got, first.Get("x/shard-00000000")) {
					want = first
				}
				sameAs(t, want, out)
			}
			if at > n.Load() {
				break
			}
		}
		if whole < 2 {
			t.Errorf("%d copies", whole)
		}
	}
}

// An index with any bit wrong is not used, or used for what is right.
func TestDamagedIndexNeverGivesAWrongCopy(t *testing.T) {
	rnd := testkit.Rand(t)
	was, is := editions(t, 60, 8<<10)
	st, old := indexed(t, versionAs(t, "tar", nil, is)), openedBeside(t, indexed(t, versionAs(t, "tar", nil, was)))
	sound := st.Get("x" + kept.Suffix)
	for range 100 {
		b := bytes.Clone(sound)
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
		st.Put("x"+kept.Suffix, b)
		out := filepath.Join(t.TempDir(), "y")
		if _, err := synced(t.Context(), st, out, old); err != nil {
			t.Fatal(err)
		}
		sameAs(t, st, out)
	}
}

// What a damaged list says of contents may be wrong, so it is not used, and the copy is as damaged.
func TestArchiveWithADamagedIndexIsFetchedAsItIs(t *testing.T) {
	was, is := editions(t, 60, 8<<10)
	st, old := versionAs(t, "caf", nil, is), openedBeside(t, versionAs(t, "caf", nil, was))
	b := st.Get("x")
	at := bytes.LastIndex(b, []byte(`"d00/f0001"`))
	b[at+5] ^= 1
	st.Put("x", b)
	out := filepath.Join(t.TempDir(), "y")
	if sum, err := synced(t.Context(), st, out, old); err != nil || sum.Fetched != sum.Bytes || len(sum.Notes) != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	sameAs(t, st, out)
}

func TestDamagedArchiveIsNotSynced(t *testing.T) {
	_, is := editions(t, 50, 8<<10)
	st := versionAs(t, "caf", nil, is)
	b := bytes.Clone(st.Get("x"))
	b[1000] ^= 1
	st.Put("x", b)
	out := filepath.Join(t.TempDir(), "y")
	if _, err := synced(t.Context(), st, out); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "x: bytes ") {
		t.Errorf("found %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found %v", err)
	}
}

// The index belongs to a version with the same length and ends. What it says is not believed, because an old archive
// has what it says.
func TestIndexOfAnotherVersionIsNotBelieved(t *testing.T) {
	was, _ := editions(t, 100, 8<<10)
	st := indexed(t, versionAs(t, "tar", nil, was))
	old := openedBeside(t, st.Clone())
	b := bytes.Clone(st.Get("x"))
	b[len(b)/2] ^= 1
	st.Put("x", b)
	st.Put("x"+kept.Suffix, st.Get("x"+kept.Suffix))
	out := filepath.Join(t.TempDir(), "y")
	sum, err := synced(t.Context(), st, out, old)
	if err != nil || len(sum.Notes) != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	sameAs(t, st, out)
}

func TestWhatSyncRefuses(t *testing.T) {
	_, is := editions(t, 5, 1<<10)
	st := versionAs(t, "caf", nil, is)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := synced(t.Context(), st, text); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a text: found %v", err)
	}
	if _, err := synced(t.Context(), versionAs(t, "databundle", nil, is), dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder: found %v", err)
	}
	if _, err := synced(t.Context(), st, "mem://x"); err == nil {
		t.Error("another scheme")
	}
}

func TestDryRunSaysWhatASyncDoes(t *testing.T) {
	was, is := editions(t, 300, 8<<10)
	old, st := openedBeside(t, versionAs(t, "caf", nil, was)), versionAs(t, "caf", nil, is)
	out := filepath.Join(t.TempDir(), "y")
	o := holdall.SyncOptions{DryRun: true}
	o.Store = st
	dry, err := holdall.Sync(t.Context(), "x", []*holdall.Archive{old}, out, o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(out)); len(left) > 0 || err != nil {
		t.Errorf("%v are there, %v", left, err)
	}
	if wet, err := synced(t.Context(), st, out, old); err != nil || !reflect.DeepEqual(wet, dry) {
		t.Errorf("%+v, expected %+v, %v", wet, dry, err)
	}
}

// Files that have their content are not touched: they keep their times, and are not fetched. Others are replaced, also
// if they have the same size.
func TestExtractOfWhatChangedLeavesTheRestAlone(t *testing.T) {
	_, is := editions(t, 200, 4<<10)
	for _, c := range []struct {
		format    string
		index     bool
		unchanged int64
	}{{"caf", false, 198}, {"caf", true, 198}, {"tar", true, 198}, {"zip", true, 198}, {"rvn", true, 198}, {"tar", false, 0}} {
		t.Run(fmt.Sprintf("%s %v", c.format, c.index), func(t *testing.T) {
			there := maps.Clone(is)
			delete(there, "d01/f0050")
			there["d01/f0051"] = strings.Repeat("x", len(is["d01/f0051"]))
			dir := tree(t, there)
			old := time.Unix(1_000_000_000, 0)
			for name := range there {
				if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
					t.Fatal(err)
				}
			}
			st := versionAs(t, c.format, nil, is)
			if c.index {
				indexed(t, st)
			}
			var read atomic.Int64
			a := openedBeside(t, storetest.Fault(st, func(op, name string, off, n int64) error {
				if op == "read" && name == "x" {
					read.Add(n)
				}
				return nil
			}))
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			sum, err := holdall.Extract(t.Context(), a, root, holdall.ExtractOptions{Overwrite: true, Changed: true, NoOwner: true})
			if err != nil || sum.Unchanged != c.unchanged {
				t.Errorf("%+v, %v", sum, err)
			}
			if c.index && c.format != "rvn" && read.Load() > int64(len(st.Get("x"))/2) {
				t.Errorf("%d bytes of %d read", read.Load(), len(st.Get("x")))
			}
			touched := 0
			for name, want := range is {
				got, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || string(got) != want {
					t.Errorf("%s: %v, or other content", name, err)
				}
				if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.ModTime().Equal(old) {
					touched++
				}
			}
			if touched != len(is)-int(c.unchanged) {
				t.Errorf("%d files were touched", touched)
			}
		})
	}
}
