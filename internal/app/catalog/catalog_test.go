package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
)

// databases are the kinds of database that all tests of a catalogue run on: each
// makes the address of one that is not there yet.
var databases = map[string]func(t testing.TB) string{
	"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "catalogue.db") },
	"postgres": pgtest.Database,
}

// onEach runs a test on an empty catalogue of each kind.
func onEach(t *testing.T, test func(t *testing.T, c *Catalog, address string)) {
	for kind, address := range databases {
		t.Run(kind, func(t *testing.T) {
			at := address(t)
			if err := Create(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			test(t, open(t, at), at)
		})
	}
}

func open(t testing.TB, address string) *Catalog {
	t.Helper()
	c, err := Open(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func rows(all ...Location) iter.Seq2[Location, error] {
	return func(yield func(Location, error) bool) {
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func files(paths ...string) iter.Seq2[Location, error] {
	all := make([]Location, len(paths))
	for i, p := range paths {
		all[i] = Location{Path: p, Size: 10, Raw: true, Off: int64(i) * 10}
	}
	return rows(all...)
}

func add(t testing.TB, c *Catalog, a Archive, what iter.Seq2[Location, error]) Added {
	t.Helper()
	if a.Size == 0 {
		a.Size = 1 << 30
	}
	done, err := c.Add(t.Context(), Addition{Archive: a, Rows: what})
	if err != nil {
		t.Fatal(err)
	}
	return done[0]
}

func list(t testing.TB, c *Catalog, prefix string) (paths []string) {
	t.Helper()
	for l, err := range c.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Folder != strings.HasSuffix(l.Path, "/") {
			t.Errorf("%q: folder %v", l.Path, l.Folder)
		}
		paths = append(paths, l.Path)
	}
	return paths
}

func collect(t testing.TB, seq iter.Seq2[Location, error]) (all []Location) {
	t.Helper()
	for l, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func pathsOf(all []Location) (paths []string) {
	for _, l := range all {
		paths = append(paths, l.Path)
	}
	return paths
}

func sound(t testing.TB, c *Catalog) {
	t.Helper()
	if err := c.Check(t.Context(), func(p string) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

func TestWhatIsAddedIsFoundAsItWas(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		want := []Location{
			{Path: "a", Kind: format.File, Size: 5, Raw: true, Off: 7, Digest: format.Digest{Algo: "blake3", Sum: "\x00:\xff"}},
			{Path: "b", Kind: format.Symlink},
			{Path: "c", Kind: format.Property, Size: 1 << 40},
			{Path: "d", Kind: format.File, Size: 0, Raw: true, Off: 100},
		}
		when := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		added := add(t, c, Archive{Address: "/x\xff.caf", Format: "caf", Size: 100, Version: "\"e\x80\"", Verified: when}, rows(want...))
		if added.ID == 0 || added.Entries != 4 || added.Replaced != (Archive{}) || time.Since(added.Added) > time.Hour {
			t.Errorf("%+v", added)
		}
		c.Close()
		c = open(t, address)
		for _, w := range want {
			w.Archive = added.ID
			got, err := c.Newest(t.Context(), w.Path)
			if err != nil || got.Location != w || got.In != added.Archive {
				t.Errorf("got %+v, %v, want %+v in %+v", got, err, w, added.Archive)
			}
		}
		if got, err := c.Archive(t.Context(), "/x\xff.caf"); err != nil || got != added.Archive {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := c.Newest(t.Context(), "a\x00"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if _, err := c.Archive(t.Context(), "/x"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		later := when.Add(time.Hour)
		if err := c.Verified(t.Context(), added.ID, later); err != nil {
			t.Error(err)
		}
		if got, _ := c.Archive(t.Context(), "/x\xff.caf"); got.Verified != later {
			t.Error(got.Verified)
		}
		sound(t, c)
	})
}

func TestNewestOfTenArchivesWinsAndAllAreKept(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		var ids []int64
		for i := range 10 {
			ids = append(ids, add(t, c, Archive{Address: fmt.Sprint("x", i)}, files("a", "same", "z", fmt.Sprint("own", i))).ID)
		}
		slices.Reverse(ids)
		got, err := c.Newest(t.Context(), "same")
		if err != nil || got.Archive != ids[0] || got.In.Address != "x9" {
			t.Errorf("%+v, %v", got, err)
		}
		holders, err := c.Holders(t.Context(), "same")
		if err != nil {
			t.Fatal(err)
		}
		var in []int64
		for _, h := range holders {
			in = append(in, h.In.ID)
		}
		if !slices.Equal(in, ids) {
			t.Errorf("held by %v, want %v", in, ids)
		}
		if below := collect(t, c.Below(t.Context(), "")); len(below) != 13 || below[0].Archive != ids[0] {
			t.Errorf("%v", below)
		}
		// Without the newest, the one before it is the newest.
		if gone, err := c.Remove(t.Context(), "x9"); err != nil || gone.ID != ids[0] {
			t.Errorf("%+v, %v", gone, err)
		}
		if got, err := c.Newest(t.Context(), "same"); err != nil || got.In.Address != "x8" {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := c.Newest(t.Context(), "own9"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if _, err := c.Remove(t.Context(), "x9"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		// An ID is never reused, and an archive that is added again is the newest.
		again := add(t, c, Archive{Address: "x3"}, files("same"))
		if again.ID <= ids[0] || again.Replaced.ID != ids[6] {
			t.Errorf("%+v", again)
		}
		if _, err := c.Newest(t.Context(), "own3"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what the older version had is there still: %v", err)
		}
		sound(t, c)
	})
}

func TestPathsOfAnyBytesAndLength(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		var all []string
		for b := range 256 {
			all = append(all, string([]byte{byte(b)}), string([]byte{'d', '/', byte(b), 'x'}))
		}
		all = append(all, "", "/", "//", "/abs", "a//b", "../up", "\xff\xff\xff", "nul\x00in", "é\u202e", strings.Repeat("long/", 20_000), strings.Repeat("n", 70_000))
		slices.Sort(all)
		all = slices.Compact(all)
		shuffled := slices.Clone(all)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		a := add(t, c, Archive{Address: "odd"}, files(shuffled...))
		if got := pathsOf(collect(t, c.Locations(t.Context(), a.Archive))); !slices.Equal(got, all) {
			t.Errorf("%d paths, want %d", len(got), len(all))
		}
		for i, p := range shuffled {
			if got, err := c.Newest(t.Context(), p); err != nil || got.Path != p || got.Off != int64(i)*10 {
				t.Errorf("%q: %+v, %v", p, got, err)
			}
		}
		for _, prefix := range []string{"", "d", "d/", "\xff", "\xff\xff\xff", "long/"} {
			var want []string
			for _, p := range all {
				if strings.HasPrefix(p, prefix) {
					want = append(want, p)
				}
			}
			if got := pathsOf(collect(t, c.Below(t.Context(), prefix))); !slices.Equal(got, want) {
				t.Errorf("below %q: %d paths, want %d", prefix, len(got), len(want))
			}
		}
		// Every path can be walked to.
		var walked []string
		var walk func(prefix string)
		walk = func(prefix string) {
			for l, err := range c.List(t.Context(), prefix) {
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case !l.Folder:
					walked = append(walked, l.Path)
				case len(l.Path) < 100: // the long one has twenty thousand folders
					walk(l.Path)
				}
			}
		}
		walk("")
		slices.Sort(walked)
		want := slices.DeleteFunc(slices.Clone(all), func(p string) bool { return strings.HasPrefix(p, "long/") })
		if !slices.Equal(walked, want) {
			t.Errorf("walked to %d paths, want %d", len(walked), len(want))
		}
		sound(t, c)
	})
}

func TestListShowsOneLevel(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		add(t, c, Archive{Address: "x"}, files("a", "a/b", "a/b/c", "a.txt", "a0", "d/e/f", "d/e/g", "d/h"))
		add(t, c, Archive{Address: "y"}, files("d/e/f", "d/i/j", "z"))
		for prefix, want := range map[string][]string{
			"": {"a", "a.txt", "a/", "a0", "d/", "z"}, "a/": {"a/b", "a/b/"}, "d/": {"d/e/", "d/h", "d/i/"}, "d/e/": {"d/e/f", "d/e/g"}, "q/": nil,
		} {
			if got := list(t, c, prefix); !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", prefix, got, want)
			}
		}
	})
}

// TestListGoesPastFolders checks that the cost of a listing does not depend on
// the contents of the folders in it.
func TestListGoesPastFolders(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		var all []string
		for d := range 3 {
			for f := range 1000 {
				all = append(all, fmt.Sprintf("d%d/%05d", d, f))
			}
		}
		add(t, c, Archive{Address: "x"}, files(all...))
		counted := &counting{engine: c.db}
		got := list(t, &Catalog{db: counted}, "")
		if !slices.Equal(got, []string{"d0/", "d1/", "d2/"}) || counted.found != 3 {
			t.Errorf("%q after %d rows", got, counted.found)
		}
	})
}

// counting counts the rows that are read.
type counting struct {
	engine
	session
	found int
}

func (c *counting) dialect() *dialect { return c.engine.dialect() }

func (c *counting) read(ctx context.Context, several bool, do func(s session) error) error {
	return c.engine.read(ctx, several, func(s session) error {
		c.session = s
		return do(c)
	})
}

func (c *counting) rows(ctx context.Context, sql string, into []any, args ...any) iter.Seq[error] {
	return func(yield func(error) bool) {
		for err := range c.session.rows(ctx, sql, into, args...) {
			c.found++
			if !yield(err) {
				return
			}
		}
	}
}

func TestLastOfEqualPathsCounts(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		a := add(t, c, Archive{Address: "x"}, files("b", "a", "b", "a", "b"))
		if got, err := c.Newest(t.Context(), "b"); err != nil || got.Off != 40 || a.Entries != 2 {
			t.Errorf("%+v of %d entries, %v", got, a.Entries, err)
		}
		sound(t, c)
	})
}

