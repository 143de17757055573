//go:build unix

// Package oak_test lets the reference implementation of Apache Oak's segment store
// read what we write, and write what we read.
//
// It is a test only; nothing can be imported from here. It runs where
// HOLDALL_OAK_CHECK names the program that ../install oak makes of the sources in
// java/; ./check does both.
package oak_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	checkVar = "HOLDALL_OAK_CHECK"
	fixtures = "../../internal/oak/testdata"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// reference returns the program that has the reference, or skips the test.
func reference(t *testing.T) string {
	t.Helper()
	program := os.Getenv(checkVar)
	if program == "" {
		t.Skip(checkVar + " is not set: the reference is not asked. interop/install oak prints what to set it to")
	}
	return program
}

// An answer is what the program says to one command. Error is there when the
// command could not be done: a store that the reference throws at, or a mistake of
// ours.
type answer struct {
	OK     bool
	Faults []string
	Error  string

	all []byte // of which the command knows what else there is
}

// into takes more of an answer.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.all, v); err != nil {
		t.Fatal(err)
	}
}

// A batch is one process of the program that all tests share: Java takes longer to
// start than most commands take.
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
		if err := b.start(program); err != nil {
			return a, err
		}
	}
	line, err := json.Marshal(args)
	if err != nil {
		return a, err
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return a, err
	}
	if a.all, err = b.out.ReadBytes('\n'); err != nil {
		return a, fmt.Errorf("%s batch ended: %w", program, err)
	}
	return a, json.Unmarshal(a.all, &a)
}

func (b *batch) start(program string) (err error) {
	cmd := exec.Command(program, "batch")
	cmd.Stderr = os.Stderr
	if b.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	b.out = bufio.NewReader(out)
	if err = cmd.Start(); err == nil {
		b.cmd = cmd
	}
	return err
}

func (b *batch) end() error {
	if b.cmd == nil {
		return nil
	}
	return errors.Join(b.in.Close(), b.cmd.Wait())
}

// run hands the program a command line and returns what it came to, good or bad.
// It fails the test only if there is no answer. "java/Main.java" lists the commands.
func run(t *testing.T, args ...string) answer {
	t.Helper()
	a, err := shared.ask(reference(t), args)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// runWell is run for what must come to good.
func runWell(t *testing.T, args ...string) answer {
	t.Helper()
	a := run(t, args...)
	if !a.OK {
		t.Fatalf("%s\n%s", strings.Join(args, " "), strings.Join(append(a.Faults, a.Error), "\n"))
	}
	return a
}

// A place is where a store lies on disk.
type place struct {
	store string // the folder of tars and journal
	blobs string // the data store beside it, or ""
}

// with are the words of a command, and those that tell of the data store.
func (p place) with(words ...string) []string {
	if p.blobs != "" {
		words = append(words, "--datastore", p.blobs)
	}
	return words
}

func (p place) tars(t *testing.T) []string {
	t.Helper()
	tars, err := filepath.Glob(filepath.Join(p.store, "*.tar"))
	if err != nil || len(tars) == 0 {
		t.Fatalf("%s: no tars; %v", p.store, err)
	}
	return tars
}

// verifyTars lets the program find that in each tar of a store the index agrees
// with the entries, and the graph and binary references with the segments. None may
// lack any of these.
func verifyTars(t *testing.T, p place) {
	t.Helper()
	runWell(t, append([]string{"verify"}, p.tars(t)...)...)
}

// openWithReference lets the reference open a store, which must not need recovery,
// check it, take a commit, and compact and clean it up, with all the content kept.
// The store itself stays as it is.
func openWithReference(t *testing.T, p place) {
	t.Helper()
	runWell(t, "check", p.store)
	runWell(t, p.with("commit", p.store)...)
	runWell(t, p.with("survive", p.store)...)
}

// compareStores lets the reference find the newest revisions of two stores equal,
// with their checkpoints. They share the data store.
func compareStores(t *testing.T, a, b place) {
	t.Helper()
	runWell(t, a.with("equal", a.store, b.store)...)
}

// A fixture is a store of the format's testdata, unpacked for one test.
type fixture struct {
	place
	expect string // the file that tells what the reference made of it
}

// unpack unpacks a fixture into a folder of the test.
func unpack(t *testing.T, name string) fixture {
	t.Helper()
	reference(t)
	packed, err := os.Open(filepath.Join(fixtures, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := unpackEntry(root, h, r); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
	}
	f := fixture{place: place{store: filepath.Join(dir, "segmentstore")}}
	if blobs := filepath.Join(dir, "datastore"); exists(t, blobs) {
		f.blobs = blobs
	}
	f.expect, err = filepath.Abs(filepath.Join(fixtures, name+".expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !exists(t, f.expect) {
		f.expect += ".gz"
	}
	return f
}

func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(filepath.Clean(h.Name), 0o777)
	}
	out, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

func exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := os.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// copyOf copies a store into a folder of the test; its data store is shared.
func copyOf(t *testing.T, p place) place {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "segmentstore")
	if err := os.CopyFS(dir, os.DirFS(p.store)); err != nil {
		t.Fatal(err)
	}
	return place{dir, p.blobs}
}

// expected reads into v what is known of a fixture.
func (f fixture) expected(t *testing.T, v any) {
	t.Helper()
	b, err := os.ReadFile(f.expect)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(f.expect, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

// names are those of all fixtures.
func names(t *testing.T) (all []string) {
	t.Helper()
	packed, err := filepath.Glob(filepath.Join(fixtures, "*.tar.gz"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("%s: no fixtures; %v", fixtures, err)
	}
	for _, p := range packed {
		all = append(all, strings.TrimSuffix(filepath.Base(p), ".tar.gz"))
	}
	slices.Sort(all)
	return all
}

// randomStore lets the reference make a store by a seed, closed as it should be or
// left by a process that was killed.
func randomStore(t *testing.T, seed int64, killed bool) place {
	t.Helper()
	command := "random"
	if killed {
		command = "random-open"
	}
	var made struct {
		Store, Datastore string
		Done             []string
	}
	runWell(t, command, filepath.Join(t.TempDir(), "made"), strconv.FormatInt(seed, 10)).into(t, &made)
	t.Logf("seed %d: %s", seed, strings.Join(made.Done, ", "))
	return place{made.Store, made.Datastore}
}
