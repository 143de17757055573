package export

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/storetest"
)

func add(t *testing.T, b *book.Book, address string, names ...string) {
	t.Helper()
	_, err := b.Add(t.Context(), catalog.Addition{Archive: catalog.Archive{Address: address, Format: "caf", Size: 1000, Version: "\xff"}, Rows: func(yield func(catalog.Location, error) bool) {
		for i, n := range names {
			l := catalog.Location{Path: n, Size: int64(i), Raw: true, Off: int64(10 * i)}
			if len(n) == 2 { // half of the names
				l.HeaderText = catalog.FactsText(fmt.Sprintf(`{"version":"%s","session":{"keywords":["a","b"]},"subject":{"sex":"%d"},"devices":[{"name":"%s"}],"series":[{"path":"%s","rate":0.5,"shape":[1,2]},{"path":"x"}]}`, n, i, address, n))
			} else if n == "7" {
				l.HeaderText = catalog.FactsText("{")
			}
			if !yield(l, nil) {
				return
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// rowsOf are all rows of a database.
func rowsOf(t *testing.T, address string) (all []string) {
	t.Helper()
	d, err := open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, sql := range []string{`SELECT file_path || ' ' || CAST(caf_file_id AS TEXT) || ' ' || CAST(size AS TEXT) || ' ' || CAST("offset" AS TEXT) FROM file_locations`, `SELECT CAST(id AS TEXT) || ' ' || address || ' ' || CAST(entries AS TEXT) FROM archives`, `SELECT catalog || CAST(number AS TEXT) FROM exported`,
		`SELECT file_path || ' ' || nwb_version || keywords || ' ' || sex || missing FROM recordings`, `SELECT file_path || ' ' || name FROM devices`, `SELECT file_path || ' ' || path || COALESCE(CAST(rate AS TEXT), '') || shape FROM series`} {
		some, err := d.texts(t.Context(), sql)
		if err != nil && !strings.Contains(sql, "file_path || ' ' ||") {
			t.Fatal(err)
		}
		slices.Sort(some)
		all = append(all, some...)
	}
	return all
}

func TestExportsSQLite(t *testing.T) {
	dir := t.TempDir()
	testExports(t, func(i int) string { return "sqlite:" + filepath.Join(dir, fmt.Sprint(i, ".db")) })
}

func TestExportsPostgreSQL(t *testing.T) {
	testExports(t, func(int) string { return pgtest.Database(t) })
}

// A database of a catalogue without facts has no tables of them, and those of another program are not written.
func TestExportsFacts(t *testing.T) {
	b, err := book.Create(t.Context(), &storetest.Mem{}, "photos.catalog")
	if err != nil {
		t.Fatal(err)
	}
	to := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	export := func() *book.Book {
		t.Helper()
		if _, err := To(t.Context(), b, to); err != nil {
			t.Fatal(err)
		}
		return b
	}
	add(t, export(), "mem://a.caf", "1")
	export()
	d, err := open(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all := func(sql string) string {
		t.Helper()
		some, err := d.texts(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(some, "|")
	}
	if is := all("SELECT name FROM sqlite_master WHERE name = 'series'"); is != "" {
		t.Error(is)
	}
	add(t, b, "mem://b.caf", "12", "7")
	export()
	if is := all("SELECT file_path || path || COALESCE(rate, '') || shape FROM series"); is != "12120.5[1,2]|12x" {
		t.Error(is)
	}
	if is := all("SELECT missing FROM recordings WHERE file_path = '7'"); !strings.HasPrefix(is, `["7: the facts in the catalogue cannot be read`) {
		t.Error(is)
	}
	if _, err := b.Remove(t.Context(), "mem://b.caf"); err != nil {
		t.Fatal(err)
	}
	export()
	if is := all("SELECT file_path FROM series UNION SELECT file_path FROM recordings UNION SELECT file_path FROM devices"); is != "" {
		t.Error(is)
	}
	other := "sqlite:" + filepath.Join(t.TempDir(), "y.db")
	o, err := open(t.Context(), other)
	if err == nil {
		err = o.exec(t.Context(), "CREATE TABLE series (x BIGINT)")
	}
	if err == nil {
		err = o.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	add(t, b, "mem://c.caf", "34")
	if _, err := To(t.Context(), b, other); err == nil {
		t.Error("a table of another program was taken")
	}
}

// What is exported again and again is what is exported at once.
func testExports(t *testing.T, database func(i int) string) {
	rnd := testkit.Rand(t)
	st := &storetest.Mem{}
	b, err := book.Create(t.Context(), st, "photos.catalog")
	if err != nil {
		t.Fatal(err)
	}
	kept := database(0)
	for i := range 12 {
		switch rnd.IntN(5) {
		case 0:
			_, _ = b.Remove(t.Context(), fmt.Sprintf("mem://%d.caf", rnd.IntN(4)))
		case 1:
			if _, err := b.Delete(t.Context(), []string{fmt.Sprint(rnd.IntN(20)), "a\x00\xff"}); err != nil {
				t.Fatal(err)
			}
		case 2:
			if _, err := b.GC(t.Context(), 0, false); err != nil {
				t.Fatal(err)
			}
		default:
			add(t, b, fmt.Sprintf("mem://%d.caf", rnd.IntN(4)), fmt.Sprint(rnd.IntN(20)), fmt.Sprint(rnd.IntN(20)), "a\x00\xff")
		}
		if rnd.IntN(2) == 0 {
			continue
		}
		if _, err := To(t.Context(), b, kept); err != nil {
			t.Fatal(err)
		}
		if i%4 != 3 {
			continue
		}
		whole := database(i + 1)
		if done, err := To(t.Context(), b, whole); err != nil || !done.Whole {
			t.Fatalf("%+v, %v", done, err)
		}
		if is, want := rowsOf(t, kept), rowsOf(t, whole); !slices.Equal(is, want) {
			t.Fatalf("%q, expected %q", is, want)
		}
	}
	foreign := database(100)
	d, err := open(t.Context(), foreign)
	if err == nil {
		err = d.exec(t.Context(), "CREATE TABLE archives (x BIGINT)")
	}
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := To(t.Context(), b, foreign); err == nil {
		t.Error("a table of another program was taken")
	}
}