func TestAnArchiveOfNothingIsKnown(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		a := add(t, c, Archive{Address: "empty"}, rows())
		if got, err := c.Archives(t.Context()); err != nil || len(got) != 1 || got[0] != a.Archive {
			t.Errorf("%+v, %v", got, err)
		}
		sound(t, c)
	})
}

func TestSeveralArchivesAreAddedTogetherOrNotAtAll(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		done, err := c.Add(t.Context(), Addition{Archive: Archive{Address: "x", Size: 100}, Rows: files("a", "same")}, Addition{Archive: Archive{Address: "y", Size: 100}, Rows: files("same", "b", "same")},
			Addition{Archive: Archive{Address: "z", Size: 100}, Rows: files()})
		if err != nil || len(done) != 3 || done[0].Entries != 2 || done[1].Entries != 2 || done[2].Entries != 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		if got, err := c.Newest(t.Context(), "same"); err != nil || got.In.Address != "y" || got.Off != 20 {
			t.Errorf("%+v, %v", got, err)
		}
		if got := pathsOf(collect(t, c.Locations(t.Context(), done[0].Archive))); !slices.Equal(got, []string{"a", "same"}) {
			t.Errorf("%q", got)
		}
		_, err = c.Add(t.Context(), Addition{Archive: Archive{Address: "v", Size: 100}, Rows: files("v")}, Addition{Archive: Archive{Address: "w", Size: 5}, Rows: files("w")})
		if err == nil {
			t.Error("a file beyond the end of its archive")
		}
		if all, err := c.Archives(t.Context()); err != nil || len(all) != 3 {
			t.Errorf("%+v, %v", all, err)
		}
		sound(t, c)
	})
}

