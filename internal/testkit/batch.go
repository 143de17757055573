package testkit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Main runs the tests of a package, for its TestMain, and then ends what they shared.
func Main(m *testing.M, end ...func() error) {
	code := m.Run()
	for _, e := range end {
		if err := e(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// A Batch is one process of a program that all tests of a package share: the program
// takes longer to start than most commands take. A command is a line, a list of words in
// JSON, and so is its answer.
type Batch struct {
	Var  string   // the variable of the environment that names the program
	Args []string // what it is started with

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Ask sends the program a command, and decodes its answer into v. It returns the answer's text.
// If there is no program, the test is skipped.
func (b *Batch) Ask(t testing.TB, v any, words ...string) []byte {
	t.Helper()
	said, err := b.ask(Needs(t, b.Var), words)
	if err == nil {
		err = json.Unmarshal(said, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func (b *Batch) ask(program string, words []string) ([]byte, error) {
	line, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		if err := b.start(program); err != nil {
			return nil, err
		}
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	said, err := b.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%s %q ended: %w", program, b.Args, err)
	}
	return said, nil
}

func (b *Batch) start(program string) (err error) {
	cmd := exec.Command(program, b.Args...)
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

// End ends the process.
func (b *Batch) End() error {
	if b.cmd == nil {
		return nil
	}
	return errors.Join(b.in.Close(), b.cmd.Wait())
}
