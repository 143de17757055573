package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// command is the program, built once for all tests.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "holdall-e2e-command-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "holdall")
	build := exec.Command("go", "build", "-o", path, "./cmd/holdall")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

var builtIn string // removed when all tests have ended

func holdallCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOLDALL_CACHE=none")
	return cmd
}

// run runs a command line to its end.
func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := holdallCommand(t, args...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// A server is "holdall serve" at work.
type server struct {
	url  string // of the page, without a slash
	cmd  *exec.Cmd
	said bytes.Buffer
	once sync.Once
}

// served serves what is at paths, or as flags say. What it logs fails the test.
func served(t *testing.T, args ...string) *server {
	t.Helper()
	s := started(t, args...)
	t.Cleanup(func() {
		s.end(t)
		if said := strings.TrimSuffix(s.said.String(), "holdall: interrupted\n"); said != "" {
			t.Errorf("the server says: %s", said)
		}
	})
	return s
}

// started is served for tests in which something goes wrong.
func started(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{cmd: holdallCommand(t, append([]string{"serve", "--json", "--addr", "127.0.0.1:0"}, args...)...)}
	s.cmd.Stderr = &s.said
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var first struct{ Explore string }
	if err == nil {
		err = json.Unmarshal(line, &first)
	}
	if err != nil {
		s.end(t)
		t.Fatalf("%v: %s", err, &s.said)
	}
	s.url = strings.TrimSuffix(first.Explore, "/")
	return s
}

// end interrupts the server and waits for it.
func (s *server) end(t *testing.T) {
	s.once.Do(func() {
		began := time.Now()
		if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
			s.cmd.Process.Kill()
		}
		s.cmd.Wait() // the pipe is closed with it
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the server ended after %v", took)
		}
	})
}