func TestAnAdditionIsTried(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		x := add(t, c, Archive{Address: "x"}, files("a"))
		done, err := c.TryAdd(t.Context(), Addition{Archive: Archive{Address: "x", Size: 100, Version: "2"}, Rows: files("b", "c", "b")}, Addition{Archive: Archive{Address: "y", Size: 100}, Rows: files("d")})
		if err != nil || len(done) != 2 || done[0].Replaced != x.Archive || done[0].Entries != 2 || done[1].Replaced.ID != 0 || done[1].Entries != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		if _, err := c.TryAdd(t.Context(), Addition{Archive: Archive{Address: "y", Size: 5}, Rows: files("d")}); err == nil {
			t.Error("a file beyond the end of its archive")
		}
		if all, err := c.Archives(t.Context()); err != nil || len(all) != 1 || all[0] != x.Archive {
			t.Errorf("%+v, %v", all, err)
		}
		if got := list(t, c, ""); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q", got)
		}
		sound(t, c)
	})
}

func TestVerifiedHoldsForOneVersion(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		when := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		add(t, c, Archive{Address: "x", Version: "1", Verified: when}, files("a"))
		if same := add(t, c, Archive{Address: "x", Version: "1"}, files("a")); same.Verified != when {
			t.Errorf("the same version: %v", same.Verified)
		}
		if other := add(t, c, Archive{Address: "x", Version: "2"}, files("a")); !other.Verified.IsZero() {
			t.Errorf("another version: %v", other.Verified)
		}
	})
}

