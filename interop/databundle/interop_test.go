//go:build linux

// Package databundle_test lets readers other than ours read the bundles that we
// write: read_bundle.py, which follows the specification and has its index from
// LevelDB itself; and of indexes, goleveldb and RocksDB.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_DATABUNDLE_PYTHON names a python that has what ../install databundle
// installs; ldb is of RocksDB. ./check does both.
package databundle_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	_ "github.com/holdall/holdall/store/all"
)

const fixtures = "../../format/databundle/testdata"

func python(t *testing.T) string {
	t.Helper()
	return testkit.Needs(t, "HOLDALL_DATABUNDLE_PYTHON")
}

// An answer is what the script says of one bundle.
type answer struct {
	Bundle                                string
	Rows, Entries, Shards, Records, Zeros int
	Compression                           int
	Faults                                []string
}

// read lets the script read bundles. It must answer for each one, whatever is wrong.
func read(t *testing.T, args ...string) (all []answer) {
	t.Helper()
	// Without -B there would be compiled scripts among the sources.
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{"-B", "read_bundle.py"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if said.Len() > 0 {
		t.Fatalf("%v: %v\n%s", args, err, said.String())
	}
	for line := range bytes.Lines(out) {
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, a)
	}
	right := !slices.ContainsFunc(all, func(a answer) bool { return len(a.Faults) > 0 })
	if right != (err == nil) {
		t.Fatalf("%v: faults in the answers, and %v", args, err)
	}
	return all
}

