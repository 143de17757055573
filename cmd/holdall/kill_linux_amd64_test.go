package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

func init() { commands["dies"] = dies }

// dies FILE N ARGS…: runs holdall, and kills it just before its N-th system
// call that changes a file. It writes the number of changes to FILE.
func dies() {
	at, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	runtime.LockOSThread() // the one that traces
	cmd := itself(nil, os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	var ws syscall.WaitStatus
	pid := cmd.Process.Pid
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
		panic(err)
	}
	const exitKill = 1 << 20
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill); err != nil {
		panic(err)
	}
	_ = syscall.PtraceSyscall(pid, 0)
	known := map[int]bool{}
	n, code := 0, 137
	for {
		w, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			break // everything of it is gone
		}
		if ws.Exited() && w == pid {
			code = ws.ExitStatus()
		}
		if !ws.Stopped() {
			continue
		}
		signal := 0
		switch sig := ws.StopSignal(); {
		case sig == syscall.SIGTRAP|0x80:
			var regs syscall.PtraceRegs
			if syscall.PtraceGetRegs(w, &regs) == nil && int64(regs.Rax) == -int64(syscall.ENOSYS) && changes(&regs) {
				if n++; n == at {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		case sig == syscall.SIGSTOP && !known[w]:
			known[w] = true // a new thread
		case sig != syscall.SIGTRAP:
			signal = int(sig)
		}
		_ = syscall.PtraceSyscall(w, signal)
	}
	if err := os.WriteFile(os.Args[1], []byte(strconv.Itoa(n)), 0o666); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// changes reports whether a system call that is about to start changes a file.
func changes(r *syscall.PtraceRegs) bool {
	const renameat2, copyFileRange = 316, 326
	switch r.Orig_rax {
	case syscall.SYS_OPENAT:
		return r.Rdx&(syscall.O_CREAT|syscall.O_TRUNC) != 0
	case syscall.SYS_WRITE, syscall.SYS_PWRITE64:
		return r.Rdi > 2 && r.Rdx != 8 // neither standard output and error nor wake-ups of the runtime
	case syscall.SYS_FTRUNCATE, syscall.SYS_FALLOCATE, syscall.SYS_FSYNC, syscall.SYS_FCHMOD, syscall.SYS_FCHOWN,
		syscall.SYS_RENAMEAT, renameat2, syscall.SYS_UNLINKAT, syscall.SYS_MKDIRAT, syscall.SYS_LINKAT, syscall.SYS_SYMLINKAT,
		syscall.SYS_FCHOWNAT, syscall.SYS_FCHMODAT, syscall.SYS_UTIMENSAT, syscall.SYS_SENDFILE, copyFileRange:
		return true
	}
	return false
}

// itself returns a command that runs the test binary as holdall, or as another
// of its commands.
func itself(t *testing.T, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	if cmd.Args[0] = "holdall"; t != nil && args[0] == "dies" {
		cmd.Args = args
	}
	return cmd
}

// A killing is a command that is killed repeatedly.
type killing struct {
	name  string
	setup []string // commands that prepare the command's input from data, a folder
	args  string
	// sound is an archive whose bytes may differ between runs. Its readable
	// content is compared instead, and it must have no errors.
	sound string
	view  string
	// errors is the number of errors that the archive begins with and keeps. It is
	// then compared by exports.
	errors int
	// whole are folders that must appear whole.
	whole string
	// onlyOnce is set if the command refuses to run a second time.
	onlyOnce bool
	// partly is a file that is changed in place: parts of it may be old, and parts
	// new.
	partly string
	// parity is the parity file that the command writes for its archive. It
	// records the time when the archive was written.
	parity, of string
}

var killings = []killing{
	{name: "pack caf", args: "pack -o x.caf data"},
	{name: "pack caf over another", setup: []string{"pack -o x.caf data/b"}, args: "pack -o x.caf data"},
	{name: "pack chunks", args: "pack -o x.caf --chunk-size 20kB data"},
	{name: "pack lindi", args: "pack -o x.lindi.tar data"},
	{name: "pack lindi folder", args: "pack -o x.lindi.d data", whole: "x.lindi.d", onlyOnce: true},
	{name: "pack rvn", args: "pack -o x.rvn data"},
	{name: "pack databundle", args: "pack -o x.bundle --shards 2 data", whole: "x.bundle", onlyOnce: true},
	{name: "pack oak", args: "pack -f oak --time 2026-01-02T15:04:05Z -o store data", whole: "store", onlyOnce: true},
	{name: "pack zip", args: "pack -o x.zip data"},
	{name: "pack tar", args: "pack -o x.tar data"},
	{name: "pack tar.zst", args: "pack -o x.tar.zst data"},
	{name: "convert to a bundle", setup: []string{"pack -o x.caf data"}, args: "convert x.caf x.bundle", whole: "x.bundle", onlyOnce: true},
	{name: "convert to zip", setup: []string{"pack -o x.tar data"}, args: "convert x.tar x.zip"},
	{name: "convert to chunks", setup: []string{"pack -o x.tar data"}, args: "convert x.tar x.caf --chunk-size 20kB"},
	{name: "extract", setup: []string{"pack -o x.tar data"}, args: "extract x.tar -C out --overwrite"},
	{name: "extract over others", setup: []string{"pack -o x.bundle data", "extract x.bundle -C out"}, args: "extract x.bundle -C out --overwrite"},
	{name: "index", setup: []string{"pack -o x.caf data"}, args: "index x.caf"},
	{name: "index with digests", setup: []string{"pack -o x.zip data"}, args: "index --chunk-digests x.zip"},
	{name: "sync", setup: []string{"pack -o y.caf data", "pack -o x.caf data/b"}, args: "sync y.caf x.caf"},
	{name: "sync with an index", setup: []string{"pack -o x.zip data", "pack -o old.zip data/b", "index --chunk-digests x.zip"}, args: "sync x.zip old.zip -o y.zip"},
	{name: "sync of a folder", setup: []string{"pack -o x.bundle --shards 2 data", "pack -o old.bundle data/b", "index --chunk-digests x.bundle"}, args: "sync x.bundle old.bundle -o y.bundle", whole: "y.bundle", onlyOnce: true},
	{name: "add", setup: []string{"pack -o x.lindi.tar data/b"}, args: "lindi add x.lindi.tar data/a", sound: "x.lindi.tar", onlyOnce: true},
	{name: "add to a folder", setup: []string{"pack -o x.lindi.d data/b"}, args: "lindi add x.lindi.d data/a"},
	{name: "add keys", setup: []string{"pack -o x.lindi.d data/b"}, args: "lindi add --view zarr x.lindi.d data/a", sound: "x.lindi.d", view: "zarr"},
	{name: "add from another", setup: []string{"pack -o x.lindi.tar data/b", "!hdf5"}, args: "lindi add x.lindi.tar --from x.h5", sound: "x.lindi.tar", view: "zarr", onlyOnce: true},
	{name: "add from another to a folder", setup: []string{"pack -o x.lindi.d data/b", "!hdf5"}, args: "lindi add x.lindi.d --from x.h5", sound: "x.lindi.d", view: "zarr"},
	{name: "convert to runs", setup: []string{"!hdf5"}, args: "convert --consolidate 2000 x.h5 x.lindi.tar"},
	{name: "convert to zarr", setup: []string{"!hdf5"}, args: "convert x.h5 x.zarr", whole: "x.zarr", onlyOnce: true},
	{name: "rm", setup: []string{"pack -o x.lindi.tar data"}, args: "lindi rm x.lindi.tar b/1 b/4", sound: "x.lindi.tar", onlyOnce: true},
	{name: "rm of keys", setup: []string{"pack -o x.lindi.d data/b", "lindi add --view zarr x.lindi.d data/a"}, args: "lindi rm --view zarr x.lindi.d 3 6", sound: "x.lindi.d", view: "zarr"},
	{name: "mv", setup: []string{"pack -o x.lindi.tar data"}, args: "lindi mv x.lindi.tar b/1 b/one", sound: "x.lindi.tar", onlyOnce: true},
	{name: "repair caf", setup: []string{"pack -o x.caf data", "!chop x.caf"}, args: "repair x.caf -o y.caf"},
	{name: "repair bundle", setup: []string{"pack -o x.bundle data", "!zero x.bundle/index/MANIFEST-000002"}, args: "repair x.bundle -o y.bundle", whole: "y.bundle", onlyOnce: true},
	{name: "repair lindi", setup: []string{"pack -o x.lindi.tar data", "!cut x.lindi.tar"}, args: "repair x.lindi.tar -o y.lindi.tar"},
	{name: "repair rvn", setup: []string{"pack -o x.rvn data", "!flip x.rvn"}, args: "repair x.rvn -o y.rvn"},
	{name: "repair oak", setup: []string{"pack -f oak --time 2026-01-02T15:04:05Z -o store data", "!cut store/data00000a.tar"}, args: "repair store -o better", whole: "better", onlyOnce: true},
	{name: "repair caf in place", setup: []string{"pack -o x.caf data", "!chop x.caf"}, args: "repair --in-place x.caf"},
	{name: "repair bundle in place", setup: []string{"pack -o x.bundle --shards 2 data", "!zero x.bundle/index/MANIFEST-000002", "!zero x.bundle/shard-00000001"}, args: "repair --in-place x.bundle"},
	{name: "repair lindi in place", setup: []string{"pack -o x.lindi.tar data", "!cut x.lindi.tar"}, args: "repair --in-place x.lindi.tar"},
	{name: "repair zip in place", setup: []string{"pack -o x.zip data", "!cut x.zip"}, args: "repair --in-place x.zip"},
	{name: "repair tar in place", setup: []string{"pack -o x.tar data", "!cut x.tar"}, args: "repair --in-place x.tar"},
	{name: "repair rvn in place", setup: []string{"pack -o x.rvn data", "!flip x.rvn"}, args: "repair --in-place x.rvn"},
	{name: "repair oak in place", setup: []string{"!oak cleanup-pending", "!cut segmentstore/data00001a.tar", "!chop segmentstore/data00003a.tar"}, args: "repair --in-place segmentstore"},
	{name: "protect", setup: []string{"pack -o x.caf data"}, args: "protect x.caf", parity: "x.caf.parity", of: "x.caf"},
	{name: "protect again", setup: []string{"pack -o x.caf data", "protect --loss 20% x.caf"}, args: "protect x.caf", parity: "x.caf.parity", of: "x.caf"},
	{name: "repair by parity", setup: []string{"pack -o x.tar data", "protect --loss 30% x.tar", "!flip x.tar", "!chop x.tar"}, args: "repair x.tar -o y.tar"},
	{name: "repair by parity in place", setup: []string{"pack -o x.tar data", "protect --loss 30% x.tar", "!flip x.tar", "!zero x.tar", "!cut x.tar"}, args: "repair --in-place x.tar", partly: "x.tar"},
	{name: "repair bundle by parity in place", setup: []string{"pack -o x.bundle --shards 5 data", "protect --loss 50% x.bundle", "!rm x.bundle/index/MANIFEST-000002", "!rm x.bundle/shard-00000001", "!flip x.bundle/shard-00000002"}, args: "repair --in-place x.bundle", partly: "x.bundle/shard-00000002"},
	{name: "oak compact", setup: []string{"!oak compacted-offline"}, args: "oak compact segmentstore -o new", whole: "new", sound: "new", onlyOnce: true},
	{name: "oak cleanup", setup: []string{"!oak cleanup-pending"}, args: "oak cleanup segmentstore", sound: "segmentstore"},
	{name: "oak checkpoints rm", setup: []string{"!oak checkpoints"}, args: "oak checkpoints rm --all segmentstore", sound: "segmentstore"},
	{name: "oak set", setup: []string{"!oak wide"}, args: "oak set segmentstore /wide title one two", sound: "segmentstore"},
	{name: "oak rm", setup: []string{"!oak gc-online"}, args: "oak rm segmentstore /content", sound: "segmentstore", onlyOnce: true},
	{name: "oak replace", setup: []string{"!oak gc-online", "oak backup segmentstore old", "oak rm segmentstore /content"}, args: "oak replace segmentstore /content --from old", sound: "segmentstore"},
	{name: "oak backup", setup: []string{"!oak gc-online", "oak backup segmentstore old", "oak set segmentstore / x y"}, args: "oak backup segmentstore old", sound: "old"},
	{name: "oak restore", setup: []string{"!oak gc-online", "oak backup segmentstore old", "oak rm segmentstore /content"}, args: "oak restore old segmentstore", sound: "segmentstore"},
	{name: "oak check --fix", setup: []string{"!oak corrupt-value"}, args: "oak check --fix segmentstore", sound: "segmentstore", errors: 1},
	{name: "oak check --fix-journal", setup: []string{"!oak corrupt-segment-magic"}, args: "oak check --fix-journal segmentstore", sound: "segmentstore", errors: 9},
	{name: "oak copy", setup: []string{"!oak gc-online", "oak copy segmentstore new", "oak set segmentstore / x y"}, args: "oak copy segmentstore new", sound: "new"},
	{name: "oak recover-journal", setup: []string{"!oak checkpoints", "!rm segmentstore/journal.log"}, args: "oak recover-journal segmentstore"},
	{name: "oak export", setup: []string{"!oak checkpoints"}, args: "oak export segmentstore -o x.jsonl"},
	{name: "oak import", setup: []string{"!oak checkpoints", "oak export segmentstore -o x.jsonl", "!rm segmentstore"}, args: "oak import x.jsonl -o s2", whole: "s2", sound: "s2", onlyOnce: true},
}

// TestKilledCommands kills commands at random. Each file under a final name
// must be whole, the same command must succeed when it is run again, or name
// the one that completes it, and nothing of the first run may be left. Each run takes 12 other commands.
// HOLDALL_LONG is the number of rounds for each of all commands.
func TestKilledCommands(t *testing.T) {
	testkit.Serial(t)
	testkit.Long(t)
	rounds, chosen := 1, slices.Clone(killings)
	if n, err := strconv.Atoi(os.Getenv("HOLDALL_LONG")); err == nil {
		rounds = n
	} else {
		testkit.Rand(t).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:12]
	}
	for _, k := range chosen {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rnd := testkit.Rand(t)
			before := k.begin(t, rnd)
			after := again(t, before)
			n, code, out := k.dies(t, after, 0)
			if n == 0 || code > 1 {
				t.Fatalf("exit code %d, %d changes: %s", code, n, out)
			}
			for range rounds {
				dir := again(t, before)
				at := 1 + rnd.IntN(n)
				if _, died, _ := k.dies(t, dir, at); died != 137 && died != code {
					t.Fatalf("killed at %d of %d: exit code %d", at, n, died)
				}
				k.check(t, dir, before, after, code)
				if t.Failed() {
					t.Fatalf("killed at %d of %d", at, n)
				}
				os.RemoveAll(dir)
			}
		})
	}
}

