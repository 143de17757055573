package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

func TestWritesWhatItReads(t *testing.T) {
	r := testkit.Rand(t)
	for _, o := range []WriterOptions{{}, {BlockSize: 1}, {BlockSize: 64 << 10, TableSize: 200 << 10}, {TableSize: 1}} {
		for _, n := range []int{0, 1, 2, 17, 1500} {
			t.Run(fmt.Sprintf("%+v/%d", o, n), func(t *testing.T) {
				rows := randomRows(r, n)
				db := mustOpen(t, write(t, rows, o), Options{})
				same(t, mustScan(t, db), rows)
				for _, row := range rows {
					if v, ok, err := db.Get(t.Context(), []byte(row.k)); !ok || err != nil || string(v) != row.v {
						t.Fatalf("%q is %.60q, %v, %v", row.k, v, ok, err)
					}
				}
				if found := checks(t, db); len(found) > 0 {
					t.Errorf("problems %v", found)
				}
			})
		}
	}
}

func TestWritesTheNamesThatAllReadersKnow(t *testing.T) {
	st := &storetest.Mem{}
	writeFiles(t, NewWriter(st, "index", WriterOptions{TableSize: 64 << 10}), 6000)
	want := "index/000003.log index/000004.sst index/000005.sst index/CURRENT index/IDENTITY index/LOCK index/MANIFEST-000002"
	if got := strings.Join(names(t, st), " "); got != want {
		t.Errorf("names are %s, expected %s", got, want)
	}
	if got := string(st.Get("index/CURRENT")); got != "MANIFEST-000002\n" {
		t.Errorf("CURRENT is %q", got)
	}
	if n := len(st.Get("index/000003.log")) + len(st.Get("index/LOCK")); n != 0 {
		t.Errorf("log and lock have %d bytes", n)
	}
	id := string(st.Get("index/IDENTITY"))
	if len(id) != 36 || id[14] != '8' || strings.Count(id, "-") != 4 {
		t.Errorf("IDENTITY is %q", id)
	}
}

func TestEqualRowsMakeEqualBytes(t *testing.T) {
	rows := randomRows(testkit.Rand(t), 500)
	a, b := write(t, rows, WriterOptions{}), write(t, rows, WriterOptions{})
	for _, name := range names(t, a) {
		if !bytes.Equal(a.Get(name), b.Get(name)) {
			t.Errorf("%s differs", name)
		}
	}
	rows[250].v += "x"
	if c := write(t, rows, WriterOptions{}); bytes.Equal(a.Get("index/IDENTITY"), c.Get("index/IDENTITY")) {
		t.Error("other rows have the same IDENTITY")
	}
}

func TestRefusesRowsOutOfOrder(t *testing.T) {
	w := NewWriter(&storetest.Mem{}, "index", WriterOptions{})
	for _, c := range []struct {
		key string
		ok  bool
	}{{"", true}, {"", false}, {"b", true}, {"b", false}, {"a", false}, {"b\x00", true}} {
		if err := w.Add(t.Context(), []byte(c.key), nil); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.key, err)
		}
	}
	if err := w.Add(t.Context(), []byte("z"), make([]byte, maxRow)); err == nil {
		t.Error("a row that fits no block was taken")
	}
	if err := w.Add(t.Context(), []byte("z"), make([]byte, maxRow-1)); err != nil {
		t.Error(err)
	}
}

func TestLargeRowsAreRead(t *testing.T) {
	testkit.Serial(t)
	rows := []kv{{"a", "1"}, {"b", strings.Repeat("b", maxRow-1)}, {"c", "2"}, {strings.Repeat("d", maxRow), ""}, {"e", "3"}}
	db := mustOpen(t, write(t, rows, WriterOptions{BlockSize: 1 << 20}), Options{})
	same(t, mustScan(t, db), rows)
	if found := checks(t, db); len(found) > 0 {
		t.Error(found)
	}
}

func TestLongKeysEndATableBeforeItsIndexIsLarge(t *testing.T) {
	st := &storetest.Mem{}
	w := NewWriter(st, "index", WriterOptions{})
	long := strings.Repeat("directory/", 800)
	for i := range 2000 {
		if err := w.Add(t.Context(), fmt.Appendf(nil, "%s%06d", long, i*7), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	db := mustOpen(t, st, Options{})
	if n := len(db.groups[0].tables); n < 3 {
		t.Errorf("%d tables", n)
	}
	if n := len(mustScan(t, db)); n != 2000 {
		t.Errorf("%d rows", n)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	st := &storetest.Mem{}
	w := NewWriter(st, "index", WriterOptions{TableSize: 1000})
	for i := range 3000 {
		if err := w.Add(t.Context(), fileKey(0, i), fileValue(0, i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(names(t, st)) == 0 {
		t.Fatal("no table was done yet")
	}
	if err := w.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := names(t, st); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := w.Commit(t.Context()); err == nil {
		t.Error("it was committed after Abort")
	}
}

func TestAfterAPowerCutThereIsAllOrNothing(t *testing.T) {
	for steps := 0; ; steps++ {
		below := &storetest.Mem{}
		c := storetest.NewCrash(below, steps)
		w := NewWriter(c, "index", WriterOptions{TableSize: 2000})
		var err error
		for i := range 500 {
			if err = w.Add(t.Context(), fileKey(0, i), fileValue(0, i)); err != nil {
				break
			}
		}
		if err == nil {
			err = w.Commit(t.Context())
		}
		if c.Lost() != (err != nil) {
			t.Fatalf("step %d: lost %v, error %v", steps, c.Lost(), err)
		}
		db, openErr := Open(t.Context(), below, "index", Options{})
		switch {
		case openErr == nil:
			if n := len(mustScan(t, db)); n != 500 {
				t.Fatalf("step %d: %d rows", steps, n)
			}
			db.Close()
		case err == nil:
			t.Fatal(openErr)
		default:
			wants(t, openErr, Missing, "CURRENT")
		}
		if !c.Lost() {
			return
		}
	}
}

func TestErrorsOfTheStoreEndTheWriting(t *testing.T) {
	broken := errors.New("broken")
	for k := 1; ; k++ {
		st := &storetest.Mem{}
		nth := storetest.Nth("", k, broken)
		count := storetest.Count(func(op, name string, off, n int64) error {
			if op == "abort" { // of what was committed, which means nothing
				return nil
			}
			return nth(op, name, off, n)
		})
		w := NewWriter(storetest.Fault(st, count.Inject), "index", WriterOptions{TableSize: 2000})
		var err error
		for i := range 300 {
			if err = w.Add(t.Context(), fileKey(0, i), fileValue(0, i)); err != nil {
				break
			}
		}
		if err == nil {
			err = w.Commit(t.Context())
		}
		if n, _ := count.Injected(); n == 0 {
			return
		}
		if surfaced := count.Surfaced(err); surfaced != nil {
			t.Fatalf("request %d: %v", k, surfaced)
		}
		if err := w.Commit(t.Context()); err == nil {
			t.Errorf("request %d: committed after all", k)
		}
		if err := w.Abort(t.Context()); err != nil {
			t.Errorf("request %d: %v", k, err)
		}
		if left := names(t, st); len(left) > 0 {
			t.Errorf("request %d: left: %v", k, left)
		}
	}
}
