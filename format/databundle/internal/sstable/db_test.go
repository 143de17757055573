package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

func TestReadsWhatTheIndependentReaderReads(t *testing.T) {
	for name, want := range listings(t) {
		t.Run(name, func(t *testing.T) {
			db, err := Open(t.Context(), fixture(t, name), "index", Options{})
			if want == "index_corrupt" {
				if e, ok := errors.AsType[*Error](err); !ok || e.Class != Corrupt && e.Class != Missing {
					t.Errorf("error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			rows := mustScan(t, db)
			if got := digest(rows); got != want {
				t.Errorf("rows are %s, expected %s", got, want)
			}
			for _, r := range rows {
				v, ok, err := db.Get(t.Context(), []byte(r.k))
				if err != nil || !ok || string(v) != r.v {
					t.Errorf("%q is %q, %v, %v, expected %q", r.k, v, ok, err, r.v)
				}
				for _, no := range []string{r.k + "\x00", r.k[:len(r.k)-1]} {
					_, is := slices.BinarySearchFunc(rows, no, func(r kv, k string) int { return strings.Compare(r.k, k) })
					if _, ok, err := db.Get(t.Context(), []byte(no)); ok != is || err != nil {
						t.Errorf("%q: there %v, %v, expected %v", no, ok, err, is)
					}
				}
			}
			if found := checks(t, db); len(found) > 0 || len(db.Notes()) > 0 {
				t.Errorf("a sound directory has problems: %v, notes %v", found, db.Notes())
			}
		})
	}
}

func TestScansAnyRange(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	rows := randomRows(r, 4000)
	db := mustOpen(t, write(t, rows, WriterOptions{TableSize: 64 << 10}), Options{BlockCache: 1})
	if n := len(db.groups[0].tables); n < 4 {
		t.Fatalf("%d tables, expected several", n)
	}
	for range 300 {
		from, to := randomKey(r), randomKey(r)
		lo := sort.Search(len(rows), func(i int) bool { return rows[i].k >= from })
		hi := sort.Search(len(rows), func(i int) bool { return rows[i].k >= to })
		got, err := collect(db.Scan(t.Context(), []byte(from), []byte(to)))
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, rows[lo:max(lo, hi)])
	}
	for range db.Scan(t.Context(), nil, nil) {
		break
	}
	for e := db.tables.used.Front(); e != nil; e = e.Next() {
		if o := e.Value.(*kept[*table, *openTable]).v; o.refs != 1 {
			t.Errorf("%s is still held after the scan was left", o.name)
		}
	}
}

func TestServesManyAtOnce(t *testing.T) {
	testkit.Serial(t)
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{TableSize: 32 << 10}), 20_000)
	// Caches so small that tables and blocks come and go.
	db := mustOpen(t, st, Options{BlockCache: 20 << 10, IndexCache: 1})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range 300 {
				i := r.IntN(20_000)
				v, ok, err := db.Get(t.Context(), fileKey(i/1000, i%1000))
				if err != nil || !ok || !bytes.Equal(v, fileValue(i/1000, i%1000)) {
					t.Errorf("file %d is %q, %v, %v", i, v, ok, err)
					return
				}
			}
			n := 0
			for _, err := range db.Scan(t.Context(), fileKey(g, 0), fileKey(g+1, 0)) {
				if err != nil {
					t.Error(err)
					return
				}
				n++
			}
			if n != 1000 {
				t.Errorf("a folder has %d rows, expected 1000", n)
			}
		})
	}
	wg.Wait()
}