// check examines what a killed command has left, and runs the command again.
func (k *killing) check(t *testing.T, dir, before, after string, code int) {
	t.Helper()
	left, was, want := everythingIn(t, dir), everythingIn(t, before), everythingIn(t, after)
	for name, sum := range left {
		if !k.aside(name) && name != k.partly && !strings.Contains(name, ".holdall-") && sum != was[name] && sum != want[name] {
			t.Errorf("%s is neither as before nor as after", name)
		}
	}
	for name := range was {
		if want[name] != "" && left[name] == "" {
			t.Errorf("%s is gone", name)
		}
	}
	if k.whole != "" {
		if n := below(left, k.whole); n > 0 && n != below(want, k.whole) {
			t.Errorf("%s is there with %d of %d files", k.whole, n, below(want, k.whole))
		}
	}
	k.isSound(t, dir, before, after)
	if name := "x-00001.caf"; left[name] != "" {
		all := true
		for name := range want {
			all = all && left[name] != ""
		}
		if code, out := runs(t, dir, "verify", name); code == 0 != all {
			t.Errorf("a set of which all are there: %v; verify: exit code %d, %s", all, code, out)
		}
	}
	protects := func() bool {
		code, out := runs(t, dir, "verify", k.of)
		return code == 0 && strings.Contains(out, "protected by")
	}
	if left[k.parity] != "" && !protects() {
		t.Errorf("what is called %s does not protect", k.parity)
	}
	done := k.onlyOnce && below(left, k.whole) > 0 || k.sound != "" && k.isAs(t, dir, after) || same(tidy(left), want)
	got, out := runs(t, dir, strings.Fields(k.args)...)
	if got > 1 && strings.Contains(out, "'holdall oak recover-journal' goes on") { // its tar is there, and no line of the journal
		if got, out = runs(t, dir, "oak", "recover-journal", k.sound); got == 0 {
			got = code
		}
	}
	if got != code && !done {
		t.Errorf("again: exit code %d, expected %d: %s", got, code, out)
	}
	k.isSound(t, dir, after)
	if k.parity != "" && !protects() {
		t.Errorf("after it again, %s is not protected", k.of)
	}
	now := everythingIn(t, dir)
	for name, sum := range now {
		refused := (got > 1 || done && k.partly != "") && strings.HasSuffix(name, ".holdall-lock")
		kept := done && strings.Contains(name, ".bak.") // it wrote this itself
		if !k.aside(name) && want[name] != sum && !refused && !kept {
			t.Errorf("after it again, %s is another or should not be there", name)
		}
	}
	for name := range want {
		if now[name] == "" && !k.aside(name) {
			t.Errorf("after it again, %s is not there", name)
		}
	}
}

