//go:build unix

package sweep

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/testkit"
)

// These tests ask Oak itself, where HOLDALL_OAK_CHECK names the program that
// interop/install oak makes.

const checkVar = "HOLDALL_OAK_CHECK"

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type answer struct {
	OK     bool
	Faults []string
	Error  string
	Tars   json.RawMessage

	Store, Datastore string
}

// A batch is one process of the program that all tests share.
type batch struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

var shared batch

func (b *batch) ask(program string, args []string) (a answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		cmd := exec.Command(program, "batch")
		cmd.Stderr = os.Stderr
		if b.in, err = cmd.StdinPipe(); err != nil {
			return a, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return a, err
		}
		b.out = bufio.NewReader(out)
		if err := cmd.Start(); err != nil {
			return a, err
		}
		b.cmd = cmd
	}
	line, err := json.Marshal(args)
	if err != nil {
		return a, err
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return a, err
	}
	all, err := b.out.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("%s batch ended: %w", program, err)
	}
	return a, json.Unmarshal(all, &a)
}

func (b *batch) end() error {
	if b.cmd == nil {
		return nil
	}
	return errors.Join(b.in.Close(), b.cmd.Wait())
}

func run(t *testing.T, args ...string) answer {
	t.Helper()
	program := os.Getenv(checkVar)
	if program == "" {
		t.Skip(checkVar + " is not set: Oak is not asked. interop/install oak prints what to set it to")
	}
	a, err := shared.ask(program, args)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func runWell(t *testing.T, args ...string) answer {
	t.Helper()
	a := run(t, args...)
	if !a.OK {
		t.Fatalf("%s\n%s", strings.Join(args, " "), strings.Join(append(a.Faults, a.Error), "\n"))
	}
	return a
}

// A place is a store and by chance a data store beside it.
type place struct{ store, blobs string }

func (p place) with(words ...string) []string {
	if p.blobs != "" {
		words = append(words, "--datastore", p.blobs)
	}
	return words
}

func placeOf(dir string) place {
	p := place{store: filepath.Join(dir, "segmentstore")}
	if blobs := filepath.Join(dir, "datastore"); exists(blobs) {
		p.blobs = blobs
	}
	return p
}

func tarFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, "no tars", err)
	}
	return files
}

// reread makes of a map that came with an answer what describe has.
func reread(t testing.TB, raw json.RawMessage) (tars map[string]dump) {
	t.Helper()
	if err := json.Unmarshal(raw, &tars); err != nil {
		t.Fatal(err)
	}
	return tars
}

// saidOf is Oak's word on the tars of a folder.
func saidOf(t *testing.T, dir string) map[string]dump {
	t.Helper()
	a := run(t, append([]string{"tar", "--no-segments"}, tarFiles(t, dir)...)...)
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	tars := map[string]dump{}
	for file, d := range reread(t, a.Tars) {
		tars[filepath.Base(file)] = d
	}
	return tars
}

// wantSame wants a cleanup by us to leave what one by Oak leaves, in Oak's word. p is
// left as it is.
func wantSame(t *testing.T, p place, retain int) (s swept, ours string) {
	t.Helper()
	oak := runWell(t, p.with("cleanup", p.store, strconv.Itoa(retain), "--no-segments", "--no-ids")...)
	ours = copyDir(t, p.store)
	s = cleanup(t, ours, Options{Retain: retain}, nil)
	got := saidOf(t, ours)
	compare(t, got, reread(t, oak.Tars))
	compare(t, describe(t, openDir(t, ours)), got)
	return s, ours
}

// otherwise has fixtures of which Oak does not do the same.
var otherwise = map[string]string{
	"corrupt-idx":       "Oak recovers a tar first",
	"truncated-old-tar": "Oak recovers a tar first",
	"unclean-open":      "Oak recovers a tar first",
	"unclean-truncated": "Oak recovers a tar first",
	"corrupt-gph":       "Oak fails",
	"corrupt-brf":       "Oak leaves it damaged",
}

func TestOakCleansUpToTheSame(t *testing.T) {
	did := map[Action]int{}
	for _, name := range testkit.Names(t, testdata, ".tar.gz", 24) {
		if otherwise[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := placeOf(unpack(t, name))
			for _, retain := range []int{1, 2} {
				s, _ := wantSame(t, p, retain)
				for _, x := range s.plan.Tars {
					did[x.Action]++
				}
			}
		})
	}
	t.Log(did)
}