func TestLooksUpOneKeyInFiveRequests(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{}), 100_000)
	var log strings.Builder
	db, err := Open(t.Context(), storetest.Trace(st, &log), "index", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 2 { // the second is in the caches
		if _, ok, err := db.Get(t.Context(), fileKey(50, 500)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		// The size is known from the request before.
		if !strings.HasPrefix(line, "info ") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"head index/CURRENT 65536",
		"head index/MANIFEST-000002 65536",
		"head index/000003.log 65536",
		"tail index/000004.sst 65536",
		"read index/000004.sst at ",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("requests are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestFirstRequestsAreThoseOfOpen(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{}), 100_000)
	var log strings.Builder
	warm := cache.Wrap(storetest.Trace(st, &log), 8<<20)
	for _, q := range First("index") {
		obj, err := warm.Open(t.Context(), q.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Close()
		read := storekit.ReadHead
		if q.Tail {
			read = storekit.ReadTail
		}
		if _, err := read(t.Context(), obj, make([]byte, q.Len)); err != nil {
			t.Fatal(err)
		}
	}
	before := log.Len()
	db, err := Open(t.Context(), warm, "index", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, ok, err := db.Get(t.Context(), fileKey(99, 999)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for line := range strings.Lines(log.String()[before:]) {
		// Nothing of an empty log is kept.
		if !strings.HasPrefix(line, "info ") && !strings.Contains(line, ".log") {
			t.Errorf("one more request: %s", line)
		}
	}
}

// unlisted is a store that cannot list.
type unlisted struct{ store.Store }

func (unlisted) Can() store.Abilities { return store.Abilities{} }

func TestFilesTellsWhatThereIs(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{TableSize: 64 << 10}), 10_000)
	if err := st.Remove(t.Context(), "index/000005.sst"); err != nil {
		t.Fatal(err)
	}
	onlyReads := unlisted{st}
	for _, s := range []store.Store{st, onlyReads} {
		db, err := Open(t.Context(), s, "index", Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		files, err := db.Files(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range files {
			got = append(got, strings.TrimPrefix(f.Name, "index/"))
			if f.Size != int64(len(st.Get(f.Name))) {
				t.Errorf("%+v", f)
			}
		}
		if got := strings.Join(got[:5], " "); got != "CURRENT MANIFEST-000002 000003.log 000004.sst 000006.sst" {
			t.Errorf("%d files: %s …", len(files), got)
		}
		lost := userKey(db.groups[0].tables[1].smallest)
		_, _, err = db.Get(t.Context(), lost)
		wants(t, err, Missing, "000005.sst")
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is no fs.ErrNotExist", err)
		}
		found := checks(t, db)
		if len(found) != 1 || found[0].Err.Class != Missing || !found[0].Rows {
			t.Errorf("check finds %v", found)
		}
	}
}

func TestRefusesWhatIsNotThere(t *testing.T) {
	st := &storetest.Mem{}
	_, err := Open(t.Context(), st, "index", Options{})
	wants(t, err, Missing, "CURRENT")
	for _, bad := range []string{"", "MANIFEST-000002", "MANIFEST-\n", "MANIFEST-+1\n", "../MANIFEST-1\n", "MANIFEST-1\nx", "MANIFEST-1_0\n"} {
		st.Put("index/CURRENT", []byte(bad))
		_, err := Open(t.Context(), st, "index", Options{})
		wants(t, err, Corrupt, "CURRENT")
	}
	st.Put("index/CURRENT", []byte("MANIFEST-000002\n"))
	_, err = Open(t.Context(), st, "index", Options{})
	wants(t, err, Missing, "MANIFEST-000002")
}

func TestAClosedDirectoryIsNotRead(t *testing.T) {
	db := mustOpen(t, fixture(t, "many-3000"), Options{})
	next := func() error {
		_, err := collect(db.Scan(t.Context(), nil, nil))
		return err
	}
	if err := next(); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if err := next(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("error is %v", err)
	}
}

func TestErrorsOfTheStoreComeUp(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{TableSize: 64 << 10}), 5000)
	broken := errors.New("broken")
	for k := 1; ; k++ {
		count := storetest.Count(storetest.Nth("", k, broken))
		err := func() error {
			db, err := Open(t.Context(), storetest.Fault(st, count.Inject), "index", Options{})
			if err != nil {
				return err
			}
			defer db.Close()
			if _, err := collect(db.Scan(t.Context(), nil, nil)); err != nil {
				return err
			}
			return db.Check(t.Context(), func(p Problem) { t.Errorf("request %d: %v", k, p.Err) })
		}()
		if n, _ := count.Injected(); n == 0 {
			if k < 10 {
				t.Errorf("only %d requests", k)
			}
			return
		}
		if err := count.Surfaced(err); err != nil {
			t.Fatal(fmt.Errorf("request %d: %w", k, err))
		}
	}
}
