// Package pgtest runs a PostgreSQL server for the duration of tests, if HOLDALL_POSTGRES names
// the folder of its programs. Only tests import it.
package pgtest

import (
	"bufio"
	"crypto/rand"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// Env names the folder of PostgreSQL's programs.
const Env = "HOLDALL_POSTGRES"

//go:embed server.sh
var script string

// start starts the server of this process, and returns its port.
var start = sync.OnceValues(func() (string, error) {
	addr, err := testkit.FreeAddr()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-c", script, "server.sh", os.Getenv(Env), port)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	if line != "ready\n" || err != nil {
		rest, _ := io.ReadAll(io.LimitReader(said, 64<<10)) // it is all there is to say
		return "", fmt.Errorf("PostgreSQL did not start: %s%s", line, rest)
	}
	// Its standard input is closed when this process has ended, and then it ends, too; while Wait
	// is running, nothing else closes it.
	go func() { _ = cmd.Wait() }()
	restart = func(away time.Duration) error {
		if _, err := fmt.Fprintf(in, "%.3f\n", away.Seconds()); err != nil {
			return err
		}
		if line, err := said.ReadString('\n'); line != "ready\n" || err != nil {
			return fmt.Errorf("PostgreSQL did not come back: %s (%w)", line, err)
		}
		return nil
	}
	return port, nil
})

var (
	restarting sync.Mutex
	restart    func(away time.Duration) error
)

// Restart has the server die with all its connections, and come back after a while.
func Restart(away time.Duration) error {
	if _, err := start(); err != nil {
		return err
	}
	restarting.Lock()
	defer restarting.Unlock()
	return restart(away)
}

// Available reports whether there is a server.
func Available() bool { return os.Getenv(Env) != "" }

// Database returns the address of a new, empty database, on a server on this machine that all
// tests of a process share. If there is none, the test is skipped.
func Database(t testing.TB) string {
	t.Helper()
	testkit.Needs(t, Env)
	address, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// New is Database for what is no test.
func New() (string, error) {
	port, err := start()
	if err != nil {
		return "", err
	}
	name := "t" + strings.ToLower(rand.Text())
	createdb := exec.Command(filepath.Join(os.Getenv(Env), "createdb"), "-h", "127.0.0.1", "-p", port, "-U", "holdall", name)
	if said, err := createdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return "postgres://holdall@127.0.0.1:" + port + "/" + name, nil
}
