package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A mountpoint is a folder where a program has mounted a file system.
type mountpoint struct {
	dir  string
	cmd  *exec.Cmd
	took time.Duration // until it was ready
}

// mount runs a program that mounts at the folder in its last argument, and then prints a line that
// names it.
func (s *suite) mount(args ...string) (*mountpoint, error) {
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", errSkipped, err)
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.out, "mnt-")
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(s.ctx, args[0], append(args[1:], dir)...)
	cmd.Stdout, cmd.Stderr = w, w
	start := time.Now()
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	go func() { // the program prints a line for each archive
		defer r.Close()
		io.Copy(io.Discard, lines)
	}()
	m := &mountpoint{dir: dir, cmd: cmd, took: time.Since(start)}
	if err != nil || !strings.Contains(line, "mounted") {
		return nil, errors.Join(fmt.Errorf("%s: %q", args[0], line), err, cmd.Process.Kill(), cmd.Wait())
	}
	return m, nil
}

func (m *mountpoint) stop() error {
	return errors.Join(syscall.Unmount(m.dir, 0), m.cmd.Wait(), os.Remove(m.dir))
}

// rss returns how much memory the program that mounted has, and the most that it had.
func (m *mountpoint) rss() (now, most int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		to := map[string]*int64{"VmRSS": &now, "VmHWM": &most}[name]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		*to = kib << 10
	}
	if now == 0 || most == 0 {
		return 0, 0, errors.New("the system does not say how much memory a process has")
	}
	return now, most, nil
}