func TestBadRowsLeaveEverythingAsItWas(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		before := add(t, c, Archive{Address: "x", Size: 100}, files("a", "b"))
		broken := errors.New("the archive cannot be read any further")
		for name, what := range map[string]iter.Seq2[Location, error]{
			"negative size": rows(Location{Path: "n"}, Location{Path: "m", Size: -1}),
			"beyond":        rows(Location{Path: "n", Raw: true, Off: 99, Size: 2}),
			"overflow":      rows(Location{Path: "n", Raw: true, Off: 1, Size: 1<<63 - 1}),
			"before":        rows(Location{Path: "n", Raw: true, Off: -1, Size: 1}),
			"source": func(yield func(Location, error) bool) {
				if yield(Location{Path: "n"}, nil) {
					yield(Location{}, broken)
				}
			},
		} {
			_, err := c.Add(t.Context(), Addition{Archive: Archive{Address: "x", Size: 100, Version: name}, Rows: what})
			if err == nil || name == "source" && !errors.Is(err, broken) {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := c.Archive(t.Context(), "x"); err != nil || got != before.Archive {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			if got := list(t, c, ""); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("%s: %q", name, got)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Add(ctx, Addition{Archive: Archive{Address: "y", Size: 100}, Rows: func(yield func(Location, error) bool) {
			for i := range 10_000 {
				if i == 5000 {
					cancel()
				}
				if !yield(Location{Path: fmt.Sprint(i)}, nil) {
					return
				}
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		// The connection is as good as before.
		add(t, c, Archive{Address: "z"}, files("c"))
		if got := list(t, c, ""); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%q", got)
		}
		sound(t, c)
	})
}

func TestManyReadWhileOneAddsAndSeeWholeArchivesOnly(t *testing.T) {
	onEach(t, func(t *testing.T, c *Catalog, address string) {
		const archives, each = 8, 500
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range 3 {
			other := open(t, address) // open in another process
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					n := len(collect(t, other.Below(t.Context(), "")))
					if n%each != 0 {
						t.Errorf("%d paths: a part of an archive is visible", n)
						return
					}
				}
			})
		}
		var adders sync.WaitGroup
		for i := range archives {
			adders.Go(func() {
				var all []string
				for k := range each {
					all = append(all, fmt.Sprintf("%d/%05d", i, k))
				}
				if _, err := c.Add(t.Context(), Addition{Archive: Archive{Address: fmt.Sprint(i), Size: 1 << 20}, Rows: files(all...)}); err != nil {
					t.Error(err)
				}
			})
		}
		adders.Wait()
		close(done)
		wg.Wait()
		if n := len(collect(t, c.Below(t.Context(), ""))); n != archives*each {
			t.Errorf("%d paths", n)
		}
		sound(t, c)
	})
}

func TestIteratorsMayBeLeftAndNested(t *testing.T) {
	testkit.Serial(t)
	onEach(t, func(t *testing.T, c *Catalog, _ string) {
		a := add(t, c, Archive{Address: "x"}, files("a", "b", "c"))
		n := 0
		for l := range c.Below(t.Context(), "") {
			for m := range c.Locations(t.Context(), a.Archive) {
				if _, err := c.Newest(t.Context(), m.Path); err != nil {
					t.Error(err)
				}
				n++
				if m.Path == l.Path {
					break
				}
			}
		}
		if n != 1+2+3 {
			t.Error(n)
		}
		add(t, c, Archive{Address: "y"}, func(yield func(Location, error) bool) {
			for l, err := range c.Locations(t.Context(), a.Archive) { // asking while adding
				if !yield(Location{Path: "copy/" + l.Path}, err) {
					return
				}
			}
		})
		if got := list(t, c, "copy/"); len(got) != 3 {
			t.Errorf("%q", got)
		}
	})
}

// The tests below are about SQLite files.

func TestFilesThatAreNoCatalogueAreRefusedAndNotTouched(t *testing.T) {
	testkit.Serial(t)
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	conn, err := sqlite.OpenConn(foreign)
	if err == nil {
		err = sqlitex.ExecuteScript(conn, "CREATE TABLE t (x); INSERT INTO t VALUES (1);", nil)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"empty": {}, "text": []byte(strings.Repeat("no database\n", 100)), "short": []byte(magic), "foreign": theirs} {
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, content, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if c, err := Open(t.Context(), at, o); !errors.Is(err, ErrBroken) {
				t.Errorf("%s: %v, %v", name, c, err)
			}
		}
		if err := Create(t.Context(), at); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(at); err != nil || string(got) != string(content) {
			t.Errorf("%s: changed, %v", name, err)
		}
		onlyFile(t, at)
	}
	if _, err := Open(t.Context(), t.TempDir(), Options{}); !errors.Is(err, ErrBroken) {
		t.Errorf("a folder: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := Open(t.Context(), missing, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Lstat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening made it: %v", err)
	}
}

