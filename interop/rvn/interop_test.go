//go:build linux

// Package rvn_test lets readers other than ours read the packages that we write: one that follows
// the rules of the reference's reader, with libzstd, and the reference itself if it is available.
//
// It contains only tests; nothing can be imported from here. It runs if HOLDALL_RVN_PYTHON names
// a python that has what ../install rvn installs; ./check does both. The reference is in no
// package registry: HOLDALL_PACKRVN and HOLDALL_XRVN name it if it has been built.
package rvn_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	_ "github.com/holdall/holdall/format/all"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	_ "github.com/holdall/holdall/store/all"
)

func python(t *testing.T) string {
	t.Helper()
	return testkit.Needs(t, "HOLDALL_RVN_PYTHON")
}

// record is what the other reader says of one.
type record struct {
	Path    string
	Kind    string
	Mode    uint32
	Owner   string
	Group   string
	Seconds int64
	Nanos   int64
	Size    int64
	Link    string
	Digest  string
}

func readAsXrvn(t *testing.T, archive string) (metadata string, records []record) {
	t.Helper()
	cmd := exec.Command(python(t), "read_as_xrvn.py", archive)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", archive, err, said.String())
	}
	var all struct {
		Metadata string
		Records  []record
	}
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all.Metadata, all.Records
}

// tree makes a folder of all that a package can hold.
func tree(t *testing.T, files, size int) string {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	words := strings.Fields("package import return func string error context archive section index header content of the a to in")
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%7), fmt.Sprintf("e%d", i%3))
		must(os.MkdirAll(sub, 0o755))
		var b bytes.Buffer
		for n := rnd.IntN(size); b.Len() < n; {
			switch rnd.IntN(40) {
			case 0:
				b.Write(bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(5000)))
			case 1:
				b.Write(binary.LittleEndian.AppendUint64(nil, rnd.Uint64()))
			default:
				b.WriteString(words[rnd.IntN(len(words))] + " ")
			}
		}
		name := filepath.Join(sub, fmt.Sprintf("f%d", i))
		must(os.WriteFile(name, b.Bytes(), fs.FileMode(0o600+rnd.IntN(0o77))))
		must(os.Chtimes(name, time.Time{}, time.Unix(rnd.Int64N(2e9), rnd.Int64N(1e9))))
	}
	must(os.Mkdir(filepath.Join(dir, "empty folder"), 0o711))
	must(os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644))
	must(os.WriteFile(filepath.Join(dir, "latin1-\xe9"), []byte("raw name"), 0o644))
	must(os.Symlink("../dangling", filepath.Join(dir, "d0", "link")))
	must(os.Link(filepath.Join(dir, "empty"), filepath.Join(dir, "d0", "also empty")))
	must(os.Link(filepath.Join(dir, "d0", "e0", "f0"), filepath.Join(dir, "zz")))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o640))
	return dir
}

func pack(t *testing.T, dir string, o holdall.PackOptions) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.rvn")
	if _, err := holdall.Pack(t.Context(), out, []string{dir}, o); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOthersReadWhatWeWrite(t *testing.T) {
	for _, c := range []struct {
		name        string
		files, size int
		param       map[string]string
	}{
		{"small", 20, 500, nil},
		{"sections", 300, 60_000, map[string]string{"sections": "65536"}},
		{"usual sections", 300, 60_000, nil},
		{"long files over sections", 12, 3_000_000, nil},
		{"best", 100, 60_000, map[string]string{"level": "best", "sections": "262144"}},
		{"fastest", 100, 60_000, map[string]string{"level": "fastest", "sections": "131072"}},
		{"one frame", 300, 60_000, map[string]string{"sections": "none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			python(t)
			dir := tree(t, c.files, c.size)
			archive := pack(t, dir, holdall.PackOptions{Param: c.param})
			_, records := readAsXrvn(t, archive)
			wantTree(t, dir, records)
			decodeWithCommand(t, archive)
		})
	}
}