// readsAll lets the script read bundles, in which nothing may be wrong.
func readsAll(t *testing.T, bundles []string, args ...string) []answer {
	t.Helper()
	all := read(t, append(args, bundles...)...)
	if len(all) != len(bundles) {
		t.Fatalf("%d bundles, %d answers", len(bundles), len(all))
	}
	for _, a := range all {
		for _, f := range a.Faults {
			t.Errorf("%s: %s", a.Bundle, f)
		}
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content is n bytes, some of which repeat and some of which are zeros.
func content(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8192)
	for len(b) < n {
		switch r.IntN(8) {
		case 0:
			b = append(b, make([]byte, r.IntN(8192))...)
		case 1:
			for range r.IntN(512) {
				b = append(b, byte(r.Uint32()))
			}
		default:
			b = append(b, bytes.Repeat([]byte(fmt.Sprintf("line %d\n", r.IntN(1000))), r.IntN(100))...)
		}
	}
	return b[:n]
}

// tree makes a folder of all that a bundle has a rule for. Every file gets odd
// times and modes.
func tree(t *testing.T, r *rand.Rand) string {
	t.Helper()
	dir := t.TempDir()
	var all []string
	put := func(name string, b []byte) {
		t.Helper()
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, b, 0o600))
		all = append(all, p)
	}
	const large = 1 << 20 // begins a record
	for _, n := range []int{large - 1, large, large + 1} {
		put(fmt.Sprintf("large/%d", n), content(r, n))
		put(fmt.Sprintf("large/%d small", n), content(r, 100+r.IntN(3000)))
	}
	put("large/5 MiB", content(r, 5<<20))
	put("zeros/1 MiB", make([]byte, large))
	put("zeros/300000", make([]byte, 300_000))
	put("zeros/1", make([]byte, 1))
	put("noise", func() []byte {
		b := make([]byte, 400_000)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}())
	for i := range 3 {
		put(fmt.Sprintf("empty/%d", i), nil)
	}
	put("empty at the top", nil)
	for i := range 60 {
		put(fmt.Sprintf("small/%d/%d.txt", i%5, i), content(r, r.IntN(20_000)))
	}
	for i, name := range []string{
		"latin1-\xe9", "\xff", "\xff\xff\xff/\xff", "a\xffb/\xfe\xff", "line\nfeed", " space in front", "space behind ", "a b/c  d",
		"ünïcödé/日本語", "e\u0301", "back\\slash", "~", "\x01", "\x7f", "-", "a", "a-b/c", "a.b/c", "..a/...", "index", "shard-00000000",
		strings.Repeat("deep/", 60) + "file", strings.Repeat("n", 255), strings.Repeat("\xff", 255),
	} {
		put(filepath.Join("names", name), content(r, i*37))
	}
	must(t, os.Symlink("../names/a", filepath.Join(dir, "small", "link")))
	must(t, os.Symlink("leads \xff nowhere", filepath.Join(dir, "\xff link")))
	must(t, os.Symlink("small", filepath.Join(dir, "link to a folder")))
	must(t, os.Mkdir(filepath.Join(dir, "empty folder"), 0o711))
	for from, to := range map[string]string{"noise": "small/1/noise too", "small/0/0.txt": "0", "large/5 MiB": "zz", "empty/0": "empty/again"} {
		must(t, os.Link(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	must(t, os.Link(filepath.Join(dir, "noise"), filepath.Join(dir, "~third")))
	for _, p := range all {
		must(t, os.Chmod(p, fs.FileMode(0o400+r.IntN(0o400))))
		must(t, os.Chtimes(p, time.Time{}, time.Unix(r.Int64N(6e9)-2e9, r.Int64N(1e9))))
	}
	must(t, os.Chmod(all[0], 0o755|fs.ModeSetuid|fs.ModeSticky))
	return dir
}

// param is a flavour of bundle.
type param map[string]string

var keys = []string{"compression", "level", "shards", "shard-size", "align", "record-size", "index", "index-copies"}

// pack makes a bundle of a tree, in a folder that is named after its flavour.
func pack(t *testing.T, in, dir string, p param) string {
	t.Helper()
	name := ""
	for _, key := range keys {
		if p[key] != "" {
			name += "-" + key + "-" + p[key]
		}
	}
	out := filepath.Join(dir, "b"+name+".bundle")
	_, err := holdall.Pack(t.Context(), out, []string{in}, holdall.PackOptions{Param: p})
	if errors.Is(err, holdall.ErrNothing) { // only a conversion writes an archive without entries
		var dir *holdall.Archive
		if dir, err = holdall.Open(t.Context(), in, holdall.OpenOptions{Format: "dir"}); err == nil {
			defer dir.Close()
			_, err = holdall.Convert(t.Context(), dir, out, holdall.PackOptions{Param: p})
		}
	}
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	return out
}

var codes = map[string]int{"none": 1, "snappy": 2, "zlib": 3, "zstd": 8}

// flavours are all that differ in shards, alignment, records and where the index is.
func flavours(compression string) (all []param) {
	records := []int{4 << 10, 16 << 10, 100_000, 256 << 10, 1 << 20}
	if compression == "none" {
		records = []int{256 << 10} // there are none
	}
	for _, record := range records {
		for _, align := range []string{"1", "512", "4096"} {
			one := func(more param) {
				p := param{"compression": compression, "align": align, "record-size": strconv.Itoa(record)}
				for k, v := range more {
					p[k] = v
				}
				all = append(all, p)
			}
			one(nil)
			one(param{"shards": "3"})
			one(param{"shard-size": strconv.Itoa(3 << 20)})
			if record == 16<<10 || record == 100_000 {
				continue // rows are the same, wherever they are
			}
			one(param{"index": "inline"})
			one(param{"index-copies": "2", "shards": "2"})
		}
	}
	return all
}

// someOf are flavours chosen at random. Each value of each parameter occurs among them, and each
// parameter is also left out, where it is in all.
func someOf(r *rand.Rand, all []param) (some []param) {
	seen := map[string]bool{}
	for _, i := range r.Perm(len(all)) {
		adds := false
		for _, key := range keys {
			value := key + all[i][key]
			adds = adds || !seen[value]
			seen[value] = true
		}
		if adds {
			some = append(some, all[i])
		}
	}
	return some
}

// Some flavours of each compression are chosen at random, and all with HOLDALL_LONG.
func TestOthersReadEveryFlavour(t *testing.T) {
	python(t)
	r := testkit.Rand(t)
	in := tree(t, r)
	for _, compression := range slices.Sorted(maps.Keys(codes)) {
		t.Run(compression, func(t *testing.T) {
			all := flavours(compression)
			if testkit.Rounds(t, 1) == 1 {
				all = someOf(r, all)
			}
			byRecord := map[string][]param{} // a folder at a time, which are large
			for _, p := range all {
				byRecord[p["record-size"]] = append(byRecord[p["record-size"]], p)
			}
			for _, some := range byRecord {
				dir := t.TempDir()
				var bundles []string
				for _, p := range some {
					bundles = append(bundles, pack(t, in, dir, p))
				}
				for i, a := range readsAll(t, bundles, "--source", in) {
					p := some[i]
					wantFolders(t, a, p)
					if a.Compression != codes[compression] || a.Entries < 150 {
						t.Errorf("%s: %+v", a.Bundle, a)
					}
					if compression != "none" && p["shards"] == "" && a.Zeros == 0 {
						t.Errorf("%s: no record is all zeros", a.Bundle)
					}
				}
				must(t, os.RemoveAll(dir))
			}
		})
	}
}

// wantFolders makes sure that the flavour is the one that was asked for.
func wantFolders(t *testing.T, a answer, p param) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(a.Bundle, "shard-*"))
	must(t, err)
	want := 1
	if p["shards"] != "" {
		want, err = strconv.Atoi(p["shards"])
		must(t, err)
	}
	if n := len(names); n != want && p["shard-size"] == "" || p["shard-size"] != "" && n < 3 {
		t.Errorf("%s: %d shards", a.Bundle, n)
	}
	copies, err := filepath.Glob(filepath.Join(a.Bundle, "index*"))
	must(t, err)
	want = 2
	if p["index"] == "inline" {
		want = 0
	} else if p["index-copies"] != "" {
		want = 3
	}
	if len(copies) != want {
		t.Errorf("%s: %d indexes, expected %d", a.Bundle, len(copies), want)
	}
}

