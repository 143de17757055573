package sstable

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

// python is an interpreter that has plyvel.
const python = "HOLDALL_DATABUNDLE_PYTHON"

// lines runs a program and returns its output by the first word of each line.
func lines(t *testing.T, program string, arg ...string) map[string]string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, arg...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	all := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, what, _ := strings.Cut(s.Text(), " ")
		all[name] = what
	}
	return all
}

// LevelDB makes databases at random; HOLDALL_LONG is how many.
func TestReadsWhatLevelDBWrites(t *testing.T) {
	testkit.Serial(t)
	p := testkit.Needs(t, python)
	out := t.TempDir()
	first := testkit.Rand(t).IntN(1 << 30)
	t.Logf("seeds from %d", first)
	count := testkit.Rounds(t, 5)
	all := lines(t, p, "testdata/plyvel_peer.py", "write", out, fmt.Sprint(first), fmt.Sprint(count))
	if len(all) != count {
		t.Fatalf("%d databases", len(all))
	}
	tables, overlapping, logRows := 0, 0, 0
	for dir, want := range all {
		st := loadDir(t, dir)
		db, err := Open(t.Context(), st, "index", Options{})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		rows := mustScan(t, db)
		if got := digest(rows); got != want {
			t.Errorf("%s: rows are %s, expected %s", dir, got, want)
		}
		for _, r := range rows {
			if v, ok, err := db.Get(t.Context(), []byte(r.k)); !ok || err != nil || string(v) != r.v {
				t.Errorf("%s: %q is %.50q, %v, %v", dir, r.k, v, ok, err)
			}
		}
		found := checks(t, db)
		if len(found) > 0 {
			t.Errorf("%s: %v", dir, found)
		}
		logRows += len(db.mem.rows)
		for _, g := range db.groups {
			tables += len(g.tables)
			if g.overlaps && len(g.tables) > 1 {
				overlapping++
			}
		}
		db.Close()

		// Nothing is compacted away that a later row does not stand for.
		st.Put("index/CURRENT", nil)
		saved, err := collect(Salvage(t.Context(), st, "index", Options{}, func(p Problem) {
			if p.Rows {
				t.Errorf("%s: %v", dir, p.Err)
			}
		}))
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		there := map[kv]bool{}
		for _, r := range saved {
			there[r] = true
		}
		for _, r := range rows {
			if !there[r] {
				t.Errorf("%s: %q is not salvaged", dir, r.k)
				break
			}
		}
	}
	t.Logf("%d tables, %d levels that overlap, %d rows in logs", tables, overlapping, logRows)
	if tables == 0 || logRows == 0 {
		t.Error("the databases are too simple to prove anything")
	}
}

// onDisk writes directories of rows in several ways, and returns their digests.
func onDisk(t *testing.T) map[string]string {
	r := testkit.Rand(t)
	want := map[string]string{}
	base := t.TempDir()
	for i, o := range []WriterOptions{{}, {BlockSize: 1}, {BlockSize: 16 << 10}, {TableSize: 30 << 10}} {
		for _, n := range []int{0, 1, 40, 3000} {
			dir := fmt.Sprintf("%d-%d", i, n)
			rows := randomRows(r, n)
			w := NewWriter(local.New(base), dir, o)
			for _, r := range rows {
				if err := w.Add(t.Context(), []byte(r.k), []byte(r.v)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			want[filepath.Join(base, dir)] = digest(rows)
		}
	}
	return want
}

func TestLevelDBReadsWhatWeWrite(t *testing.T) {
	p := testkit.Needs(t, python)
	want := onDisk(t)
	arg := []string{"testdata/plyvel_peer.py", "list"}
	for dir := range want {
		arg = append(arg, dir)
	}
	got := lines(t, p, arg...)
	for dir, rows := range want {
		if got[dir] != rows {
			t.Errorf("%s: LevelDB reads %q, expected %q", dir, got[dir], rows)
		}
	}
}

func TestRocksDBReadsWhatWeWrite(t *testing.T) {
	ldb := testkit.Program(t, "ldb")
	for dir, want := range onDisk(t) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), ldb, "--db="+dir, "--hex", "scan")
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v: %s", dir, err, stderr.String())
			continue
		}
		var rows []kv
		for line := range strings.Lines(string(out)) {
			k, v, ok := strings.Cut(strings.TrimRight(line, "\n"), " : ")
			if !ok {
				k, ok = strings.CutSuffix(strings.TrimRight(line, "\n"), " :")
			}
			key, err1 := hex.DecodeString(strings.TrimPrefix(k, "0x"))
			val, err2 := hex.DecodeString(strings.TrimPrefix(v, "0x"))
			if !ok || err1 != nil || err2 != nil {
				t.Fatalf("%s: ldb says %.80q", dir, line)
			}
			rows = append(rows, kv{string(key), string(val)})
		}
		if got := digest(rows); got != want {
			t.Errorf("%s: RocksDB reads %s, expected %s", dir, got, want)
		}
	}
}