// wantTree compares records with what lies on disk.
func wantTree(t *testing.T, dir string, records []record) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range records {
		path := filepath.Join(dir, unescape(r.Path))
		seen[path] = true
		info, err := os.Lstat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if r.Mode != st.Mode&0o7777 || r.Seconds != st.Mtim.Sec || r.Nanos != st.Mtim.Nsec {
			t.Errorf("%q: %+v; on disk %o, %d.%d", path, r, st.Mode, st.Mtim.Sec, st.Mtim.Nsec)
		}
		want := map[fs.FileMode]string{0: "file", fs.ModeDir: "dir", fs.ModeSymlink: "symlink", fs.ModeNamedPipe: "fifo"}[info.Mode().Type()]
		if r.Kind != want && (r.Kind != "hardlink" || want != "file") {
			t.Errorf("%q is a %s, on disk a %s", path, r.Kind, want)
		}
		if want == "file" {
			b, err := os.ReadFile(path)
			sum := blake3.Sum256(b)
			if err != nil || r.Digest != hex.EncodeToString(sum[:]) || r.Kind == "file" && r.Size != int64(len(b)) {
				t.Errorf("%q: content differs: %v", path, err)
			}
		}
		if to, _ := os.Readlink(path); want == "symlink" && to != r.Link {
			t.Errorf("%q leads to %q, on disk to %q", path, r.Link, to)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path != dir && !seen[path] {
			t.Errorf("%q is not there", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// unescape turns Python's surrogates, as encoding/json reads them, into bytes:
// only the one that the tree has.
func unescape(s string) string { return strings.ReplaceAll(s, "latin1-\ufffd", "latin1-\xe9") }

// decodeWithCommand lets the zstd command decode the contents, where it is
// installed; libzstd has done so already.
func decodeWithCommand(t *testing.T, archive string) {
	t.Helper()
	zstd, err := exec.LookPath("zstd")
	if err != nil {
		t.Log("no zstd command")
		return
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	off := 64 + binary.LittleEndian.Uint32(b[16:]) + binary.LittleEndian.Uint32(b[20:])
	flat := binary.LittleEndian.Uint64(b[40:])
	cmd := exec.Command(zstd, "-dc")
	cmd.Stdin = bytes.NewReader(b[off:])
	out, err := cmd.Output()
	if err != nil || uint64(len(out)) != flat {
		t.Errorf("zstd decodes %d bytes of %d: %v", len(out), flat, err)
	}
}

// An index that is long and compresses well takes xrvn down a path that ends on
// its stack, unless it is padded.
func TestALongIndexIsReadable(t *testing.T) {
	python(t)
	dir := t.TempDir()
	for i := range 14_000 { // with long names, which need fewer files
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0240d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive := pack(t, dir, holdall.PackOptions{Time: time.Unix(1_700_000_000, 0)})
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if flat := binary.LittleEndian.Uint32(b[36:]); flat < 4_160_000 {
		t.Fatalf("only %d bytes of index", flat)
	}
	if _, records := readAsXrvn(t, archive); len(records) != 14_000 {
		t.Errorf("%d records", len(records))
	}
}

func TestOthersReadWhatWeRepaired(t *testing.T) {
	python(t)
	dir := tree(t, 80, 20_000)
	b, err := os.ReadFile(pack(t, dir, holdall.PackOptions{Param: map[string]string{"sections": "65536"}}))
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	for round := range 8 {
		damaged := bytes.Clone(b)
		for range 1 + round {
			damaged[64+rnd.IntN(len(b)-64)] ^= 1 << rnd.IntN(8)
		}
		in, out := filepath.Join(t.TempDir(), "in.rvn"), filepath.Join(t.TempDir(), "out.rvn")
		if err := os.WriteFile(in, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if !repair(t, in, out) {
			continue
		}
		if _, records := readAsXrvn(t, out); len(records) == 0 || len(records) != len(entries(t, out)) {
			t.Errorf("round %d: others read %d records, we %d", round, len(records), len(entries(t, out)))
		}
	}
}

// The reference, where there is one.
func TestTheReferenceExtractsWhatWeWrite(t *testing.T) {
	xrvn := testkit.Needs(t, "HOLDALL_XRVN")
	for _, sections := range []string{"65536", "1048576", "none"} {
		dir := tree(t, 300, 60_000)
		archive := pack(t, dir, holdall.PackOptions{Param: map[string]string{"sections": sections}})
		into := t.TempDir()
		if out, err := exec.Command(xrvn, "-x", "-q", "-o", into, archive).CombinedOutput(); err != nil {
			t.Errorf("xrvn: %v\n%s", err, out)
		}
		if out, err := exec.Command("diff", "-r", "--no-dereference", "--exclude=fifo", dir, into).CombinedOutput(); err != nil {
			t.Errorf("sections %s: %v\n%s", sections, err, out)
		}
	}
}

func TestWeReadWhatTheReferenceWrites(t *testing.T) {
	packrvn := testkit.Needs(t, "HOLDALL_PACKRVN")
	dir, to := tree(t, 300, 60_000), t.TempDir()
	if out, err := exec.Command(packrvn, "-q", "-r", dir, "-o", to, "theirs").CombinedOutput(); err != nil {
		t.Fatalf("packrvn: %v\n%s", err, out)
	}
	theirs, ours := entries(t, filepath.Join(to, "theirs.rvn")), entries(t, pack(t, dir, holdall.PackOptions{}))
	if !slices.Equal(theirs, ours) {
		for i := range min(len(theirs), len(ours)) {
			if theirs[i] != ours[i] {
				t.Fatalf("record %d: the reference has\n%s, we have\n%s", i, theirs[i], ours[i])
			}
		}
		t.Errorf("the reference has %d records, we have %d", len(theirs), len(ours))
	}
}

// entries are an archive's, in words.
func entries(t *testing.T, archive string) (out []string) {
	t.Helper()
	a, err := holdall.Open(t.Context(), archive, holdall.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for e, err := range a.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s %v %s:%s %v %d %s %q", e.Kind, format.Escape(e.Name), e.Mode, e.Owner, e.Group, e.ModTime, e.Size, e.Digest, e.Link))
	}
	return out
}

func open(t *testing.T, path string) (store.Store, string) {
	t.Helper()
	st, name, err := store.OpenAddress(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return st, name
}

// repair repairs an archive and says whether it could be.
func repair(t *testing.T, in, out string) bool {
	t.Helper()
	st, name := open(t, in)
	plan, err := holdall.Repair(t.Context(), name, holdall.RepairOptions{OpenOptions: holdall.OpenOptions{Store: st}})
	if err != nil {
		return false
	}
	outStore, outName := open(t, out)
	if err := plan.ApplyStore(t.Context(), outStore, outName); err != nil {
		t.Fatal(err)
	}
	return true
}
