package sstable

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/store/storetest"
)

// filesOf calls add with each file of testdata whose name matches.
func filesOf(f *testing.F, pattern string, add func(b []byte)) {
	f.Helper()
	all, err := filepath.Glob(filepath.Join("testdata", "*", pattern))
	if err != nil || len(all) == 0 {
		f.Fatal(pattern, err)
	}
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		add(b)
	}
}

// payloads returns the records of a log.
func payloads(f *testing.F, b []byte) [][]byte {
	var all [][]byte
	recs, _ := records(f, b)
	for _, r := range recs {
		all = append(all, []byte(r))
	}
	return all
}

// FuzzManifest reads b as a manifest, and as an edit within a sound one.
func FuzzManifest(f *testing.F) {
	filesOf(f, "MANIFEST-*", func(b []byte) {
		f.Add(b)
		for _, p := range payloads(f, b) {
			f.Add(p)
		}
	})
	for _, p := range payloads(f, mixed().Get("index/MANIFEST-000002")) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range [][]byte{b, appendRecord(appendRecord(nil, opening(3, 4)), b)} {
			st := directory(nil)
			st.Put("index/MANIFEST-000002", m)
			db, err := Open(t.Context(), st, "index", Options{})
			if err != nil {
				ofAKind(t, "manifest", 0, err)
				continue
			}
			for _, g := range db.groups {
				for i, tab := range g.tables {
					if tab.size < footerLen || compareInternal(tab.smallest, tab.largest) > 0 {
						t.Errorf("%+v", tab)
					}
					if i > 0 && !g.overlaps && compareInternal(g.tables[i-1].largest, tab.smallest) >= 0 {
						t.Errorf("level %d overlaps", g.level)
					}
				}
			}
			if _, err := db.Files(t.Context()); err != nil {
				t.Error(err)
			}
			checks(t, db)
			db.Close()
		}
	})
}

// FuzzLog reads b as a log, and as a batch within a sound one.
func FuzzLog(f *testing.F) {
	filesOf(f, "*.log", func(b []byte) {
		f.Add(b)
		for _, p := range payloads(f, b) {
			f.Add(p)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, l := range [][]byte{b, appendRecord(nil, b)} {
			db, err := Open(t.Context(), directory(l), "index", Options{MaxLog: 1 << 20})
			if err != nil {
				ofAKind(t, "log", 0, err)
				continue
			}
			agree(t, db, mustScan(t, db))
			db.Close()
		}
	})
}

// agree fails unless rows are in order and are what Get finds.
func agree(t *testing.T, db *DB, rows []kv) {
	t.Helper()
	for i, r := range rows {
		if i > 0 && rows[i-1].k >= r.k {
			t.Fatalf("row %d: %q is not above %q", i, r.k, rows[i-1].k)
		}
		if v, ok, err := db.Get(t.Context(), []byte(r.k)); !ok || err != nil || string(v) != r.v {
			t.Fatalf("%q is %q, %v, %v, expected %q", r.k, v, ok, err, r.v)
		}
	}
}

// FuzzTable makes a table of blocks with correct checksums: two data blocks, and an arbitrary
// index or, if that is empty, the correct one for two blocks in order.
func FuzzTable(f *testing.F) {
	block := func(rows ...memTableRow) []byte {
		w := blockBuilder{interval: 2}
		for _, r := range rows {
			w.add(r.internal(), []byte(r.val))
		}
		return bytes.Clone(w.finish())
	}
	one := block(memTableRow{"a", "1", 5, kindValue}, memTableRow{"b", "22", 4, kindValue}, memTableRow{"b", "", 3, kindDeleted}, memTableRow{"bcd", "333", 2, kindValue})
	two := block(memTableRow{"c", "", 5, kindValue}, memTableRow{"d", "x", 4, kindDeleted}, memTableRow{"e", strings.Repeat("y", 300), 1, kindValue})
	index := block(memTableRow{"bcd", string(appendHandle(nil, handle{0, uint64(len(one))})), 2, kindValue},
		memTableRow{"z", string(appendHandle(nil, handle{uint64(len(one)) + 5, uint64(len(two))})), 1, kindValue})
	f.Add(one, two, index)
	f.Add(one, two, []byte{})
	f.Add(block(), two, []byte{})
	f.Add(two, one, []byte{})
	f.Fuzz(func(t *testing.T, one, two, index []byte) {
		b := appendBlock(nil, one)
		first := handle{0, uint64(len(b) - blockTrailerLen)}
		b = appendBlock(b, two)
		second := handle{first.end(), uint64(len(b)-blockTrailerLen) - first.end()}
		if len(index) == 0 {
			w := blockBuilder{interval: 1}
			if bl, fault := parseBlock(one, roleData); fault == nil && bl.count > 0 {
				it := blockIter{b: &bl}
				for it.advance() {
				}
				w.add(it.key, appendHandle(nil, first))
			}
			w.add(memTableRow{key: "\xff\xff\xff\xff\xff"}.internal(), appendHandle(nil, second))
			index = w.finish()
		}
		foot := footer{meta: handle{uint64(len(b)), 8}}
		meta := blockBuilder{interval: 1}
		b = appendBlock(b, meta.finish())
		foot.index.off = uint64(len(b))
		b = appendBlock(b, index)
		foot.index.size = uint64(len(b)-blockTrailerLen) - foot.index.off
		b = appendFooter(b, foot)

		st := directory(nil)
		st.Put("index/000004.sst", b)
		smallest, largest := binary.LittleEndian.AppendUint64(nil, maxTrailer), binary.LittleEndian.AppendUint64([]byte(strings.Repeat("\xff", 100)), 0)
		st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 5).add(tagAdd, 1, 4, len(b), smallest, largest)))
		db := mustOpen(t, st, Options{})
		rows, err := collect(db.Scan(t.Context(), nil, nil))
		if err != nil {
			ofAKind(t, "table", 0, err)
		} else {
			agree(t, db, rows)
			if len(rows) > 2 {
				part, err := collect(db.Scan(t.Context(), []byte(rows[1].k), []byte(rows[len(rows)-1].k)))
				if err != nil {
					t.Error(err)
				}
				same(t, part, rows[1:len(rows)-1])
			}
		}
		found := checks(t, db)
		if err != nil && len(found) == 0 {
			t.Errorf("the scan says %v, the check nothing", err)
		}
		saved, err := collect(Salvage(t.Context(), st, "index", Options{}, func(Problem) {}))
		if err != nil {
			t.Error(err)
		}
		for i := range saved {
			if i > 0 && saved[i-1].k >= saved[i].k {
				t.Errorf("%q is not above %q", saved[i].k, saved[i-1].k)
			}
		}
	})
}

