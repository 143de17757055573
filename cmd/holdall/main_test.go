package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/formattest/tiny"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/testkit/pgtest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

var update = flag.Bool("update", false, "rewrite the golden parts of scripts")

func TestMain(m *testing.M) {
	if os.Getenv("HOLDALL_CACHE") == "" { // a slow machine would keep an index of any archive
		os.Setenv("HOLDALL_CACHE", noIndex)
	}
	testscript.Main(m, commands)
}

// commands maps names to the commands that the test binary runs under them.
var commands = map[string]func(){"holdall": main, "withtiny": withTiny, "whileopen": whileOpen, "fakebrowser": fakeBrowser}

// withtiny ARGS…: runs holdall with a format that is not built in.
func withTiny() {
	format.Register(tiny.Format)
	main()
}

// whileopen STORE ARGS…: runs holdall as another process, while this process
// holds the lock of a segment store.
func whileOpen() {
	unlock, err := lockRepository(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	cmd := exec.Command("holdall", os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	unlock()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(failed.ExitCode())
	}
}

// TestScripts runs testdata/*.txtar, which test the command line as users see
// it. Their names begin with the verb.
func TestScripts(t *testing.T) {
	fixtures, err := filepath.Abs("../../format/caf/testdata/fixtures")
	if err != nil {
		t.Fatal(err)
	}
	lindi, err := filepath.Abs("../../format/lindi/testdata")
	if err != nil {
		t.Fatal(err)
	}
	hdf5, err := filepath.Abs("../../format/hdf5/testdata")
	if err != nil {
		t.Fatal(err)
	}
	rvn, err := filepath.Abs("../../format/rvn/testdata")
	if err != nil {
		t.Fatal(err)
	}
	oak, err := filepath.Abs("../../internal/oak/testdata")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	testscript.Run(t, testscript.Params{
		Files:         testkit.Few(t, len(files)/4, files...),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			web := httptest.NewServer(http.FileServer(http.Dir(e.WorkDir)))
			e.Defer(web.Close)
			e.Setenv("WEB", web.URL)
			e.Setenv("HOLDALL_CACHE", noIndex)
			bucket := s3test.New("bucket")
			e.Values[bucketKey{}] = bucket
			s3 := httptest.NewServer(bucket)
			e.Defer(s3.Close)
			gs := s3test.New("bucket")
			gs.Google = true
			google := httptest.NewServer(gs)
			e.Defer(google.Close)
			e.Setenv("HOLDALL_GS_ENDPOINT", google.URL)
			e.Setenv("GS_ACCESS_KEY_ID", s3test.AccessKey)
			e.Setenv("GS_SECRET_ACCESS_KEY", s3test.Secret)
			e.Setenv("AWS_ENDPOINT_URL_S3", s3.URL)
			e.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
			e.Setenv("AWS_SECRET_ACCESS_KEY", s3test.Secret)
			e.Setenv("FIXTURES", fixtures)
			e.Setenv("LINDI", lindi)
			e.Setenv("HDF5", hdf5)
			e.Setenv("RVN", rvn)
			e.Setenv("OAK", oak)
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, "tmp"))
			return os.Mkdir(filepath.Join(e.WorkDir, "tmp"), 0o777)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   exitCode,
			"fill":   fill,
			"flip":   flip,
			"cut":    cut,
			"zero":   zero,
			"clean":  clean,
			"oak":    unpackOak,
			"pg":     newDatabase,
			"upload": upload,
			"rot":    rot,
			"remove": remove,
			"record": record,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "postgres":
				return pgtest.Available(), nil
			case "race":
				return testkit.Race(), nil
			}
			return false, fmt.Errorf("%s: no such condition", cond)
		},
	})
}

// record FILE: writes a recording that was made by pynwb.
func record(ts *testscript.TestScript, neg bool, args []string) {
	f, err := os.Open(aRecording + ".gz")
	ts.Check(err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	ts.Check(err)
	content, err := io.ReadAll(z)
	ts.Check(err)
	name := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(name), 0o777))
	ts.Check(os.WriteFile(name, content, 0o666))
}

// pg: sets DB to the address of a new, empty database of PostgreSQL.
func newDatabase(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: pg")
	}
	address, err := pgtest.New()
	ts.Check(err)
	ts.Setenv("DB", address)
}

// code N holdall …: runs a command and compares its exit code.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

type bucketKey struct{}

// upload DIR PREFIX: uploads the files in a folder as objects.
func upload(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(bucketKey{}).(*s3test.Server)
	dir := ts.MkAbs(args[0])
	ts.Check(filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		key := args[1] + filepath.ToSlash(strings.TrimPrefix(p, dir))
		s.Put("bucket", key, b)
		info, err := d.Info()
		if err == nil {
			s.Touch("bucket", key, info.ModTime()) // uploaded again, it is the same
		}
		return err
	}))
}

// rot KEY: changes a byte of an object, but not the checksum that the bucket
// keeps for it.
func rot(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(bucketKey{}).(*s3test.Server)
	found := false
	for _, key := range s.Keys("bucket") {
		if is, err := path.Match(args[0], key); err == nil && is {
			s.Rot("bucket", key, 7)
			found = true
		}
	}
	if !found {
		ts.Fatalf("no object is called %s", args[0])
	}
}

// remove KEY: removes an object.
func remove(ts *testscript.TestScript, neg bool, args []string) {
	ts.Value(bucketKey{}).(*s3test.Server).Remove("bucket", args[0])
}

// oak FIXTURE: unpacks a segment store written by Oak into segmentstore.
func unpackOak(ts *testscript.TestScript, neg bool, args []string) {
	f, err := os.Open(filepath.Join(ts.Getenv("OAK"), args[0]+".tar.gz"))
	ts.Check(err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	ts.Check(err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		ts.Check(err)
		name := ts.MkAbs(h.Name)
		if h.Typeflag == tar.TypeDir {
			ts.Check(os.MkdirAll(name, 0o777))
			continue
		}
		b, err := io.ReadAll(r)
		ts.Check(err)
		ts.Check(os.WriteFile(name, b, 0o666))
	}
}

// fill FILE N: writes a file of N bytes, each different from the next.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	n, err := parseSize(args[1])
	ts.Check(err)
	b := make([]byte, n)
	x := uint32(len(args[0]))
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// flip FILE OFFSET: flips a bit.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	off, err := parseSize(args[1])
	ts.Check(err)
	b[off] ^= 4
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// zero FILE OFF N: overwrites N bytes with zeros.
func zero(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	off, err := parseSize(args[1])
	ts.Check(err)
	n, err := parseSize(args[2])
	ts.Check(err)
	clear(b[off : off+n])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}

// cut FILE N [OFFSET]: removes the last N bytes, or those at an offset.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	n, err := parseSize(args[1])
	ts.Check(err)
	at := int64(len(b)) - n
	if len(args) > 2 {
		at, err = parseSize(args[2])
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), slices.Delete(b, int(at), int(at+n)), 0o666))
}

// clean: checks that no partial files are left anywhere.
func clean(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		left := ""
		filepath.WalkDir(ts.Getenv("WORK"), func(p string, d os.DirEntry, err error) error {
			if err == nil && (strings.Contains(d.Name(), ".holdall-") || strings.HasPrefix(d.Name(), "holdall-")) {
				left = p
			}
			return nil
		})
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("left behind: %s", left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
