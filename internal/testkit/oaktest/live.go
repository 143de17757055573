package oaktest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
)

// A Live is a store that a process of the reference writes to, on command.
type Live struct {
	Place
	cmd *exec.Cmd
	in  io.WriteCloser

	mu      sync.Mutex
	news    *sync.Cond
	commits map[int64]Commit
	last    int64 // commit
	done    int   // lines that it has obeyed
	told    int
	over    error // why nothing more comes
}

// A Commit is a revision that the journal has.
type Commit struct {
	Commit   int64
	Revision string
	Sum      string // of the tree, as LiveStore.java has it
}

// OpenLive lets the reference open a new store, and make a first commit.
func OpenLive(t testing.TB, seed int64) *Live {
	t.Helper()
	l := &Live{Place: Place{Store: filepath.Join(t.TempDir(), "segmentstore")}, commits: map[int64]Commit{}, told: 1}
	l.news = sync.NewCond(&l.mu)
	l.cmd = exec.Command(testkit.Needs(t, Var), "live", l.Store, strconv.FormatInt(seed, 10))
	l.cmd.Stderr = os.Stderr
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.cmd.Process.Kill() }) // nothing, if it has ended
	go l.listen(out)
	l.wait(t)
	return l
}

func (l *Live) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var said struct {
			Commit
			Done bool
		}
		err := json.Unmarshal(lines.Bytes(), &said)
		l.mu.Lock()
		switch {
		case err != nil:
			l.over = fmt.Errorf("%q: %w", lines.Bytes(), err)
		case said.Done:
			l.done++
		default:
			l.commits[said.Commit.Commit] = said.Commit
			l.last = said.Commit.Commit
		}
		l.mu.Unlock()
		l.news.Broadcast()
	}
	l.mu.Lock()
	l.over = fmt.Errorf("the reference has ended: %v", lines.Err())
	l.mu.Unlock()
	l.news.Broadcast()
}

func (l *Live) until(t testing.TB, ok func() bool) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !ok() {
		if l.over != nil {
			t.Fatal(l.over)
		}
		l.news.Wait()
	}
}

func (l *Live) wait(t testing.TB) {
	t.Helper()
	l.until(t, func() bool { return l.done == l.told })
}

// Begin tells it what to do, as LiveStore.java lists it.
func (l *Live) Begin(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(l.in, line); err != nil {
		t.Fatal(err)
	}
	l.told++
}

// Do is Begin, and waits until it is done. It returns the last commit.
func (l *Live) Do(t testing.TB, line string) Commit {
	t.Helper()
	l.Begin(t, line)
	l.wait(t)
	return l.Last()
}

// Last is the last commit so far.
func (l *Live) Last() Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.commits[l.last]
}

// Numbered waits for a commit.
func (l *Live) Numbered(t testing.TB, n int64) Commit {
	t.Helper()
	l.until(t, func() bool { return l.commits[n].Commit == n })
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.commits[n]
}

// Close lets it close the store.
func (l *Live) Close(t testing.TB) {
	t.Helper()
	if err := l.in.Close(); err != nil {
		t.Fatal(err)
	}
	l.ended()
	if err := l.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// ended waits until all that it says was heard.
func (l *Live) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.over == nil {
		l.news.Wait()
	}
}

// Kill kills it, as it stands.
func (l *Live) Kill(t testing.TB) {
	t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.ended()
	l.cmd.Wait()
}