// FuzzOpen reads a directory of four files of any bytes.
func FuzzOpen(f *testing.F) {
	m := mixed()
	f.Add(m.Get("index/CURRENT"), m.Get("index/MANIFEST-000002"), m.Get("index/000003.log"), m.Get("index/000004.sst"))
	st, _ := smallTables(f, WriterOptions{BlockSize: 300})
	f.Add(st.Get("index/CURRENT"), st.Get("index/MANIFEST-000002"), []byte{}, st.Get("index/000004.sst"))
	f.Fuzz(func(t *testing.T, current, manifest, log, table []byte) {
		st := &storetest.Mem{}
		st.Put("index/CURRENT", current)
		st.Put("index/MANIFEST-000002", manifest)
		st.Put("index/000003.log", log)
		st.Put("index/000004.sst", table)
		rows, err := collect(Salvage(t.Context(), st, "index", Options{MaxLog: 1 << 20}, func(Problem) {}))
		if err != nil {
			t.Error(err)
		}
		if !slices.IsSortedFunc(rows, func(a, b kv) int { return strings.Compare(a.k, b.k) }) {
			t.Error("salvaged rows are out of order")
		}
		db, err := Open(t.Context(), st, "index", Options{MaxLog: 1 << 20})
		if err != nil {
			ofAKind(t, "directory", 0, err)
			return
		}
		defer db.Close()
		if rows, err = collect(db.Scan(t.Context(), nil, nil)); err != nil {
			ofAKind(t, "directory", 0, err)
		} else {
			agree(t, db, rows)
		}
		checks(t, db)
	})
}

// FuzzRoundTrip writes rows of any bytes, and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("\x01a\x02bc\x00\x00\x03abc\x05value"), uint16(0), uint16(0))
	f.Add(bytes.Repeat([]byte("\x04\x01\x02\x03\x04\x03\xff\xff\xff\x02\xff\xff"), 30), uint16(20), uint16(90))
	f.Fuzz(func(t *testing.T, b []byte, blockSize, tableSize uint16) {
		take := func() string {
			if len(b) == 0 {
				return ""
			}
			n := min(int(b[0]), len(b)-1)
			s := string(b[1 : 1+n])
			b = b[1+n:]
			return s
		}
		m := map[string]string{}
		for len(b) > 0 {
			k := take()
			m[k] = take()
		}
		want := sorted(m)
		st := write(t, want, WriterOptions{BlockSize: int(blockSize), TableSize: int64(tableSize)})
		db := mustOpen(t, st, Options{})
		same(t, mustScan(t, db), want)
		agree(t, db, want)
		if found := checks(t, db); len(found) > 0 {
			t.Error(found)
		}
		saved, found := salvaged(t, st)
		same(t, saved, want)
		if len(found) > 0 {
			t.Error(found)
		}
	})
}
