package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// mixed returns a small directory that has everything: two levels, a log, several
// edits.
func mixed() *storetest.Mem {
	st := &storetest.Mem{}
	var low, high []memTableRow
	for i := range 40 {
		low = append(low, memTableRow{fmt.Sprintf("%03d", i), fmt.Sprintf("low %d", i), 1, kindValue})
		if i%5 == 0 {
			high = append(high, memTableRow{fmt.Sprintf("%03d", i), fmt.Sprintf("high %d", i), 9, byte(i % 2)})
		}
	}
	m := appendRecord(nil, opening(3, 4))
	for i, part := range [][]memTableRow{high, low[:20], low[20:]} {
		b, from, to := encodeTable(part, encoding{compression: byte(i), properties: true})
		num := uint64(4 + i)
		st.Put("index/"+tableName(num, ".sst"), b)
		m = appendRecord(m, edit(nil).add(tagAddSeqs, uint64(min(i, 1)), num, len(b), from, to).numbers(tagNextFile, num+1))
	}
	st.Put("index/MANIFEST-000002", m)
	st.Put("index/CURRENT", []byte("MANIFEST-000002\n"))
	st.Put("index/000003.log", appendRecord(appendRecord(nil, encodeBatch(20, []memTableRow{put("007", "log"), del("013")})),
		encodeBatch(30, []memTableRow{put("100", "log")})))
	return st
}

func TestNoFlippedByteGoesUnnoticed(t *testing.T) {
	testkit.Serial(t)
	st := mixed()
	want := mustScan(t, mustOpen(t, st, Options{}))
	if len(want) < 30 {
		t.Fatalf("%d rows", len(want))
	}
	for _, name := range names(t, st) {
		sound := st.Get(name)
		for i := range sound {
			for _, bit := range []int{i % 8, (i + 3) % 8} {
				b := bytes.Clone(sound)
				b[i] ^= 1 << bit
				st.Put(name, b)
				db, err := Open(t.Context(), st, "index", Options{})
				if err != nil {
					ofAKind(t, name, i, err)
					continue
				}
				rows, err := collect(db.Scan(t.Context(), nil, nil))
				switch {
				case err != nil:
					ofAKind(t, name, i, err)
				case slices.Equal(rows, want):
				case strings.HasSuffix(name, ".log") && len(db.Notes()) > 0:
					// As if the last batch had never been written.
				default:
					t.Errorf("%s: bit %d of byte %d: %d rows, expected %d or an error", name, bit, i, len(rows), len(want))
				}
				// What Get finds is right, or an error.
				for _, w := range want {
					if v, ok, err := db.Get(t.Context(), []byte(w.k)); err == nil && (!ok || string(v) != w.v) && len(db.Notes()) == 0 {
						t.Errorf("%s: bit %d of byte %d: %q is %q, %v", name, bit, i, w.k, v, ok)
					}
				}
				if err != nil || strings.HasSuffix(name, ".sst") && i < len(b)-footerLen {
					if found := checks(t, db); len(found) == 0 {
						t.Errorf("%s: bit %d of byte %d: the check finds nothing", name, bit, i)
					}
				}
				db.Close()
			}
		}
		st.Put(name, sound)
	}
}

// ofAKind fails unless an error is one of this package's.
func ofAKind(t *testing.T, name string, i int, err error) {
	t.Helper()
	if e, ok := errors.AsType[*Error](err); !ok || e.Class == 0 || !strings.HasPrefix(e.Object, "index/") || e.What == "" {
		t.Errorf("%s: byte %d: %v", name, i, err)
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	testkit.Serial(t)
	st := mixed()
	want := mustScan(t, mustOpen(t, st, Options{}))
	for _, name := range names(t, st) {
		sound := st.Get(name)
		for n := range sound {
			st.Put(name, sound[:n])
			db, err := Open(t.Context(), st, "index", Options{})
			if err != nil {
				ofAKind(t, name, n, err)
				continue
			}
			rows, err := collect(db.Scan(t.Context(), nil, nil))
			if err == nil && !slices.Equal(rows, want) && !strings.HasSuffix(name, ".log") && !strings.Contains(name, "MANIFEST") {
				t.Errorf("%s cut at %d: %d rows", name, n, len(rows))
			}
			db.Close()
		}
		st.Put(name, sound)
	}
}

func TestCheckGoesOnBehindWhatItFinds(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{TableSize: 40 << 10}), 10_000)
	for _, name := range []string{"index/000004.sst", "index/000006.sst"} {
		b := st.Get(name)
		b[1000] ^= 4
		b[20_000] ^= 4
		st.Put(name, b)
	}
	db := mustOpen(t, st, Options{})
	found := checks(t, db)
	if len(found) != 4 {
		t.Errorf("%d problems: %v", len(found), found)
	}
	for _, p := range found {
		if p.Err.Class != Corrupt || !p.Rows {
			t.Errorf("%+v: %v", p, p.Err)
		}
	}
}

