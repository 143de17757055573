package sstable

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// A simulation is a database as a program of the LevelDB family would leave it,
// made by random operations, and next to it what must be in it.
type simulation struct {
	r    *rand.Rand
	st   *storetest.Mem
	want map[string]string

	shared bool // all rows of a batch have one sequence number: dacha
	tags   uint64
	enc    encoding
	suffix string

	seq, next, logNum uint64
	log, manifest     []byte
	mem               []memTableRow
	levels            [5][]simTable
	moved, compacted  int
}

type simTable struct {
	num  uint64
	size int
	rows []memTableRow
	a, b []byte
}

func newSimulation(r *rand.Rand) *simulation {
	s := &simulation{r: r, st: &storetest.Mem{}, want: map[string]string{}, next: 4, logNum: 3,
		shared: r.IntN(2) == 0, tags: tagAdd, suffix: tableSuffixes[r.IntN(2)]}
	if r.IntN(2) == 0 {
		s.tags = tagAddSeqs
	}
	s.enc = encoding{compression: byte(r.IntN(3)), blockRows: 1 + r.IntN(20), interval: 1 + r.IntN(17), properties: r.IntN(2) == 0}
	s.manifest = appendRecord(nil, opening(s.logNum, s.next))
	return s
}

func (s *simulation) name(num uint64) string { return "index/" + tableName(num, s.suffix) }

// batch applies some operations as one batch.
func (s *simulation) batch() {
	var rows []memTableRow
	for range s.r.IntN(12) {
		k := string("abcdefgh"[s.r.IntN(8)]) + fmt.Sprint(s.r.IntN(40))
		row := memTableRow{key: k, kind: kindValue, val: fmt.Sprintf("%s=%d", k, s.r.Uint32())}
		if s.r.IntN(3) == 0 {
			row.kind, row.val = kindDeleted, ""
			delete(s.want, k)
		} else {
			s.want[k] = row.val
		}
		rows = append(rows, row)
	}
	first := s.seq + 1
	for i := range rows {
		if !s.shared || i == 0 {
			s.seq++
		}
		rows[i].seq = s.seq
	}
	s.log = appendRecord(s.log, encodeBatch(first, rows))
	s.mem = append(s.mem, rows...)
}

// newest sorts rows as in a table. Of two rows with the same sequence number, which a table
// cannot have, it keeps the later one.
func newest(rows []memTableRow, all bool) []memTableRow {
	slices.Reverse(rows)
	slices.SortStableFunc(rows, func(a, b memTableRow) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(b.seq, a.seq))
	})
	return slices.CompactFunc(rows, func(a, b memTableRow) bool { return a.key == b.key && (!all || a.seq == b.seq) })
}

func (s *simulation) table(rows []memTableRow) simTable {
	b, smallest, largest := encodeTable(rows, s.enc)
	t := simTable{s.next, len(b), rows, smallest, largest}
	s.next++
	s.st.Put(s.name(t.num), b)
	return t
}

func (s *simulation) edit(e edit) {
	s.manifest = appendRecord(s.manifest, e.numbers(tagNextFile, s.next))
}

func (s *simulation) flush() {
	if len(s.mem) == 0 {
		return
	}
	t := s.table(newest(s.mem, s.r.IntN(2) == 0))
	s.mem, s.log = nil, nil
	s.levels[0] = append(s.levels[0], t)
	s.st.Put("index/"+logName(s.logNum), []byte("old")) // not to be read any more
	s.logNum = s.next
	s.next++
	s.edit(edit(nil).add(s.tags, 0, t.num, t.size, t.a, t.b).numbers(tagLog, s.logNum))
}

func overlap(a, b simTable) bool {
	return a.rows[0].key <= b.rows[len(b.rows)-1].key && b.rows[0].key <= a.rows[len(a.rows)-1].key
}