// aside reports whether a file is left out of the byte comparison: its archive
// is compared by content, or it is a file that Oak leaves, too.
func (k *killing) aside(name string) bool {
	root, _, _ := strings.Cut(name, "/")
	// Scratch files lose their names as soon as they are open.
	return root == k.sound || name == k.parity || strings.HasPrefix(name, "tmp/holdall-scratch-") || strings.HasSuffix(name, "/repo.lock") || strings.HasSuffix(name, ".jsonl.part")
}

// isSound requires that the archive that is compared by content has no errors,
// and has the content that it has in one of the folders.
func (k *killing) isSound(t *testing.T, dir string, as ...string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, k.sound)); k.sound == "" || err != nil {
		return
	}
	if code, out := runs(t, dir, "verify", k.sound); code > 1 || strings.Count("\n"+out, "\nerror") > k.errors {
		t.Errorf("verify: exit code %d, %s", code, out)
	}
	for _, folder := range as {
		if k.isAs(t, dir, folder) {
			return
		}
	}
	t.Errorf("%s is as at no other time", k.sound)
}

func (k *killing) isAs(t *testing.T, dir, folder string) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, k.sound)); err != nil {
		return false
	}
	if k.errors > 0 {
		_, is := runs(t, dir, "oak", "export", "--quiet", k.sound)
		_, want := runs(t, folder, "oak", "export", "--quiet", k.sound)
		return is == want
	}
	code, _ := runs(t, dir, "diff", "--view="+k.view, k.sound, filepath.Join(folder, k.sound))
	return code == 0
}