func TestCheckComparesTablesWithTheManifest(t *testing.T) {
	rows := []memTableRow{{"b", "1", 5, kindValue}, {"c", "2", 4, kindValue}, {"d", "", 3, kindDeleted}}
	b, from, to := encodeTable(rows, encoding{blockRows: 1, properties: true})
	key := func(k string) []byte { return memTableRow{key: k, seq: 1, kind: kindValue}.internal() }
	for what, c := range map[string]struct {
		from, to []byte
		scans    bool
	}{
		"as it is":           {from, to, true},
		"from before":        {key("a"), to, true},
		"to behind":          {from, key("e"), true},
		"from within":        {key("bb"), to, false},
		"to within":          {from, key("cc"), false},
		"another row of one": {memTableRow{key: "b", seq: 6, kind: kindValue}.internal(), to, true},
	} {
		st := directory(nil)
		st.Put("index/000004.ldb", b)
		st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 5).add(tagAdd, 2, 4, len(b), c.from, c.to)))
		db := mustOpen(t, st, Options{})
		_, err := collect(db.Scan(t.Context(), nil, nil))
		found := checks(t, db)
		if (err == nil) != c.scans || (len(found) == 0) != (what == "as it is") {
			t.Errorf("%s: scan %v, check %v", what, err, found)
		}
	}
}

func TestRefusesWhatOnlyOthersKnow(t *testing.T) {
	rows := []memTableRow{{"a", "1", 1, kindValue}}
	table := func(e encoding) []byte {
		b, _, _ := encodeTable(rows, e)
		return b
	}
	bad, from, to := encodeTable([]memTableRow{{"a", "1", 1, 2}}, encoding{})
	for what, b := range map[string][]byte{
		"RocksDB":     table(encoding{rocks: true}),
		"lz4":         table(encoding{compression: 4}),
		"a merge row": bad,
	} {
		st := directory(nil)
		st.Put("index/000004.sst", b)
		st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 5).add(tagAdd, 0, 4, len(b), from, to)))
		db := mustOpen(t, st, Options{})
		_, _, err := db.Get(t.Context(), []byte("a"))
		t.Log(what, err)
		wants(t, err, Unsupported, "000004.sst")
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v is no errors.ErrUnsupported", what, err)
		}
		_, err = collect(db.Scan(t.Context(), nil, nil))
		wants(t, err, Unsupported, "000004.sst")
	}
}

func TestManifestsThatSayTheImpossibleAreRefused(t *testing.T) {
	key := func(k string) []byte { return memTableRow{key: k, seq: 1, kind: kindValue}.internal() }
	open := func(e edit) error {
		st := directory(nil)
		st.Put("index/MANIFEST-000002", appendRecord(nil, e))
		db, err := Open(t.Context(), st, "index", Options{})
		if err == nil {
			db.Close()
		}
		return err
	}
	o := func() edit { return opening(3, 9) }
	for what, c := range map[string]struct {
		e     edit
		class Class
	}{
		"another order":        {edit(nil).numbers(tagComparator).text([]byte("idb_cmp1")), Unsupported},
		"a tag of RocksDB":     {o().numbers(103, 1), Unsupported},
		"tag 8":                {o().numbers(8), Unsupported},
		"no next file":         {edit(nil).numbers(tagLog, 3), Corrupt},
		"cut off":              {o().numbers(tagAdd, 0, 4, 100), Corrupt},
		"a text too long":      {o().numbers(tagComparator, 1<<40), Corrupt},
		"level 64":             {o().add(tagAdd, 64, 4, 100, key("a"), key("b")), Corrupt},
		"no bytes":             {o().add(tagAdd, 0, 4, 47, key("a"), key("b")), Corrupt},
		"too many bytes":       {edit(o().numbers(tagAdd, 0, 4, 1<<63)).text(key("a")).text(key("b")), Corrupt},
		"short keys":           {o().add(tagAdd, 0, 4, 100, []byte("a"), key("b")), Corrupt},
		"keys out of order":    {o().add(tagAdd, 0, 4, 100, key("b"), key("a")), Corrupt},
		"a table twice":        {o().add(tagAdd, 0, 4, 100, key("a"), key("b")).add(tagAdd, 1, 4, 100, key("a"), key("b")), Corrupt},
		"an unfinished varint": {append(o(), 0xff), Corrupt},
	} {
		err := open(c.e)
		t.Log(what, err)
		wants(t, err, c.class, "MANIFEST-000002")
	}
	if err := open(edit(nil).numbers(tagNextFile, 9)); err != nil {
		t.Errorf("no log number: %v", err)
	}
	if err := open(append(o().numbers(tagWaterline, 7, tagCompactAt, 1).text(key("x")), edit(nil).numbers(tagDelete, 3, 77)...)); err != nil {
		t.Errorf("tags without a meaning for us: %v", err)
	}
}

func TestTablesThatOverlapWhereTheyMustNotAreReadAllTheSame(t *testing.T) {
	st := directory(nil)
	a, aFrom, aTo := encodeTable([]memTableRow{{"a", "old", 1, kindValue}, {"c", "new", 9, kindValue}}, encoding{})
	b, bFrom, bTo := encodeTable([]memTableRow{{"b", "x", 3, kindValue}, {"c", "old", 2, kindValue}, {"d", "y", 4, kindValue}}, encoding{})
	st.Put("index/000004.sst", a)
	st.Put("index/000005.sst", b)
	st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 6).add(tagAdd, 2, 4, len(a), aFrom, aTo).add(tagAdd, 2, 5, len(b), bFrom, bTo)))
	db := mustOpen(t, st, Options{})
	same(t, mustScan(t, db), []kv{{"a", "old"}, {"b", "x"}, {"c", "new"}, {"d", "y"}})
	if v, _, err := db.Get(t.Context(), []byte("c")); string(v) != "new" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if len(db.Notes()) != 1 {
		t.Errorf("notes are %v", db.Notes())
	}
}