func (s *simulation) compact() {
	l := s.r.IntN(len(s.levels) - 1)
	if len(s.levels[l]) == 0 {
		return
	}
	in, rest := s.levels[l], []simTable(nil)
	if l > 0 {
		i := s.r.IntN(len(in))
		rest = slices.Concat(in[:i], in[i+1:])
		in = in[i : i+1]
	}
	var below, apart []simTable
	for _, t := range s.levels[l+1] {
		if slices.ContainsFunc(in, func(i simTable) bool { return overlap(i, t) }) {
			below = append(below, t)
		} else {
			apart = append(apart, t)
		}
	}
	var e edit
	if len(in) == 1 && len(below) == 0 {
		t := in[0]
		e = e.add(s.tags, uint64(l+1), t.num, t.size, t.a, t.b).numbers(tagDelete, uint64(l), t.num)
		s.levels[l], s.levels[l+1] = rest, append(apart, t)
		s.edit(e)
		s.moved++
		return
	}
	bottom := true
	for _, d := range s.levels[l+2:] {
		bottom = bottom && len(d) == 0
	}
	var rows []memTableRow
	for _, t := range slices.Concat(below, in) {
		rows = append(rows, t.rows...)
	}
	rows = newest(rows, false)
	if bottom {
		rows = slices.DeleteFunc(rows, func(r memTableRow) bool { return r.kind == kindDeleted })
	}
	for _, t := range in {
		e = e.numbers(tagDelete, uint64(l), t.num)
	}
	for _, t := range below {
		e = e.numbers(tagDelete, uint64(l+1), t.num)
	}
	e = e.numbers(tagCompactAt, uint64(l)).text(in[0].b)
	for part := range slices.Chunk(rows, 30) {
		t := s.table(slices.Clone(part))
		apart = append(apart, t)
		e = e.add(s.tags, uint64(l+1), t.num, t.size, t.a, t.b)
	}
	for _, t := range slices.Concat(in, below) {
		s.st.Remove(context.Background(), s.name(t.num))
	}
	s.levels[l], s.levels[l+1] = rest, apart
	s.edit(e)
	s.compacted++
}

func (s *simulation) finish() {
	s.st.Put("index/"+logName(s.logNum), s.log)
	s.st.Put("index/MANIFEST-000002", s.manifest)
	s.st.Put("index/CURRENT", []byte("MANIFEST-000002\n"))
}

func TestReadsRandomDatabases(t *testing.T) {
	testkit.Serial(t)
	r := testkit.Rand(t)
	moved, compacted, tables := 0, 0, 0
	for range 40 {
		s := newSimulation(r)
		for range r.IntN(120) {
			switch n := r.IntN(10); {
			case n < 6:
				s.batch()
			case n < 8:
				s.flush()
			default:
				s.compact()
			}
		}
		s.finish()
		moved += s.moved
		compacted += s.compacted

		db := mustOpen(t, s.st, Options{BlockCache: 2000, IndexCache: 2000})
		want := sorted(s.want)
		same(t, mustScan(t, db), want)
		for i := range 8 * 41 {
			k := string("abcdefgh"[i%8]) + fmt.Sprint(i/8)
			v, ok, err := db.Get(t.Context(), []byte(k))
			if w, is := s.want[k]; err != nil || ok != is || string(v) != w {
				t.Fatalf("%q is %q, %v, %v, expected %q, %v", k, v, ok, err, w, is)
			}
		}
		from := string("abcdefgh"[r.IntN(8)]) + fmt.Sprint(r.IntN(40))
		got, err := collect(db.Scan(t.Context(), []byte(from), []byte("f")))
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, slices.DeleteFunc(slices.Clone(want), func(r kv) bool { return r.k < from || r.k >= "f" }))
		found := checks(t, db)
		if len(found) > 0 || len(db.Notes()) > 0 {
			t.Fatal(found, db.Notes())
		}
		for _, g := range db.groups {
			tables += len(g.tables)
		}

		// All that is there is salvaged; deletions that were compacted away
		// cannot be missed, since old tables are gone too.
		got, found = salvaged(t, s.st)
		got = slices.DeleteFunc(got, func(r kv) bool { _, ok := s.want[r.k]; return !ok })
		if !s.shared { // where numbers are shared, the order of the log is lost in tables
			same(t, got, want)
		}
		for _, p := range found {
			if !strings.HasSuffix(p.Err.Object, ".log") {
				t.Error(p.Err)
			}
		}
	}
	t.Logf("%d tables, %d compactions, %d moves", tables, compacted, moved)
	if tables == 0 || compacted == 0 || moved == 0 {
		t.Error("the databases are too simple to prove anything")
	}
}