func TestOthersReadAllLevels(t *testing.T) {
	python(t)
	in, dir := tree(t, testkit.Rand(t)), t.TempDir()
	var bundles []string
	for compression, levels := range map[string][]string{"zlib": {"1", "2", "5", "7", "9", "best"}, "zstd": {"1", "6", "11", "22"}} {
		for _, level := range levels {
			bundles = append(bundles, pack(t, in, dir, param{"compression": compression, "level": level}))
		}
	}
	readsAll(t, bundles, "--source", in)
}

func TestOthersReadOddTrees(t *testing.T) {
	python(t)
	for what, make := range map[string]func(dir string) error{
		"nothing":         func(dir string) error { return nil },
		"an empty file":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "e"), nil, 0o644) },
		"an empty folder": func(dir string) error { return os.Mkdir(filepath.Join(dir, "d"), 0o755) },
		"zeros":           func(dir string) error { return os.WriteFile(filepath.Join(dir, "z"), make([]byte, 3<<20), 0o644) },
		"one byte":        func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), []byte("x"), 0o644) },
		"a link":          func(dir string) error { return os.Symlink("x", filepath.Join(dir, "l")) },
	} {
		t.Run(what, func(t *testing.T) {
			in, dir := t.TempDir(), t.TempDir()
			must(t, make(in))
			var bundles []string
			for compression := range codes {
				for _, more := range []param{{}, {"shards": "3"}, {"index": "inline"}, {"align": "1"}, {"shard-size": strconv.Itoa(1 << 20)}} {
					more["compression"] = compression
					bundles = append(bundles, pack(t, in, dir, more))
				}
			}
			readsAll(t, bundles, "--source", in)
		})
	}
}

// Many names make an index of many blocks, and shared beginnings of keys.
func TestOthersReadALongIndex(t *testing.T) {
	python(t)
	r := testkit.Rand(t)
	in := t.TempDir()
	for i := range 4_000 {
		p := filepath.Join(in, fmt.Sprintf("folder %d", i/200), fmt.Sprintf("%x-%d", r.Uint32()>>r.IntN(32), i))
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, content(r, r.IntN(60)), 0o644))
	}
	bundle := pack(t, in, t.TempDir(), param{"shards": "3", "record-size": "4096", "align": "1"})
	if a := readsAll(t, []string{bundle}, "--source", in)[0]; a.Entries != 4_020 || a.Records < 20 {
		t.Errorf("%+v", a)
	}
	rowsAgree(t, filepath.Join(bundle, "index"))
}

