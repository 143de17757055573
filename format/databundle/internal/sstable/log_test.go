package sstable

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// records reads a log, and returns its records and what was reported.
func records(t testing.TB, b []byte) (all []string, found []*Error) {
	t.Helper()
	st := &storetest.Mem{}
	st.Put("x.log", b)
	w, err := openWindow(t.Context(), st, "x.log", 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.ahead = 1 // each block is read by itself
	r := logReader{w: w, report: func(e *Error) error {
		found = append(found, e)
		return nil
	}}
	for r.next(t.Context()) {
		if r.off < 0 || r.off >= int64(len(b)) {
			t.Errorf("a record at %d of %d bytes", r.off, len(b))
		}
		all = append(all, string(r.record))
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return all, found
}

// sampleLog returns a log, its records, and where each of them ends.
func sampleLog() (b []byte, want []string, ends []int) {
	for i, n := range []int{0, 1, 100, logBlock - 7 - 7 - 8 - 107 - 7 - 3, 10, logBlock, 3 * logBlock, 5, 70_000, 9} {
		rec := strings.Repeat(string(rune('a'+i)), n)
		b = appendRecord(b, []byte(rec))
		want = append(want, rec)
		ends = append(ends, len(b))
	}
	return b, want, ends
}

func TestRecordsOfAnyLengthAreReadBack(t *testing.T) {
	b, want, _ := sampleLog()
	got, found := records(t, b)
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || len(found) > 0 {
		t.Errorf("%d records, problems %v", len(got), found)
	}
	// Preallocated zeros after the records.
	got, found = records(t, append(bytes.Clone(b), make([]byte, 100_000)...))
	if len(got) != len(want) || len(found) > 0 {
		t.Errorf("%d records, problems %v", len(got), found)
	}
}

func TestATornLogGivesTheRecordsThatWereWritten(t *testing.T) {
	testkit.Serial(t)
	b, _, ends := sampleLog()
	whole := 0
	for n := 0; n < len(b); n++ {
		for whole < len(ends) && ends[whole] <= n {
			whole++
		}
		if n > 300 && n < len(b)-300 && n%logBlock > 20 && n%101 != 0 {
			continue
		}
		got, found := records(t, b[:n])
		if len(got) != whole {
			t.Fatalf("cut at %d: %d records, expected %d", n, len(got), whole)
		}
		atEnd := whole == 0 && n == 0 || whole > 0 && allZero(b[ends[whole-1]:n])
		if len(found) > 0 && found[0].Class != Torn || len(found) > 1 || len(found) == 0 && !atEnd {
			t.Fatalf("cut at %d: %v", n, found)
		}
	}
}

func TestDamageInALogCostsNoMoreThanItsBlock(t *testing.T) {
	testkit.Serial(t)
	b, want, _ := sampleLog()
	step := 1
	if testing.Short() {
		step = 11
	}
	for i := 0; i < len(b); i += step {
		if i > 400 && i < len(b)-400 && i%logBlock > 16 && i%logBlock < logBlock-40 && i%997 != 0 {
			continue
		}
		c := bytes.Clone(b)
		c[i] ^= 1 << (i % 8)
		got, found := records(t, c)
		if len(found) == 0 {
			t.Fatalf("a flip at %d is not noticed", i)
		}
		// What is left is sound, and in order.
		rest := want
		for _, g := range got {
			for len(rest) > 0 && rest[0] != g {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				t.Fatalf("a flip at %d gives %.20q", i, g)
			}
			rest = rest[1:]
		}
		if len(got) < 2 {
			t.Fatalf("a flip at %d leaves %d records", i, len(got))
		}
	}
}

// directory returns a directory that has only a log.
func directory(log []byte) *storetest.Mem {
	st := &storetest.Mem{}
	st.Put("index/CURRENT", []byte("MANIFEST-000002\n"))
	st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 4)))
	st.Put("index/000003.log", log)
	return st
}

func put(k, v string) memTableRow { return memTableRow{key: k, val: v, kind: kindValue} }

func del(k string) memTableRow { return memTableRow{key: k, kind: kindDeleted} }

func TestTheLaterRowOfALogWins(t *testing.T) {
	// Batches of dacha: each has one sequence number, and so they seem to overlap.
	log := appendRecord(nil, encodeBatch(1, []memTableRow{put("a", "1"), put("b", "1"), put("c", "1"), put("c", "2"), put("d", "1")}))
	log = appendRecord(log, encodeBatch(2, []memTableRow{put("b", "2"), del("d"), put("e", "")}))
	log = appendRecord(log, encodeBatch(3, []memTableRow{put("a", "3")}))
	db := mustOpen(t, directory(log), Options{})
	same(t, mustScan(t, db), []kv{{"a", "3"}, {"b", "2"}, {"c", "2"}, {"e", ""}})
	for k, want := range map[string]bool{"a": true, "d": false, "e": true, "": false, "x": false} {
		if v, ok, err := db.Get(t.Context(), []byte(k)); ok != want || err != nil || ok && v == nil {
			t.Errorf("%q: %v, %v", k, ok, err)
		}
	}
}

