package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// measureVerb makes this program run a command and report what that took. It does so in a process
// of its own, which must be small: the system counts the memory of the process that starts a
// command as memory of the command.
const measureVerb = "measure-one"

// figures are the time and memory that a command took.
type figures struct {
	wall, cpu time.Duration
	rss       int64 // peak, in bytes
}

// best returns the shortest times and the largest memory; f may be nil.
func (f *figures) best(g figures) *figures {
	if f != nil {
		g = figures{min(f.wall, g.wall), min(f.cpu, g.cpu), max(f.rss, g.rss)}
	}
	return &g
}

// taken is figures as passed from one process to the other.
type taken struct {
	Wall, CPU time.Duration
	RSS       int64
}

// measureOne runs a command and writes what it took to file descriptor 3.
func measureOne(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := gentle(ctx, args)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	t := taken{wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peakRSS(cmd.ProcessState)}
	if err := json.NewEncoder(os.NewFile(3, "figures")).Encode(t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// gentle returns a command that is interrupted, not killed, when ctx is cancelled, so that it can
// clean up.
func gentle(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// measure runs a command, with its output going to printed if that is not nil.
func (s *suite) measure(args []string, printed *counter) (figures, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return figures{}, err
	}
	defer r.Close()
	var said bytes.Buffer
	cmd := gentle(s.ctx, append([]string{s.self, measureVerb}, args...))
	cmd.Stderr = &said
	if printed != nil {
		cmd.Stdout = printed
	}
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return figures{}, err
	}
	var t taken
	decodeErr := json.NewDecoder(r).Decode(&t)
	if err := cmd.Wait(); err != nil {
		return figures{}, failed(args, err, said.Bytes())
	}
	if decodeErr != nil {
		return figures{}, fmt.Errorf("figures of %s: %w", args[0], decodeErr)
	}
	return figures{t.Wall, t.CPU, t.RSS}, nil
}

func failed(args []string, err error, said []byte) error {
	const most = 2000
	if len(said) > most {
		said = said[len(said)-most:]
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said))
}

// command is one or more programs run one after the other; none is no command.
type command [][]string

// show formats c for the table, without the common folders of its paths.
func (s *suite) show(c command) string {
	var steps []string
	for _, args := range c {
		text := strings.Join(append([]string{filepath.Base(args[0])}, args[1:]...), " ")
		for _, dir := range []string{s.out, s.dir} {
			text = strings.ReplaceAll(text, dir+string(filepath.Separator), "")
		}
		steps = append(steps, text)
	}
	return strings.Join(steps, " && ")
}

func (s *suite) measureAll(c command, printed *counter) (sum figures, err error) {
	for _, args := range c {
		f, err := s.measure(args, printed)
		if err != nil {
			return sum, err
		}
		sum.wall, sum.cpu, sum.rss = sum.wall+f.wall, sum.cpu+f.cpu, max(sum.rss, f.rss)
	}
	return sum, nil
}

// contest is a peer's command and ours for the same work.
type contest struct {
	peer, ours command
	skipped    string   // why there is no peer
	inputs     []string // read by both
	outputs    []string // written by both
	cold       bool     // inputs and programs are not in the cache
	goals      []goal
	// check checks the output of our command.
	check func(printed counter) error
}

// hold runs the commands in turn. Only the output of the first run is checked. That run is not
// counted, unless it is the only one.
func (s *suite) hold(c contest) (r row, err error) {
	r.peer, r.ours = s.show(c.peer), s.show(c.ours)
	if c.skipped != "" {
		r.skipped = append(r.skipped, c.skipped)
	}
	defer func() { err = errors.Join(err, removeAll(c.outputs)) }()
	sides := []struct {
		c     command
		took  **figures
		check func(counter) error
	}{{c.peer, &r.peerTook, nil}, {c.ours, &r.oursTook, c.check}}
	for i := range s.n + 1 {
		first := i == 0
		for _, side := range sides {
			if len(side.c) == 0 {
				continue
			}
			if err := s.ready(c, side.c); err != nil {
				return r, err
			}
			var printed *counter
			if first {
				printed = new(counter)
			}
			f, err := s.measureAll(side.c, printed)
			if err == nil && first && side.check != nil {
				err = side.check(*printed)
			}
			if err != nil {
				return r, err
			}
			if !first || s.quick {
				*side.took = (*side.took).best(f)
			}
		}
		if s.quick {
			break
		}
	}
	r.judge(c.goals, s.quick)
	return r, nil
}

// ready prepares a run: it removes the output of the last one, waits until everything is written,
// and brings the inputs into the cache, or evicts them.
func (s *suite) ready(c contest, side command) error {
	if err := removeAll(c.outputs); err != nil {
		return err
	}
	syncDisks()
	if !c.cold {
		for _, in := range c.inputs {
			if err := warm(in); err != nil {
				return err
			}
		}
		return nil
	}
	for _, args := range side {
		program, err := exec.LookPath(args[0])
		if err != nil {
			return err
		}
		for _, path := range append([]string{program}, c.inputs...) {
			if err := evict(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeAll(paths []string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.RemoveAll(p))
	}
	return errors.Join(errs...)
}

// warm reads everything at and below path.
func warm(path string) error {
	buf := make([]byte, 1<<20)
	return filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		// Without ReadFrom and WriteTo, which would bring their own buffers.
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
		return err
	})
}

// have reports whether the machine has a program.
func have(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