func TestOthersReadTheFixtures(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(fixtures, "*.expect.json"))
	must(t, err)
	if len(names) < 15 {
		t.Fatalf("%d fixtures", len(names))
	}
	var all, some, refused []string // LevelDB does not know all that dacha writes
	for _, name := range names {
		var expect struct{ Index string }
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &expect)
		}
		must(t, err)
		name = strings.TrimSuffix(name, ".expect.json")
		all = append(all, name)
		if strings.HasPrefix(expect.Index, "dacha-sst") {
			refused = append(refused, name)
		} else {
			some = append(some, name)
		}
	}
	readsAll(t, all, "--fixture", "--index", "pure")
	readsAll(t, some, "--fixture", "--index", "leveldb")
	if len(refused) == 0 {
		t.Error("no fixture has an index that LevelDB refuses")
	}
	for _, name := range refused {
		wantFault(t, read(t, "--fixture", "--index", "leveldb", name), "unknown tag")
	}
}

// indexes are of bundles that differ in what their rows are.
func indexes(t *testing.T) (dirs []string) {
	t.Helper()
	in, dir := tree(t, testkit.Rand(t)), t.TempDir()
	for compression := range codes {
		dirs = append(dirs, filepath.Join(pack(t, in, dir, param{"compression": compression, "shards": "3", "record-size": "4096"}), "index"))
	}
	return append(dirs, filepath.Join(pack(t, t.TempDir(), dir, param{}), "index"))
}

func TestOtherDatabasesReadTheIndex(t *testing.T) {
	python(t)
	for _, dir := range indexes(t) {
		rowsAgree(t, dir)
	}
}

// rowsAgree compares what LevelDB, goleveldb and RocksDB read in an index.
func rowsAgree(t *testing.T, dir string) {
	t.Helper()
	want := output(t, python(t), "-B", "read_bundle.py", "--rows", dir)
	if len(want) == 0 {
		t.Fatalf("%s: no rows", dir)
	}
	other := func(who string, got []byte) {
		if bytes.Equal(got, want) {
			return
		}
		t.Errorf("%s: %s reads %d rows, LevelDB %d, or they differ", dir, who, bytes.Count(got, []byte("\n")), bytes.Count(want, []byte("\n")))
	}
	work := filepath.Join(t.TempDir(), "index")
	must(t, os.CopyFS(work, os.DirFS(dir)))
	peers, err := goleveldb()
	must(t, err)
	other("goleveldb", output(t, peers, work))

	t.Run("RocksDB", func(t *testing.T) {
		ldb := testkit.Program(t, "ldb")
		var rows bytes.Buffer
		for line := range strings.Lines(string(output(t, ldb, "--db="+work, "--hex", "scan"))) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " :")
			k, err1 := hex.DecodeString(strings.TrimPrefix(key, "0x"))
			v, err2 := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(value), "0x"))
			if err1 != nil || err2 != nil {
				t.Fatalf("%s: ldb says %.80q", dir, line)
			}
			fmt.Fprintf(&rows, "%x %x\n", k, v)
		}
		other("RocksDB", rows.Bytes())
	})
}

func output(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, said.String())
	}
	return out
}

// goleveldb is the command that reads with it, which is built once for all tests.
var goleveldb = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "peers"); err != nil {
		return "", err
	}
	p := filepath.Join(built, "peers")
	cmd := exec.Command("go", "build", "-o", p, ".")
	cmd.Dir = "peers"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build peers: %w\n%s", err, out)
	}
	return p, nil
})

// built is the folder of what goleveldb has built.
var built string

func TestMain(m *testing.M) {
	testkit.Main(m, func() error {
		if built == "" {
			return nil
		}
		return os.RemoveAll(built)
	})
}