// tidy returns a state without temporary and scratch files, and without the
// file that Oak locks and leaves.
func tidy(state map[string]string) map[string]string {
	all := map[string]string{}
	for name, sum := range state {
		if !strings.Contains(name, ".holdall-") && !strings.HasSuffix(name, "/repo.lock") && !strings.HasPrefix(name, "tmp/holdall-scratch-") {
			all[name] = sum
		}
	}
	return all
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, sum := range a {
		if b[name] != sum {
			return false
		}
	}
	return true
}

func below(state map[string]string, folder string) (n int) {
	for name := range state {
		if strings.HasPrefix(name, folder+"/") {
			n++
		}
	}
	return n
}

// begin creates the files that a command begins with.
func (k *killing) begin(t *testing.T, rnd *rand.Rand) string {
	dir := t.TempDir()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("data/%c/%d", "abc"[i%3], i)] = string(testkit.Noise(rnd, 1<<rnd.IntN(14))) + strings.Repeat("text ", 1000)
	}
	testkit.Tree(t, dir, files)
	must(os.Mkdir(filepath.Join(dir, "tmp"), 0o777))
	for _, s := range k.setup {
		words := strings.Fields(s)
		switch words[0] {
		case "!cut":
			p := filepath.Join(dir, words[1])
			info, err := os.Stat(p)
			must(err)
			must(os.Truncate(p, info.Size()*3/4&^511+100)) // a tar that ends after a member looks whole
		case "!chop":
			p := filepath.Join(dir, words[1])
			info, err := os.Stat(p)
			must(err)
			must(os.Truncate(p, info.Size()-100))
		case "!flip":
			p := filepath.Join(dir, words[1])
			b, err := os.ReadFile(p)
			must(err)
			b[len(b)/2] ^= 4
			must(os.WriteFile(p, b, 0o666))
		case "!zero":
			f, err := os.OpenFile(filepath.Join(dir, words[1]), os.O_WRONLY, 0)
			must(err)
			_, err = f.Write(make([]byte, 20))
			must(err)
			must(f.Close())
		case "!rm":
			must(os.RemoveAll(filepath.Join(dir, words[1])))
		case "!hdf5":
			b, err := os.ReadFile("../../format/lindi/testdata/p07_source.h5")
			must(err)
			must(os.WriteFile(filepath.Join(dir, "x.h5"), b, 0o666))
		case "!oak":
			must(testkit.Unpack("../../internal/oak/testdata/"+words[1]+".tar.gz", dir))
		default:
			if code, out := runs(t, dir, words...); code != 0 {
				t.Fatalf("%s: exit code %d, %s", s, code, out)
			}
		}
	}
	return dir
}

// again is a copy of a folder.
func again(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// runs runs holdall, and returns its exit code and output.
func runs(t *testing.T, dir string, args ...string) (code int, out string) {
	t.Helper()
	cmd := itself(t, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "tmp"))
	b, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(bytes.TrimSpace(b))
}

// dies runs the command and kills it at its n-th change. It returns how many
// changes the command made.
func (k *killing) dies(t *testing.T, dir string, at int) (n, code int, out string) {
	t.Helper()
	count := filepath.Join(t.TempDir(), "count")
	code, out = runs(t, dir, slices.Concat([]string{"dies", count, strconv.Itoa(at)}, strings.Fields(k.args))...)
	b, err := os.ReadFile(count)
	if err == nil {
		n, err = strconv.Atoi(string(b))
	}
	if err != nil {
		t.Fatalf("%v: exit code %d, %s", err, code, out)
	}
	return n, code, out
}

// everythingIn returns the files in a folder, with digests of their contents.
func everythingIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		switch {
		case d.IsDir() && strings.Contains(name, ".holdall-"), d.IsDir() && filepath.Dir(name) == "tmp":
			all[name] = "a folder"
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			all[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