func TestLogsAboveTheCurrentOneAreReplayedWhereTheDirectoryIsListed(t *testing.T) {
	st := directory(appendRecord(nil, encodeBatch(1, []memTableRow{put("a", "3"), put("b", "3")})))
	st.Put("index/000002.log", appendRecord(nil, encodeBatch(1, []memTableRow{put("a", "old")})))
	st.Put("index/000005.log", appendRecord(nil, encodeBatch(9, []memTableRow{put("b", "5")})))
	st.Put("index/LOG", []byte("not one of them"))
	st.Put("index/sub/000009.log", []byte("nor this"))
	same(t, mustScan(t, mustOpen(t, st, Options{})), []kv{{"a", "3"}, {"b", "5"}})
}

func TestThePreviousLogIsReplayedToo(t *testing.T) {
	st := directory(appendRecord(nil, encodeBatch(5, []memTableRow{put("a", "3")})))
	st.Put("index/000001.log", appendRecord(nil, encodeBatch(1, []memTableRow{put("a", "1"), put("b", "1")})))
	st.Put("index/MANIFEST-000002", appendRecord(nil, opening(3, 4).numbers(tagPrevLog, 1)))
	same(t, mustScan(t, mustOpen(t, st, Options{})), []kv{{"a", "3"}, {"b", "1"}})
}

func TestAMissingLogIsNoted(t *testing.T) {
	st := directory(nil)
	st.Remove(t.Context(), "index/000003.log")
	db := mustOpen(t, st, Options{})
	if n := db.Notes(); len(n) != 1 || n[0].Err.Class != Missing || len(mustScan(t, db)) != 0 {
		t.Errorf("notes are %v", n)
	}
}

func TestATornLogIsNotedAndADamagedOneRefused(t *testing.T) {
	var log []byte
	for i := range 20 {
		log = appendRecord(log, encodeBatch(uint64(i+1), []memTableRow{put(fmt.Sprintf("%02d", i), "value")}))
	}
	db := mustOpen(t, directory(log[:len(log)-3]), Options{})
	if n := db.Notes(); len(n) != 1 || n[0].Err.Class != Torn || len(mustScan(t, db)) != 19 {
		t.Errorf("notes are %v", n)
	}

	bad := bytes.Clone(log)
	bad[100] ^= 1
	_, err := Open(t.Context(), directory(bad), "index", Options{})
	wants(t, err, Corrupt, "000003.log")

	// A length that seems to go past the end is damage if sound records follow.
	long := bytes.Clone(log)
	long[5] = 0x10
	_, err = Open(t.Context(), directory(long), "index", Options{})
	wants(t, err, Corrupt, "000003.log")
}

func TestABatchThatIsNotOneIsRefused(t *testing.T) {
	good := encodeBatch(1, []memTableRow{put("a", "1"), put("b", "2")})
	for what, b := range map[string]struct {
		record []byte
		class  Class
	}{
		"short":      {good[:11], Corrupt},
		"cut":        {good[:len(good)-1], Corrupt},
		"one less":   {append(bytes.Clone(good[:8]), append([]byte{1, 0, 0, 0}, good[12:]...)...), Corrupt},
		"one more":   {append(bytes.Clone(good[:8]), append([]byte{3, 0, 0, 0}, good[12:]...)...), Corrupt},
		"a merge":    {encodeBatch(1, []memTableRow{{key: "a", kind: 2}}), Unsupported},
		"empty":      {nil, Corrupt},
		"long value": {append(good[:12:12], kindValue, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), Corrupt},
	} {
		_, err := Open(t.Context(), directory(appendRecord(nil, b.record)), "index", Options{})
		t.Log(what, err)
		wants(t, err, b.class, "000003.log")
	}
}

func TestLogsOverTheLimitAreRefused(t *testing.T) {
	log := appendRecord(nil, encodeBatch(1, make([]memTableRow, 5000))) // two bytes each
	_, err := Open(t.Context(), directory(log), "index", Options{MaxLog: 100_000})
	wants(t, err, Limit, "000003.log")
	_, err = Open(t.Context(), directory(log), "index", Options{MaxLog: 5000})
	wants(t, err, Limit, "000003.log")
	if n := len(mustScan(t, mustOpen(t, directory(log), Options{MaxLog: 200_000}))); n != 0 {
		t.Errorf("%d rows", n) // 5000 deletions of one key
	}
}
