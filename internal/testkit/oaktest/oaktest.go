// Package oaktest runs the reference implementation of Apache Oak's segment store on stores on
// disk, to check or to create them. Only tests import it. HOLDALL_OAK_CHECK names the program
// that interop/install oak builds; without it, these tests are skipped.
package oaktest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// Var names the program.
const Var = "HOLDALL_OAK_CHECK"

// OthersVar lists programs of other versions of the reference, as PATH lists folders.
const OthersVar = "HOLDALL_OAK_OTHERS"

// shared are the processes of a package's tests, by the program that the variable names.
var shared = map[string]*testkit.Batch{}

// End ends the processes, when the tests of a package have run.
func End() (err error) {
	for _, b := range shared {
		err = errors.Join(err, b.End())
	}
	return err
}

// An Answer is what the program says to one command. Error is there when the command
// could not be done: a store that the reference throws at, or a mistake of ours.
type Answer struct {
	OK     bool
	Faults []string
	Error  string

	All []byte `json:"-"` // the whole entry, including fields that only the command uses
}

// Into takes more of an answer.
func (a Answer) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.All, v); err != nil {
		t.Fatal(err)
	}
}

// Run hands the program a command line and returns what it came to, good or bad. It
// fails the test only if there is no answer. interop/oak/java/Main.java lists the
// commands.
func Run(t testing.TB, words ...string) (a Answer) {
	t.Helper()
	program := testkit.Needs(t, Var)
	if shared[program] == nil {
		shared[program] = &testkit.Batch{Var: Var, Args: []string{"batch"}}
	}
	a.All = shared[program].Ask(t, &a, words...)
	return a
}

// Well is Run for commands that must succeed.
func Well(t testing.TB, words ...string) Answer {
	t.Helper()
	a := Run(t, words...)
	if !a.OK {
		t.Fatalf("%s\n%s", strings.Join(words, " "), strings.Join(append(a.Faults, a.Error), "\n"))
	}
	return a
}

// A Place is where a store lies on disk.
type Place struct {
	Store string // the folder of tars and journal
	Blobs string // the data store beside it, or ""
}

// In is the place of the store in an unpacked fixture.
func In(dir string) Place {
	p := Place{Store: filepath.Join(dir, "segmentstore")}
	if blobs := filepath.Join(dir, "datastore"); Exists(blobs) {
		p.Blobs = blobs
	}
	return p
}

// Exists reports whether there is such a file or folder.
func Exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Random lets the reference make a store by a seed, closed as it should be or left by a
// process that was killed.
func Random(t testing.TB, seed int64, killed bool) Place {
	t.Helper()
	command := "random"
	if killed {
		command = "random-open"
	}
	var made struct {
		Store, Datastore string
		Done             []string
	}
	Well(t, command, filepath.Join(t.TempDir(), "made"), strconv.FormatInt(seed, 10)).Into(t, &made)
	t.Logf("seed %d: %s", seed, strings.Join(made.Done, ", "))
	return Place{made.Store, made.Datastore}
}

// With are the words of a command, and those that tell of the data store.
func (p Place) With(words ...string) []string {
	if p.Blobs != "" {
		words = append(words, "--datastore", p.Blobs)
	}
	return words
}

// Tars are the files of tars.
func (p Place) Tars(t testing.TB) []string {
	t.Helper()
	tars, err := filepath.Glob(filepath.Join(p.Store, "*.tar"))
	if err != nil || len(tars) == 0 {
		t.Fatalf("%s: no tars; %v", p.Store, err)
	}
	return tars
}

// Verify lets the program find that in each tar the index agrees with the entries, and
// the graph and binary references with the segments. None may lack any of these.
func (p Place) Verify(t testing.TB) {
	t.Helper()
	Well(t, append([]string{"verify"}, p.Tars(t)...)...)
}

// Copy copies the store into a folder of the test; its data store is shared.
func (p Place) Copy(t testing.TB) Place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "segmentstore")
	if err := os.CopyFS(dir, os.DirFS(p.Store)); err != nil {
		t.Fatal(err)
	}
	return Place{dir, p.Blobs}
}
