package rescue

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/local"
)

// The tests here ask the reference implementation. They run where HOLDALL_OAK_CHECK
// names the program that interop/install oak makes.
const checkVar = "HOLDALL_OAK_CHECK"

// oak is one process of the program, that takes commands for as long as it lives.
type oak struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startOak(t *testing.T) *oak {
	t.Helper()
	program := os.Getenv(checkVar)
	if program == "" {
		t.Skip(checkVar + " is not set: the reference is not asked. interop/install oak prints what to set it to")
	}
	o := &oak{cmd: exec.Command(program, "batch")}
	o.cmd.Stderr = os.Stderr
	var err error
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.out = bufio.NewReader(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(o.in.Close(), o.cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	return o
}

// answer is what the program says to a command.
type answer struct {
	OK     bool
	Faults []string
	Error  string
	all    []byte
}

func (o *oak) run(t *testing.T, words ...string) (a answer) {
	t.Helper()
	line, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if a.all, err = o.out.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(a.all, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func (o *oak) well(t *testing.T, words ...string) answer {
	t.Helper()
	a := o.run(t, words...)
	if !a.OK {
		t.Errorf("%s\n%s", strings.Join(words, " "), strings.Join(append(a.Faults, a.Error), "\n"))
	}
	return a
}

// recoverStore does to a store on disk what a program would: it plans the recovery of
// each number of which there is no letter that is sound, writes it, and moves what was
// there out of the way.
func recoverStore(t *testing.T, dir string) (numbers int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	tars := map[string][]byte{}
	for _, f := range files {
		if tars[filepath.Base(f)], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	m := newMemory(tars)
	for _, number := range m.numbers() {
		p, e := m.survey(t, number, Options{})
		t.Logf("number %d: %s", number, strings.Join(p.Words(), "; "))
		for i, s := range p.Sources[:p.Letters] {
			if p.Action == Nothing && i == p.Base {
				continue
			}
			if err := os.Rename(filepath.Join(dir, s.Name), filepath.Join(dir, s.Name+".bak")); err != nil {
				t.Fatal(err)
			}
		}
		if p.Action == Nothing || p.Action == Leave {
			continue
		}
		numbers++
		if _, err := Write(t.Context(), local.New(dir), p.Sources[0].Name, p, func(e Event) { t.Error(e) }); err != nil {
			t.Fatal(err, e)
		}
	}
	return numbers
}

// place is a store on disk.
type place struct{ store, blobs string }

func (p place) with(words ...string) []string {
	if p.blobs != "" {
		words = append(words, "--datastore", p.blobs)
	}
	return words
}

// agree wants that Oak verifies the store that we recovered, finds in its check what
// it finds in the one that it recovers itself, and reads the same. It returns how
// many tars were written.
func (o *oak) agree(t *testing.T, p place, better bool) int {
	t.Helper()
	ours, theirs := copyStore(t, p), copyStore(t, p)
	n := recoverStore(t, ours.store)
	o.run(t, theirs.with("recover", theirs.store, "--in-place", "--no-segments")...)
	tars, err := filepath.Glob(filepath.Join(ours.store, "*.tar"))
	if err != nil || len(tars) == 0 {
		t.Fatal(tars, err)
	}
	o.well(t, append([]string{"verify"}, tars...)...)
	a, b := o.run(t, "check", ours.store), o.run(t, "check", theirs.store)
	switch {
	case better:
		if !a.OK || string(a.all) == string(b.all) {
			t.Errorf("check: %s, expected a better one than that of Oak", a.all)
		}
	case string(a.all) != string(b.all):
		t.Errorf("check: %s\nwhere Oak recovered: %s", a.all, b.all)
	case b.Error == "":
		o.well(t, ours.with("equal", ours.store, theirs.store)...)
	}
	return n
}

func copyStore(t *testing.T, p place) place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "segmentstore")
	if err := os.CopyFS(dir, os.DirFS(p.store)); err != nil {
		t.Fatal(err)
	}
	return place{dir, p.blobs}
}

func TestOakTakesWhatWeRecoverOfTheFixtures(t *testing.T) {
	o := startOak(t)
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		t.Run(name, func(t *testing.T) {
			dir := testkit.Unpacked(t, file(name))
			p := place{store: filepath.Join(dir, "segmentstore")}
			if blobs := filepath.Join(dir, "datastore"); exists(blobs) {
				p.blobs = blobs
			}
			// Oak leaves the bit wrong that we turn back.
			o.agree(t, p, name == "corrupt-segment-magic")
		})
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// TestOakTakesWhatWeRecoverOfKilledWriters has stores of random content: as a killed
// process left them, and once more with their last tar cut anywhere.
func TestOakTakesWhatWeRecoverOfKilledWriters(t *testing.T) {
	o := startOak(t)
	r := testkit.Rand(t)
	for range 10 {
		seed := r.Int64N(1 << 40)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var made struct{ Store, Datastore string }
			a := o.well(t, "random-open", filepath.Join(t.TempDir(), "made"), strconv.FormatInt(seed, 10))
			if err := json.Unmarshal(a.all, &made); err != nil {
				t.Fatal(err)
			}
			p := place{made.Store, made.Datastore}
			if o.agree(t, p, false) == 0 {
				t.Error("no tar was written")
			}
			tars, err := filepath.Glob(filepath.Join(p.store, "*.tar"))
			if err != nil || len(tars) == 0 {
				t.Fatal(err)
			}
			last := tars[len(tars)-1]
			info, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			// At least the first segment stays: of an empty tar Oak fails.
			cut := info.Size()*3/4 + r.Int64N(info.Size()/4)
			if err := os.Truncate(last, cut); err != nil {
				t.Fatal(err)
			}
			t.Logf("cut at %d of %d", cut, info.Size())
			o.agree(t, p, false)
		})
	}
}

// TestOakTakesATarWithoutItsTail cuts off the tails of sound tars by the reference's
// own means.
func TestOakTakesATarWithoutItsTail(t *testing.T) {
	o := startOak(t)
	dir := t.TempDir()
	for _, name := range []string{"types", "datastore", "longblobid", "gc-online", "v12-upgraded"} {
		for file, b := range tarsOf(t, name) {
			at := filepath.Join(dir, file)
			if err := os.WriteFile(at, b, 0o666); err != nil {
				t.Fatal(err)
			}
			o.well(t, "unindex", at)
			cut, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			number, _, _ := tarfile.ParseName(file)
			m := newMemory(map[string][]byte{file: cut})
			p, _ := m.survey(t, number, Options{Copies: newMemory(tarsOf(t, name)).copies(t, number)})
			if p.Action != Tail {
				t.Error(p.Words())
			}
			if _, err := Write(t.Context(), local.New(dir), file, p, func(e Event) { t.Error(e) }); err != nil {
				t.Fatal(err)
			}
			o.well(t, "verify", at)
		}
	}
}
