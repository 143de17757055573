package export

import (
	"fmt"
	"path/filepath"
	"slices"
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
			if !yield(catalog.Location{Path: n, Size: int64(i), Raw: true, Off: int64(10 * i)}, nil) {
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
	for _, sql := range []string{`SELECT file_path || ' ' || CAST(caf_file_id AS TEXT) || ' ' || CAST(size AS TEXT) || ' ' || CAST("offset" AS TEXT) FROM file_locations`, `SELECT CAST(id AS TEXT) || ' ' || address || ' ' || CAST(entries AS TEXT) FROM archives`, `SELECT catalog || CAST(number AS TEXT) FROM exported`} {
		some, err := d.texts(t.Context(), sql)
		if err != nil {
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
