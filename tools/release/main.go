// Command release makes the files of a release of holdall: see docs/releasing.md. The same commit,
// Go and Python produce the same bytes.
//
//	go run -C tools/release . -o /tmp/release
//	go run -C tools/release . -o /tmp/release -targets linux/amd64,windows/amd64
//	go run -C tools/release . -o /tmp/release -targets host
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// target is a system and machine that a command is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

func (t target) program() string {
	if t.os == "windows" {
		return "holdall.exe"
	}
	return "holdall"
}

var allTargets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"linux", "riscv64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
	{"freebsd", "amd64"},
}

// release has the parameters of a release.
type release struct {
	source  string // the folder of the main module
	out     string // the folder where files are made; it is renamed at the end
	version string
	commit  string
	date    time.Time // of the commit; all files have it
	targets []target
	python  string // "" without wheels
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(2)
	}
}

func run() error {
	out := flag.String("o", "", "the folder to make, by its whole path")
	source := flag.String("source", "../..", "the folder of the source")
	targets := flag.String("targets", "", "what to build for, such as linux/amd64,darwin/arm64, or host (default all)")
	commit := flag.String("commit", "", "the commit of the source (default what git says)")
	date := flag.String("date", "", "the date of the commit, such as 2026-01-02T03:04:05Z (default what git says)")
	modified := flag.Bool("modified", false, "allow a source with changes that are not committed")
	flag.Parse()
	if flag.NArg() > 0 || !filepath.IsAbs(*out) {
		return errors.New("-o: expected the whole path of a folder to make, and no arguments")
	}
	r := release{commit: *commit}
	var err error
	if r.source, err = filepath.Abs(*source); err != nil {
		return err
	}
	if r.targets, err = parseTargets(*targets); err != nil {
		return err
	}
	if r.version, err = versionOf(r.source); err != nil {
		return err
	}
	if *date != "" {
		if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
			return fmt.Errorf("-date: %w", err)
		}
	}
	if *commit == "" || *date == "" {
		if err := r.askGit(*modified); err != nil {
			return err
		}
	}
	if r.python = python(); r.python == "" {
		fmt.Fprintln(os.Stderr, "release: NO WHEELS: there is no python3 from 3.11 on")
	}
	return r.make(*out)
}

// make makes the release in a folder beside out, and renames that at the end.
func (r *release) make(out string) error {
	if names, err := os.ReadDir(out); err == nil && len(names) > 0 {
		return fmt.Errorf("%s: expected no folder, or an empty one", out)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return err
	}
	removeStale(filepath.Dir(out))
	var err error
	if r.out, err = os.MkdirTemp(filepath.Dir(out), unfinished); err != nil {
		return err
	}
	defer os.RemoveAll(r.out)
	if unlock, err := lock(r.out); err == nil { // other runs see that this one has not ended
		defer unlock()
	}
	if err := os.Chmod(r.out, 0o755); err != nil {
		return err
	}
	if err := r.artefacts(); err != nil {
		return err
	}
	return os.Rename(r.out, out)
}

// unfinished begins the names of folders in which releases are made.
const unfinished = ".holdall-release-"

// removeStale removes what killed runs left in a folder: these runs no longer lock it. It ignores
// errors.
func removeStale(dir string) {
	names, _ := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	for _, name := range names {
		if unlock, err := lock(name); err == nil {
			os.RemoveAll(name)
			unlock()
		}
	}
}

func parseTargets(list string) ([]target, error) {
	if list == "" {
		return allTargets, nil
	}
	var some []target
	for name := range strings.SplitSeq(list, ",") {
		if name == "host" {
			name = runtime.GOOS + "/" + runtime.GOARCH
		}
		i := slices.IndexFunc(allTargets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-targets: %s: expected host or some of %v", name, allTargets)
		}
		if !slices.Contains(some, allTargets[i]) {
			some = append(some, allTargets[i])
		}
	}
	return some, nil
}

// These are lines of python/pyproject.toml.
var (
	versionLine = regexp.MustCompile(`(?m)^version = "([0-9]+\.[0-9]+\.[0-9]+)"$`)
	pythonLine  = regexp.MustCompile(`(?m)^requires-python = "([^"]+)"$`)
)

// versionOf returns the version of the Python package, which is also that of the command.
func versionOf(source string) (string, error) {
	return projectLine(source, versionLine, `version = "1.2.3"`)
}

// projectLine returns the value of a line of the Python project.
func projectLine(source string, line *regexp.Regexp, example string) (string, error) {
	project := filepath.Join(source, "python", "pyproject.toml")
	text, err := os.ReadFile(project)
	if err != nil {
		return "", err
	}
	m := line.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf(`%s: expected a line such as %s`, project, example)
	}
	return string(m[1]), nil
}

// askGit gets the commit and its date from git, unless they are given.
func (r *release) askGit(modified bool) error {
	changes, err := r.git("status", "--porcelain")
	if err != nil {
		return fmt.Errorf("%w: -commit and -date say what git cannot", err)
	}
	log, err := r.git("log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var hash string
	var seconds int64
	if _, err := fmt.Sscan(log, &hash, &seconds); err != nil {
		return fmt.Errorf("git log: %q: %w", log, err)
	}
	if changes != "" {
		if !modified {
			return fmt.Errorf("%s has changes that are not committed: commit them, or use -modified:\n%s", r.source, changes)
		}
		hash += "-modified"
	}
	if r.commit == "" {
		r.commit = hash
	}
	if r.date.IsZero() {
		r.date = time.Unix(seconds, 0).UTC()
	}
	return nil
}

func (r *release) git(args ...string) (string, error) {
	return output(exec.Command("git", append([]string{"-C", r.source}, args...)...))
}

// python returns the Python that makes wheels, or "".
func python() string {
	name := os.Getenv("HOLDALL_PYTHON")
	if name == "" {
		name = "python3"
	}
	if exec.Command(name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
		return ""
	}
	return name
}

// output runs a command, and returns its output. An error includes what the command reported.
func output(cmd *exec.Cmd) (string, error) {
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(says.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
