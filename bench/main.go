// Command bench compares holdall with alternative tools on one machine: whole commands, in turn
// and with a warm cache, and a few operations within a single process. It is for developers of
// holdall. Benchmarks of single functions are beside the functions.
//
// The exit code is 0 whatever the figures are, and 2 (which go run turns into 1) if something
// does not run.
//
//	go run -C bench . [-dir DIR] [-n 5] [-only REGEX] [-skip REGEX] [-quick]
//
// The data sets are generated from a seed below DIR, and reused by the next run. If a tool is not
// installed, it is named and skipped. $GOCAF names gocaf, the reference tool of CAF, and
// $HOLDALL_LINDI_PYTHON a Python with lindi, that of LINDI. $HOLDALL_VIRTUAL_PYTHON names one with
// kerchunk, VirtualiZarr and h5py with fsspec, from interop/install. $HOLDALL_PYTHON names the Python that reads
// archives; that of interop/install torch has webdataset, and mosaicml-streaming can be installed there. $HOLDALL_RATARMOUNT and $HOLDALL_ARX
// name ratarmount and arx if they are not in $PATH. $HOLDALL_S3_SERVER names the server for
// buckets, where holdall is compared with loops over minio-go that are part of bench. It is also a
// peer of the gateway, and so is MinIO, if it is in $PATH or $HOLDALL_MINIO names it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	_ "github.com/holdall/holdall/format/all"
	_ "github.com/holdall/holdall/store/all"
)

// suite is one run of this command.
type suite struct {
	ctx   context.Context
	dir   string // where the data sets are
	out   string // where outputs go, removed at the end
	n     int
	quick bool
	sizes sizes
	self  string // this program
	bin   string // holdall
	top   string // the project
	gocaf string // "" if there is none
	made  map[string]bool
}

// verbs are other jobs of this program: peers that are part of it.
var verbs = map[string]func(args []string) error{
	peerVerb:  bucketPeer,
	filesVerb: func(args []string) error { return serveFiles(args[0]) },
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == measureVerb {
		os.Exit(measureOne(os.Args[2:]))
	}
	if len(os.Args) > 1 && verbs[os.Args[1]] != nil {
		if err := verbs[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	s := &suite{made: map[string]bool{}}
	flag.StringVar(&s.dir, "dir", filepath.Join(os.TempDir(), "holdall-bench"), "where the data sets are made, or are already")
	flag.IntVar(&s.n, "n", 0, "runs of each command (default 5, 1 with -quick)")
	only := flag.String("only", "", "only comparisons whose name this `regexp` matches")
	skip := flag.String("skip", "^$", "no comparison whose name this `regexp` matches")
	flag.BoolVar(&s.quick, "quick", false, "sets of a twentieth of the size: to see that everything runs")
	flag.Parse()
	match, err := regexp.Compile(*only)
	var leave *regexp.Regexp
	if err == nil {
		leave, err = regexp.Compile(*skip)
	}
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("expected flags only, found %q", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s.ctx = ctx
	if err := s.run(match, leave); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(2)
	}
}

// run makes all comparisons that match and are not skipped. It prints the table even if some of
// them fail.
func (s *suite) run(match, leave *regexp.Regexp) (err error) {
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.out)) }()
	var rows []row
	var failed []error
	for _, c := range comparisons {
		if !match.MatchString(c.name) || leave.MatchString(c.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", c.name)
		r, err := c.run(s)
		if s.ctx.Err() != nil { // print the measurements made so far
			failed = append(failed, errors.New("interrupted"))
			s.ctx = context.WithoutCancel(s.ctx)
			break
		}
		if errors.Is(err, errSkipped) {
			r.skipped = append(r.skipped, strings.TrimPrefix(err.Error(), errSkipped.Error()+": "))
			err = nil
		}
		r.what = c.name
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
			r.verdict = "does not run"
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 && len(failed) == 0 {
		return fmt.Errorf("no comparison is called like %q", match)
	}
	floor, err := s.measure([]string{"true"}, nil)
	if err != nil {
		return err
	}
	s.printHead(floor.rss)
	printTable(os.Stdout, rows)
	return errors.Join(failed...)
}

// errSkipped means that a comparison cannot be made here, which is not a failure.
var errSkipped = errors.New("skipped")

// prepare builds holdall and finds the tools that the machine has.
func (s *suite) prepare() (err error) {
	// Each run opens an archive for the first time.
	if err := os.Setenv("HOLDALL_CACHE", "none"); err != nil {
		return err
	}
	s.sizes = fullSizes
	if s.quick {
		s.sizes = fullSizes.shrunk(20)
	}
	if s.n <= 0 {
		s.n = 5
		if s.quick {
			s.n = 1
		}
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		return err
	}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	s.bin = filepath.Join(s.dir, "holdall")
	// The command belongs to the parent module, which has its dependencies.
	top, err := exec.CommandContext(s.ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdall/holdall").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	build := exec.CommandContext(s.ctx, "go", "build", "-o", s.bin, "./cmd/holdall")
	s.top = strings.TrimSpace(string(top))
	build.Dir = s.top
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, text)
	}
	s.gocaf = os.Getenv("GOCAF")
	if s.gocaf != "" {
		if s.gocaf, err = exec.LookPath(s.gocaf); err != nil {
			return fmt.Errorf("$GOCAF: %w", err)
		}
		if s.gocaf, err = filepath.Abs(s.gocaf); err != nil {
			return err
		}
	}
	s.out, err = os.MkdirTemp(s.dir, "out-")
	return err
}

// printHead describes the machine and the run.
func (s *suite) printHead(floor int64) {
	fmt.Printf("%s, %s/%s, %d CPUs, %s, seed %d, best of %d\n", time.Now().UTC().Format(time.DateTime),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), seed, s.n)
	fmt.Printf("S: %d files of %d bytes; A: %d files of %.0f bytes on average; one file of %s; an index of %d rows\n",
		s.sizes.sFiles, s.sizes.sBytes, s.sizes.aFiles, meanA, mib(s.sizes.big), s.sizes.rows)
	fmt.Printf("wall and CPU: the least of all runs; RSS: the most of all runs; less RSS than %s cannot be seen\n", mib(floor))
	if s.quick {
		fmt.Println("goals are for the full sets, not for -quick")
	}
	fmt.Println()
}