// onlyFile checks that a file is the only one in its folder.
func onlyFile(t *testing.T, at string) {
	t.Helper()
	in, err := os.ReadDir(filepath.Dir(at))
	if err != nil || len(in) != 1 || in[0].Name() != filepath.Base(at) {
		t.Errorf("beside %s: %v, %v", at, in, err)
	}
}

func TestCreatedIsWholeAndAlone(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db?mode=memory#x")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	onlyFile(t, at)
	c := open(t, at)
	sound(t, c)
	if err := Create(t.Context(), at); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	for _, bad := range []string{"", "sqlite:", "a\x00b", "postgres://u:secret@127.0.0.1:1/d"} {
		if err := Create(t.Context(), bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// createdOnce has several goroutines create the same catalogue. Exactly one
// must succeed.
func createdOnce(t *testing.T, at string) {
	t.Helper()
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		wg.Go(func() { results <- Create(t.Context(), at) })
	}
	wg.Wait()
	close(results)
	made := 0
	for err := range results {
		if err == nil {
			made++
		} else if !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

func TestSeveralCreateOneCatalogue(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	createdOnce(t, at)
	onlyFile(t, at)
}

func setVersion(t *testing.T, at string, n int) {
	t.Helper()
	conn, err := sqlite.OpenConn(at, sqlite.OpenReadWrite)
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, fmt.Sprint("PRAGMA user_version = ", n), nil)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	setVersion(t, at, len(migrations)+1)
	before, _ := os.ReadFile(at)
	for _, o := range []Options{{}, {ReadOnly: true}} {
		_, err := Open(t.Context(), at, o)
		if s, ok := errors.AsType[*SchemaError](err); !ok || s.Found != len(migrations)+1 || s.Known != len(migrations) {
			t.Error(err)
		}
	}
	if after, _ := os.ReadFile(at); string(after) != string(before) {
		t.Error("the file changed")
	}
}

func TestOlderSchemaIsBroughtUpToDate(t *testing.T) {
	at := filepath.Join(t.TempDir(), "c.db")
	conn, err := sqlite.OpenConn(at) // with the first version of the schema
	if err == nil {
		err = sqlitex.ExecuteTransient(conn, fmt.Sprint("PRAGMA application_id = ", application), nil)
	}
	if err == nil {
		err = migrate(conn, migrations[:1])
	}
	if err == nil {
		err = sqlitex.ExecuteScript(conn, `INSERT INTO archives VALUES (7, x'78', 'caf', 100, x'', 1, x'61', x'61', 0, NULL);
			INSERT INTO locations VALUES (x'61', 7, 0, 5, 3, NULL);`, nil)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), at, Options{ReadOnly: true})
	if s, ok := errors.AsType[*SchemaError](err); !ok || s.Found != 1 {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for range 4 { // all of them want to migrate
		wg.Go(func() {
			c, err := Open(t.Context(), at, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if got, err := c.Newest(t.Context(), "a"); err != nil || got.In.ID != 7 || got.Off != 3 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if _, err := Open(t.Context(), at, Options{ReadOnly: true}); err != nil {
		t.Error(err)
	}
}

func TestQueriesOfOlderCataloguesRunAsTheyStand(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	c := open(t, at)
	add(t, c, Archive{Address: "x"}, files("dir/a", "b"))
	newer := add(t, c, Archive{Address: "y"}, files("dir/a"))
	conn, err := sqlite.OpenConn(at, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id, err := sqlitex.ResultText(conn.Prep("SELECT caf_file_id FROM file_locations WHERE file_path = 'dir/a'"))
	if err != nil || id != fmt.Sprint(newer.ID) {
		t.Errorf("%q, %v", id, err)
	}
	if n, err := sqlitex.ResultInt(conn.Prep("SELECT count(*) FROM file_locations")); err != nil || n != 2 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// TestDamageIsFound checks that damage to a database, by truncation or
// overwriting, causes an error or is found by Check, never a panic. Check must
// leave the file unchanged.
func TestDamageIsFound(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	c := open(t, at)
	var all []string
	for i := range 5000 {
		all = append(all, fmt.Sprintf("some/folder/%06d", i))
	}
	add(t, c, Archive{Address: "x"}, files(all...))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	page := int(binary.BigEndian.Uint16(good[16:]))
	for name, spoil := range map[string]func(b []byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"zeroed":  func(b []byte) []byte { clear(b[len(b)/2 : len(b)/2+page]); return b },
		"written": func(b []byte) []byte { copy(b[len(b)/2:], strings.Repeat("\xa5", page)); return b },
		"schema":  func(b []byte) []byte { clear(b[headerLen:page]); return b },
	} {
		bad := spoil(slices.Clone(good))
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		found := 0
		c, err := Open(t.Context(), at, Options{ReadOnly: true})
		if err == nil {
			err = c.Check(t.Context(), func(string) { found++ })
			c.Close()
		}
		if found == 0 && err == nil {
			t.Errorf("%s: nothing found", name)
		}
		if got, _ := os.ReadFile(at); string(got) != string(bad) {
			t.Errorf("%s: the file changed", name)
		}
	}
}

func TestRowsThatAreMissingAreFound(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	c := open(t, at)
	add(t, c, Archive{Address: "x"}, files("a", "b"))
	conn, err := sqlite.OpenConn(at, sqlite.OpenReadWrite)
	if err == nil {
		err = sqlitex.ExecuteScript(conn, "DELETE FROM locations WHERE path = x'61'; INSERT INTO locations VALUES (x'71', 99, 0, 0, NULL, NULL, NULL);", nil)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := c.Check(t.Context(), func(p string) { found = append(found, p) }); err != nil {
		t.Fatal(err)
	}
	want := []string{"archive 1: expected 2 locations, found 1", "archive 99: expected none, found 1 locations"}
	if !slices.Equal(found, want) {
		t.Errorf("%q", found)
	}
}

func TestAWriterWaitsForAnotherAndNoLonger(t *testing.T) {
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	other, err := sqlite.OpenConn(at, sqlite.OpenReadWrite)
	if err == nil {
		err = sqlitex.ExecuteTransient(other, "BEGIN IMMEDIATE", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c, err := Open(t.Context(), at, Options{Wait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Add(t.Context(), Addition{Archive: Archive{Address: "x"}, Rows: files()}); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if got := list(t, c, ""); got != nil { // reading needs no lock
		t.Errorf("%q", got)
	}
	patient := open(t, at)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := patient.Add(ctx, Addition{Archive: Archive{Address: "x"}, Rows: files()}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	added := make(chan error)
	go func() {
		_, err := patient.Add(t.Context(), Addition{Archive: Archive{Address: "x", Size: 100}, Rows: files("a")})
		added <- err
	}()
	if err := sqlitex.ExecuteTransient(other, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-added; err != nil {
		t.Error(err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	testkit.Serial(t)
	at := filepath.Join(t.TempDir(), "c.db")
	if err := Create(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	c, err := Open(t.Context(), at, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Add(t.Context(), Addition{Archive: Archive{Address: "x"}, Rows: files("a")}); err == nil {
		t.Error("added")
	}
	if _, err := c.Remove(t.Context(), "x"); err == nil {
		t.Error("removed")
	}
}
