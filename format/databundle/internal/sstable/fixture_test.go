package sstable

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// fixture returns a store with one of the directories of testdata, as "index".
func fixture(t testing.TB, name string) *storetest.Mem {
	return loadDir(t, filepath.Join("testdata", name))
}

func loadDir(t testing.TB, dir string) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	testkit.Put(st, testkit.Files(t, dir), "", "index/")
	return st
}

// names lists a store.
func names(t testing.TB, st *storetest.Mem) (all []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Name)
	}
	return all
}

func mustOpen(t testing.TB, st *storetest.Mem, o Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), st, "index", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// kv is a row that is kept.
type kv struct{ k, v string }

// collect keeps the rows of a scan.
func collect(rows iter.Seq2[Row, error]) (all []kv, err error) {
	for r, err := range rows {
		if err != nil {
			return all, err
		}
		all = append(all, kv{string(r.Key), string(r.Value)})
	}
	return all, nil
}

func mustScan(t testing.TB, db *DB) []kv {
	t.Helper()
	all, err := collect(db.Scan(t.Context(), nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// digest is what testdata/list_rows.py prints about rows.
func digest(rows []kv) string {
	h := sha256.New()
	for _, r := range rows {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(r.k)))
		h.Write(n[:])
		h.Write([]byte(r.k))
		binary.BigEndian.PutUint32(n[:], uint32(len(r.v)))
		h.Write(n[:])
		h.Write([]byte(r.v))
	}
	return fmt.Sprintf("%d %s", len(rows), hex.EncodeToString(h.Sum(nil)))
}

// listings returns what the independent reader found: a digest or a class of error, by the name
// of the directory.
func listings(t testing.TB) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, what, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			t.Fatalf("rows.txt: %q", line)
		}
		all[name] = what
	}
	return all
}

// healthy returns the directories that have rows.
func healthy(t testing.TB) (all []string) {
	for name, what := range listings(t) {
		if strings.Contains(what, " ") {
			all = append(all, name)
		}
	}
	return all
}

// fileKey is the key of a file in the index of a bundle, and fileValue what such
// a row holds.
func fileKey(dir, file int) []byte {
	return fmt.Appendf(nil, "\x02data/part-%03d/\x00\x00file-%06d.bin", dir, file)
}

func fileValue(dir, file int) []byte {
	b := []byte{8, 1, 24}
	b = binary.AppendUvarint(b, uint64(dir)<<20+uint64(file)*3847)
	b = binary.AppendUvarint(append(b, 32), uint64(file)*7919%20000)
	return binary.AppendUvarint(append(b, 40), uint64(uint32(file)*2654435761))
}

// writeFiles writes n rows as of files, 1000 to a folder.
func writeFiles(t testing.TB, w *Writer, n int) {
	t.Helper()
	for i := range n {
		if err := w.Add(context.Background(), fileKey(i/1000, i%1000), fileValue(i/1000, i%1000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// write makes a directory of rows.
func write(t testing.TB, rows []kv, o WriterOptions) *storetest.Mem {
	t.Helper()
	st := &storetest.Mem{}
	w := NewWriter(st, "index", o)
	for _, r := range rows {
		if err := w.Add(t.Context(), []byte(r.k), []byte(r.v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return st
}

// same reports rows that differ.
func same(t testing.TB, got, want []kv) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("row %d is %q = %.60q, expected %q = %.60q", i, got[i].k, got[i].v, want[i].k, want[i].v)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d rows, expected %d", len(got), len(want))
	}
}

// checks returns what Check finds.
func checks(t testing.TB, db *DB) (all []Problem) {
	t.Helper()
	if err := db.Check(t.Context(), func(p Problem) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// wants fails unless err is an *Error of the given class and file.
func wants(t testing.TB, err error, c Class, file string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != c || e.Object != "index/"+file {
		t.Errorf("error is %v, expected %v in %s", err, c, file)
	}
}

// randomRows returns rows in order: keys of few letters, which are often prefixes
// of each other, and now and then a long value.
func randomRows(r *rand.Rand, n int) []kv {
	m := map[string]string{}
	for range n {
		m[randomKey(r)] = randomValue(r)
	}
	return sorted(m)
}

func randomKey(r *rand.Rand) string {
	k := make([]byte, r.IntN(12))
	for i := range k {
		k[i] = "ab\x00\xff"[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		return string(k) + strconv.Itoa(r.IntN(1000))
	}
	return string(k)
}

func randomValue(r *rand.Rand) string {
	switch r.IntN(20) {
	case 0:
		return ""
	case 1:
		return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(20_000))
	case 2:
		b := make([]byte, r.IntN(9000))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	return strconv.Itoa(r.IntN(1_000_000))
}

func sorted(m map[string]string) []kv {
	var all []kv
	for k, v := range m {
		all = append(all, kv{k, v})
	}
	slices.SortFunc(all, func(a, b kv) int { return strings.Compare(a.k, b.k) })
	return all
}