// The reader must be able to say no, or its yes means nothing.
func TestTheReaderSaysNo(t *testing.T) {
	python(t)
	r := testkit.Rand(t)
	in := testkit.Tree(t, t.TempDir(), map[string]string{"a": string(content(r, 300_000)), "b/c": string(content(r, 300_000)), "b/d": "", "e": "e"})
	shard := "shard-00000000"
	flip := func(name string, at func(n int) int) func(t *testing.T, bundle string) {
		return func(t *testing.T, bundle string) {
			p := filepath.Join(bundle, name)
			b, err := os.ReadFile(p)
			must(t, err)
			b[at(len(b))] ^= 1 << r.IntN(8)
			must(t, os.WriteFile(p, b, 0o666))
		}
	}
	first := func(int) int { return 4096 + 20 } // of the first record
	cases := []struct {
		what   string
		param  param
		damage func(t *testing.T, bundle string)
		says   string
	}{
		{"a bit of a zlib record", param{}, flip(shard, first), "record_corrupt|checksum_mismatch"},
		{"a bit of a snappy record", param{"compression": "snappy"}, flip(shard, first), "record_corrupt|checksum_mismatch|too_large"},
		{"a bit of a zstd record", param{"compression": "zstd"}, flip(shard, first), "record_corrupt|checksum_mismatch"},
		{"a bit of a file", param{"compression": "none"}, flip(shard, first), "checksum_mismatch"},
		{"a bit of a header", param{}, flip(shard, func(int) int { return 0 }), "shard"},
		{"a bit of padding", param{}, flip(shard, func(int) int { return 4095 }), "padding of the header"},
		{"a bit of an index", param{}, flip("index/000004.sst", func(n int) int { return n / 2 }), "index_corrupt"},
		{"a bit of a manifest", param{}, flip("index/MANIFEST-000002", func(n int) int { return n / 2 }), "index_corrupt"},
		{"a bit of a copy", param{}, flip("index-copy-1/000004.sst", func(n int) int { return n / 2 }), "index_corrupt"},
		{"a shard too few", param{"shards": "2", "record-size": "4096"}, func(t *testing.T, b string) { must(t, os.Remove(filepath.Join(b, "shard-00000001"))) }, "shard_missing"},
		{"a byte too many", param{}, func(t *testing.T, b string) {
			f, err := os.OpenFile(filepath.Join(b, shard), os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.Write([]byte{0})
			must(t, err)
			must(t, f.Close())
		}, "after them"},
		{"a shard cut off", param{}, func(t *testing.T, b string) {
			must(t, os.Truncate(filepath.Join(b, shard), 4096))
		}, "shard_truncated"},
	}
	var bundles []string
	for _, c := range cases {
		bundles = append(bundles, pack(t, in, t.TempDir(), c.param))
	}
	readsAll(t, bundles, "--source", in)
	for i, c := range cases {
		c.damage(t, bundles[i])
	}
	for i, a := range read(t, append([]string{"--source", in}, bundles...)...) {
		t.Run(cases[i].what, func(t *testing.T) { wantFault(t, []answer{a}, cases[i].says) })
	}
}

func TestTheReaderSeesThatTheSourceDiffers(t *testing.T) {
	python(t)
	in := tree(t, testkit.Rand(t))
	bundle := pack(t, in, t.TempDir(), param{})
	in2 := func(name string) string { return filepath.Join(in, name) }
	// Each change stays; the reader's list of faults has room for all of them.
	for _, c := range []struct {
		what   string
		change func() error
		says   string
	}{
		{"another file", func() error { return os.WriteFile(in2("new"), nil, 0o644) }, "b'new': missing"},
		{"a file less", func() error { return os.Remove(in2("names/-")) }, "b'names/-': not in the source"},
		{"other times", func() error { return os.Chtimes(in2("noise"), time.Time{}, time.Unix(1, 1)) }, "b'noise': attributes"},
		{"another mode", func() error { return os.Chmod(in2("empty folder"), 0o700) }, "b'empty folder': attributes"},
		{"another link", func() error {
			if err := os.Remove(in2("small/link")); err != nil {
				return err
			}
			return os.Symlink("../names/b", in2("small/link"))
		}, "b'small/link': "},
		{"a byte of a file", func() error {
			if err := os.Chmod(in2("zeros/1"), 0o600); err != nil {
				return err
			}
			return os.WriteFile(in2("zeros/1"), []byte("x"), 0)
		}, "b'zeros/1': 1 bytes, in the source 1, or others"},
	} {
		must(t, c.change())
		t.Log(c.what)
		wantFault(t, read(t, "--source", in, bundle), c.says)
	}
}

func wantFault(t *testing.T, all []answer, says string) {
	t.Helper()
	if len(all) != 1 || len(all[0].Faults) == 0 {
		t.Fatalf("nobody notices: %+v", all)
	}
	for _, word := range strings.Split(says, "|") {
		if slices.ContainsFunc(all[0].Faults, func(f string) bool { return strings.Contains(f, word) }) {
			return
		}
	}
	t.Errorf("expected %s, found %q", says, all[0].Faults)
}