func TestOakCleansUpRandomStoresToTheSame(t *testing.T) {
	did := map[Action]int{}
	first := rand.Int64()
	for seed := first; seed < first+10; seed++ {
		a := runWell(t, "random", filepath.Join(t.TempDir(), "random"), strconv.FormatInt(seed, 10))
		p := place{a.Store, a.Datastore}
		for _, retain := range []int{1, 2} {
			s, ours := wantSame(t, p, retain)
			for _, x := range s.plan.Tars {
				did[x.Action]++
			}
			runWell(t, append([]string{"verify"}, tarFiles(t, ours)...)...)
			if retain == 1 { // which leaves less; it takes long
				runWell(t, "check", ours)
				runWell(t, p.with("survive", ours)...)
			}
			if t.Failed() {
				t.Fatal("seed", seed, "retain", retain)
			}
		}
	}
	t.Log(did)
	if did[Keep] == 0 || did[KeepGarbage]+did[Rewrite]+did[Drop] == 0 {
		t.Error("hardly anything was tried")
	}
}

// With older lines of the journal there are heads behind which something was written,
// compacted segments too.
func TestOakCleansUpToTheSameAfterALossOfRevisions(t *testing.T) {
	did, blobs := map[Action]int{}, 0
	for _, name := range []string{"checkpoints", "cleanup-pending", "compacted-offline", "datastore-gc", "gc-online", "multitar", "v12-upgraded", "v12", "two-letters"} {
		p := placeOf(unpack(t, name))
		journal := filepath.Join(p.store, "journal.log")
		b, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.SplitAfter(string(b), "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
		for n := 1; n < len(lines); n += max(1, len(lines)/4) {
			writeFile(t, journal, []byte(strings.Join(lines[:n], "")))
			tars := openDir(t, p.store)
			if !slices.ContainsFunc(lines[:n], func(line string) bool { return there(tars, line) }) {
				continue
			}
			for _, retain := range []int{1, 2} {
				s, ours := wantSame(t, p, retain)
				for _, x := range s.plan.Tars {
					did[x.Action]++
				}
				for _, d := range describe(t, openDir(t, ours)) {
					blobs += len(d.Brf)
				}
				if t.Failed() {
					t.Fatalf("%s, %d lines, retain %d", name, n, retain)
				}
			}
		}
	}
	t.Log(did, blobs)
	if did[Rewrite] == 0 || did[Drop] == 0 || did[KeepGarbage] == 0 || blobs == 0 {
		t.Error("not all was tried")
	}
}

func there(tars []Tar, line string) bool {
	revision, _, _ := strings.Cut(line, " ")
	id, err := segment.ParseRecordID(revision)
	return err == nil && slices.ContainsFunc(tars, func(x Tar) bool {
		_, ok := x.Index().Find(id.Segment)
		return ok
	})
}

func TestOakTakesTarsThatAreMadeAnew(t *testing.T) {
	for _, name := range harmless(t) {
		if otherwise[name] != "" || name == "corrupt-value" || name == "bad-journal" {
			continue
		}
		p := placeOf(unpack(t, name))
		harmAll(t, p.store, crcField)
		cleanup(t, p.store, Options{}, nil)
		runWell(t, append([]string{"verify"}, tarFiles(t, p.store)...)...)
		runWell(t, "check", p.store)
		runWell(t, p.with("survive", p.store)...)
	}
}

func TestOakTakesWhatWasMended(t *testing.T) {
	for _, name := range []string{"corrupt-gph", "corrupt-brf"} {
		for _, retain := range []int{1, 2} {
			p := placeOf(unpack(t, name))
			s := cleanup(t, p.store, Options{Retain: retain}, nil)
			rewritten := slices.ContainsFunc(s.plan.Tars, func(x TarPlan) bool { return x.Action == Rewrite && (x.GraphDamage != nil || x.BinariesDamage != nil) })
			if !rewritten || len(s.problems) > 0 {
				t.Errorf("%s: mended %t, %v", name, rewritten, s.problems)
			}
			runWell(t, append([]string{"verify"}, tarFiles(t, p.store)...)...)
			runWell(t, "check", p.store)
			runWell(t, p.with("survive", p.store)...)
		}
	}
}
